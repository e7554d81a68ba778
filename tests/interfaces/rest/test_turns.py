"""Turns with tools of the client, system messages, outcomes and messages sent during a turn."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue.agents.base import Turn
from segue.agents.registry import AgentRegistry
from segue.model import ids
from segue.model.event import ToolResult
from tests.interfaces.rest.api import Api, message, open_api

Shown = list[dict[str, Any]]


def types(events: Shown) -> list[str]:
    return [event["type"] for event in events]


async def until(api: Api, session: str, matches: Callable[[Shown], bool]) -> Shown:
    """Wait until a session's events match, and return them."""
    async with asyncio.timeout(60):
        async for _ in api.hub.history.follow(
            api.principal, ids.parse(session) or "", requests=True
        ):
            if matches(events := await api.events(session)):
                return events
    raise AssertionError("the session is gone")


def rests(count: int) -> Callable[[Shown], bool]:
    return lambda events: types(events).count("session.status_idle") >= count


def agent_texts(events: Shown) -> list[str]:
    return [event["content"][0]["text"] for event in events if event["type"] == "agent.message"]


def result(use: str, text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    kind = "user.custom_tool_result"
    return {"type": kind, "custom_tool_use_id": use, "content": content, **fields}


@pytest.mark.parametrize("failed", [False, True])
async def test_client_runs_a_custom_tool(tmp_path: Path, failed: bool) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        await api.send(id, message('/custom weather {"city": "Oslo"}'))
        events = await until(api, id, rests(1))
        assert types(events) == [
            "session.status_running",
            "session.thread_status_running",
            "user.message",
            "session.updated",
            "agent.custom_tool_use",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        use = events[4]
        assert (use["name"], use["input"]) == ("weather", {"city": "Oslo"})
        expected = {"type": "requires_action", "event_ids": [use["id"]]}
        assert events[-1]["stop_reason"] == expected
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["status"] == "idle"
        (echo,) = (await api.send(id, result(use["id"], "rain", is_error=failed)))["data"]
        assert echo["processed_at"] is not None  # the result is stored when it arrives
        after = (await until(api, id, rests(2)))[len(events) :]
        assert types(after) == [
            "user.custom_tool_result",
            "session.status_running",
            "session.thread_status_running",
            "agent.message",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        assert after[0]["id"] == echo["id"]
        assert (after[0]["custom_tool_use_id"], after[0]["is_error"]) == (use["id"], failed)
        assert agent_texts(after) == [f"weather {'failed' if failed else 'completed'}: rain"]
        assert after[-1]["stop_reason"] == {"type": "end_turn"}
        # Sending the result again changes nothing and is not an error; another one is refused.
        (again,) = (await api.send(id, result(use["id"], "rain", is_error=failed)))["data"]
        assert again["id"] == echo["id"]
        other = {"events": [result(use["id"], "snow", is_error=failed)]}
        reason = await api.fails(400, "POST", f"/v1/sessions/{id}/events", other)
        assert f"{use['id']} has another result already" in reason
        assert len(await api.events(id)) == len(events) + len(after)


async def test_result_that_arrives_before_the_turn_waits_is_not_lost(tmp_path: Path) -> None:
    class Slow:
        async def run(self, turn: Turn) -> Any:
            call = await turn.start_tool("early", custom=True)
            await asyncio.sleep(0.2)
            sent = (await turn.result(call))[0].body
            assert isinstance(sent, ToolResult)
            await turn.send_message(str(sent.status))
            return "end_turn"

    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: Slow()})
    ) as api:
        id = (await api.session())["id"]
        await api.send(id, message("go"))
        events = await until(api, id, lambda results: "agent.custom_tool_use" in types(results))
        await api.send(id, result(events[-1]["id"], "quick"))
        assert agent_texts(await until(api, id, lambda results: bool(agent_texts(results)))) == [
            "completed"
        ]


