"""A process sleeps past its lease: when it wakes, the session is another's; it writes nothing."""

import asyncio

import pytest

from segue.hub import Hub
from segue.model.clock import SECOND
from segue.model.content import plain_text
from segue.model.event import AgentMessage, Delta, Event, Interrupted, UserMessage
from segue.model.principal import LOCAL
from segue.store.base import Store
from tests.faults.processes import PATIENCE, Child, Place, child
from tests.faults.idle import at_rest
from tests.faults.takeover import WORKSPACE, bodies, expired, recovered, rested, story

SHORT = 3_000_000  # a lease, in microseconds; a loaded machine still renews it in time
STREAM = "/slow 0.02\n/say " + " ".join(f"word{number}" for number in range(3000))
MESSAGES = "/slow 0.02\n" + "\n".join(f"/say message {number}" for number in range(2000))


async def suspend(other: Child, store: Store, session: str) -> None:
    """Send it to sleep, but not in the middle of a write: what it locked then would stay locked."""
    while True:
        other.suspend()
        probe = asyncio.ensure_future(store.acquire(WORKSPACE, session, "somebody else", SHORT))
        done, _ = await asyncio.wait([probe], timeout=0.3)
        if done:
            assert probe.result() is None  # its lease holds still
            return
        other.wake()
        await probe


async def streaming(hub: Hub, sleeper: Child, session: str, text: str = STREAM) -> str:
    """A long turn, well begun: its id."""
    turn = (await sleeper.ask(do="prompt", session=session, text=text))["turn"]
    async with asyncio.timeout(PATIENCE):
        async for item in hub.history.follow(LOCAL, session, deltas=True):
            if isinstance(item, Delta) and item.offset > 0:
                break
            if isinstance(item, Event) and isinstance(item.body, AgentMessage):
                break
    return turn


def cut_off(events: list[Event]) -> None:
    """The turn ends with what had been streamed of its message."""
    (cut,) = bodies(events, AgentMessage)
    assert cut.partial and STREAM.split("/say ")[1].startswith(plain_text(cut.content))
    assert len(bodies(events, Interrupted)) == 1


@pytest.mark.parametrize("notices", ["when it renews", "when it writes"])
def test_a_process_suspended_past_its_lease_writes_nothing_when_it_wakes(
    place: Place, notices: str
) -> None:
    async def main() -> None:
        async with (
            Hub(await place.open(), place.directory, lease=SHORT) as hub,
            child("holder.py", *place.arguments, SHORT) as sleeper,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            holder = (await sleeper.expect("ready"))["holder"]
            text = STREAM if notices == "when it renews" else MESSAGES
            turn = await streaming(hub, sleeper, session, text)
            old = await hub.store.lease_of(WORKSPACE, session)
            assert old is not None and old.holder == holder

            if notices == "when it writes":
                await sleeper.ask(do="deafen")
            await suspend(sleeper, hub.store, session)
            await recovered(hub, session)
            before = await story(hub, session)
            at_rest(await hub.sessions.get(LOCAL, session), before)
            if notices == "when it renews":
                cut_off(before)

            sleeper.wake()
            # It notices, lives on, and works on other sessions.
            said = await sleeper.expect("log")
            while session not in said["message"] or "lease was lost" not in said["message"]:
                said = await sleeper.expect("log")
            made = await sleeper.ask(do="create")
            ran = await sleeper.ask(do="run", session=made["session"], text="/say awake")
            assert ran["reason"] == "end_turn"

            assert await story(hub, session) == before
            assert await hub.store.deltas(WORKSPACE, session) == []
            assert [e.id for e in before if isinstance(e.body, UserMessage)] == [turn]
            # And on the one that was taken from it, once it is free.
            ran = await sleeper.ask(do="run", session=session, text="/say back")
            assert ran["reason"] == "end_turn"
            at_rest(await hub.sessions.get(LOCAL, session), await story(hub, session))

    asyncio.run(main())


def test_a_process_that_slept_alone_closes_its_own_turn(place: Place) -> None:
    async def main() -> None:
        async with (
            Hub(await place.open(), place.directory, lease=SHORT) as hub,
            child("holder.py", *place.arguments, SHORT) as sleeper,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            await streaming(hub, sleeper, session)
            await suspend(sleeper, hub.store, session)
            await expired(hub, session)
            sleeper.wake()
            await asyncio.wait_for(rested(hub, session), PATIENCE)
            events = await story(hub, session)
            at_rest(await hub.sessions.get(LOCAL, session), events)
            cut_off(events)

    asyncio.run(main())


def test_a_turn_longer_than_its_lease_is_left_alone_while_its_process_lives(place: Place) -> None:
    async def main() -> None:
        async with (
            Hub(await place.open(), place.directory, lease=SHORT) as hub,
            child("holder.py", *place.arguments, SHORT) as other,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            text = f"/wait {1.5 * SHORT / SECOND}\n/say through"
            turn = (await other.ask(do="prompt", session=session, text=text))["turn"]
            waiting = asyncio.ensure_future(hub.turns.wait(LOCAL, session, turn))
            while not waiting.done():
                await hub.turns.engine.recover()
                await asyncio.wait([waiting], timeout=0.05)
            assert waiting.result() == "end_turn"
            events = await story(hub, session)
            assert [plain_text(body.content) for body in bodies(events, AgentMessage)] == [
                "through"
            ]

    asyncio.run(main())
