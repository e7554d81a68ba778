"""Turns that wait for a person or a worker survive their process, and the answers resume them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.turns.running.runner import TurnRunner
from segue.model.content import as_content, plain_text
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import (
    AgentMessage,
    Event,
    Interrupted,
    PermissionAnswered,
    StatusChanged,
    ToolCall,
    ToolResult,
)
from segue.model.principal import LOCAL
from segue.model.session import Session
from tests.agents.provider import Provider, Step, Use
from tests.faults.idle import assert_idle
from tests.faults.processes import TIMEOUT_SECONDS, Child, StoreLocation, child
from tests.faults.takeover import WORKSPACE, bodies, read_events, wait_until_idle

LEASE = 15_000_000  # far longer than any of these tests may take
MODEL = "anthropic:claude-sonnet-4-6"
WEATHER = {"type": "custom", "name": "weather", "description": "?", "input_schema": {}}
TOOLSET = {"type": "agent_toolset_20260401"}

WAITING: dict[str, list[Step]] = {
    "permission": [Use("bash", {"command": "echo run >> ran.txt"})],
    "custom tool": [Use("weather", {"city": "Oslo"})],
    "self-hosted tool": [Use("bash", {"command": "echo run >> ran.txt"})],
    "three parallel calls": [
        Use("bash", {"command": "echo run >> ran.txt"}),
        Use("weather", {"city": "Oslo"}),
        Use("bash", {"command": "echo again >> ran.txt"}),
    ],
}


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


@asynccontextmanager
async def waiting_turn(
    location: StoreLocation, cwd: Path, kind: str, *, client_servers: bool = False
) -> AsyncIterator[tuple[Hub, Child, str, Provider]]:
    """Run a turn in another process until it waits; with MCP servers of its client if asked."""
    async with (
        Provider(WAITING[kind]) as provider,
        Hub(await location.open(), location.directory, lease=LEASE) as hub,
        child("holder.py", *location.arguments, LEASE) as other,
    ):
        await hub.config.set(WORKSPACE, "model", MODEL)
        await hub.config.set(WORKSPACE, "model.base_url", provider.url)
        session = await create_session(hub, cwd, hosted=kind == "self-hosted tool")
        if client_servers:
            await other.request(do="hold", session=session)
        await other.request(do="prompt", session=session, text="Go")
        await until_waiting(hub, session)
        yield hub, other, session, provider


async def create_session(
    hub: Hub, cwd: Path, *, hosted: bool, policy: str | None = None, **policies: str
) -> str:
    """Create a session with a permission policy, and others for single tools."""
    cwd.mkdir(exist_ok=True)
    policy = policy or ("always_allow" if hosted else "always_ask")
    toolset = {
        **TOOLSET,
        "default_config": {"permission_policy": {"type": policy}},
        "configs": [
            {"name": name, "permission_policy": {"type": type}} for name, type in policies.items()
        ],
    }
    agent = await hub.records.built_in_agent(WORKSPACE)
    agent = replace(agent, overrides={"tools": [toolset, WEATHER]})
    options: dict[str, Any] = {}
    if hosted:
        config = {"name": "h", "config": {"type": "self_hosted"}}
        environment = await hub.records.create(WORKSPACE, "environment", config)
        options["environment_id"] = environment.id
    session = await hub.editor.create(LOCAL, cwd=str(cwd), agent=agent, **options)
    return session.id


async def until_waiting(hub: Hub, session: str) -> Session:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for item in hub.history.follow(LOCAL, session):
            assert isinstance(item, Event)
            if isinstance(item.body, StatusChanged) and item.body.stop_reason is not None:
                assert item.body.stop_reason == "requires_action", item.body
                break
    while await hub.store.lease_of(WORKSPACE, session) is not None:
        await asyncio.sleep(0.01)
    return await hub.sessions.get(LOCAL, session)


async def until_stored_as_waiting(hub: Hub, session: str) -> None:
    """Wait for the end of the recovery: reads show its result before it has begun."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not (row := await hub.store.get(WORKSPACE, session)) or not row.pending:
            await asyncio.sleep(0.01)


