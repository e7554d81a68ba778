"""200 concurrent writers in four processes lose nothing and overwrite nothing."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from segue.model import ids
from segue.model.errors import SegueError
from segue.model.event import Created, Event, InfoChanged
from tests.faults import audit
from tests.faults.processes import Child, StoreLocation, child

WORKSPACE = "local"
PROCESSES = 4
WRITERS = 50
EVENTS = 5


@pytest.mark.parametrize("sessions", [1, 40])
def test_200_writers_in_four_processes_lose_nothing(location: StoreLocation, sessions: int) -> None:
    async def main() -> None:
        store = await location.open()
        names = [ids.new_id() for _ in range(sessions)]
        for name in names:
            await store.create(WORKSPACE, name, [Created(cwd="/work")])
        async with AsyncExitStack() as stack:
            crowds = [
                await stack.enter_async_context(
                    child("crowd.py", *location.arguments, f"p{number}", WRITERS, EVENTS, *names)
                )
                for number in range(PROCESSES)
            ]
            for crowd in crowds:
                await crowd.expect("ready")
            for crowd in crowds:
                crowd.send_request(go=True)
            reports = await asyncio.gather(*map(read_lines, crowds))
        all_lines = [line for lines in reports for line in lines]
        assert len(all_lines) == PROCESSES * WRITERS * EVENTS
        acknowledged = Counter((line["session"], line["seq"], line["id"]) for line in all_lines)
        stored: Counter[tuple[str, int, str]] = Counter()
        for name in names:
            session = await store.get(WORKSPACE, name)
            assert session is not None
            events = await store.events(WORKSPACE, name, limit=100_000)
            audit.whole(session, events)
            stored.update((name, event.seq, event.id) for event in events[1:])
        assert stored == acknowledged
        await store.close()

    asyncio.run(main())


async def read_lines(crowd: Child) -> list[dict]:
    lines = []
    while (line := await crowd.read_line()) is not None and line["says"] == "kept":
        lines.append(line)
    assert line is not None, "a writer failed; what it said is on standard error"
    return lines


def test_invalid_write_fails_without_failing_others(location: StoreLocation) -> None:
    """Writers share commits, so a write with a duplicate id could fail those of others."""
    twice = [
        Event(seq=1, id="first", at=1, body=Created(cwd="/work")),
        Event(seq=2, id="same", at=2, body=InfoChanged(title="one")),
        Event(seq=3, id="same", at=3, body=InfoChanged(title="two")),
    ]

    async def main() -> None:
        store = await location.open()
        names = [ids.new_id() for _ in range(20)]
        writes = [store.create(WORKSPACE, name, [Created(cwd="/work")]) for name in names]
        writes.insert(10, store.load(WORKSPACE, ids.new_id(), twice))
        done = await asyncio.gather(*writes, return_exceptions=True)
        assert isinstance(done.pop(10), SegueError)
        assert [session for session in done if isinstance(session, Exception)] == []
        assert await store.existing_ids(WORKSPACE, names) == set(names)
        await store.close()

    asyncio.run(main())
