"""A writing process is killed at any moment: what it had acknowledged is there, and whole."""

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from segue.model import ids
from segue.model.event import Created
from tests.faults import audit
from tests.faults.conftest import Rooms
from tests.faults.ledger import WORKSPACE, Ledger, seed
from tests.faults.processes import Child, Place, child
from tests.postgres import fresh_database


@pytest.fixture
def durable_place(tmp_path, postgres_url: str) -> Iterator[Place]:
    with fresh_database(postgres_url) as url:
        yield Place(tmp_path, url)


def test_20_killed_writers_lose_nothing_in_sqlite(sqlite_place: Place) -> None:
    asyncio.run(kill_writers(sqlite_place, 20))


@pytest.mark.full
@pytest.mark.parametrize("hundred", range(10))
def test_1000_killed_writers_lose_nothing_in_sqlite(sqlite_place: Place, hundred: int) -> None:
    asyncio.run(kill_writers(sqlite_place, 100))


def test_5_killed_writers_lose_nothing_in_postgres(durable_place: Place) -> None:
    asyncio.run(kill_writers(durable_place, 5))


@pytest.mark.full
@pytest.mark.parametrize("hundred", range(2))
def test_200_killed_writers_lose_nothing_in_postgres(durable_place: Place, hundred: int) -> None:
    asyncio.run(kill_writers(durable_place, 100))


def test_a_process_killed_while_it_makes_the_store_leaves_one_that_opens(rooms: Rooms) -> None:
    async def main(places: list[Place]) -> None:
        chance = random.Random(seed())
        # A store is made in some twenty milliseconds, over a socket in more.
        longest = 0.03 if places[0].url is None else 0.15
        for place in places:
            async with child("writer.py", *place.arguments, 0) as writer:
                await writer.expect("opening")
                await asyncio.sleep(chance.uniform(0, longest))
                writer.kill()
                await writer.ended()
            await settled(place)
            await takes_a_write(place, Ledger())
            await whole(place, thorough=True)

    asyncio.run(main(rooms(8)))


async def kill_writers(place: Place, kills: int) -> None:
    begun_with = seed()
    print(f"SEGUE_FAULT_SEED={begun_with}")
    chance = random.Random(begun_with)
    ledger = Ledger()
    await takes_a_write(place, ledger)
    for kill in range(kills):
        async with child("writer.py", *place.arguments, chance.randrange(2**32)) as writer:
            await writer.expect("opening")
            await kill_some_time(writer, ledger, chance)
        await settled(place)
        # By turns the store and the audit are the first to open what the dead one left.
        if kill % 2:
            await takes_a_write(place, ledger)
        await whole(place, thorough=kill % 10 == 9)
        if not kill % 2:
            await takes_a_write(place, ledger)
    # Most writers must have come to writing, or this has shown nothing.
    assert ledger.acknowledged > 10 * kills


async def kill_some_time(writer: Child, ledger: Ledger, chance: random.Random) -> None:
    """Kill it after some of its operations, a little into the next ones; hear it to the end."""
    # Now and then it is killed before the first: while it opens the store.
    for _ in range(chance.choice([0, 1, 5, 20, 80, 80, 200, 200])):
        said = await writer.hear()
        assert said is not None, "the writer ended by itself"
        ledger.enter(said)
    # From inside one statement to inside the next commits: a commit takes about two milliseconds.
    longest = chance.choice([0.0001, 0.001, 0.005, 0.02])
    until = time.perf_counter() + chance.uniform(0, longest)
    while time.perf_counter() < until:
        pass
    writer.kill()
    while (said := await writer.hear()) is not None:
        ledger.enter(said)
    await writer.ended()


async def settled(place: Place) -> None:
    """A server may still be ending what the dead process had sent it: wait for that."""
    if place.url is None:
        return
    import asyncpg

    connection = await asyncpg.connect(place.url)
    try:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        while await connection.fetchval(sql) > 1:
            await asyncio.sleep(0.005)
    finally:
        await connection.close()


async def takes_a_write(place: Place, ledger: Ledger) -> None:
    """Opens at once, with everything in it, and writes."""
    store = await place.open()
    try:
        await ledger.check(store)
        id = ids.new_id()
        await store.create(WORKSPACE, id, [Created(cwd="/work")])
        await store.purge(WORKSPACE, id, lambda _: None)
    finally:
        await store.close()


async def whole(place: Place, *, thorough: bool) -> None:
    if place.url is None:
        audit.sqlite_file(place.file, thorough=thorough)
    else:
        await audit.postgres_database(place.url)
