"""The cost of lists in SQLite: they use indexes, and a deep page costs as much as the first.

Work is counted in steps of SQLite's virtual machine, which are the same on every run.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from segue.model import ids
from segue.model.cursor import ChangePoint
from segue.model.event import AgentRef, AnyBody, Created, Draft, InfoChanged, StatusChanged
from segue.model.query import Order, Position, Query
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.reads import Reader

WORKSPACE = "here"
NOON = 1_700_000_000_000_000
MIDDLE = Position(NOON + 200, ids.derived_id("middle"))

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "directory": {"directories": ("/a",)},
    "directories": {"directories": ("/a", "/b", "/c")},
    "agent": {"agent_id": "helper"},
    "agent version": {"agent_id": "helper", "agent_version": 2},
    "status": {"statuses": ("idle",)},
    "statuses": {"statuses": ("idle", "running", "terminated")},
    "deployment": {"deployment_id": "d"},
    "memory store": {"memory_store_id": "m"},
    "tag": {"tag": "red"},
    "source": {"source": "claude"},
    "created window": {"created_gte": NOON, "created_lt": NOON + 10**9},
    "activity": {"active_after": NOON - 1},
    "archived too": {"archived": "include"},
    "archived only": {"archived": "only"},
    "archived as": {"archived": "include", "statuses": ("idle",), "archived_as": "terminated"},
    "trash": {"trash": True},
}
ORDERS: tuple[Order, ...] = ("active", "created")
OWN_ORDER: dict[str, Order] = {"created window": "created", "activity": "active"}


class Meter:
    """A reader, the statements that it runs, and the steps that they take."""

    def __init__(self, path: Path, sessions: int) -> None:
        self.sessions = sessions
        self.reader = Reader(path)
        self._connection = self.reader._connection

    def statements(self, read: Callable[[], object]) -> list[str]:
        """Return the statements that `read` runs, without those that only count."""
        statements: list[str] = []
        self._connection.set_trace_callback(statements.append)
        read()
        self._connection.set_trace_callback(None)
        return [sql for sql in statements if not sql.startswith("SELECT count")]

    def plan(self, sql: str) -> list[str]:
        return [row[3] for row in self.reader.execute(f"EXPLAIN QUERY PLAN {sql}")]

    def page(self, query: Query, after: Position | None = None, *, backward: bool = False) -> int:
        """Return the steps of a page."""
        return self.steps(lambda: self.reader.page(WORKSPACE, query, after, backward=backward))

    def steps(self, read: Callable[[], object]) -> int:
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        self._connection.set_progress_handler(step, 1)
        read()
        self._connection.set_progress_handler(None, 1)
        return count


async def fill(path: Path, sessions: int) -> None:
    """Create sessions that most filters match, and a few that only `rare` filters match."""
    store = SQLiteStore.open(path)

    async def create_session(number: int) -> None:
        at = NOON + number
        created = Created(
            cwd="/" + "abc"[number % 3],
            agent=AgentRef(id="helper", version=2),
            deployment_id="d",
            memory_store_ids=("m",),
            source="claude",
        )
        if number % (sessions // 20) == 0:
            created = replace(created, deployment_id="rare", memory_store_ids=("m", "rare"))
        bodies: list[AnyBody] = [
            created,
            InfoChanged(tag="red"),
        ]
        if number % 3 == 1:
            bodies.append(StatusChanged(status="running"))
        if number % 4 == 1:
            bodies.append(InfoChanged(archived=True))
        if number % 4 == 2:
            bodies.append(InfoChanged(deleted=True))
        drafts = [Draft(body=body, at=at) for body in bodies]
        await store.create(WORKSPACE, ids.derived_id(str(number)), drafts)

    for start in range(0, sessions, 500):
        await asyncio.gather(*map(create_session, range(start, min(start + 500, sessions))))
    await store.close()


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    yield from _meter(tmp_path_factory.mktemp("few"), 400)


@pytest.fixture(scope="module", params=[4_000, pytest.param(20_000, marks=pytest.mark.full)])
def many(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Meter]:
    yield from _meter(tmp_path_factory.mktemp("many"), request.param)


def _meter(directory: Path, sessions: int) -> Iterator[Meter]:
    path = directory / "segue.db"
    asyncio.run(fill(path, sessions))
    meter = Meter(path, sessions)
    yield meter
    meter.reader.close()


def check_plan(plan: list[str]) -> None:
    assert any("SEARCH" in line for line in plan)
    for line in plan:
        assert not line.startswith("SCAN"), plan
        assert "TEMP B-TREE" not in line, plan


every_filter = pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS.keys())


@every_filter
@pytest.mark.parametrize("order", ORDERS)
def test_a_list_neither_scans_nor_sorts(few: Meter, filters: dict[str, Any], order: Order) -> None:
    for descending, backward, after in product((True, False), (True, False), (None, MIDDLE)):
        query = Query(**filters, order=order, descending=descending)
        (statement,) = few.statements(
            partial(few.reader.page, WORKSPACE, query, after, backward=backward)
        )
        check_plan(few.plan(statement))


@pytest.mark.parametrize("order", ORDERS)
def test_a_list_of_two_filters_neither_scans_nor_sorts(few: Meter, order: Order) -> None:
    for one, two in combinations(FILTERS.values(), 2):
        query = Query(**{**one, **two}, order=order)
        for statement in few.statements(partial(few.reader.page, WORKSPACE, query, MIDDLE)):
            check_plan(few.plan(statement))


@every_filter
def test_a_sweep_does_not_scan(few: Meter, filters: dict[str, Any]) -> None:
    point = ChangePoint(1, 1 << 40)
    (statement,) = few.statements(lambda: few.reader.sweep(WORKSPACE, Query(**filters), point, ""))
    assert not any(line.startswith("SCAN") for line in few.plan(statement))


def test_directories_are_read_without_reading_all_sessions(few: Meter, many: Meter) -> None:
    directories = few.reader.directories(WORKSPACE)
    assert directories == many.reader.directories(WORKSPACE) == {"/a", "/b", "/c"}
    assert many.steps(lambda: many.reader.directories(WORKSPACE)) <= 1.5 * few.steps(
        lambda: few.reader.directories(WORKSPACE)
    )
    for statement in few.statements(lambda: few.reader.directories(WORKSPACE)):
        check_plan(few.plan(statement))


def test_usage_is_read_without_reading_the_sessions(few: Meter, many: Meter) -> None:
    assert few.reader.usage(WORKSPACE).sessions == few.sessions
    assert many.reader.usage(WORKSPACE).sessions == many.sessions
    few_steps = few.steps(lambda: few.reader.usage(WORKSPACE))
    assert many.steps(lambda: many.reader.usage(WORKSPACE)) == few_steps


# A window of the time that is not the order's costs the rows that it leaves out.
@pytest.mark.parametrize(
    ("name", "order"),
    [(n, o) for n, o in product(FILTERS, ORDERS) if OWN_ORDER.get(n, o) == o],
)
def test_cost_of_a_page_does_not_depend_on_its_depth_or_the_number_of_sessions(
    few: Meter, many: Meter, name: str, order: Order
) -> None:
    query = Query(**FILTERS[name], order=order, limit=20)
    assert many.page(query) <= 1.5 * few.page(query)
    for backward in (False, True):
        assert len(few.reader.page(WORKSPACE, query, MIDDLE, backward=backward)) == 20
        least = few.page(query, MIDDLE, backward=backward)
        for at in (NOON + 100, NOON + many.sessions // 2, NOON + many.sessions - 100):
            after = Position(at, MIDDLE.id)
            assert len(many.reader.page(WORKSPACE, query, after, backward=backward)) > 10
            assert many.page(query, after, backward=backward) <= 1.5 * least


@pytest.mark.parametrize("rare", [{"deployment_id": "rare"}, {"memory_store_id": "rare"}])
@every_filter
def test_two_filters_cost_at_most_the_rows_of_the_rarer_one(
    few: Meter, many: Meter, filters: dict[str, Any], rare: dict[str, Any]
) -> None:
    # Both stores hold as many sessions that are rare; counting, too, stops at a bound.
    both = Query(**{**filters, **rare})
    assert many.page(both) <= 1.5 * few.page(both)


def test_a_sweep_costs_what_changed(few: Meter, many: Meter) -> None:
    def sweep(meter: Meter) -> int:
        low, high = meter.reader.change_point(WORKSPACE)
        return meter.steps(
            lambda: meter.reader.sweep(WORKSPACE, Query(), ChangePoint(low - 20, high), "")
        )

    assert sweep(few) > 100
    assert sweep(many) <= 1.5 * sweep(few)
