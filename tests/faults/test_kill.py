"""A killed writer loses nothing that it had acknowledged."""

import asyncio
import random
import time
from collections.abc import Iterator

import pytest

from segue.model import ids
from segue.model.event import Created
from tests.faults import audit
from tests.faults.conftest import LocationFactory
from tests.faults.ledger import WORKSPACE, Ledger, seed
from tests.faults.processes import Child, StoreLocation, child
from tests.postgres import fresh_database


@pytest.fixture
def durable_location(tmp_path, postgres_url: str) -> Iterator[StoreLocation]:
    with fresh_database(postgres_url) as url:
        yield StoreLocation(tmp_path, url)


def test_10_killed_writers_lose_nothing_in_sqlite(sqlite_location: StoreLocation) -> None:
    asyncio.run(kill_writers(sqlite_location, 10))


@pytest.mark.full
@pytest.mark.parametrize("hundred", range(10))
def test_1000_killed_writers_lose_nothing_in_sqlite(
    sqlite_location: StoreLocation, hundred: int
) -> None:
    asyncio.run(kill_writers(sqlite_location, 100))


def test_5_killed_writers_lose_nothing_in_postgres(durable_location: StoreLocation) -> None:
    asyncio.run(kill_writers(durable_location, 5))


@pytest.mark.full
@pytest.mark.parametrize("hundred", range(2))
def test_200_killed_writers_lose_nothing_in_postgres(
    durable_location: StoreLocation, hundred: int
) -> None:
    asyncio.run(kill_writers(durable_location, 100))


@pytest.mark.parametrize("stores", [4, pytest.param(20, marks=pytest.mark.full)])
def test_process_killed_while_it_creates_a_store_leaves_a_store_that_opens(
    make_locations: LocationFactory, stores: int
) -> None:
    async def main(locations: list[StoreLocation]) -> None:
        chance = random.Random(seed())
        # A store is made in some twenty milliseconds, over a socket in more.
        longest = 0.03 if locations[0].url is None else 0.15
        for location in locations:
            async with child("writer.py", *location.arguments, 0) as writer:
                await writer.expect("opening")
                await asyncio.sleep(chance.uniform(0, longest))
                writer.kill()
                await writer.ended()
            await wait_for_disconnect(location)
            await check_write(location, Ledger())
            await check_integrity(location, thorough=True)

    asyncio.run(main(make_locations(stores)))


async def kill_writers(location: StoreLocation, kills: int) -> None:
    begun_with = seed()
    print(f"SEGUE_FAULT_SEED={begun_with}")
    chance = random.Random(begun_with)
    ledger = Ledger()
    await check_write(location, ledger)
    for kill in range(kills):
        async with child("writer.py", *location.arguments, chance.randrange(2**32)) as writer:
            await writer.expect("opening")
            await kill_at_random_moment(writer, ledger, chance)
        await wait_for_disconnect(location)
        # By turns the store and the audit are the first to open what the dead one left.
        if kill % 2:
            await check_write(location, ledger)
        await check_integrity(location, thorough=kill % 10 == 9)
        if not kill % 2:
            await check_write(location, ledger)
    # Most writers must have come to writing, or this has shown nothing.
    assert ledger.acknowledged > 10 * kills


async def kill_at_random_moment(writer: Child, ledger: Ledger, chance: random.Random) -> None:
    """Kill the writer after some operations, during the next one, and read its last lines."""
    # Now and then it is killed before the first: while it opens the store.
    for _ in range(chance.choice([0, 1, 5, 20, 80, 80, 200, 200])):
        report = await writer.read_line()
        assert report is not None, "the writer ended by itself"
        ledger.enter(report)
    # From inside one statement to inside the next commits: a commit takes about two milliseconds.
    longest = chance.choice([0.0001, 0.001, 0.005, 0.02])
    until = time.perf_counter() + chance.uniform(0, longest)
    while time.perf_counter() < until:
        pass
    writer.kill()
    while (report := await writer.read_line()) is not None:
        ledger.enter(report)
    await writer.ended()


async def wait_for_disconnect(location: StoreLocation) -> None:
    """Wait until the database server has closed the dead process's connections."""
    if location.url is None:
        return
    import asyncpg

    connection = await asyncpg.connect(location.url)
    try:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        while await connection.fetchval(sql) > 1:
            await asyncio.sleep(0.005)
    finally:
        await connection.close()


async def check_write(location: StoreLocation, ledger: Ledger) -> None:
    """Check that the store opens with everything in it and can be written."""
    store = await location.open()
    try:
        await ledger.check(store)
        id = ids.new_id()
        await store.create(WORKSPACE, id, [Created(cwd="/work")])
        await store.purge(WORKSPACE, id, lambda _: None)
    finally:
        await store.close()


async def check_integrity(location: StoreLocation, *, thorough: bool) -> None:
    if location.url is None:
        audit.sqlite_file(location.file, thorough=thorough)
    else:
        await audit.postgres_database(location.url)
