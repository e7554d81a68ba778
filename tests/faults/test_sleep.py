"""A process that is suspended past its lease loses the session and writes nothing afterwards."""

import asyncio

import pytest

from segue.hub import Hub
from segue.model.clock import SECOND
from segue.model.content import plain_text
from segue.model.event import AgentMessage, Delta, Event, Interrupted, UserMessage
from segue.model.principal import LOCAL
from segue.store.base import Store
from tests.faults.idle import assert_idle
from tests.faults.processes import TIMEOUT_SECONDS, Child, StoreLocation, child
from tests.faults.takeover import (
    WORKSPACE,
    bodies,
    read_events,
    recover_sessions,
)

SHORT = 3_000_000  # a lease, in microseconds; a loaded machine still renews it in time
STREAM = "/slow 0.02\n/say " + " ".join(f"word{number}" for number in range(3000))
MESSAGES = "/slow 0.02\n" + "\n".join(f"/say message {number}" for number in range(2000))


async def suspend(other: Child, store: Store, session: str) -> None:
    """Suspend a process, but not during a write, because its locks would stay."""
    while True:
        other.suspend()
        probe = asyncio.ensure_future(store.acquire(WORKSPACE, session, "another process"))
        done, _ = await asyncio.wait([probe], timeout=0.3)
        if done:
            assert probe.result() is None  # its lease holds still
            return
        other.resume()
        await probe


async def streaming(hub: Hub, process: Child, session: str, text: str = STREAM) -> str:
    """Start a long turn and return its id once it streams."""
    turn = (await process.request(do="prompt", session=session, text=text))["turn"]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for item in hub.history.follow(LOCAL, session, deltas=True):
            if isinstance(item, Delta) and item.offset > 0:
                break
            if isinstance(item, Event) and isinstance(item.body, AgentMessage):
                break
    return turn


def check_interrupted_message(events: list[Event]) -> None:
    """Check that the turn ends with the streamed part of its message."""
    (cut,) = bodies(events, AgentMessage)
    assert cut.partial and STREAM.split("/say ")[1].startswith(plain_text(cut.content))
    assert len(bodies(events, Interrupted)) == 1


@pytest.mark.parametrize("notices", ["when it renews", "when it writes"])
def test_a_process_suspended_past_its_lease_writes_nothing_when_it_wakes(
    location: StoreLocation, notices: str
) -> None:
    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=SHORT) as hub,
            child("holder.py", *location.arguments, SHORT) as process,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            holder = (await process.expect("ready"))["holder"]
            text = STREAM if notices == "when it renews" else MESSAGES
            turn = await streaming(hub, process, session, text)
            old = await hub.store.lease_of(WORKSPACE, session)
            assert old is not None and old.holder == holder

            if notices == "when it writes":
                await process.request(do="deafen")
            await suspend(process, hub.store, session)
            await recover_sessions(hub, session)
            before = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), before)
            if notices == "when it renews":
                check_interrupted_message(before)

            process.resume()
            # It notices, lives on, and works on other sessions.
            record = await process.expect("log")
            while session not in record["message"] or "lease was lost" not in record["message"]:
                record = await process.expect("log")
            created = await process.request(do="create")
            ran = await process.request(do="run", session=created["session"], text="/say awake")
            assert ran["reason"] == "end_turn"

            assert await read_events(hub, session) == before
            assert await hub.store.deltas(WORKSPACE, session) == []
            assert [e.id for e in before if isinstance(e.body, UserMessage)] == [turn]
            # And on the one that was taken from it, once it is free.
            ran = await process.request(do="run", session=session, text="/say back")
            assert ran["reason"] == "end_turn"
            assert_idle(await hub.sessions.get(LOCAL, session), await read_events(hub, session))

    asyncio.run(main())


def test_suspended_process_continues_a_turn_that_no_other_took_over(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=SHORT) as hub,
            child("holder.py", *location.arguments, SHORT) as process,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            turn = await streaming(hub, process, session, STREAM[:3000])
            await suspend(process, hub.store, session)
            await asyncio.sleep(1.2 * SHORT / SECOND)
            process.resume()
            reason = hub.turns.wait(LOCAL, session, turn)
            assert await asyncio.wait_for(reason, TIMEOUT_SECONDS) == "end_turn"
            (message,) = bodies(await read_events(hub, session), AgentMessage)
            assert f"/slow 0.02\n/say {plain_text(message.content)}" == STREAM[:3000]

    asyncio.run(main())


def test_turn_longer_than_its_lease_is_not_recovered_while_its_process_lives(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=SHORT) as hub,
            child("holder.py", *location.arguments, SHORT) as other,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            text = f"/wait {1.5 * SHORT / SECOND}\n/say through"
            turn = (await other.request(do="prompt", session=session, text=text))["turn"]
            waiting = asyncio.ensure_future(hub.turns.wait(LOCAL, session, turn))
            while not waiting.done():
                await hub.turns.engine.recover()
                await asyncio.wait([waiting], timeout=0.05)
            assert waiting.result() == "end_turn"
            events = await read_events(hub, session)
            assert [plain_text(body.content) for body in bodies(events, AgentMessage)] == [
                "through"
            ]

    asyncio.run(main())