async def answer_all(hub: Hub, session: str) -> None:
    """Allow every open permission request and send the results of the clients' tools."""
    events = await read_events(hub, session)
    row = await hub.sessions.get(LOCAL, session)
    for ask_id in row.open_asks:
        await hub.turns.answer(LOCAL, session, ask_id, "allow")
    for call in bodies(events, ToolCall):
        if call.call_id in row.pending:
            result = ToolResult(call_id=call.call_id, content=as_content("sent"))
            await hub.turns.submit_tool_result(LOCAL, session, result)


async def end(other: Child, how: str) -> None:
    if how == "SIGKILL":
        other.kill()
    else:
        await other.request(do="drain")
    if how == "SIGKILL":
        await other.ended()


def request_ids(row: Session) -> Sequence[str]:
    return (*row.open_asks, *row.open_calls, *row.pending)


@pytest.mark.parametrize("how", ["SIGKILL", "drain"])
@pytest.mark.parametrize("kind", WAITING)
def test_answers_resume_a_turn_whose_process_has_ended(
    location: StoreLocation, tmp_path: Path, kind: str, how: str
) -> None:
    async def main() -> None:
        cwd = tmp_path / "work"
        async with waiting_turn(location, cwd, kind) as (hub, other, session, provider):
            before = await hub.sessions.get(LOCAL, session)
            assert len(before.pending) == (3 if "three" in kind else 1)
            await end(other, how)
            assert request_ids(await hub.sessions.get(LOCAL, session)) == request_ids(before)
            await answer_all(hub, session)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            (message,) = bodies(events, AgentMessage)
            assert plain_text(message.content) == "done"
            assert bodies(events, Interrupted) == []
            assert [b.status for b in bodies(events, ToolResult)] == ["completed"] * len(
                WAITING[kind]
            )
            ran = (cwd / "ran.txt").read_text().split() if (cwd / "ran.txt").exists() else []
            expected = {"permission": ["run"], "three parallel calls": ["run", "again"]}
            assert ran == expected.get(kind, [])
            assert len(provider.requests) == 2

    asyncio.run(main())


@pytest.mark.parametrize("how", ["SIGKILL", "drain"])
def test_waiting_turn_that_needs_its_client_is_closed_with_the_reason(
    location: StoreLocation, tmp_path: Path, how: str
) -> None:
    async def main() -> None:
        work = tmp_path / "work"
        async with waiting_turn(location, work, "permission", client_servers=True) as (
            hub,
            other,
            session,
            _provider,
        ):
            assert len((await hub.sessions.get(LOCAL, session)).open_asks) == 1
            await end(other, how)
            hub.turns.engine.start()
            await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            (interrupted,) = bodies(events, Interrupted)
            assert interrupted.reason == "this turn needs the MCP servers of a client that is gone"

    asyncio.run(main())


def test_waiting_turn_has_no_lease_and_no_task(sqlite_location: StoreLocation) -> None:
    async def main() -> None:
        cwd = sqlite_location.directory / "work"
        async with (
            Provider() as provider,
            Hub(await sqlite_location.open(), sqlite_location.directory) as hub,
        ):
            provider.otherwise = [Use("bash", {"command": "true"})]
            await hub.config.set(WORKSPACE, "model", MODEL)
            await hub.config.set(WORKSPACE, "model.base_url", provider.url)
            sessions = [await create_session(hub, cwd, hosted=False) for _ in range(5)]
            for session in sessions:
                await hub.turns.submit(LOCAL, session, "Go")
            for session in sessions:
                await until_waiting(hub, session)
            await hub.turns.engine.wait_idle()
            assert hub.turns.engine.running == 0
            assert await hub.store.leases() == []
            assert await hub.store.waiting() == []
            tasks = [str(task.get_coro()) for task in asyncio.all_tasks()]
            assert not any("_driven" in task or "_run_agent" in task for task in tasks), tasks

    asyncio.run(main())


def test_cancel_ends_a_waiting_turn_of_a_dead_process(
    location: StoreLocation, tmp_path: Path
) -> None:
    async def main() -> None:
        work = tmp_path / "work"
        async with waiting_turn(location, work, "permission") as (hub, other, session, _):
            await end(other, "SIGKILL")
            row = await hub.sessions.get(LOCAL, session)
            assert row.turn is not None
            await hub.turns.cancel(LOCAL, session)
            reason = hub.turns.wait(LOCAL, session, row.turn)
            assert await asyncio.wait_for(reason, TIMEOUT_SECONDS) == "cancelled"
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)

    asyncio.run(main())


