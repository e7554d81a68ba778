"""Models and settings of a session's agent, and messages and subagents of other clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from segue.agents.base import Tools, Turn
from segue.agents.base.abilities import OfferedOptions
from segue.interfaces.ahp.protocol import chat_uri, session_uri
from segue.interfaces.ahp.subscriptions import followed_chat, session_list
from segue.model.content import Text
from segue.model.event import (
    AgentMessage,
    ConfigChanged,
    ThreadChanged,
    ThreadMessage,
    ThreadStarted,
    ToolCall,
)
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.model.session import Session
from tests.interfaces.ahp.client import AhpClient
from tests.interfaces.ahp.test_ahp import create, running

OFFERED = {
    "options": [
        {
            "id": "approval",
            "name": "Approval",
            "category": "mode",
            "value": "ask",
            "choices": [{"value": "ask", "name": "Ask"}, {"value": "auto", "name": "Auto"}],
        },
        {
            "id": "model",
            "name": "Model",
            "category": "model",
            "value": "small",
            "choices": [{"value": "small", "name": "Small"}, {"value": "big", "name": "Big"}],
        },
        {"id": "tests", "name": "Run tests", "category": None, "value": True, "choices": []},
    ]
}


class WithOptions:
    """Has options of its own."""

    async def run(self, turn: Turn) -> StopReason:
        return "end_turn"

    async def set_option(
        self,
        session: Session,
        tools: Tools | None,
        option: str,
        value: str | bool,
        meta: Any = None,
    ) -> OfferedOptions:
        options = [
            {**offered, "value": value} if offered["id"] == option else offered
            for offered in session.options["offered"]["options"]
        ]
        return OfferedOptions(offered={"options": options})


class Named:
    """Answers with the model that its specification has."""

    def __init__(self, spec: Any) -> None:
        self._model = spec.get("model") or spec.get("config", {}).get("model")

    async def run(self, turn: Turn) -> StopReason:
        await turn.emit(AgentMessage(content=(Text(text=f"I am {self._model}"),)))
        return "end_turn"


async def follow(client: AhpClient, session: Session) -> dict[str, Any]:
    """Subscribe to a session and its chat, and return the session's state."""
    answer = await client.request("subscribe", channel=session_uri(session.id))
    await client.request("subscribe", channel=chat_uri(session.id))
    state: dict[str, Any] = answer["snapshot"]["state"]
    return state


