"""A follower sees every event once and in order, however fast another process appends."""

import asyncio

from segue.hub import Hub
from segue.model import ids
from segue.model.event import Created, Event
from segue.model.principal import LOCAL
from tests.faults.processes import TIMEOUT_SECONDS, Child, StoreLocation, child
from tests.faults.stream import FollowerCheck

WRITERS = 20
EVENTS = 40
TOTAL = 1 + WRITERS * EVENTS  # with the session's creation


async def watch(hub: Hub, session: str, after: int = 0) -> list[Event]:
    """Everything after a seq, until there is no more to come."""
    screen = FollowerCheck(after)
    if after == TOTAL:
        return []
    async for event in hub.history.follow(LOCAL, session, after):
        screen.show(event)
        if screen.last == TOTAL:
            break
    return screen.events


async def well_begun(writer: Child) -> None:
    # A fifth: what is said and not heard waits in buffers, which hold less than all the rest.
    for _ in range(TOTAL // 5):
        line = await writer.read_line()
        assert line is not None and line["says"] == "kept"


def test_followers_see_every_event_of_another_process_once_and_in_order(
    location: StoreLocation,
) -> None:
    async def main() -> None:
        async with Hub(await location.open(), location.directory) as hub:
            session = ids.new_id()
            await hub.store.create("local", session, [Created(cwd="/work")])
            async with child(
                "crowd.py", *location.arguments, "crowd", WRITERS, EVENTS, session
            ) as writer:
                await writer.expect("ready")
                early = asyncio.create_task(watch(hub, session))
                await asyncio.sleep(0)  # it has begun to follow
                writer.send_request(go=True)
                await well_begun(writer)
                # In the middle: one from the start, one from here, and one that was here before.
                row = await hub.sessions.get(LOCAL, session)
                assert 1 < row.last_seq < TOTAL, "the writer was through before anybody followed"
                late = [
                    asyncio.create_task(watch(hub, session, after))
                    for after in (0, row.last_seq, row.last_seq - 1)
                ]
                seen = await asyncio.wait_for(
                    asyncio.gather(early, *late, writer.expect("done")), TIMEOUT_SECONDS
                )
            stored = await hub.store.events("local", session, limit=TOTAL + 1)
            assert len(stored) == TOTAL
            assert seen[0] == seen[1] == stored
            assert seen[2] == stored[row.last_seq :]
            assert seen[3] == stored[row.last_seq - 1 :]

    asyncio.run(main())
