"""VS Code's protocol, with a scripted client: list, history, turns, permissions, edits."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

from segue.hub import Hub
from segue.interfaces.ahp.chat.state import ChatState
from segue.interfaces.ahp.protocol import (
    IDLE,
    IN_PROGRESS,
    INPUT_NEEDED,
    IS_ARCHIVED,
    ROOT,
    chat_uri,
    event_id_of,
    parse_channel,
    session_uri,
)
from segue.interfaces.ahp.subscriptions.session_list import FIRST_LISTED
from segue.model.content import Diff, Text
from segue.model.event import (
    AgentMessage,
    Delta,
    Event,
    StatusChanged,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.model.session import Session
from segue.store.memory import MemoryStore
from tests.interfaces.ahp.client import AhpClient, AhpServer, serve


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[tuple[Hub, AhpServer]]:
    """Serve a hub with an empty store."""
    async with Hub(MemoryStore(), directory) as hub, serve(hub) as server:
        yield hub, server


async def create(hub: Hub, title: str = "Fix the login", cwd: str = "/srv/app") -> Session:
    """Create a session with one finished turn that has a tool call."""
    session = await hub.editor.create(LOCAL, cwd=cwd, title=title)
    await hub.editor.append(
        LOCAL,
        session.id,
        UserMessage(content=(Text(text="Why does it fail?"),)),
        ToolCall(call_id="c1", name="read", kind="read", input={"file_path": "a.py"}),
        ToolResult(
            call_id="c1",
            content=(Text(text="x = 1"), Diff(path="/srv/app/a.py", old="x = 1\n", new="x = 2\n")),
        ),
        AgentMessage(content=(Text(text="Because of **x**."),)),
    )
    return await hub.sessions.get(LOCAL, session.id)


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[tuple[Hub, AhpClient, Session]]:
    """Yield a hub with one session, and a client that has sent `initialize`."""
    async with running(directory) as (hub, server):
        session = await create(hub)
        async with server.connect() as client:
            await client.initialize()
            yield hub, client, session


def event(body: Any, seq: int, at: int, id: str | None = None) -> Event:
    return Event(id=id or str(uuid.uuid4()), seq=seq, at=at, body=body)


async def state_of(client: AhpClient, channel: str) -> dict[str, Any]:
    """Subscribe to a channel and return its state."""
    answer = await client.request("subscribe", channel=channel)
    state: dict[str, Any] = answer["snapshot"]["state"]
    return state


def parts(turn: dict[str, Any]) -> list[str]:
    return [part["kind"] for part in turn["responseParts"]]


async def test_client_chooses_a_version_that_the_server_speaks(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server), server.connect() as client:
        result = await client.request(
            "initialize", protocolVersions=["9.0.0", "0.7.0", "0.9.0"], clientId="a"
        )
        assert result["protocolVersion"] == "0.7.0"
        assert (await client.raw_request("terminalCreate"))["error"]["code"] == -32601


async def test_wrong_token_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server):
        for token in ("", "sk-segue-wrong", "local~0198c2a4-77b1-7000-8000-000000000000.x"):
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with server.connect(token):
                    pass
            assert refused.value.response.status_code == 401


async def test_windows_of_the_desktop_application_may_connect(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, server):
        async with server.connect(origin="vscode-file://vscode-app") as client:
            assert (await client.raw_request("listSessions"))["error"]["code"] == -32600
            await client.initialize()
            assert await client.request("ping") is None
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with server.connect(origin="https://vscode-app"):
                pass
        assert refused.value.response.status_code == 403


async def test_list_has_a_row_for_each_session_and_pages(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        older = await create(hub, "Older")
        newer = await create(hub, "Newer", "/srv/other")
        async with server.connect() as client:
            result = await client.initialize()
            assert [agent["provider"] for agent in result["snapshots"][0]["state"]["agents"]] == [
                "segue"
            ]
            page = await client.request("listSessions")
            assert [row["title"] for row in page["items"]] == ["Newer", "Older"]
            row = page["items"][0]
            assert row["resource"] == session_uri(newer.id)
            assert row["workingDirectories"] == ["file:///srv/other"]
            assert row["status"] & IDLE and parse_channel(row["defaultChat"]).session_id == newer.id
            first = await client.request("listSessions", limit=1)
            rest = await client.request("listSessions", limit=1, cursor=first["nextCursor"])
            assert [row["resource"] for row in rest["items"]] == [session_uri(older.id)]
            wrong = await client.raw_request("listSessions", cursor="nonsense")
            assert wrong["error"]["code"] == -32602


async def test_rows_after_the_first_answer_are_sent_without_a_request(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        for number in range(FIRST_LISTED + 3):
            await hub.editor.create(LOCAL, cwd="/srv/app", title=f"Session {number}")
        async with server.connect() as client:
            await client.initialize()
            page = await client.request("listSessions")
            assert len(page["items"]) == FIRST_LISTED
            await client.wait_for(
                lambda message: (
                    message.get("method") == "root/sessionAdded"
                    and message["params"]["summary"]["title"] == "Session 0"
                )
            )


async def test_history_has_turns_with_parts_and_readable_edits(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        async with server.connect() as client:
            await client.initialize()
            state = (await client.request("subscribe", channel=session_uri(session.id)))["snapshot"]
            assert state["state"]["defaultChat"] == chat_uri(session.id)
            chat = await client.request("subscribe", channel=chat_uri(session.id))
            (turn,) = chat["snapshot"]["state"]["turns"]
            assert turn["message"]["text"] == "Why does it fail?" and turn["state"] == "complete"
            assert parts(turn) == ["toolCall", "markdown"]
            call = turn["responseParts"][0]["toolCall"]
            assert (call["status"], call["confirmed"], call["success"]) == (
                "completed",
                "not-needed",
                True,
            )
            text, edit = call["content"]
            assert text == {"type": "text", "text": "x = 1"}
            assert edit["diff"] == {"added": 1, "removed": 1}
            for side, expected in (("before", "x = 1\n"), ("after", "x = 2\n")):
                uri = edit[side]["content"]["uri"]
                assert (await client.request("resourceRead", uri=uri))["data"] == expected
            missing = await client.raw_request("resourceRead", uri=uri.replace("after", "else"))
            assert missing["error"]["code"] == -32008


async def test_prompt_is_echoed_streamed_and_completed(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client, session):
        chat = chat_uri(session.id)
        await client.request("listSessions")
        await client.request("subscribe", channel=chat)
        turn_id = await client.prompt(chat, "/say Hello there")
        started = await client.wait_for_action("chat/turnStarted", turnId=turn_id)
        assert started["origin"] == {"clientId": "client-1", "clientSeq": 1}
        ended = await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        assert ended["action"]["duration"] >= 0 and "origin" not in ended
        text = "".join(
            action.get("content", "") or action.get("part", {}).get("content", "")
            for action in client.actions(chat)
            if action["type"] in ("chat/delta", "chat/responsePart")
        )
        assert "Hello there" in text
        changed = await client.wait_for_notification("root/sessionSummaryChanged")
        assert changed["session"] == session_uri(session.id)
        numbers = [
            message["params"]["serverSeq"]
            for message in client.messages
            if message.get("method") == "action"
        ]
        assert numbers == sorted(set(numbers))
        again = await client.request("subscribe", channel=chat)
        assert [turn["id"] for turn in again["snapshot"]["state"]["turns"]][-1] == turn_id


async def test_two_messages_of_one_turn_are_kept_apart(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        await hub.turns.run(LOCAL, session.id, "/say One\n/say Two")
        async with server.connect() as client:
            await client.initialize()
            snapshot = await client.request("subscribe", channel=chat_uri(session.id))
            turn = snapshot["snapshot"]["state"]["turns"][-1]
            assert [part["content"] for part in turn["responseParts"]] == ["One", "\n\nTwo"]


def test_message_that_is_being_written_is_whole_in_every_snapshot() -> None:
    state = ChatState("s")
    state.apply(event(UserMessage(content=(Text(text="Hi"),)), 1, 1_000_000))
    contents = []
    actions = []
    for number, text in enumerate(("One ", "two ", "three")):
        delta = Delta(session="s", message="m", kind="message", offset=4 * number, text=text)
        actions += state.add_delta(delta)
        contents.append(state.fields()["activeTurn"]["responseParts"][0]["content"])
    assert contents == ["One ", "One two ", "One two three"]
    written = AgentMessage(content=(Text(text="One two three four"),))
    actions += state.apply(event(written, 2, 3_000_000, id="m"))
    assert [action.get("content") for action in actions] == [None, "One ", "two ", "three", " four"]
    # The end of this turn is not recorded: it ended with its last event.
    state.apply(event(UserMessage(content=(Text(text="Next"),)), 3, 900_000_000))
    (turn,) = state.fields()["turns"]
    assert turn["duration"] == 2_000
    assert turn["responseParts"][0]["content"] == "One two three four"


def test_failed_turn_has_its_message_for_clients_of_every_version() -> None:
    state = ChatState("s")
    state.apply(event(UserMessage(content=(Text(text="Hi"),)), 1, 0))
    ended = StatusChanged(status="idle", stop_reason="error", message="No network")
    (action,) = state.apply(event(ended, 2, 0))
    (turn,) = state.fields()["turns"]
    assert action["error"]["message"] == turn["error"]["message"] == "No network"
    assert action["part"] == turn["responseParts"][-1]
    assert action["part"] == {"kind": "error", "error": action["error"]}


@pytest.mark.parametrize("approved", [True, False])
async def test_permission_is_answered(tmp_path: Path, approved: bool) -> None:
    async with connected(tmp_path) as (_, client, session):
        chat = chat_uri(session.id)
        await client.request("listSessions")
        await client.request("subscribe", channel=chat)
        turn_id = await client.prompt(chat, "/ask May I?")
        ready = await client.wait_for_action("chat/toolCallReady")
        call_id = ready["action"]["toolCallId"]
        kinds = {option["kind"] for option in ready["action"]["options"]}
        assert kinds == {"approve", "deny"} and "confirmed" not in ready["action"]
        await client.wait_for(
            lambda message: (
                message.get("params", {}).get("changes", {}).get("status", 0) & INPUT_NEEDED
                == INPUT_NEEDED
            )
        )
        answer: dict[str, Any] = {
            "turnId": turn_id,
            "toolCallId": call_id,
            "approved": approved,
        }
        answer |= {"confirmed": "user-action"} if approved else {"reason": "denied"}
        seq = await client.dispatch(chat, "chat/toolCallConfirmed", **answer)
        echo = await client.wait_for_action("chat/toolCallConfirmed", approved=approved)
        assert echo["origin"]["clientSeq"] == seq
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        late = await client.dispatch(chat, "chat/toolCallConfirmed", **answer)
        rejected = await client.wait_for(
            lambda message: message.get("params", {}).get("origin", {}).get("clientSeq") == late
        )
        assert rejected["params"]["rejectionReason"] == "this request was answered already"


async def test_turn_is_cancelled(tmp_path: Path) -> None:
    async with connected(tmp_path) as (hub, client, session):
        chat = chat_uri(session.id)
        await client.request("subscribe", channel=chat)
        turn_id = await client.prompt(chat, "/wait 600")
        await client.wait_for_action("chat/turnStarted", turnId=turn_id)
        await client.dispatch(chat, "chat/turnCancelled", turnId=turn_id, duration=1)
        ended = await client.wait_for_action("chat/turnCancelled", turnId=turn_id)
        assert ended["origin"]["clientId"] == "client-1"
        assert (await hub.sessions.get(LOCAL, session.id)).status == "idle"


async def test_session_is_created_with_its_first_message(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session_id = str(uuid.uuid4())
        uri, chat = session_uri(session_id), chat_uri(session_id)
        async with server.connect() as client:
            await client.initialize()
            config = await client.request("resolveSessionConfig", config={"mode": "plan"})
            assert config["values"] == {"mode": "plan"}
            created = {"workingDirectories": [f"file://{tmp_path}"], "config": config["values"]}
            await client.request("createSession", channel=uri, provider="segue", **created)
            draft = await client.request("subscribe", channel=chat)
            assert draft["snapshot"]["state"]["turns"] == []
            assert (await client.request("listSessions"))["items"] == []
            unused = session_uri(str(uuid.uuid4()))
            await client.request("createSession", channel=unused)
            await client.request("disposeSession", channel=unused)
            turn_id = await client.prompt(chat, "/say Hi")
            await client.wait_for_action("chat/turnComplete", turnId=turn_id)
            added = await client.wait_for_notification("root/sessionAdded")
            assert added["summary"]["resource"] == uri
            session = await hub.sessions.get(LOCAL, session_id)
            assert (session.cwd, session.mode, session.origin) == (str(tmp_path), "plan", "ahp")
            again = await client.raw_request("createSession", channel=uri)
            assert again["error"]["code"] == -32003
            other = await client.raw_request("createSession", channel=unused, provider="copilot")
            assert other["error"]["code"] == -32002


async def test_rename_archive_fork_and_delete(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        uri, chat = session_uri(session.id), chat_uri(session.id)
        async with server.connect() as client:
            await client.initialize()
            await client.request("listSessions")
            snapshot = await client.request("subscribe", channel=chat)
            await client.dispatch(chat, "session/titleChanged", title="A new name")
            await client.wait_for_action("session/titleChanged")
            await client.dispatch(uri, "session/isArchivedChanged", isArchived=True)
            await client.wait_for_action("session/isArchivedChanged")
            stored = await hub.sessions.get(LOCAL, session.id)
            assert (stored.title, stored.state) == ("A new name", "archived")
            (row,) = (await client.request("listSessions"))["items"]
            assert row["status"] & IS_ARCHIVED
            turn_id = snapshot["snapshot"]["state"]["turns"][0]["id"]
            source = {"kind": "fork", "chat": chat, "turnId": turn_id}
            await client.request("createChat", channel=uri, chat="ahp-chat:/new", source=source)
            added = await client.wait_for_notification("root/sessionAdded")
            fork = await hub.sessions.get(
                LOCAL, parse_channel(added["summary"]["resource"]).session_id
            )
            assert fork.fork is not None and fork.fork.session == session.id
            await client.request("disposeSession", channel=uri)
            removed = await client.wait_for_notification("root/sessionRemoved")
            assert removed["session"] == uri
            assert (await hub.sessions.get(LOCAL, session.id)).state == "trashed"


async def test_fork_is_a_chat_of_its_session_and_a_session_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        await hub.turns.run(LOCAL, session.id, "/say second")
        uri, chat, fork_id = session_uri(session.id), chat_uri(session.id), str(uuid.uuid4())
        fork_chat = chat_uri(session.id, fork_id)  # as VS Code names it
        async with server.connect() as client:
            await client.initialize()
            snapshot = await client.request("subscribe", channel=chat)
            first = snapshot["snapshot"]["state"]["turns"][0]["id"]
            source = {"kind": "fork", "chat": chat, "turnId": first}
            await client.request("createChat", channel=uri, chat=fork_chat, source=source)
            added = (await client.wait_for_action("session/chatAdded"))["action"]["summary"]
            assert added["resource"] == fork_chat and added["origin"] == source
            state = (await client.request("subscribe", channel=fork_chat))["snapshot"]["state"]
            assert state["resource"] == fork_chat and len(state["turns"]) == 1
            turn_id = await client.prompt(fork_chat, "/say In the fork")
            ended = await client.wait_for_action("chat/turnComplete", turnId=turn_id)
            assert ended["channel"] == fork_chat
            await client.dispatch(fork_chat, "session/titleChanged", title="The fork")
            updated = await client.wait_for_action("session/chatUpdated")
            assert updated["channel"] == uri and updated["action"]["chat"] == fork_chat
            assert (await hub.sessions.get(LOCAL, fork_id)).title == "The fork"
        async with server.connect() as client:
            result = await client.request(
                "reconnect",
                clientId="client-1",
                lastSeenServerSeq=0,
                subscriptions=[uri, fork_chat],
            )
            states = {each["resource"]: each["state"] for each in result["snapshots"]}
            assert fork_chat in [entry["resource"] for entry in states[uri]["chats"]]
            assert len(states[fork_chat]["turns"]) == 2
            await client.request("disposeChat", channel=fork_chat)
            await client.wait_for_action("session/chatRemoved", chat=fork_chat)
            assert (await hub.sessions.get(LOCAL, fork_id)).state == "trashed"
            refused = await client.raw_request("disposeChat", channel=chat)
            assert refused["error"]["code"] == -32602


async def test_turn_of_another_program_is_shown_live(tmp_path: Path) -> None:
    async with connected(tmp_path) as (hub, client, session):
        chat = chat_uri(session.id)
        await client.request("listSessions")
        await client.request("subscribe", channel=chat)
        turn_id = await hub.turns.submit(LOCAL, session.id, "/say From a terminal")
        started = await client.wait_for_action("chat/turnStarted", turnId=turn_id)
        assert started["action"]["message"]["text"] == "/say From a terminal"
        assert "origin" not in started
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        await client.wait_for(
            lambda message: (
                message.get("params", {}).get("changes", {}).get("status", 0) & IN_PROGRESS > 0
            )
        )
        await hub.editor.set_title(LOCAL, session.id, "Renamed elsewhere")
        await client.wait_for_action("session/titleChanged", title="Renamed elsewhere")
        other = await hub.editor.create(LOCAL, cwd="/srv/app")
        await hub.turns.run(LOCAL, other.id, "/say New")
        added = await client.wait_for(
            lambda message: (
                message.get("method") == "root/sessionAdded"
                and message["params"]["summary"]["resource"] == session_uri(other.id)
            )
        )
        assert added["params"]["channel"] == ROOT


async def test_messages_are_queued_and_withdrawn(tmp_path: Path) -> None:
    async with connected(tmp_path) as (hub, client, session):
        chat = chat_uri(session.id)
        await client.request("subscribe", channel=chat)
        first = await client.prompt(chat, "/wait 600")
        await client.wait_for_action("chat/turnStarted", turnId=first)
        kept, withdrawn = f"request_{uuid.uuid4()}", str(uuid.uuid4())
        for id, kind in ((kept, "steering"), (withdrawn, "queued")):
            message = {"text": "/say next", "origin": {"kind": "user"}}
            await client.dispatch(chat, "chat/pendingMessageSet", kind=kind, id=id, message=message)
            await client.wait_for_action("chat/pendingMessageSet", id=id)
        await client.dispatch(chat, "chat/pendingMessageRemoved", kind="queued", id=withdrawn)
        await client.wait_for_action("chat/pendingMessageRemoved", id=withdrawn)
        assert list(await hub.turns.queued(LOCAL, session.id)) == [event_id_of(kept)]
        await client.dispatch(chat, "chat/turnCancelled", turnId=first, duration=0)
        await client.wait_for_action("chat/pendingMessageRemoved", id=kept, kind="steering")
        await client.wait_for_action("chat/turnComplete", turnId=kept)


async def test_client_that_reconnects_gets_what_it_missed(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        chat = chat_uri(session.id)
        async with server.connect() as client:
            seen = (await client.initialize())["serverSeq"]
            await client.request("listSessions")
        await hub.turns.run(LOCAL, session.id, "/say While you were away")
        deleted = await create(hub, "Deleted")
        await hub.editor.trash(LOCAL, deleted.id)
        async with server.connect() as client:
            result = await client.request(
                "reconnect", clientId="client-1", lastSeenServerSeq=seen, subscriptions=[ROOT, chat]
            )
            # VS Code draws a turn that it did not see before only if it sees how the turn begins.
            states = {each["resource"]: each["state"] for each in result["snapshots"]}
            assert len(states[chat]["turns"]) == 1 and "activeTurn" not in states[chat]
            missed = (await client.wait_for_action("chat/turnStarted"))["action"]
            assert missed["message"]["text"] == "/say While you were away"
            await client.wait_for_action("chat/turnComplete", turnId=missed["turnId"])
            assert len((await state_of(client, chat))["turns"]) == 2
            assert all(each["fromSeq"] >= seen for each in result["snapshots"])
            added = await client.wait_for_notification("root/sessionAdded")
            assert added["summary"]["resource"] == session_uri(session.id)
            removed = await client.wait_for_notification("root/sessionRemoved")
            assert removed["session"] == session_uri(deleted.id)
            gone = await client.raw_request("subscribe", channel=session_uri(deleted.id))
            assert gone["error"]["code"] == -32001


async def test_unsupported_actions_and_wrong_fields_are_rejected(tmp_path: Path) -> None:
    async with connected(tmp_path) as (_, client, session):
        chat = chat_uri(session.id)
        await client.request("subscribe", channel=chat)
        rejected = {
            "chat/truncated": {"turnId": "x"},
            "chat/turnStarted": {"turnId": "a", "message": {"text": " "}},
            "chat/pendingMessageSet": {"kind": "queued", "id": "b", "message": []},
            "session/titleChanged": {},
            "session/configChanged": {"config": {"isolation": "worktree"}},
            "session/workingDirectorySet": {"directory": "file:///srv/other"},
            "session/customizationToggled": {"id": "x", "enablement": []},
            "chat/queuedMessagesReordered": {"order": []},
            "chat/toolCallComplete": {"turnId": "x", "toolCallId": "x", "result": {}},
            "chat/toolCallResultConfirmed": {"toolCallId": "x", "approved": True},
            "chat/inputCompleted": {"requestId": "x", "response": "accept"},
            "chat/inputAnswerChanged": {"requestId": "x", "questionId": "y"},
        }
        for type, fields in rejected.items():
            await client.dispatch(chat, type, **fields)
            envelope = await client.wait_for_action(type)
            assert envelope["rejectionReason"]
        for method in ("createTerminal", "resourceWrite", "authenticate", "invokeChangeset"):
            answer = await client.raw_request(method)
            assert answer["error"] == {
                "code": -32601,
                "message": f"segue does not support {method}",
            }
        await client.dispatch(chat, "chat/unknown", seq="x")
        turn_id = await client.prompt(chat, "/say once")
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        message = {"text": "/say once"}
        await client.dispatch(chat, "chat/turnStarted", turnId=turn_id, message=message)
        await client.wait_for(
            lambda message: (
                "sent already" in message["params"].get("rejectionReason", "")
                if "params" in message
                else False
            )
        )
        unknown = await client.raw_request("subscribe", channel=session_uri(str(uuid.uuid4())))
        assert unknown["error"]["code"] == -32001


async def test_key_sees_only_its_workspace(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        await create(hub)
        _, key = await hub.keys.create("other")
        async with server.connect(key) as client:
            await client.initialize()
            assert (await client.request("listSessions"))["items"] == []


async def test_older_turns_are_loaded_on_request(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server):
        session = await create(hub)
        for number in range(3):
            await hub.turns.run(LOCAL, session.id, f"/say {number}")
        chat = chat_uri(session.id)
        async with server.connect() as client:
            await client.initialize()
            answer = await client.request("subscribe", channel=chat, view={"turns": 1})
            state = answer["snapshot"]["state"]
            assert len(state["turns"]) == 1
            await client.request("fetchTurns", channel=chat, cursor=state["turnsNextCursor"])
            loaded = await client.wait_for_action("chat/turnsLoaded")
            assert len(loaded["action"]["turns"]) == 3
            assert "turnsNextCursor" not in loaded["action"]
