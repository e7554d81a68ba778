"""Send events to a session and list its events."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.interfaces.rest.events import event_page
from segue.interfaces.rest.events.blocks import encode_content
from segue.model import ids
from segue.model.content import Image, Resource, ResourceLink, as_content
from segue.model.event import (
    AgentMessage,
    Compacted,
    Failed,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    UserMessage,
)
from segue.model.principal import LOCAL
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_files import upload_file

SYSTEM = {"type": "system.message", "content": [{"type": "text", "text": "t"}]}


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def test_events_of_a_turn_have_the_order_that_clients_rely_on(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session(title="t"))["id"]
        events = await api.say(id, "/model\n/think hm\n/say yes\n/usage 3 4\n/tool ls a b")
        assert types(events) == [
            "session.status_running",
            "session.thread_status_running",
            "user.message",
            "span.model_request_start",
            "agent.thinking",
            "agent.message",
            "span.model_request_end",
            "agent.tool_use",
            "agent.tool_result",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        assert len({event["id"] for event in events}) == len(events)
        assert all(event["id"].startswith("sevt_01") for event in events)
        times = [event["processed_at"] for event in events]
        assert times == sorted(times)
        by_type = {event["type"]: event for event in events}
        assert by_type["agent.message"]["content"] == [{"type": "text", "text": "yes"}]
        assert by_type["agent.tool_result"]["tool_use_id"] == by_type["agent.tool_use"]["id"]
        end, start = by_type["span.model_request_end"], by_type["span.model_request_start"]
        assert end["model_request_start_id"] == start["id"]
        assert by_type["session.usage"]["usage"]["output_tokens"] == 4
        assert by_type["session.status_idle"]["stop_reason"] == {"type": "end_turn"}


async def test_sent_message_is_returned_unprocessed_and_listed_with_its_time(
    tmp_path: Path,
) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        (echo,) = (await api.send(id, message("hello")))["data"]
        assert echo["processed_at"] is None
        await api.hub.turns.wait(api.principal, ids.parse(id) or "", ids.parse(echo["id"]) or "")
        (stored,) = await api.events(id, **{"types[]": "user.message"})
        assert stored["processed_at"] is not None
        assert {**stored, "processed_at": None} == echo


async def test_usage_event_has_the_usage_at_its_time(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        for _ in range(3):
            await api.say(id, "/usage 10 1")
        for params in ({}, {"limit": "1"}, {"order": "desc"}):
            seen, page = [], {}
            while True:
                events = await api.ok(
                    "GET",
                    f"/v1/sessions/{id}/events",
                    **{"types[]": "session.usage"},
                    **params,
                    **page,
                )
                seen += [event["usage"]["input_tokens"] for event in events["data"]]
                if events["next_page"] is None:
                    break
                page = {"page": events["next_page"]}
            assert seen == ([30, 20, 10] if params == {"order": "desc"} else [10, 20, 30])


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_of_any_size_add_up_to_the_same_list(
    tmp_path: Path, limit: int, order: str
) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        await api.say(id, "/say one\n/usage 1 1")
        full = await api.say(id, "/ask\n".replace("/ask\n", "/tool x y"))
        seen: list[dict[str, Any]] = []
        page: dict[str, str] = {}
        while True:
            events = await api.ok(
                "GET", f"/v1/sessions/{id}/events", limit=limit, order=order, **page
            )
            assert set(events) == {"data", "next_page"}
            assert events["data"]
            seen += events["data"]
            if events["next_page"] is None:
                break
            page = {"page": events["next_page"]}
        assert seen == (full if order == "asc" else full[::-1])
        if page:
            other = "desc" if order == "asc" else "asc"
            response = await api.fails(400, "GET", f"/v1/sessions/{id}/events", order=other, **page)
            assert response == "page token order does not match request"


async def test_long_histories_are_read_in_batches(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session(title="t"))["id"]
        own = ids.parse(id) or ""
        bodies = [AgentMessage(content=as_content(str(number))) for number in range(1300)]
        await api.hub.editor.append(LOCAL, own, *bodies)
        for order in ("asc", "desc"):
            first = await api.ok("GET", f"/v1/sessions/{id}/events", order=order)
            assert len(first["data"]) == 1000
            rest = await api.ok(
                "GET", f"/v1/sessions/{id}/events", order=order, page=first["next_page"]
            )
            sent = [int(e["content"][0]["text"]) for e in first["data"] + rest["data"]]
            assert sent == sorted(range(1300), reverse=order == "desc")
            assert rest["next_page"] is None


async def test_events_are_filtered_by_type_and_time(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        first = await api.say(id, "/say one")
        await asyncio.sleep(0.002)
        await api.say(id, "/say two")
        sent = await api.events(id, **{"types[]": ["agent.message", "user.message"]})
        assert types(sent) == ["user.message", "agent.message"] * 2
        idle = await api.events(id, **{"types[]": "session.status_idle", "order": "desc"})
        assert len(idle) == 2
        end = first[-1]["processed_at"]
        assert await api.events(id, **{"created_at[lte]": end}) == first
        later = await api.events(id, **{"created_at[gt]": end, "types[]": "agent.message"})
        assert [event["content"][0]["text"] for event in later] == ["two"]
        assert await api.events(id, **{"types[]": "agent.thread_message_sent"}) == []
        path = f"/v1/sessions/{id}/events"
        assert "types" in await api.fails(400, "GET", path, **{"types[]": "nonsense"})
        for wrong in ("x", "page_x", "page_" + "A" * 30):
            assert await api.fails(400, "GET", path, page=wrong) == "invalid page cursor"


async def test_cursor_is_valid_for_its_own_list_and_order_only(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        item, two = (await api.session())["id"], (await api.session())["id"]
        for id in (item, two):
            await api.say(id, "/say hello")
        path = f"/v1/sessions/{item}/events"
        page = (await api.ok("GET", path, limit=2))["next_page"]
        assert (await api.ok("GET", path, page=page))["data"]
        changed = page[:-1] + ("A" if page[-1] != "A" else "Q")
        data = base64.urlsafe_b64encode(msgspec.msgpack.encode((f"events:{item}", False, 3, "0")))
        for wrong in (changed, "page_" + data.decode().rstrip("=")):
            assert await api.fails(400, "GET", path, page=wrong) == "invalid page cursor"
        for elsewhere in (f"/v1/sessions/{two}/events", "/v1/sessions", "/v1/agents", "/v1/files"):
            assert await api.fails(400, "GET", elsewhere, page=page) == "invalid page cursor"
        sessions = (await api.ok("GET", "/v1/sessions", limit=1))["next_page"]
        assert await api.fails(400, "GET", path, page=sessions) == "invalid page cursor"
        sent = await api.fails(400, "GET", path, page=page, order="desc")
        assert sent == "page token order does not match request"


async def session_with_open_request(api: Api, text: str) -> tuple[str, list[dict[str, Any]]]:
    """Return a session whose turn waits for permission, and its events."""
    id = (await api.session())["id"]
    await api.send(id, message(text))
    async for _ in api.hub.history.follow(api.principal, ids.parse(id) or ""):
        events = await api.events(id)
        if events and events[-1].get("stop_reason", {}).get("type") == "requires_action":
            return id, events
    raise AssertionError("the session is gone")


@pytest.mark.parametrize(("result", "failed"), [("allow", False), ("deny", True)])
async def test_confirmation_of_a_tool_call_answers_its_permission_request(
    tmp_path: Path, result: str, failed: bool
) -> None:
    async with open_api(tmp_path) as api:
        id, events = await session_with_open_request(api, "/ask May I?")
        (use,) = [event for event in events if event["type"] == "agent.tool_use"]
        assert events[-1]["stop_reason"]["event_ids"] == [use["id"]]
        assert use["evaluated_permission"] == "ask"
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["status"] == "idle"
        response = {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": result}
        if failed:
            response["deny_message"] = "rather not"
        else:
            body = {"events": [{**response, "deny_message": "rather not"}]}
            error = await api.fails(400, "POST", f"/v1/sessions/{id}/events", body)
            assert "deny_message" in error
        (echo,) = (await api.send(id, response))["data"]
        turn = next(event["id"] for event in events if event["type"] == "user.message")
        await api.hub.turns.wait(api.principal, ids.parse(id) or "", ids.parse(turn) or "")
        after = (await api.events(id))[len(events) :]
        assert types(after) == [
            "user.tool_confirmation",
            "session.status_running",
            "session.thread_status_running",
            "agent.tool_result",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        assert {**after[0], "processed_at": None, "session_thread_id": None} == echo
        assert after[0]["deny_message"] == ("rather not" if failed else None)
        assert after[3]["is_error"] is failed
        stored = await api.events(id)
        await api.send(id, response)  # the same answer again is accepted, and changes nothing
        assert await api.events(id) == stored
        other = {"allow": "deny", "deny": "allow"}[result]
        body = {"events": [{**response, "result": other}]}
        assert "confirmation" in await api.fails(400, "POST", f"/v1/sessions/{id}/events", body)


async def test_key_cannot_confirm_a_tool_call_of_the_local_users_turn(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.hub.editor.create(LOCAL)
        id = ids.format_id("sesn", session.id)
        turn = await api.hub.turns.submit(LOCAL, session.id, "/ask May I?")
        async for _ in api.hub.history.follow(LOCAL, session.id, 0):
            if open_asks := (await api.hub.sessions.get(LOCAL, session.id)).open_asks:
                break
        (use,) = await api.events(id, **{"types[]": "agent.tool_use"})
        confirmation = {
            "type": "user.tool_confirmation",
            "tool_use_id": use["id"],
            "result": "allow",
        }
        body = {"events": [confirmation]}
        message = await api.fails(403, "POST", f"/v1/sessions/{id}/events", body)
        assert "the local user" in message
        await api.hub.turns.answer(LOCAL, session.id, open_asks[0], "reject")
        await api.hub.turns.wait(LOCAL, session.id, turn)


async def test_interrupt_ends_the_turn_and_is_listed_with_its_id(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        (request,) = (await api.send(id, message("/say begun\n/wait 60")))["data"]
        async for _ in api.hub.history.follow(api.principal, ids.parse(id) or ""):
            if "agent.message" in types(await api.events(id)):
                break
        sent = await api.send(id, {"type": "user.interrupt"}, message("instead"))
        interrupt, instead = sent["data"]
        for turn in (request, instead):
            await api.hub.turns.wait(
                api.principal, ids.parse(id) or "", ids.parse(turn["id"]) or ""
            )
        events = await api.events(id)
        shown = {event["id"]: event for event in events}
        assert shown[interrupt["id"]]["type"] == "user.interrupt"
        assert instead["id"] in shown
        ends = [event for event in events if event["type"] == "session.status_idle"]
        assert [end["stop_reason"]["type"] for end in ends] == ["end_turn", "end_turn"]


async def test_interrupt_without_a_turn_has_no_effect(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        (echo,) = (await api.send(id, {"type": "user.interrupt"}))["data"]
        assert echo["processed_at"] is not None
        assert await api.events(id) == []


async def test_failed_turn_has_an_error_event_and_a_stop_reason(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        events = await api.say(id, "/fail the disk is on fire")
        error = next(event for event in events if event["type"] == "session.error")
        assert error["error"] == {
            "type": "unknown_error",
            "message": "DemoFailure: the disk is on fire",
            "retry_status": {"type": "exhausted"},
        }
        assert events[-1]["stop_reason"] == {"type": "retries_exhausted"}
        refused = await api.say(id, "/stop refusal")
        assert refused[-1]["stop_reason"] == {"type": "refusal"}
        assert refused[-1]["stop_details"]["type"] == "refusal"


@pytest.mark.parametrize("query", [{}, {"order": "desc"}, {"types[]": "agent.tool_use"}])
async def test_tool_call_is_listed_as_it_became(
    tmp_path: Path, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Scripted:
        async def run(self, turn: Turn) -> Any:
            await turn.emit(
                ToolCall(call_id="toolu_1", name="terminal", input={}),
                AgentMessage(content=as_content("in between")),
                ToolCallChanged(call_id="toolu_1", name="bash", input={"command": "ls"}),
                ToolResult(call_id="toolu_1", status="completed"),
            )
            return "end_turn"

    monkeypatch.setattr(event_page, "_BATCH_SIZE", 2)  # the change is in a later batch
    agent_registry = AgentRegistry({"default": lambda _: Scripted()})
    async with open_api(tmp_path, agent_registry=agent_registry) as api:
        id = (await api.session())["id"]
        await api.say(id, "go")
        events = await api.events(id, **query)
    (call,) = [event for event in events if event["type"] == "agent.tool_use"]
    assert (call["name"], call["input"]) == ("bash", {"command": "ls"})


async def test_each_kind_of_tool_call_has_its_event_type(tmp_path: Path) -> None:
    async def emit_calls(turn: Turn) -> None:
        for call in (
            ToolCall(call_id="toolu_1", name="grep", input={"q": 1}),
            ToolCall(call_id=ids.new_id(), name="find", server="files", input="text"),
            ToolCall(call_id="toolu_3", name="mine", custom=True),
        ):
            await turn.emit(call)
            result = ToolResult(call_id=call.call_id, content=(Image(data="AAAA"),))
            await turn.emit(result)
        await turn.emit(ToolResult(call_id="toolu_4", status="failed", output={"code": 1}))
        await turn.emit(Compacted(), Failed(message="m", code="model_overloaded_error"))

    class Scripted:
        async def run(self, turn: Turn) -> Any:
            await emit_calls(turn)
            return "end_turn"

    agent_registry = AgentRegistry({"default": lambda _: Scripted()})
    async with open_api(tmp_path, agent_registry=agent_registry) as api:
        id = (await api.session())["id"]
        events = await api.say(id, "go")
        tools = [event for event in events if "tool" in event["type"]]
        assert types(tools) == [
            "agent.tool_use",
            "agent.tool_result",
            "agent.mcp_tool_use",
            "agent.mcp_tool_result",
            "agent.custom_tool_use",
            "user.custom_tool_result",
            "agent.tool_result",
        ]
        assert tools[1]["tool_use_id"] == tools[0]["id"]
        assert tools[2]["mcp_server_name"] == "files" and tools[2]["input"] == {"input": "text"}
        assert tools[3]["mcp_tool_use_id"] == tools[2]["id"]
        assert tools[5]["custom_tool_use_id"] == tools[4]["id"]
        assert tools[1]["content"][0]["source"]["data"] == "AAAA"
        assert tools[6]["is_error"] and tools[6]["content"] == [
            {"type": "text", "text": '{"code": 1}'}
        ]
        error = next(event for event in events if event["type"] == "session.error")
        assert error["error"]["type"] == "model_overloaded_error"
        assert "agent.thread_context_compacted" in types(events)
        # A result has the type of its call, also on another page.
        single = await api.events(id, **{"types[]": ["agent.mcp_tool_result"]})
        assert single == [tools[3]]


async def test_content_of_every_kind_is_returned_as_it_was_sent(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        picture = await upload_file(api, b"\x89PNG", "a.png", "image/png")
        names = await upload_file(api, b"a=b", "a.ini", "text/plain")
        file = {"type": "file", "file_id": names["id"]}
        pixel = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
        pdf = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
        text = {"type": "text", "media_type": "text/plain", "data": "words"}
        page = {"type": "url", "url": "https://example.com/a.pdf"}
        content = [
            {"type": "text", "text": "look \U0001f600"},
            {"type": "image", "source": pixel},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "image", "source": {"type": "file", "file_id": picture["id"]}},
            {"type": "document", "source": file, "title": "t", "context": None},
            {"type": "document", "source": pdf, "title": "t", "context": "c"},
            {"type": "document", "source": text, "title": None, "context": None},
            {"type": "document", "source": page, "title": "u", "context": None},
        ]
        (echo,) = (await api.send(id, {"type": "user.message", "content": content}))["data"]
        assert echo["content"] == content
        turn = ids.parse(echo["id"]) or ""
        await api.hub.turns.wait(api.principal, ids.parse(id) or "", turn)
        # The message contains the file, so that deleting the file later does not change it.
        await api.ok("DELETE", f"/v1/files/{names['id']}")
        events = await api.hub.history.events(
            api.principal, ids.parse(id) or "", types=("user_message",)
        )
        assert "a=b" in str(events) and "iVBORw==" in str(events)
        # Other interfaces show a document by its title.
        assert isinstance(events[0].body, UserMessage)
        stored = [
            item for item in events[0].body.content if isinstance(item, Resource | ResourceLink)
        ]
        assert [item.uri for item in stored] == ["t", "t", "document", page["url"]]
        (response,) = await api.events(id, **{"types[]": "user.message"})
        assert response["content"] == content
        deleted = {"type": "user.message", "content": [{"type": "document", "source": file}]}
        await api.fails(404, "POST", f"/v1/sessions/{id}/events", {"events": [deleted]})


def test_document_without_a_type_is_shown_as_binary() -> None:
    (block,) = encode_content([Resource(uri="file:///a/b", data="AAAA")])
    shown = msgspec.to_builtins(block)
    assert shown["source"]["media_type"] == "application/octet-stream"
    assert shown["title"] == "file:///a/b"


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{}],
        [{"type": "nonsense"}],
        [{"type": "agent.message", "content": []}],
        [{"type": "user.message", "content": []}],
        [{"type": "user.message", "content": "text"}],
        [{"type": "user.message", "content": [{"type": "text"}]}],
        [{"type": "user.message", "content": [{"type": "image", "source": {"type": "x"}}]}],
        [{"type": "user.interrupt", "session_thread_id": "sthr_nothing"}],
        [{"type": "user.tool_confirmation", "tool_use_id": "sevt_x", "result": "allow"}],
        [{"type": "user.tool_confirmation", "tool_use_id": "sevt_x", "result": "maybe"}],
        [{"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_x"}],
        [{"type": "user.tool_result", "tool_use_id": "sevt_x"}],
        [{"type": "user.define_outcome", "description": "d", "rubric": {"type": "text"}}],
        [
            {
                "type": "user.define_outcome",
                "description": "d",
                "rubric": {"type": "file", "file_id": "x"},
            }
        ],
        [SYSTEM, message("not the last")],
        [{"type": "user.interrupt"}, SYSTEM],
        [SYSTEM, SYSTEM],
        [{"type": "system.message", "content": []}],
    ],
)
async def test_invalid_event_is_400_and_no_event_of_the_request_is_sent(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        body = {"events": [message("first"), *events] if events else []}
        status, _ = await api.call("POST", f"/v1/sessions/{id}/events", json=body)
        assert status in (400, 404)  # 404 if the event refers to something that does not exist
        assert await api.events(id) == []


async def test_primary_thread_has_the_events_of_the_session(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        session = await api.session()
        id = session["id"]
        events = await api.say(id, "/usage 1 2")
        (thread,) = (await api.ok("GET", f"/v1/sessions/{id}/threads"))["data"]
        assert (thread["session_id"], thread["parent_thread_id"]) == (id, None)
        assert (thread["status"], thread["usage"]["output_tokens"]) == ("idle", 2)
        assert events[1]["session_thread_id"] == thread["id"]
        assert events[1]["agent_name"] == thread["agent"]["name"] == session["agent"]["name"]
        path = f"/v1/sessions/{id}/threads/{thread['id']}"
        assert (await api.ok("GET", path))["id"] == thread["id"]
        assert (await api.ok("GET", f"{path}/events"))["data"] == events
        await api.fails(400, "POST", f"{path}/archive")
        await api.fails(404, "GET", f"/v1/sessions/{id}/threads/sthr_nothing")
        running = {"statuses[]": "running"}
        assert (await api.ok("GET", f"/v1/sessions/{id}/threads", **running))["data"] == []
