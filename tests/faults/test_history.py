"""Random clients in several processes, with faults: the stored history agrees with theirs."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from segue.hub import Hub
from segue.model.content import as_content
from segue.model.event import Created, Event, StatusChanged, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from tests.faults.history import Operation, find_problems, read_history
from tests.faults.ledger import seed
from tests.faults.processes import TIMEOUT_SECONDS, Child, StoreLocation, child
from tests.faults.takeover import read_events, wait_until_idle
from tests.faults.test_kill import check_integrity, wait_for_disconnect
from tests.postgres import crash_server, fresh_database, running_server

LEASE = 2_000_000  # in microseconds: a suspended process loses its lease after so long
PROCESSES = 3
SHORT_SECONDS = 10.0  # 20 for both stores
HALF_AN_HOUR = 1800.0
MIN_REPORTS = 800  # of clients whose store has a defect


class Clients:
    """The processes of clients, and what they have reported so far."""

    def __init__(
        self,
        location: StoreLocation,
        chance: random.Random,
        stack: AsyncExitStack,
        defects: Sequence[str] = (),
    ) -> None:
        self._location, self._chance, self._stack = location, chance, stack
        self._defects = defects
        self._count = 0
        self._readers: list[asyncio.Task[None]] = []
        self.reports: list[dict[str, Any]] = []
        self.running: list[Child] = []

    async def start(self) -> None:
        self._count += 1
        number, chosen = self._count, self._chance.randrange(2**32)
        arguments = (*self._location.arguments, LEASE, number, chosen, *self._defects)
        client = await self._stack.enter_async_context(child("client.py", *arguments))
        await client.expect("ready")
        self._readers.append(asyncio.create_task(self._read(client)))
        self.running.append(client)

    async def _read(self, client: Child) -> None:
        while (line := await client.read_line()) is not None:
            if "listed" in line:  # ids that each list repeats need memory once
                line["listed"] = [sys.intern(id) for id in line["listed"]]
            self.reports.append(line)

    async def kill(self, client: Child) -> None:
        self.running.remove(client)
        client.kill()
        await client.ended()

    async def end(self) -> None:
        for client in list(self.running):
            await self.kill(client)
        await asyncio.gather(*self._readers)


async def disturb(clients: Clients, chance: random.Random, crash: Callable[[], Any]) -> None:
    """Kill, suspend or disconnect something for ever, one after another."""
    while True:
        await asyncio.sleep(chance.uniform(0.1, 0.8))
        client = chance.choice(clients.running)
        match chance.choice(["kill", "suspend", "suspend", "crash"]):
            case "kill":
                await clients.kill(client)
                await clients.start()
            case "suspend":
                client.suspend()
                await asyncio.sleep(chance.choice([0.05, 0.5, 1.5 * LEASE / 1e6]))
                client.resume()
            case "crash":
                await crash()


async def run_clients(
    location: StoreLocation, seconds: float, crash: Callable[[], Any]
) -> list[Operation]:
    """Let clients work with a store for some time; return what they did."""
    begun_with = seed()
    print(f"SEGUE_FAULT_SEED={begun_with}")
    chance = random.Random(begun_with)
    await (await location.open()).close()
    async with AsyncExitStack() as stack:
        clients = Clients(location, chance, stack)
        for _ in range(PROCESSES):
            await clients.start()
        disturbing = asyncio.create_task(disturb(clients, chance, crash))
        await asyncio.wait([disturbing], timeout=seconds)
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)
        await clients.end()
        return read_history(clients.reports)


async def stored_events(location: StoreLocation) -> dict[str, Sequence[Event]]:
    """Recover the turns of the killed clients, and return the events of each session."""
    async with Hub(await location.open(), location.directory, lease=LEASE) as hub:
        hub.turns.engine.start()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            ids = [id async for id in session_ids(hub)]
            for id in ids:
                await wait_until_idle(hub, id)
        return {id: await read_events(hub, id) for id in ids}


async def session_ids(hub: Hub) -> AsyncIterator[str]:
    cursor = None
    while True:
        page = await hub.sessions.list(LOCAL, Query(limit=100), cursor)
        for session in page.sessions:
            yield session.id
        if (cursor := page.next) is None:
            return


async def check_history(location: StoreLocation, seconds: float, crash: Callable[[], Any]) -> None:
    history = await run_clients(location, seconds, crash)
    await wait_for_disconnect(location)
    problems = find_problems(history, await stored_events(location))
    assert not problems, "\n".join(problems[:20])
    await wait_for_disconnect(location)
    await check_integrity(location, thorough=True)
    done = [operation for operation in history if operation.is_acknowledged]
    print(f"{len(done)} of {len(history)} operations were acknowledged")
    assert {operation.do for operation in done} >= {
        "create",
        "append",
        "prompt",
        "read",
        "tail",
        "page",
    }


async def do_nothing() -> None:
    return


@pytest.mark.parametrize(
    "seconds", [SHORT_SECONDS, pytest.param(HALF_AN_HOUR, marks=pytest.mark.full)]
)
def test_clients_of_sqlite_lose_nothing_whatever_fails(
    sqlite_location: StoreLocation, seconds: float
) -> None:
    asyncio.run(check_history(sqlite_location, seconds, do_nothing))


def test_clients_of_postgres_lose_nothing_whatever_fails(
    location_of_postgres: StoreLocation,
) -> None:
    async def end_connections() -> None:
        import asyncpg

        connection = await asyncpg.connect(location_of_postgres.url)
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        sql += " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        await connection.execute(sql)
        await connection.close()

    asyncio.run(check_history(location_of_postgres, SHORT_SECONDS, end_connections))


@pytest.mark.full
def test_clients_of_postgres_lose_nothing_for_half_an_hour(tmp_path) -> None:
    with running_server() as server:

        async def crash() -> None:
            await asyncio.to_thread(crash_server, server)

        asyncio.run(check_history(StoreLocation(tmp_path, server), HALF_AN_HOUR, crash))


@pytest.fixture
def location_of_postgres(tmp_path, quick_postgres_url: str):
    with fresh_database(quick_postgres_url) as url:
        yield StoreLocation(tmp_path, url)


# What the checks report of each defect of children/defects.py.
PROBLEMS = {
    "drop": "has seq None",
    "delay": "has seq",
    "duplicate": "is stored 2 times",
    "overlap": "runs",  # a turn runs while another does, or twice
    "skip": "misses session",
    "stale": "misses event",
    "mix": "was read as event",
}


@pytest.mark.parametrize("defect", PROBLEMS)
def test_defect_of_a_store_is_found(sqlite_location: StoreLocation, defect: str) -> None:
    async def main() -> list[str]:
        await (await sqlite_location.open()).close()
        async with AsyncExitStack() as stack:
            clients = Clients(sqlite_location, random.Random(seed()), stack, [defect])
            for _ in range(PROCESSES):
                await clients.start()
            while len(clients.reports) < MIN_REPORTS:
                await asyncio.sleep(0.05)
            await clients.end()
            history = read_history(clients.reports)
        return find_problems(history, await stored_events(sqlite_location))

    problems = asyncio.run(main())
    assert any(PROBLEMS[defect] in problem for problem in problems), problems


# The checks themselves.

SESSION = "s"
TURN = [
    StatusChanged(status="running", turn="t"),
    UserMessage(content=as_content("hello"), turn="t"),
    StatusChanged(status="idle", stop_reason="end_turn", turn="t"),
]


def as_events(*bodies: Any) -> list[Event]:
    return [
        Event(seq=seq, id=f"e{seq}", at=0, body=body)
        for seq, body in enumerate([Created(cwd="/"), *bodies], 1)
    ]


HISTORY = [
    Operation("create", "", SESSION, 0, 1, {"created": SESSION}),
    Operation("append", SESSION, "e2", 2, 3, {"seq": 2}),
    Operation("read", SESSION, "-", 4, 5, {"last_seq": 2}),
    Operation("page", "", "-", 4, 5, {"listed": [SESSION]}),
    Operation("prompt", SESSION, "e4", 6, 7, {"prompted": "e4"}),
]
EVENTS = as_events(UserMessage(content=as_content("appended")), *TURN)


def test_consistent_history_has_no_problem() -> None:
    assert find_problems(HISTORY, {SESSION: EVENTS}) == []


@pytest.mark.parametrize(
    ("operation", "result", "problem"),
    [
        (2, {"last_seq": 1}, "misses event 2"),
        (3, {"listed": []}, "misses session s"),
        (4, {"prompted": "e4"}, "never began"),
        (1, {"seq": 3}, "has seq 2, not 3"),
        (2, {"events": [(2, "e3")]}, "e3 was read as event 2"),
    ],
)
def test_false_answer_of_an_operation_is_found(
    operation: int, result: dict[str, Any], problem: str
) -> None:
    history = list(HISTORY)
    known = history[operation]
    id = "another" if "never" in problem else known.id
    history[operation] = Operation(known.do, known.session, id, known.begun, known.ended, result)
    assert problem in find_problems(history, {SESSION: EVENTS})[0]


def test_event_stored_before_an_earlier_one_is_found() -> None:
    late = Operation("append", SESSION, "e2", 6, 7, {"seq": 2})
    early = Operation("append", SESSION, "e3", 2, 5, {"seq": 3})
    problems = find_problems([early, late], {SESSION: EVENTS})
    assert problems == [f"{SESSION}: event 2 was stored after event 3"]


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        (EVENTS[:1], "event e2 has seq None"),
        ([EVENTS[0], *EVENTS[2:]], "event 3 is in place 2"),
        ([*EVENTS, replace(EVENTS[1], seq=6)], "stored 2 times"),
        (as_events(*TURN[:2], replace(TURN[0], turn="u")), "while t runs"),
        (as_events(*TURN, *TURN), "runs again"),
        (as_events(*TURN[:2]), "never ends"),
        (as_events(TURN[1]), "while None runs"),
    ],
)
def test_false_events_are_found(events: list[Event], problem: str) -> None:
    assert any(problem in found for found in find_problems(HISTORY, {SESSION: events}))
