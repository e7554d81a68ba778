"""Tests of multi-agent sessions: a coordinator delegates work to threads of other agents."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from segue.agents.model import delegation
from segue.hub.turns.recovery import PROCESS_ENDED, closing_events
from segue.model import clock, ids
from segue.model.event import ThreadChanged
from segue.render import documents
from tests.interfaces.rest.api import Api, message, open_api
from tests.interfaces.rest.test_turns import rests, result, types, until

from .provider import Fail, Provider, Say, Step, Use, Wait
from .test_rest import WEATHER, api_key, served

__all__ = ["api_key"]

BASH = {"type": "agent_toolset_20260401", "configs": []}
ASKING = {**BASH, "default_config": {"permission_policy": {"type": "always_ask"}}}
Route = Callable[[str, list[dict[str, Any]]], Sequence[Step]]


def text_of(entry: dict[str, Any]) -> str:
    """Return the texts of a message to the model, those of tool results included."""
    content = entry["content"]
    if isinstance(content, str):
        return content
    return " ".join(
        block.get("text") or text_of(block)
        for block in content
        if "text" in block or "content" in block
    )


def route(provider: Provider, **by_system: Route | Sequence[Step]) -> None:
    """Answer requests by the agent that sends them, which its system prompt names."""

    def answer(body: dict[str, Any]) -> Sequence[Step]:
        system = " ".join(block["text"] for block in body["system"])
        advises = "You advise" in system
        name = "advisor" if advises else next(n for n in by_system if f"I am {n}." in system)
        chosen = by_system[name]
        last = body["messages"][-1]
        return chosen(text_of(last), body["messages"]) if callable(chosen) else chosen

    provider.otherwise = answer


async def coordinator(api: Api, *members: str, tools: Sequence[Any] = (), **fields: Any) -> str:
    """Create a coordinator with these members, and return its session."""
    agents = [
        (await api.agent(name=name, system=f"I am {name}.", tools=list(tools)))["id"]
        for name in members
    ]
    roster = {"type": "coordinator", "agents": agents}
    lead = await api.agent(
        **{"name": "lead", "system": "I am lead.", "multiagent": roster, **fields}
    )
    return (await api.session(agent=lead["id"]))["id"]


def delegate(*names: str) -> list[Step]:
    return [Use("delegate", {"agent": name, "message": f"work, {name}"}) for name in names]


def leading(*first: Step) -> Route:
    """Return a route that delegates first, and then answers with what it received."""

    def answer(last: str, messages: list[dict[str, Any]]) -> Sequence[Step]:
        return first if len(messages) == 1 else [Say(f"heard: {last}")]

    return answer


async def thread_list(api: Api, id: str, **params: Any) -> list[dict[str, Any]]:
    return (await api.ok("GET", f"/v1/sessions/{id}/threads", **params))["data"]


async def thread_events(api: Api, id: str, thread: str) -> list[dict[str, Any]]:
    return (await api.ok("GET", f"/v1/sessions/{id}/threads/{thread}/events"))["data"]


async def test_delegations_run_as_threads_with_their_own_history_and_usage(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna", "bert")
        route(
            provider,
            anna=[Say("A is 1")],
            bert=[Say("B is 2")],
            lead=leading(*delegate("anna", "bert")),
        )
        events = await api.say(id, "Find A and B")
        threads = await thread_list(api, id)
        anna = next(thread for thread in threads if thread["agent"]["name"] == "anna")
        of_anna = await thread_events(api, id, anna["id"])
        session = await api.ok("GET", f"/v1/sessions/{id}")
        stored_id = ids.parse(id) or ""
        history, principal = api.hub.history, api.principal
        conversation = [event async for event in history.conversation(principal, stored_id)]
        subagents = await history.threads(principal, stored_id)
        first = [event async for event in history.thread_events(principal, stored_id, "1")]
        session_row = await api.hub.sessions.get(principal, stored_id)
        pages = [text async for text in documents.markdown(history, principal, session_row)]
    assert all(event.body.thread is None for event in conversation)
    assert {subagent.kind for subagent in subagents} == {"anna", "bert"}
    assert [e.type for e in first if "message" in e.type] == ["user_message", "agent_message"]
    assert "A is 1" in "".join(pages)
    primary = threads[0]
    assert [thread["parent_thread_id"] for thread in threads] == [None, *[primary["id"]] * 2]
    assert {thread["status"] for thread in threads} == {"idle"}
    created = [event for event in events if event["type"] == "session.thread_created"]
    assert {event["agent_name"] for event in created} == {"anna", "bert"}
    sent = [event for event in events if event["type"] == "agent.thread_message_sent"]
    received = [event for event in events if event["type"] == "agent.thread_message_received"]
    assert {event["to_agent_name"] for event in sent} == {"anna", "bert"}
    assert {event["content"][0]["text"] for event in received} == {"A is 1", "B is 2"}
    assert "A is 1" in str(events) and events[-1]["stop_reason"] == {"type": "end_turn"}
    assert types(of_anna) == [
        "session.thread_status_running",
        "agent.thread_message_received",
        "span.model_request_start",
        "agent.message",
        "span.model_request_end",
        "agent.thread_message_sent",
        "session.thread_status_idle",
    ]
    assert of_anna[1]["from_session_thread_id"] == primary["id"]
    assert "from_agent_name" not in of_anna[1] and "to_agent_name" not in of_anna[5]
    # Messages of threads are not messages of the primary thread, but everything is paid for.
    (last,) = [event for event in events if event["type"] == "agent.message"]
    assert "heard: " in last["content"][0]["text"]
    assert anna["usage"]["input_tokens"] == 10
    assert session["usage"]["input_tokens"] == 40
    assert primary["usage"]["input_tokens"] == 20


async def test_a_thread_waits_for_permission_on_the_primary_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna", tools=[ASKING])

        def anna(last: str, messages: list[Any]) -> Sequence[Step]:
            return [Use("bash", {"command": "echo 42"})] if len(messages) == 1 else [Say(last)]

        route(provider, anna=anna, lead=leading(*delegate("anna")))
        await api.send(id, message("Go"))
        events = await until(api, id, rests(1))
        (use,) = [e for e in events if e["type"] == "agent.tool_use" and e["name"] == "bash"]
        (thread,) = (await thread_list(api, id))[1:]
        assert use["session_thread_id"] == thread["id"]
        assert events[-1]["stop_reason"] == {"type": "requires_action", "event_ids": [use["id"]]}
        assert (await api.ok("GET", f"/v1/sessions/{id}"))["status"] == "idle"
        own = await thread_events(api, id, thread["id"])
        assert own[-1]["stop_reason"]["event_ids"] == [use["id"]]
        assert "session_thread_id" not in next(e for e in own if e["type"] == "agent.tool_use")
        await api.send(
            id, {"type": "user.tool_confirmation", "tool_use_id": use["id"], "result": "allow"}
        )
        events = await until(api, id, rests(2))
        own = await thread_events(api, id, thread["id"])
    assert events[-1]["stop_reason"] == {"type": "end_turn"}
    assert "heard: " in str(events) and "42" in str(events[-6:])
    assert types(own).count("session.thread_status_running") == 2
    assert "user.tool_confirmation" in types(own) and "agent.tool_result" in types(own)
    assert len(provider.requests) == 4


async def test_an_answered_thread_continues_while_another_one_still_works(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna", "bert", tools=[WEATHER])
        pause = Wait()

        def anna(last: str, messages: list[Any]) -> Sequence[Step]:
            return [Use("weather", {"city": "Oslo"})] if len(messages) == 1 else [Say(last)]

        route(
            provider, anna=anna, bert=[pause, Say("slow")], lead=leading(*delegate("anna", "bert"))
        )
        await api.send(id, message("Go"))
        await pause.reached.wait()
        events = await until(api, id, lambda e: "agent.custom_tool_use" in types(e))
        (use,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
        await until(api, id, lambda e: any(x.get("stop_reason", {}).get("event_ids") for x in e))
        await api.send(id, result(use["id"], "rain"))
        events = await until(api, id, lambda e: "agent.thread_message_received" in types(e))
        assert "rain" in str([e for e in events if e["type"] == "agent.thread_message_received"])
        assert "session.status_idle" not in types(events)  # bert has not ended
        pause.event.set()
        events = await until(api, id, rests(1))
        (own, _) = [await thread_events(api, id, t["id"]) for t in (await thread_list(api, id))[1:]]
    assert events[-1]["stop_reason"] == {"type": "end_turn"}
    # Its agent ran before and after it waited, and not while it waited.
    assert types(own).count("session.thread_status_running") == 2


async def test_a_session_rests_while_the_only_thread_waits_for_a_custom_tool(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna", tools=[WEATHER])

        def anna(last: str, messages: list[Any]) -> Sequence[Step]:
            return [Use("weather", {"city": "Oslo"})] if len(messages) == 1 else [Say(last)]

        route(provider, anna=anna, lead=leading(*delegate("anna")))
        await api.send(id, message("Go"))
        events = await until(api, id, rests(1))
        (use,) = [event for event in events if event["type"] == "agent.custom_tool_use"]
        assert events[-1]["stop_reason"] == {"type": "requires_action", "event_ids": [use["id"]]}
        fork = await api.hub.editor.fork(api.principal, ids.parse(id) or "")
        threads = await thread_list(api, ids.format_id("sesn", fork.id))
        assert [thread["usage"]["input_tokens"] for thread in threads] == [0, 0]
        await api.send(id, result(use["id"], "rain"))
        events = await until(api, id, rests(2))
    assert events[-1]["stop_reason"] == {"type": "end_turn"}
    assert "rain" in str(events[-6:])


@pytest.mark.full
async def test_a_client_interrupts_one_thread_or_all(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna", "bert")
        waits = {"anna": Wait(), "bert": Wait()}
        route(
            provider,
            anna=[Say("half"), waits["anna"], Say("never")],
            bert=[waits["bert"], Say("fine")],
            lead=leading(*delegate("anna", "bert")),
        )
        await api.send(id, message("Go"))
        for wait in waits.values():
            await wait.reached.wait()
        threads = {t["agent"]["name"]: t["id"] for t in await thread_list(api, id)}
        sent = await api.send(id, {"type": "user.interrupt", "session_thread_id": threads["anna"]})
        events = await until(api, id, lambda e: "user.interrupt" in types(e))
        assert [e["id"] for e in events if e["type"] == "user.interrupt"] == [sent["data"][0]["id"]]
        waits["bert"].event.set()
        events = await until(api, id, rests(1))
        assert "[thread 1 did not finish: it was interrupted]" in str(events)
        assert "fine" in str(events) and events[-1]["stop_reason"] == {"type": "end_turn"}
        own = await thread_events(api, id, threads["anna"])
        assert "half" in str(own) and own[-1]["type"] == "session.thread_status_idle"

        pause = Wait()
        provider.otherwise = [Use("delegate", {"agent": "anna", "message": "again"})]
        provider.scripts = [provider.otherwise, [pause]]
        await api.send(id, message("More"))
        await pause.reached.wait()
        await api.send(id, {"type": "user.interrupt"})
        events = await until(api, id, rests(2))
        assert [t["status"] for t in await thread_list(api, id)] == ["idle"] * 4
    assert events[-1]["stop_reason"] == {"type": "end_turn"}


async def test_a_thread_remembers_its_messages_until_it_is_archived(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna")
        route(
            provider,
            anna=lambda last, messages: [Say(f"{len(messages)}: {last}")],
            lead=leading(*delegate("anna")),
        )
        await api.say(id, "Go")
        provider.scripts = [[Use("message_thread", {"thread": "1", "message": "and B?"})]]
        route(
            provider,
            anna=lambda last, messages: [Say(f"{len(messages)}: {last}")],
            lead=lambda last, messages: [Say(last)],
        )
        events = await api.say(id, "Ask again")
        assert "3: and B?" in str(events[-5:])
        thread = (await thread_list(api, id))[1]
        assert thread["usage"]["input_tokens"] == 20
        path = f"/v1/sessions/{id}/threads/{thread['id']}"
        archived = await api.ok("POST", f"{path}/archive")
        assert (archived["status"], archived["archived_at"] is None) == ("terminated", False)
        assert await api.ok("POST", f"{path}/archive") == await api.ok("GET", path)
        assert [t["id"] for t in await thread_list(api, id, statuses="terminated")] == [
            thread["id"]
        ]
        provider.scripts = [[Use("message_thread", {"thread": "1", "message": "and C?"})]]
        events = await api.say(id, "Once more")
        assert "there is no thread '1' that takes messages" in str(events)


@pytest.mark.full
async def test_threads_start_no_threads_and_few_run_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "MAX_PARALLEL_THREADS", 2)
    async with served(tmp_path) as (api, provider):
        roster = {"type": "coordinator", "agents": [{"type": "self"}]}
        lead = await api.agent(name="lead", system="I am lead.", multiagent=roster)
        id = (await api.session(agent=lead["id"]))["id"]
        waits = [Wait() for _ in range(3)]
        seen: list[Any] = []

        def answer(last: str, messages: list[dict[str, Any]]) -> Sequence[Step]:
            if last.startswith("work"):
                seen.append(last)
                return [waits[len(seen) - 1], *delegate("lead")]
            return [Say(f"heard: {last}")] if len(messages) > 1 else delegate("lead") * 3

        route(provider, lead=answer)
        await api.send(id, message("Go"))
        for wait in waits[:2]:
            await wait.reached.wait()
        await asyncio.sleep(0)
        assert len(seen) == 2
        statuses = [t["status"] for t in await thread_list(api, id)]
        assert statuses == ["running"] * 3
        for wait in waits:
            wait.event.set()
        events = await until(api, id, rests(1))
        threads = await thread_list(api, id)
    assert len(threads) == 4
    names = [{tool["name"] for tool in request.get("tools", ())} for request in provider.requests]
    assert sum("delegate" in offered for offered in names) == 2  # those of the primary thread
    assert "there is no tool 'delegate'" in str(provider.requests)
    assert events[-1]["stop_reason"] == {"type": "end_turn"}


async def test_a_failed_thread_is_reported_to_the_coordinator(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna")
        route(
            provider,
            anna=[Fail(400, "invalid_request_error", "no")],
            lead=leading(*delegate("anna")),
        )
        events = await api.say(id, "Go")
        thread = (await thread_list(api, id))[1]
        own = await thread_events(api, id, thread["id"])
        assert "[thread 1 did not finish: it failed]" in str(events)
        assert own[-1]["stop_reason"] == {"type": "retries_exhausted"}
        assert "session.error" in types(own) and "session.error" not in types(events)
        session = (await api.hub.sessions.get(api.principal, ids.parse(id) or "")).open_threads
    assert session == {}


@asynccontextmanager
async def at(api: Api) -> AsyncIterator[str]:
    """Serve the API on a loopback address, and return its URL."""
    config = uvicorn.Config(api.app, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    sock = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(server._serve([sock]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def test_official_client_drives_the_threads_of_a_session(tmp_path: Path) -> None:
    from anthropic import AsyncAnthropic

    async with served(tmp_path) as (api, provider), at(api) as url:
        beta = AsyncAnthropic(
            base_url=url, api_key=api.key, max_retries=0, _strict_response_validation=True
        ).beta
        anna = await beta.agents.create(
            name="anna", model="claude-opus-4-8", system="I am anna.", tools=[ASKING]
        )
        lead = await beta.agents.create(
            name="lead",
            model="claude-opus-4-8",
            system="I am lead.",
            multiagent={
                "type": "multiagent_20261001",
                "advisor": {"type": "enabled", "model": "claude-opus-4-8"},
                "subagents": {"type": "enabled", "predefined_agents": [anna.id]},
                "workflows": {"type": "disabled"},
            },
        )
        environment = (await beta.environments.create(name="e")).id
        session = await beta.sessions.create(agent=lead.id, environment_id=environment)
        assert session.agent.multiagent.type == "multiagent_20261001"
        calls = [
            *delegate("anna"),
            Use("consult_advisor", {"message": "work, advisor"}),
            Use(
                "delegate_to_new_agent",
                {"name": "carl", "instructions": "I am carl.", "message": "work, carl"},
            ),
        ]
        route(
            provider,
            anna=lambda last, messages: (
                [Use("bash", {"command": "echo 42"})] if len(messages) == 1 else [Say(last)]
            ),
            carl=[Say("new")],
            lead=leading(*calls),
            advisor=[Say("good advice")],
        )
        stream = await beta.sessions.events.stream(session.id)
        await beta.sessions.events.send(session.id, events=[message("Go")])
        seen = []
        async for event in stream:
            seen.append(event)
            if event.type == "session.status_idle":
                if event.stop_reason.type != "requires_action":
                    break
                (use,) = event.stop_reason.event_ids
                await beta.sessions.events.send(
                    session.id,
                    events=[
                        {"type": "user.tool_confirmation", "tool_use_id": use, "result": "allow"}
                    ],
                )
        threads = {t.agent.type: t async for t in beta.sessions.threads.list(session.id)}
        assert threads.keys() == {"agent", "advisor", "inline"}
        assert threads["inline"].agent.system == "I am carl."
        asked = next(e for e in seen if e.type == "agent.tool_use" and e.session_thread_id)
        thread = await beta.sessions.threads.retrieve(
            asked.session_thread_id, session_id=session.id
        )
        assert (thread.agent.name, thread.status) == ("anna", "idle")
        events = [
            e async for e in beta.sessions.threads.events.list(thread.id, session_id=session.id)
        ]
        again = await beta.sessions.threads.events.stream(
            thread.id, session_id=session.id, extra_headers={"last-event-id": events[2].id}
        )
        archived = await beta.sessions.threads.archive(thread.id, session_id=session.id)
        assert archived.status == "terminated"
        replayed = [event async for event in again]
        assert [e.id for e in replayed[:-1]] == [e.id for e in events[3:]]
        assert replayed[-1].type == "session.thread_status_terminated"
        await beta._client.close()
    assert {e.type for e in seen} >= {
        "session.thread_created",
        "session.thread_status_running",
        "session.thread_status_idle",
        "agent.thread_message_sent",
        "agent.thread_message_received",
        "user.tool_confirmation",
    }


@pytest.mark.full
async def test_a_waiting_thread_survives_a_restart_on_postgresql(
    tmp_path: Path, migrated_database_url: str
) -> None:
    await wait_over_a_restart(tmp_path, migrated_database_url)


@pytest.mark.full
async def test_a_waiting_thread_survives_a_restart(tmp_path: Path) -> None:
    await wait_over_a_restart(tmp_path, None)


async def wait_over_a_restart(tmp_path: Path, database: str | None) -> None:
    def anna(last: str, messages: list[Any]) -> Sequence[Step]:
        return [Use("bash", {"command": "echo 42"})] if len(messages) == 1 else [Say(last)]

    async with served(tmp_path, database) as (api, provider):
        id = await coordinator(api, "anna", "bert", tools=[ASKING])
        route(provider, anna=anna, bert=[Say("2")], lead=leading(*delegate("anna", "bert")))
        await api.send(id, message("Go"))
        events = await until(api, id, rests(1))
    (use,) = events[-1]["stop_reason"]["event_ids"]
    async with served(tmp_path, database) as (api, provider):
        route(provider, anna=anna, bert=[Say("2")], lead=leading())
        assert [t["status"] for t in await thread_list(api, id)] == ["idle"] * 3
        await api.send(
            id, {"type": "user.tool_confirmation", "tool_use_id": use, "result": "allow"}
        )
        events = await until(api, id, rests(2))
    assert events[-1]["stop_reason"] == {"type": "end_turn"}
    assert "42" in str([e for e in events if e["type"] == "agent.message"])
    assert len(provider.requests) == 2  # bert does not work again


async def test_threads_of_a_dead_process_end_with_a_reason(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna")
        pause = Wait()
        route(provider, anna=[pause], lead=leading(*delegate("anna")))
        await api.send(id, message("Go"))
        await pause.reached.wait()
        session = await api.hub.sessions.get(api.principal, ids.parse(id) or "")
        closing = closing_events(session, PROCESS_ENDED)
    changes = [body for body in closing if isinstance(body, ThreadChanged)]
    assert [(body.thread, body.status, body.stop_reason) for body in changes] == [
        ("1", "idle", "error")
    ]
    assert changes[0].message == PROCESS_ENDED


async def test_another_workspace_sees_no_thread(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna")
        route(provider, anna=[Say("A")], lead=leading(*delegate("anna")))
        await api.say(id, "Go")
        thread = (await thread_list(api, id))[1]["id"]
        other = await api.other("theirs")
        mine = (await other.session())["id"]
        for session in (id, mine):
            path = f"/v1/sessions/{session}/threads/{thread}"
            await other.fails(404, "GET", path)
            await other.fails(404, "GET", f"{path}/events")
            await other.fails(404, "GET", f"{path}/stream")
            await other.fails(404, "POST", f"{path}/archive")
        interrupt = {"events": [{"type": "user.interrupt", "session_thread_id": thread}]}
        await other.fails(404, "POST", f"/v1/sessions/{id}/events", interrupt)
        await other.fails(400, "POST", f"/v1/sessions/{mine}/events", interrupt)


async def test_a_budget_stops_threads_too(tmp_path: Path) -> None:
    async with served(tmp_path) as (api, provider):
        provider.input_tokens = 10_000
        member = (await api.agent(name="anna", system="I am anna."))["id"]
        roster = {"type": "coordinator", "agents": [member]}
        lead = (await api.agent(name="lead", system="I am lead.", multiagent=roster))["id"]
        budget = {"type": "limit", "max_list_cost": {"amount": "1", "currency": "USD"}}
        id = (await api.session(agent=lead, budget=budget))["id"]
        route(provider, anna=[Say("never")], lead=leading(*delegate("anna")))
        events = await api.say(id, "Go")
        own = await thread_events(api, id, (await thread_list(api, id))[1]["id"])
    assert len(provider.requests) == 1
    assert own[-1]["stop_reason"] == events[-1]["stop_reason"] == {"type": "budget_reached"}


@pytest.mark.full
async def test_threads_of_a_dead_process_continue_if_one_of_them_waits(tmp_path: Path) -> None:
    def anna(last: str, messages: list[Any]) -> Sequence[Step]:
        return [Use("bash", {"command": "echo 42"})] if len(messages) == 1 else [Say(last)]

    copy = tmp_path / "copy"
    copy.mkdir()
    async with served(tmp_path) as (api, provider):
        id = await coordinator(api, "anna", "bert", tools=[ASKING])
        pause = Wait()
        route(provider, anna=anna, bert=[pause], lead=leading(*delegate("anna", "bert")))
        await api.send(id, message("Go"))
        await pause.reached.wait()
        await until(api, id, lambda e: any(x.get("stop_reason", {}).get("event_ids") for x in e))
        with (
            closing(sqlite3.connect(tmp_path / "segue.db")) as source,
            closing(sqlite3.connect(copy / "segue.db")) as target,
        ):
            source.backup(target)  # as a process that died has left it
        route(provider, anna=anna, bert=[Say("again")], lead=leading())
        async with open_api(copy, lease=clock.SECOND) as other:
            other.hub.turns.engine.start()
            events = await until(other, id, rests(2))  # the first one was before bert continued
            assert "again" in str(events)
            assert "session.thread_status_rescheduled" in types(events)
            (use,) = events[-1]["stop_reason"]["event_ids"]
            await other.send(
                id, {"type": "user.tool_confirmation", "tool_use_id": use, "result": "allow"}
            )
            events = await until(other, id, rests(3))
            assert events[-1]["stop_reason"] == {"type": "end_turn"}
            assert "42" in str([e for e in events if e["type"] == "agent.message"])