def test_repeated_answer_is_accepted_and_changes_nothing(
    sqlite_location: StoreLocation,
) -> None:
    async def main() -> None:
        work = sqlite_location.directory / "work"
        async with waiting_turn(sqlite_location, work, "permission") as (
            hub,
            _,
            session,
            _provider,
        ):
            (ask,) = (await hub.sessions.get(LOCAL, session)).open_asks
            with pytest.raises(InvalidInput, match="has no option 'perhaps'"):
                await hub.turns.answer(LOCAL, session, ask, "perhaps")
            first = await hub.turns.answer(LOCAL, session, ask, "allow")
            assert await hub.turns.answer(LOCAL, session, ask, "allow") == first
            with pytest.raises(NotFound):
                await hub.turns.answer(LOCAL, session, ask, "reject")
            await wait_until_idle(hub, session)
            before = await read_events(hub, session)
            assert await hub.turns.answer(LOCAL, session, ask, "allow") == first
            with pytest.raises(NotFound):
                await hub.turns.answer(LOCAL, session, ask, "reject")
            assert await read_events(hub, session) == before
            assert [e.id for e in before if isinstance(e.body, PermissionAnswered)] == [first]

    asyncio.run(main())


def test_repeated_result_is_accepted_and_another_one_refused(
    sqlite_location: StoreLocation,
) -> None:
    async def main() -> None:
        work = sqlite_location.directory / "work"
        async with waiting_turn(sqlite_location, work, "custom tool") as (hub, _, session, _p):
            (call,) = (await hub.sessions.get(LOCAL, session)).open_calls
            result = ToolResult(call_id=call, content=as_content("sent"))
            other = ToolResult(call_id=call, content=as_content("other"))
            first = await hub.turns.submit_tool_result(LOCAL, session, result)
            for _ in range(2):  # before and after the result is stored
                assert await hub.turns.submit_tool_result(LOCAL, session, result) == first
                with pytest.raises(InvalidInput, match="has another result"):
                    await hub.turns.submit_tool_result(LOCAL, session, other)
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            assert [e.id for e in events if isinstance(e.body, ToolResult)] == [first]

    asyncio.run(main())


def test_model_learns_that_the_outcome_of_a_tool_of_a_dead_process_is_unknown(
    location: StoreLocation, tmp_path: Path
) -> None:
    async def main() -> None:
        cwd = tmp_path / "work"
        slow = Use("bash", {"command": "echo run >> ran.txt; sleep 60"})
        async with (
            Provider([slow, Use("weather", {"city": "Oslo"})]) as provider,
            Hub(await location.open(), location.directory, lease=LEASE) as hub,
        ):
            await hub.config.set(WORKSPACE, "model", MODEL)
            await hub.config.set(WORKSPACE, "model.base_url", provider.url)
            session = await create_session(hub, cwd, hosted=False)
            async with child("holder.py", *location.arguments, LEASE) as other:
                await other.request(do="prompt", session=session, text="Go")
                row = await until_waiting(hub, session)
                (ask,) = row.open_asks
                await other.request(do="answer", session=session, ask=ask)
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while not (cwd / "ran.txt").exists():
                        await asyncio.sleep(0.05)
                await end(other, "SIGKILL")
            hub.turns.engine.start()
            await until_stored_as_waiting(hub, session)
            await answer_all(hub, session)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            texts = [plain_text(body.content) for body in bodies(events, ToolResult)]
            assert "outcome is unknown" in texts[0] and texts[1] == "sent"
            assert (cwd / "ran.txt").read_text().split() == ["run"]
            assert "outcome is unknown" in str(provider.requests[-1]["messages"][-1])

    asyncio.run(main())