async def test_turn_waits_until_it_has_every_result(tmp_path: Path) -> None:
    class Both:
        async def run(self, turn: Turn) -> Any:
            calls = [await turn.start_tool(name, custom=True) for name in ("one", "two")]
            await asyncio.gather(*(turn.result(call) for call in calls))
            return "end_turn"

    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: Both()})
    ) as api:
        id = (await api.session())["id"]
        await api.send(id, message("go"))
        events = await until(api, id, rests(2))
        item, two = events[-1]["stop_reason"]["event_ids"]
        await api.send(id, result(two, "2"))
        events = await until(api, id, lambda results: "user.custom_tool_result" in types(results))
        assert events[-1]["stop_reason"] == {"type": "requires_action", "event_ids": [item]}
        await api.send(id, result(item, "1"))
        events = await until(
            api, id, lambda results: results[-1].get("stop_reason") == {"type": "end_turn"}
        )
        assert types(events).count("user.custom_tool_result") == 2


async def test_worker_can_run_a_tool_of_the_agent(tmp_path: Path) -> None:
    class Remote:
        async def run(self, turn: Turn) -> Any:
            await turn.result(await turn.start_tool("bash", input={"command": "ls"}))
            return "end_turn"

    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: Remote()})
    ) as api:
        id = (await api.session())["id"]
        await api.send(id, message("go"))
        events = await until(api, id, rests(1))
        (use,) = [event for event in events if event["type"] == "agent.tool_use"]
        path = f"/v1/sessions/{id}/events"
        wrong = {"events": [result(use["id"], "x")]}
        assert "does not wait" in await api.fails(400, "POST", path, wrong)
        content = [{"type": "text", "text": "a b"}]
        sent = {"type": "user.tool_result", "tool_use_id": use["id"], "content": content}
        await api.send(id, sent)
        events = await until(api, id, rests(2))
        (shown,) = [event for event in events if event["type"] == "user.tool_result"]
        assert (shown["tool_use_id"], shown["content"]) == (use["id"], content)
        assert await api.events(id, **{"types[]": "user.tool_result"}) == [shown]
        (again,) = (await api.send(id, sent))["data"]
        assert again["id"] == shown["id"]
        other = {**sent, "content": [{"type": "text", "text": "c"}]}
        assert "another result" in await api.fails(400, "POST", path, {"events": [other]})
        assert await api.events(id, **{"types[]": "user.tool_result"}) == [shown]


async def test_interrupt_ends_a_turn_that_waits_for_the_client(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session())["id"]
        await api.send(id, message("/custom never"))
        await until(api, id, rests(1))
        await api.send(id, {"type": "user.interrupt"})
        events = await until(api, id, rests(2))
        assert events[-1]["stop_reason"] == {"type": "end_turn"}
        # The client has sent no result, so none is written in its name.
        (closed,) = [event for event in events if event["type"] == "agent.tool_result"]
        assert closed["is_error"] and "user.custom_tool_result" not in types(events)


