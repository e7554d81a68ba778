"""Questions of agents in VS Code's protocol: forms, tools that ask, and tools of the client."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from segue.agents.base import Turn
from segue.agents.base.client import FORM
from segue.interfaces.ahp.chat.questions import Question, form
from segue.interfaces.ahp.protocol import chat_uri
from segue.interfaces.ahp.subscriptions.forms import AgentForms, Forms
from segue.model.content import Text, plain_text
from segue.model.event import AgentMessage, ToolResult
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.model.session import Session
from tests.interfaces.ahp.client import AhpClient
from tests.interfaces.ahp.test_ahp import create, running

PROGRAM = Path(__file__).parents[2] / "agents" / "acp" / "programs" / "asking.py"
QUESTIONS = {
    "questions": [
        {
            "question": "Which channel?",
            "header": "Channel",
            "options": [{"label": "Stable", "description": "Slow"}, {"label": "Beta"}],
            "multiSelect": False,
        },
        {
            "question": "Which systems?",
            "header": "Systems",
            "options": [{"label": "Linux"}, {"label": "macOS"}],
            "multiSelect": True,
        },
    ]
}
ANSWERS = {
    "1": {"state": "submitted", "value": {"kind": "selected", "value": "Beta"}},
    "2": {
        "state": "submitted",
        "value": {"kind": "selected-many", "value": ["Linux"], "freeformValues": ["BSD"]},
    },
}
TEXTS = {"Which channel?": "Beta", "Which systems?": "Linux, BSD"}


class Asker:
    """Asks what its prompt names, and repeats the answer."""

    async def run(self, turn: Turn) -> StopReason:
        if turn.text == "form":
            schema = {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 18}}
            said: Any = await turn.client.ask("Who are you?", schema)
        else:
            call = await turn.start_tool("AskUserQuestion", input=QUESTIONS)
            answer = await turn.request_permission("Questions", call_id=call)
            said = (answer.input or {}).get("answers") if answer.allowed else "refused"
            result = ToolResult(call_id=call, content=(Text(text=json.dumps(said)),))
            await turn.emit(result)
        await turn.emit(AgentMessage(content=(Text(text=json.dumps(said)),)))
        return "end_turn"


async def opened(client: AhpClient, session: Session) -> dict[str, Any]:
    await client.initialize()
    state = await client.request("subscribe", channel=chat_uri(session.id))
    snapshot: dict[str, Any] = state["snapshot"]["state"]
    return snapshot


def said(snapshot: dict[str, Any]) -> Any:
    """Return the answer that the agent repeats."""
    return json.loads(snapshot["turns"][-1]["responseParts"][-1]["content"])


async def test_questions_of_a_tool_are_answered_instead_of_its_permission(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        hub.agent_registry.register("default", lambda _: Asker())
        session = await create(hub)
        chat = chat_uri(session.id)
        await opened(client, session)
        turn_id = await client.prompt(chat, "question")
        request = (await client.wait_for_action("chat/inputRequested"))["action"]["request"]
        assert [question["kind"] for question in request["questions"]] == [
            "single-select",
            "multi-select",
        ]
        assert request["questions"][0]["options"][0] == {
            "id": "Stable",
            "label": "Stable",
            "description": "Slow",
        }
        draft = {"requestId": request["id"], "questionId": "1", "answer": ANSWERS["1"]}
        await client.dispatch(chat, "chat/inputAnswerChanged", **draft)
        await client.wait_for_action("chat/inputAnswerChanged")
        answer = {"requestId": request["id"], "response": "accept"}
        await client.dispatch(chat, "chat/inputCompleted", **answer)
        refused = await client.wait_for_action("chat/inputCompleted")
        assert "'Which systems?' has no answer" in refused["rejectionReason"]
        client.messages.clear()
        rest = {"2": ANSWERS["2"]}
        seq = await client.dispatch(chat, "chat/inputCompleted", **answer, answers=rest)
        completed = await client.wait_for_action("chat/inputCompleted")
        assert completed["origin"]["clientSeq"] == seq and "rejectionReason" not in completed
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        snapshot = await opened(client, session)
        assert said(snapshot) == TEXTS
        (shown,) = (
            part
            for part in snapshot["turns"][-1]["responseParts"]
            if part["kind"] == "inputRequest"
        )
        assert (shown["response"], set(shown["request"]["answers"])) == ("accept", {"1", "2"})


async def test_question_that_is_declined_elsewhere_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        hub.agent_registry.register("default", lambda _: Asker())
        session = await create(hub)
        await opened(client, session)
        turn_id = await hub.turns.submit(LOCAL, session.id, "question")
        requested = await client.wait_for_action("chat/inputRequested")
        request_id = requested["action"]["request"]["id"]
        await hub.turns.answer(LOCAL, session.id, request_id, "reject")
        completed = await client.wait_for_action("chat/inputCompleted", requestId=request_id)
        assert completed["action"]["response"] == "decline" and "origin" not in completed
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)


async def test_form_of_an_agent_is_shown_in_every_window(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as first:
        hub.agent_registry.register("default", lambda _: Asker())
        session = await create(hub)
        chat = chat_uri(session.id)
        await opened(first, session)
        turn_id = await first.prompt(chat, "form")
        request = (await first.wait_for_action("chat/inputRequested"))["action"]["request"]
        assert request["message"] == "Who are you?"
        assert request["questions"][1]["kind"] == "integer" and request["questions"][1]["min"] == 18
        async with server.connect() as second:
            snapshot = await opened(second, session)
            (part,) = snapshot["activeTurn"]["responseParts"]
            assert part["request"]["id"] == request["id"] and "response" not in part
            answers = {
                "name": {"state": "submitted", "value": {"kind": "text", "value": "Ada"}},
                "age": {"state": "submitted", "value": {"kind": "number", "value": 36}},
            }
            answer = {"requestId": request["id"], "response": "accept", "answers": answers}
            await second.dispatch(chat, "chat/inputCompleted", **answer)
            own = await second.wait_for_action("chat/inputCompleted")
            assert own["origin"]["clientSeq"] == 1
        other = await first.wait_for_action("chat/inputCompleted")
        assert "origin" not in other and other["action"]["answers"]["name"] == answers["name"]
        await first.wait_for_action("chat/turnComplete", turnId=turn_id)
        assert said(await opened(first, session)) == {"name": "Ada", "age": 36}


async def test_form_of_an_external_agent_is_answered(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, str(PROGRAM)])
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = {"mode": "form", "message": "Who are you?", "requestedSchema": schema}
    prompt = json.dumps([["elicitation/create", form]])
    async with running(tmp_path) as (hub, server), server.connect() as client:
        built_in = await hub.records.built_in_agent(LOCAL.workspace)
        agent = replace(built_in, overrides={"kind": "acp", "command": command})
        session = await hub.editor.create(LOCAL, cwd=str(tmp_path), agent=agent)
        chat = chat_uri(session.id)
        await opened(client, session)
        turn_id = await client.prompt(chat, prompt)
        request = (await client.wait_for_action("chat/inputRequested"))["action"]["request"]
        assert request["message"] == "Who are you?"
        answers = {"name": {"state": "submitted", "value": {"kind": "text", "value": "Ada"}}}
        answer = {"requestId": request["id"], "response": "accept", "answers": answers}
        await client.dispatch(chat, "chat/inputCompleted", **answer)
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        assert said(await opened(client, session)) == [
            {"action": "accept", "content": {"name": "Ada"}}
        ]
        await client.unsubscribe(chat)  # then a form is cancelled
        await hub.turns.run(LOCAL, session.id, prompt)
        messages = await hub.history.events(LOCAL, session.id, types=("agent_message",))
        body = messages[-1].body
        assert isinstance(body, AgentMessage)
        assert json.loads(plain_text(body.content)) == [{"action": "cancel"}]


class FormViewer:
    """A client that notes the forms that it is shown."""

    def __init__(self, *, local: bool) -> None:
        self.local = local
        self.shown: list[Question] = []

    async def show(self, question: Question) -> None:
        self.shown.append(question)

    async def hide(self, question: Question, response: str, answers: dict[str, Any]) -> None:
        self.shown.remove(question)


async def test_form_of_an_external_agent_is_shown_to_the_local_user_alone() -> None:
    forms = Forms()
    agent = AgentForms(forms)
    user, owner_of_key = FormViewer(local=True), FormViewer(local=False)
    with forms.viewed_by(("other", "s"), owner_of_key), forms.viewed_by(("w", "s"), owner_of_key):
        assert await agent.request("s", FORM, {"message": "?"}) == {"action": "cancel"}
        with forms.viewed_by(("w", "s"), user):
            asking = asyncio.ensure_future(agent.request("s", FORM, {"message": "?"}))
            while not user.shown:
                await asyncio.sleep(0)
            (question,) = forms.of(("w", "s"), local=True)
            assert forms.of(("w", "s"), local=False) == owner_of_key.shown == []
            assert not forms.complete(("w", "s"), question.id, "accept", {}, local=False)
            assert forms.complete(("w", "s"), question.id, "accept", {}, local=True)
            assert (await asking)["action"] == "accept" and user.shown == []


async def test_form_ends_with_its_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        hub.agent_registry.register("default", lambda _: Asker())
        session = await create(hub)
        chat = chat_uri(session.id)
        await opened(client, session)
        turn_id = await client.prompt(chat, "form")
        request = (await client.wait_for_action("chat/inputRequested"))["action"]["request"]
        await client.dispatch(chat, "chat/turnCancelled", turnId=turn_id, duration=0)
        await client.wait_for_action("chat/turnCancelled", turnId=turn_id)
        await client.dispatch(
            chat, "chat/inputCompleted", requestId=request["id"], response="decline"
        )
        late = await client.wait_for_action("chat/inputCompleted", response="decline")
        assert late["rejectionReason"] == "this question was answered already"


async def test_result_of_a_tool_of_the_client_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as (hub, server), server.connect() as client:
        session = await create(hub)
        chat = chat_uri(session.id)
        await opened(client, session)
        turn_id = await client.prompt(chat, '/custom weather {"city": "Oslo"}')
        request = (await client.wait_for_action("chat/inputRequested"))["action"]["request"]
        (question,) = request["questions"]
        assert question["kind"] == "text" and '"Oslo"' in question["message"]
        text = {"state": "submitted", "value": {"kind": "text", "value": "sunny"}}
        answer = {"requestId": request["id"], "response": "accept", "answers": {"result": text}}
        await client.dispatch(chat, "chat/inputCompleted", **answer)
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)
        events = await hub.history.events(LOCAL, session.id, types=("agent_message",))
        assert "weather completed: sunny" in plain_text(events[-1].body.content)

        client.messages.clear()
        turn_id = await client.prompt(chat, f"/custom choose {json.dumps(QUESTIONS)}")
        requested = await client.wait_for_action("chat/inputRequested")
        request_id = requested["action"]["request"]["id"]
        result = ToolResult(
            call_id=request_id, content=(Text(text=json.dumps({"answers": TEXTS})),)
        )
        await hub.turns.submit_tool_result(LOCAL, session.id, result)
        completed = await client.wait_for_action("chat/inputCompleted", requestId=request_id)
        assert completed["action"]["answers"]["1"] == ANSWERS["1"]
        await client.wait_for_action("chat/turnComplete", turnId=turn_id)


def test_fields_of_a_form_have_the_kinds_of_their_schema() -> None:
    properties = {
        "plain": {"type": "string", "minLength": 2, "format": "email", "default": "a@b"},
        "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}], "default": "a"},
        "named": {"type": "string", "enum": ["x", "y"], "enumNames": ["X"]},
        "many": {"type": "array", "items": {"enum": ["p", "q"]}, "minItems": 1},
        "sure": {"type": "boolean", "default": False},
        "share": {"type": "number", "maximum": 1.5},
        "odd": {"type": ["string", "null"]},
    }
    schema = {"type": "object", "properties": properties, "required": ["plain"]}
    question = form("f", {"message": "Fill in", "requestedSchema": schema})
    shown = {field["id"]: field for field in question.request["questions"]}
    assert {id: field["kind"] for id, field in shown.items()} == {
        "plain": "text",
        "titled": "single-select",
        "named": "single-select",
        "many": "multi-select",
        "sure": "boolean",
        "share": "number",
        "odd": "text",
    }
    assert shown["plain"]["required"] and shown["plain"]["min"] == 2
    assert (shown["plain"]["format"], shown["plain"]["defaultValue"]) == ("email", "a@b")
    assert shown["titled"]["options"] == [{"id": "a", "label": "A", "recommended": True}]
    assert [option["label"] for option in shown["named"]["options"]] == ["X", "y"]
    assert shown["many"]["min"] == 1 and shown["share"]["max"] == 1.5
    page = form("u", {"mode": "url", "message": "Log in", "url": "https://example.org"}).request
    assert page == {"id": "u", "message": "Log in", "url": "https://example.org"}
