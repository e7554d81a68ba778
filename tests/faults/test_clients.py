"""Two editors and a command line on one session: no turn of a living client is ever lost."""

import asyncio
import itertools

import pytest

from segue.hub import Hub
from segue.hub.turns import claims, engine
from segue.model import clock
from segue.model.event import AgentMessage, Event, Interrupted, StatusChanged, UserMessage
from segue.model.principal import LOCAL
from tests.faults.idle import assert_idle, ends
from tests.faults.processes import TIMEOUT_SECONDS, Child, StoreLocation, child
from tests.faults.takeover import bodies, read_events, wait_until_idle

LEASE = 15_000_000  # a process that died is noticed long before
SHORT = 2_000_000
HOUR = 3600 * clock.SECOND  # a lease or a pause that no test may wait for
SLOW = "/slow 0.02\n/say " + "word " * 40

ORDERS = [
    order
    for order in itertools.product(
        ["close", "quit", "kill"],  # what one client does
        ["first editor opens first", "second editor opens first", "a command line"],  # that client
        ["idle", "running"],  # that client meanwhile
        ["before", "after"],  # when the others send their prompts
        ["editor, command line", "command line, editor"],  # the order of these prompts
    )
    # A command line has nothing to close, and ends with its turn.
    if order[1] != "a command line" or (order[0] != "close" and order[2] == "running")
]
SAMPLE = {ORDERS[index] for index in (2, 13, 22, 31, 44, 53)}


async def leave(editor: Child, how: str, session: str) -> None:
    if how == "kill":
        editor.kill()
        await editor.ended()
    else:
        await editor.request(do=how, session=session)


@pytest.mark.parametrize(
    "order",
    [pytest.param(o, marks=() if o in SAMPLE else pytest.mark.full) for o in ORDERS],
    ids=lambda order: "-".join(order),
)
def test_turns_of_living_clients_run_whatever_another_client_does(
    location: StoreLocation, order: tuple[str, str, str, str, str]
) -> None:
    how, leaving, meanwhile, when, prompting = order

    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=LEASE) as hub,
            child("holder.py", *location.arguments, LEASE) as first,
            child("holder.py", *location.arguments, LEASE) as second,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            editors = {
                "first editor opens first": [first, second],
                "second editor opens first": [second, first],
                "a command line": [second],
            }[leaving]
            for editor in editors:
                await editor.request(do="hold", session=session)
            if meanwhile == "running":
                mine = (await first.request(do="prompt", session=session, text=SLOW))["turn"]
                await hub.turns.wait_started(LOCAL, session, mine)
            if when == "after":
                await leave(first, how, session)
            theirs = []
            for client in prompting.split(", "):
                if client == "editor":
                    answer = await second.request(do="prompt", session=session, text=SLOW)
                    theirs.append(answer["turn"])
                else:
                    text = "/say from the command line"
                    theirs.append(await hub.turns.submit(LOCAL, session, text))
            if when == "before":
                await leave(first, how, session)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                for turn in theirs:
                    assert await hub.turns.wait(LOCAL, session, turn) == "end_turn"
                await wait_until_idle(hub, session)
            events = await read_events(hub, session)
            assert_idle(await hub.sessions.get(LOCAL, session), events)
            prompts = [e.id for e in events if isinstance(e.body, UserMessage)]
            assert prompts[-2:] == theirs
            if meanwhile == "running":
                reason = {"kill": "error"}.get(how, "cancelled")
                ended = [body for body in bodies(events, StatusChanged) if ends(body)]
                assert (ended[0].turn, ended[0].stop_reason) == (mine, reason)

    asyncio.run(main())


def test_death_of_a_process_on_this_host_is_noticed_at_once(location: StoreLocation) -> None:
    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=HOUR) as hub,
            child("holder.py", *location.arguments, HOUR) as other,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            turn = (await other.request(do="prompt", session=session, text="/wait 60"))["turn"]
            await hub.turns.wait_started(LOCAL, session, turn)
            next_turn = await hub.turns.submit(LOCAL, session, "/say next")
            other.kill()
            await other.ended()
            reason = hub.turns.wait(LOCAL, session, next_turn)
            assert await asyncio.wait_for(reason, TIMEOUT_SECONDS) == "end_turn"
            assert len(bodies(await read_events(hub, session), Interrupted)) == 1

    asyncio.run(main())


def test_cancel_is_answered_while_the_process_of_the_turn_is_suspended(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=HOUR) as hub,
            child("holder.py", *location.arguments, HOUR) as other,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            turn = (await other.request(do="prompt", session=session, text="/wait 60"))["turn"]
            await hub.turns.wait_started(LOCAL, session, turn)
            queued = await hub.turns.submit(LOCAL, session, "/say next")
            await asyncio.sleep(0.3)  # not during a write, because its locks would stay
            other.suspend()
            await hub.turns.cancel(LOCAL, session)
            reason = hub.turns.wait(LOCAL, session, queued)
            assert await asyncio.wait_for(reason, TIMEOUT_SECONDS) == "cancelled"
            other.resume()
            assert await hub.turns.wait(LOCAL, session, turn) == "cancelled"

    asyncio.run(main())


def test_lease_of_a_dead_process_ends_although_the_clock_was_set_back(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the process had run in another container, where no process here can see it.
    monkeypatch.setattr(claims, "is_dead", lambda _: False)
    now = clock.now

    async def main() -> None:
        async with Hub(await location.open(), location.directory, lease=SHORT) as hub:
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            async with child("holder.py", *location.arguments, SHORT) as other:
                await other.request(do="prompt", session=session, text="/wait 60")
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    async for item in hub.history.follow(LOCAL, session):
                        if isinstance(item, Event) and isinstance(item.body, UserMessage):
                            break
                other.kill()
                await other.ended()
            monkeypatch.setattr(clock, "now", lambda: now() - 3600 * clock.SECOND)
            hub.turns.engine.start()
            await asyncio.wait_for(wait_until_idle(hub, session), TIMEOUT_SECONDS)
            assert await hub.turns.run(LOCAL, session, "/say again") == "end_turn"
            assert len(bodies(await read_events(hub, session), AgentMessage)) == 1

    asyncio.run(main())


def test_lease_is_handed_over_by_a_signal_and_not_by_polling(
    location: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "RETRY_SECONDS", 3600)
    monkeypatch.setattr(engine, "RECOVER_SECONDS", 3600)

    async def main() -> None:
        async with (
            Hub(await location.open(), location.directory, lease=HOUR) as hub,
            child("holder.py", *location.arguments, HOUR) as other,
        ):
            session = (await hub.editor.create(LOCAL, cwd="/work")).id
            for _ in range(9):
                text = "/slow 0.01\n/say " + "word " * 20
                turn = (await other.request(do="prompt", session=session, text=text))["turn"]
                await hub.turns.wait_started(LOCAL, session, turn)
                mine = await hub.turns.submit(LOCAL, session, "/say mine")
                reason = hub.turns.wait(LOCAL, session, mine)
                assert await asyncio.wait_for(reason, TIMEOUT_SECONDS) == "end_turn"

    asyncio.run(main())