async def test_message_sent_during_a_turn_joins_it(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session(title="t"))["id"]
        await api.send(id, message("/say begun\n/custom wait\n/more"))
        events = await until(api, id, rests(1))
        (use,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
        await api.send(id, message("and this"), result(use["id"], "ok"))
        events = await until(api, id, rests(2))
        assert types(events).count("session.status_running") == 2  # it started and was resumed
        assert types(events)[-6:] == [
            "agent.message",
            "user.message",
            "agent.message",
            "session.thread_status_idle",
            "session.usage",
            "session.status_idle",
        ]
        assert agent_texts(events)[-1] == "You added: and this"


async def test_system_message_is_sent_with_the_event_before_it(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session(title="t"))["id"]
        system = {"type": "system.message", "content": [{"type": "text", "text": "be brief"}]}
        sent = await api.send(id, message("/system\n/custom next"), system)
        assert types(sent["data"]) == ["user.message", "system.message"]
        events = await until(api, id, rests(1))
        assert types(events)[2:4] == ["user.message", "system.message"]
        assert events[3] == {**sent["data"][1], "processed_at": events[3]["processed_at"]}
        assert agent_texts(events) == ["be brief"]
        (use,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
        await api.send(id, result(use["id"], "ok"), system)
        after = (await until(api, id, rests(2)))[len(events) :]
        assert types(after)[:2] == ["user.custom_tool_result", "system.message"]


async def test_outcome_runs_a_turn_and_is_shown_by_the_session(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        rubric = {"type": "text", "content": "five sections"}
        define = {"type": "user.define_outcome", "description": "A summary", "rubric": rubric}
        id = (await api.session())["id"]
        (echo,) = (await api.send(id, define))["data"]
        assert (echo["max_iterations"], echo["rubric"]) == (3, rubric)
        assert echo["processed_at"] and echo["outcome_id"].startswith("outc_01")
        events = await until(api, id, rests(1))
        (shown,) = [event for event in events if event["type"] == "user.define_outcome"]
        assert {**shown, "processed_at": None} == {**echo, "processed_at": None}
        start, end = (event for event in events if event["type"].startswith("span.outcome"))
        assert end["outcome_evaluation_start_id"] == start["id"]
        assert (end["result"], end["outcome_id"]) == ("failed", echo["outcome_id"])
        (outcome,) = (await api.ok("GET", f"/v1/sessions/{id}"))["outcome_evaluations"]
        assert outcome["completed_at"].endswith("Z")
        assert {**outcome, "completed_at": None} == {
            "type": "outcome_evaluation",
            "outcome_id": echo["outcome_id"],
            "description": "A summary",
            "iteration": 0,
            "result": "failed",
            "explanation": "The demo agent has no grader: nothing was looked at.",
            "completed_at": None,
        }


async def test_session_can_start_with_one_outcome(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        rubric = {"type": "text", "content": "r"}
        define = {"type": "user.define_outcome", "description": "d", "rubric": rubric}
        session = await api.session(initial_events=[message("first"), define])
        assert session["status"] == "running"
        events = await until(api, session["id"], rests(2))
        assert "user.define_outcome" in types(events)
        body = {"agent": session["agent"]["id"], "environment_id": session["environment_id"]}
        body["initial_events"] = [define, define]
        assert "at most one" in await api.fails(400, "POST", "/v1/sessions", body)


async def test_rubric_can_be_a_file(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        files = {"file": ("rubric.md", b"five sections", "text/markdown")}
        _, file = await api.call("POST", "/v1/files", files=files)
        rubric = {"type": "file", "file_id": file["id"]}
        id = (await api.session())["id"]
        define = {"type": "user.define_outcome", "description": "d", "rubric": rubric}
        await api.send(id, define)
        events = await until(api, id, rests(1))
        (shown,) = [event for event in events if event["type"] == "user.define_outcome"]
        assert shown["rubric"] == rubric


async def test_retry_is_reported_and_the_session_is_rescheduling(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        id = (await api.session(title="t"))["id"]
        events = await api.say(id, "/retry too much to do\n/say there")
        assert types(events)[3:9] == [
            "session.error",
            "session.thread_status_rescheduled",
            "session.status_rescheduled",
            "session.status_running",
            "session.thread_status_running",
            "agent.message",
        ]
        assert events[3]["error"] == {
            "type": "model_overloaded_error",
            "message": "too much to do",
            "retry_status": {"type": "retrying"},
        }


async def test_interrupted_model_request_has_an_end_event(tmp_path: Path) -> None:
    class Cut:
        async def run(self, turn: Turn) -> Any:
            await turn.begin_request("m")
            await turn.delta("half a")
            await asyncio.sleep(60)

    async with open_api(
        tmp_path, agent_registry=AgentRegistry({"default": lambda _: Cut()})
    ) as api:
        id = (await api.session())["id"]
        await api.send(id, message("go"))
        await until(api, id, lambda results: "span.model_request_start" in types(results))
        await api.send(id, {"type": "user.interrupt"})
        events = await until(api, id, rests(1))
        start, end = (event for event in events if event["type"].startswith("span."))
        assert end["model_request_start_id"] == start["id"]
        assert end["is_error"] is True
        assert types(events)[-1] == "session.status_idle"
