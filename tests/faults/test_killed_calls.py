"""A process dies at any step of a turn whose tool calls need permissions, clients or workers."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.errors import NotFound
from segue.model.event import PermissionAnswered, PermissionAsked, ToolCall
from segue.model.principal import LOCAL
from segue.model.session import Session
from tests.agents.provider import Provider, Say, Step, Use
from tests.faults.idle import assert_idle
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation, child
from tests.faults.takeover import WORKSPACE, bodies, read_events, wait_until_idle
from tests.faults.test_waiting_turns import MODEL, answer_all, create_session

LEASE = 15_000_000  # a process that died is noticed long before
NEVER = 10**6
RUN = Use("bash", {"command": "echo run >> ran.txt"})
AGAIN = Use("bash", {"command": "echo again >> ran.txt"})
WEATHER = Use("weather", {"city": "Oslo"})

CALLS: dict[str, list[Step]] = {"one call": [RUN], "three calls": [RUN, WEATHER, AGAIN]}
# The event that the process does not store any more, and the answer to its requests: each leaves a
# call that must not run, before its request and between a denial and its result.
MOMENTS = {"permission_asked": "allow", "tool_result": "reject"}
CASES = list(itertools.product(CALLS, ["self-hosted", "local"]))
SAMPLE = ("three calls", "self-hosted")


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


async def die(
    hub: Hub, location: StoreLocation, session: str, step: str | int, answer: str
) -> dict[str, Any]:
    """Run a turn in a process that dies before a step; return its last lines."""
    report: dict[str, Any] = {"step": step}
    arguments = (*location.arguments, LEASE, session, step, answer)
    async with child("dying.py", *arguments) as mortal:
        while (message := await mortal.read_line()) is not None:
            report |= message
    return report


async def finish(hub: Hub, session: str) -> None:
    """Recover a turn, answer everything that it waits for, and wait for its end."""
    hub.turns.engine.start()
    answering = asyncio.create_task(answer_regularly(hub, session))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await wait_until_idle(hub, session)
    answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering  # raises if a request cannot be answered


async def answer_regularly(hub: Hub, session: str) -> None:
    while True:
        row = await hub.store.get(WORKSPACE, session)
        if row is not None and row.pending and row.status == "idle":
            await check_answerable(hub, row)
            with suppress(NotFound):  # answered by the process that has the lease now
                await answer_all(hub, session)
        await asyncio.sleep(0.02)


async def check_answerable(hub: Hub, row: Session) -> None:
    """Check that workers may run the calls that a turn waits for."""
    events = await read_events(hub, row.id)
    requests = {body.ask_id: body.call_id for body in bodies(events, PermissionAsked)}
    answers = bodies(events, PermissionAnswered)
    allowed = {requests[answer.ask_id] for answer in answers if answer.option == "allow"}
    for call in bodies(events, ToolCall):
        if call.call_id in row.pending and not call.custom:
            assert call.effective_verdict == "allow" or call.call_id in allowed, call


async def check_end(hub: Hub, session: str, cwd: Path) -> None:
    """Check that a turn has ended and no tool ran twice."""
    events = await read_events(hub, session)
    print(*(f"{event.seq} {event.body}" for event in events), sep="\n")  # if the test fails
    assert_idle(await hub.sessions.get(LOCAL, session), events)
    ran = (cwd / "ran.txt").read_text().split() if (cwd / "ran.txt").exists() else []
    assert len(ran) == len(set(ran))


@asynccontextmanager
async def model_hub(location: StoreLocation, calls: list[Step]) -> AsyncIterator[Hub]:
    """Open a hub whose model makes these calls in each turn."""

    def respond(request: dict[str, Any]) -> list[Step]:
        return calls if len(request["messages"]) == 1 else [Say("done")]

    async with (
        Provider() as provider,
        Hub(await location.open(), location.directory, lease=LEASE) as hub,
    ):
        provider.otherwise = respond
        await hub.config.set(WORKSPACE, "model", MODEL)
        await hub.config.set(WORKSPACE, "model.base_url", provider.url)
        yield hub


@pytest.mark.parametrize(
    ("kind", "host"),
    [pytest.param(*case, marks=() if case == SAMPLE else pytest.mark.full) for case in CASES],
)
def test_call_of_a_dead_process_waits_for_nothing_that_cannot_be_given(
    sqlite_location: StoreLocation, tmp_path: Path, kind: str, host: str
) -> None:
    async def main() -> None:
        async with model_hub(sqlite_location, CALLS[kind]) as hub:

            async def one(before: str, answer: str) -> None:
                cwd = tmp_path / before
                hosted = host == "self-hosted"
                session = await create_session(hub, cwd, hosted=hosted, policy="always_ask")
                death = await die(hub, sqlite_location, session, before, answer)
                assert death["says"] == "dying"
                await finish(hub, session)
                await check_end(hub, session, cwd)
                if before == "tool_result":
                    assert not (cwd / "ran.txt").exists()  # the user has denied each call

            await asyncio.gather(*(one(*moment) for moment in MOMENTS.items()))

    asyncio.run(main())


@pytest.mark.full
@pytest.mark.parametrize("answer", ["allow", "reject"])
@pytest.mark.parametrize("host", ["self-hosted", "local"])
def test_turn_with_three_calls_killed_at_any_step_ends_when_its_requests_are_answered(
    sqlite_location: StoreLocation, tmp_path: Path, host: str, answer: str
) -> None:
    async def main() -> None:
        async with model_hub(sqlite_location, CALLS["three calls"]) as hub:
            some_at_once = asyncio.Semaphore(2)

            async def one(step: int) -> dict[str, Any]:
                async with some_at_once:
                    cwd = tmp_path / f"step{step}"
                    hosted = host == "self-hosted"
                    session = await create_session(hub, cwd, hosted=hosted, policy="always_ask")
                    death = await die(hub, sqlite_location, session, step, answer)
                    await finish(hub, session)
                    await check_end(hub, session, cwd)
                    return death

            steps = (await one(NEVER))["steps"]
            deaths = await asyncio.gather(*map(one, range(1, steps + 1)))
            assert len([death for death in deaths if death["says"] == "dying"]) > 12

    asyncio.run(main())