def test_answers_given_while_another_call_ran_resume_the_turn_of_a_dead_process(
    location: StoreLocation, tmp_path: Path
) -> None:
    async def main() -> None:
        cwd = tmp_path / "work"
        slow = Use("bash", {"command": "echo run >> ran.txt; sleep 60"})
        write = Use("write", {"file_path": "note.txt", "content": "written"})
        weather = Use("weather", {"city": "Oslo"})
        async with (
            Provider([slow, write, weather]) as provider,
            Hub(await location.open(), location.directory, lease=LEASE) as hub,
        ):
            await hub.config.set(WORKSPACE, "model", MODEL)
            await hub.config.set(WORKSPACE, "model.base_url", provider.url)
            session = await create_session(hub, cwd, hosted=False, bash="always_allow")
            async with child("holder.py", *location.arguments, LEASE) as other:
                await other.request(do="prompt", session=session, text="Go")
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while not (cwd / "ran.txt").exists():
                        await asyncio.sleep(0.05)
                row = await hub.sessions.get(LOCAL, session)
                (ask,) = row.open_asks
                result = ToolResult(call_id=row.open_calls[-1], content=as_content("sent"))
                # Not by `hub`, which would begin to recover turns.
                async with Hub(await location.open(), location.directory) as client:
                    await client.turns.answer(LOCAL, session, ask, "allow")
                    await client.turns.submit_tool_result(LOCAL, session, result)
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while len(await hub.store.inbox(WORKSPACE, session)) > 1:
                        await asyncio.sleep(0.05)
                await end(other, "SIGKILL")
            assert (await hub.sessions.get(LOCAL, session)).status == "rescheduling"
            hub.turns.engine.start()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            assert bodies(events, Interrupted) == []
            assert bodies(events, StatusChanged)[-1].stop_reason == "end_turn"
            sent, unknown, written = map(
                plain_text, (b.content for b in bodies(events, ToolResult))
            )
            assert sent == "sent" and "outcome is unknown" in unknown and "written" not in unknown
            assert (cwd / "note.txt").read_text() == "written"
            assert (cwd / "ran.txt").read_text().split() == ["run"]
            assert all(text in str(provider.requests[-1]) for text in (sent, unknown, written))

    asyncio.run(main())