async def test_options_of_the_agent_are_settings_of_its_session(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        hub.agent_registry.register("default", lambda _: WithOptions())
        session = await create(hub)
        change = ConfigChanged(options={"offered": OFFERED})
        await hub.editor.configure(LOCAL, session.id, change)
        await client.initialize()
        uri, chat = session_uri(session.id), chat_uri(session.id)
        config = (await follow(client, session))["config"]
        assert config["values"] == {"approval": "ask", "model": "small", "tests": True}
        properties = config["schema"]["properties"]
        assert properties["model"]["enumLabels"] == ["Small", "Big"]
        assert properties["tests"]["type"] == "boolean"

        await client.dispatch(uri, "session/configChanged", config={"model": "big"})
        changed = await client.wait_for_action("session/configChanged")
        assert "rejectionReason" not in changed and changed["origin"]["clientSeq"] == 1
        for wrong in ({"model": "huge"}, {"tests": "yes"}, {"tests": 1}, {"mode": "plan"}):
            await client.dispatch(uri, "session/configChanged", config=wrong)
            refused = await client.wait_for_action("session/configChanged", config=wrong)
            assert refused["rejectionReason"]

        message = {"text": "Hi", "origin": {"kind": "user"}, "model": {"id": "small"}}
        await client.dispatch(chat, "chat/turnStarted", turnId="t", message=message)
        await client.wait_for_action("chat/turnComplete", turnId="t")
        stored = await hub.sessions.get(LOCAL, session.id)
        assert [option["value"] for option in stored.options["offered"]["options"]] == [
            "ask",
            "small",
            True,
        ]
        elsewhere = {"options": [{**option, "value": "auto"} for option in OFFERED["options"][:1]]}
        change = ConfigChanged(options={"offered": elsewhere})
        await hub.editor.configure(LOCAL, session.id, change)
        sent = await client.wait_for_action("session/configChanged", config={"approval": "auto"})
        assert "origin" not in sent


async def test_chosen_model_answers_its_message(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        hub.agent_registry.register("default", Named)
        await hub.config.set(LOCAL.workspace, "model", "test:usual")
        built_in = await hub.records.built_in_agent(LOCAL.workspace)
        other = replace(built_in, overrides={"model": "test:other"})
        await hub.editor.create(LOCAL, cwd="/srv/app", agent=other)
        session = await create(hub)
        chat = chat_uri(session.id)
        async with server.connect() as client:
            root = (await client.initialize())["snapshots"][0]["state"]
            models = [model["id"] for model in root["agents"][0]["models"]]
            assert models == ["test:usual", "test:other"]
            await follow(client, session)
            for turn_id, model in enumerate(models):
                message = {"text": "Who?", "origin": {"kind": "user"}, "model": {"id": model}}
                await client.dispatch(
                    chat, "chat/turnStarted", turnId=str(turn_id), message=message
                )
                await client.wait_for_action("chat/turnComplete", turnId=str(turn_id))
            turns = (await client.request("subscribe", channel=chat))["snapshot"]["state"]["turns"]
            texts = [turn["responseParts"][-1]["content"] for turn in turns[-2:]]
            assert texts == ["I am test:usual", "I am test:other"]
            message = {"text": "Who?", "model": {"id": "test:missing"}}
            await client.dispatch(chat, "chat/turnStarted", turnId="x", message=message)
            refused = await client.wait_for_action("chat/turnStarted", turnId="x")
            assert "choose one of: test:usual, test:other" in refused["rejectionReason"]


async def test_new_connection_has_the_queued_messages(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(followed_chat, "STATUS_CHECK_SECONDS", 0.05)
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        chat = chat_uri(session.id)
        first = await hub.turns.submit(LOCAL, session.id, "/wait 600")
        await hub.turns.wait_started(LOCAL, session.id, first)
        queued = await hub.turns.submit(LOCAL, session.id, "/say next")
        async with server.connect() as client:
            await client.initialize()
            state = (await client.request("subscribe", channel=chat))["snapshot"]["state"]
            (waiting,) = state["queuedMessages"]
            assert (waiting["id"], waiting["message"]["text"]) == (queued, "/say next")
            later = await hub.turns.submit(LOCAL, session.id, "/say later")
            added = await client.wait_for_action("chat/pendingMessageSet", id=later)
            assert added["action"]["message"]["text"] == "/say later"
            await hub.turns.withdraw(LOCAL, session.id, later)
            await client.wait_for_action("chat/pendingMessageRemoved", id=later)
            await client.dispatch(chat, "chat/pendingMessageRemoved", kind="queued", id=queued)
            await client.wait_for_action("chat/pendingMessageRemoved", id=queued)
            assert list(await hub.turns.queued(LOCAL, session.id)) == []
            await hub.turns.cancel(LOCAL, session.id)


class Delegating:
    """Starts a subagent that writes when `may_finish` is set."""

    def __init__(self) -> None:
        self.may_finish = asyncio.Event()

    async def run(self, turn: Turn) -> StopReason:
        await turn.emit(
            ToolCall(call_id="d1", name="delegate", input={"agent": "tester"}),
            ThreadStarted(id="th1", name="tester", call_id="d1", title="Run the tests"),
            ThreadMessage(thread="th1", content=(Text(text="Test it"),), call_id="d1"),
            ThreadChanged(thread="th1", status="running", call_id="d1"),
        )
        await self.may_finish.wait()
        await turn.emit(
            AgentMessage(thread="th1", content=(Text(text="All green"),)),
            ThreadChanged(thread="th1", status="idle"),
        )
        return "end_turn"


async def test_chat_of_a_subagent_is_live(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        agent = Delegating()
        hub.agent_registry.register("default", lambda _: agent)
        session = await create(hub)
        await client.initialize()
        await follow(client, session)
        turn_id = await client.prompt(chat_uri(session.id), "Go")
        added = (await client.wait_for_action("session/chatAdded"))["action"]["summary"]
        thread = chat_uri(session.id, "th1")
        assert (added["resource"], added["title"]) == (thread, "Run the tests")
        assert added["interactivity"] == "read-only" and added["origin"]["toolCallId"] == "d1"
        content = (await client.wait_for_action("chat/toolCallContentChanged"))["action"]["content"]
        assert content[0]["type"] == "subagent" and content[0]["resource"] == thread
        state = (await client.request("subscribe", channel=thread))["snapshot"]["state"]
        assert state["activeTurn"]["message"]["text"] == "Test it"
        agent.may_finish.set()
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        await client.wait_for_action("chat/turnComplete", turnId=state["activeTurn"]["id"])
        texts = [
            action["part"]["content"]
            for action in client.actions(thread)
            if action["type"] == "chat/responsePart"
        ]
        assert texts == ["All green"]
        again = (await client.request("subscribe", channel=thread))["snapshot"]["state"]
        assert "activeTurn" not in again and len(again["turns"]) == 1
        await client.dispatch(thread, "chat/turnStarted", turnId="x", message={"text": "Hi"})
        refused = await client.wait_for_action("chat/turnStarted", turnId="x")
        assert refused["rejectionReason"] == "the chat of a subagent can only be read"


async def test_sessions_of_a_folder_are_not_crowded_out(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(session_list, "FIRST_LISTED", 2)
    monkeypatch.setattr(session_list, "MAX_LISTED", 4)
    monkeypatch.setattr(session_list, "MAX_OF_DIRECTORY", 3)
    monkeypatch.setattr(session_list, "DIRECTORIES_SECONDS", 0.0)
    async with running(tmp_path) as (hub, server):
        for number in range(4):
            await hub.editor.create(LOCAL, cwd="/srv/quiet", title=f"Quiet {number}")
        for number in range(9):
            await hub.editor.create(LOCAL, cwd="/srv/busy", title=f"Busy {number}")
        async with server.connect() as client:
            await client.initialize()
            await client.request("listSessions")

            def added(title: str) -> Any:
                return lambda message: (
                    message.get("params", {}).get("summary", {}).get("title") == title
                )

            for title in ("Busy 5", "Quiet 3", "Quiet 1"):
                await client.wait_for(added(title))
            titles = [
                message["params"]["summary"]["title"]
                for message in client.messages
                if message.get("method") == "root/sessionAdded"
            ]
            assert "Busy 0" not in titles and "Quiet 0" not in titles
            await client.request(
                "resolveSessionConfig", workingDirectory="file:///srv/quiet", provider="segue"
            )
            await client.wait_for(added("Quiet 0"))