@pytest.mark.parametrize("how", ["drain", "close"])
def test_process_that_stops_just_when_a_turn_begins_to_wait_leaves_it_stored(
    sqlite_location: StoreLocation, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    stored, runs_again = asyncio.Event(), TurnRunner._runs_again

    async def decide_slowly(runner: TurnRunner) -> bool:
        stored.set()
        await asyncio.sleep(0.2)
        return await runs_again(runner)

    monkeypatch.setattr(TurnRunner, "_runs_again", decide_slowly)

    async def main() -> None:
        cwd = sqlite_location.directory / "work"
        async with Provider(WAITING["permission"]) as provider:
            async with Hub(await sqlite_location.open(), sqlite_location.directory) as hub:
                await hub.config.set(WORKSPACE, "model", MODEL)
                await hub.config.set(WORKSPACE, "model.base_url", provider.url)
                session = await create_session(hub, cwd, hosted=False)
                await hub.turns.submit(LOCAL, session, "Go")
                await stored.wait()
                if how == "drain":
                    await hub.turns.engine.drain(5, "the server stops")
            async with Hub(await sqlite_location.open(), sqlite_location.directory) as hub:
                assert len((await hub.sessions.get(LOCAL, session)).open_asks) == 1
                await answer_all(hub, session)
                await wait_until_idle(hub, session)
                events = await read_events(hub, session)
                assert bodies(events, Interrupted) == []
                assert (cwd / "ran.txt").read_text().split() == ["run"]

    asyncio.run(main())


def test_of_two_different_answers_at_once_one_is_refused(
    location: StoreLocation, tmp_path: Path
) -> None:
    async def main() -> None:
        async with (
            waiting_turn(location, tmp_path / "work", "three parallel calls") as waiting,
            Hub(await location.open(), location.directory, lease=LEASE) as other,
        ):
            hub, _, session, _ = waiting
            row = await hub.sessions.get(LOCAL, session)
            call = row.open_calls[1]

            def result(text: str) -> ToolResult:
                return ToolResult(call_id=call, content=as_content(text))

            given = await asyncio.gather(
                *(
                    client.turns.answer(LOCAL, session, ask_id, option)
                    for ask_id in row.open_asks
                    for client, option in ((hub, "allow"), (other, "reject"), (other, "allow"))
                ),
                hub.turns.submit_tool_result(LOCAL, session, result("first")),
                other.turns.submit_tool_result(LOCAL, session, result("second")),
                return_exceptions=True,
            )
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            answered = {e.body.ask_id: e for e in events if isinstance(e.body, PermissionAnswered)}
            for ask_id, (allowed, rejected, again) in zip(
                row.open_asks, (given[:3], given[3:6]), strict=True
            ):
                assert isinstance(answered[ask_id].body, PermissionAnswered)
                if answered[ask_id].body.option == "allow":
                    assert allowed == again == answered[ask_id].id
                    assert isinstance(rejected, NotFound)
                else:
                    assert rejected == answered[ask_id].id
                    assert isinstance(allowed, NotFound) and isinstance(again, NotFound)
            (sent,) = (
                event
                for event in events
                if isinstance(event.body, ToolResult) and event.body.call_id == call
            )
            assert sent.id in given[6:]
            assert [type(outcome) for outcome in given[6:]].count(InvalidInput) == 1

    asyncio.run(main())


def test_answers_that_arrive_just_after_others_were_stored_are_refused(
    sqlite_location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        work = sqlite_location.directory / "work"
        location = sqlite_location
        async with (
            waiting_turn(location, work, "three parallel calls") as (hub, _, session, _p),
            Hub(await location.open(), location.directory, lease=LEASE) as other,
        ):
            row = await hub.sessions.get(LOCAL, session)
            ask_id, call = row.open_asks[0], row.open_calls[1]
            put, drop = other.store.put_inbox, hub.store.drop_inbox
            read = asyncio.Event()

            async def put_late(workspace: str, id: str, kind: Any, *args: Any) -> Any:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    if kind == "answer":
                        await hub.turns.answer(LOCAL, session, ask_id, "allow")
                        while ask_id in (await hub.sessions.get(LOCAL, session)).open_asks:
                            await asyncio.sleep(0.01)
                    else:
                        result = ToolResult(call_id=call, content=as_content("first"))
                        await hub.turns.submit_tool_result(LOCAL, session, result)
                        while call in (await hub.sessions.get(LOCAL, session)).open_calls:
                            await asyncio.sleep(0.01)
                read.clear()
                return await put(workspace, id, kind, *args)

            async def drop_late(*args: Any) -> Any:
                await read.wait()
                return await drop(*args)

            monkeypatch.setattr(other.store, "put_inbox", put_late)
            monkeypatch.setattr(hub.store, "drop_inbox", drop_late)
            monkeypatch.setattr(other.store, "drop_inbox", drop_late)
            with pytest.raises(NotFound, match="no open permission request"):
                await other.turns.answer(LOCAL, session, ask_id, "reject")
            read.set()
            second = ToolResult(call_id=call, content=as_content("second"))
            with pytest.raises(InvalidInput, match="has another result already"):
                await other.turns.submit_tool_result(LOCAL, session, second)
            read.set()

    asyncio.run(main())


def test_waiting_turn_of_an_agent_that_was_changed_is_closed_with_the_reason(
    sqlite_location: StoreLocation,
) -> None:
    async def main() -> None:
        work = sqlite_location.directory / "work"
        async with waiting_turn(sqlite_location, work, "permission") as (hub, _, session, _p):
            (ask_id,) = (await hub.sessions.get(LOCAL, session)).open_asks
            await hub.config.unset(WORKSPACE, "model")  # now the demo agent answers
            await hub.turns.answer(LOCAL, session, ask_id, "allow")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            (interrupted,) = bodies(events, Interrupted)
            assert interrupted.reason == (
                "the session's agent was changed, and the new one cannot resume this turn"
            )
            assert await hub.turns.run(LOCAL, session, "/say next") == "end_turn"

    asyncio.run(main())


def test_answers_to_a_session_in_the_trash_are_refused(sqlite_location: StoreLocation) -> None:
    async def main() -> None:
        work = sqlite_location.directory / "work"
        async with waiting_turn(sqlite_location, work, "three parallel calls") as waiting:
            hub, _, session, _ = waiting
            row = await hub.editor.trash(LOCAL, session)
            with pytest.raises(InvalidInput, match="is in the trash; restore it first"):
                await hub.turns.answer(LOCAL, session, row.open_asks[0], "allow")
            result = ToolResult(call_id=row.open_calls[1], content=as_content("sent"))
            with pytest.raises(InvalidInput, match="is in the trash; restore it first"):
                await hub.turns.submit_tool_result(LOCAL, session, result)
            await hub.editor.restore(LOCAL, session)
            await answer_all(hub, session)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await wait_until_idle(hub, session)
            assert (work / "ran.txt").read_text().split() == ["run", "again"]

    asyncio.run(main())
