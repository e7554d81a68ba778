"""Measure lists of 50 among 1k, 10k and 100k sessions, compared with plain SQLite.

Plain SQLite reads the same columns of the same rows with the same index, and does not decode them.
segue decodes them into sessions. The hub reads one more row, to know whether there is a next page,
and the change point of the store; so does its plain counterpart. The hub also signs cursors.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import Any, NamedTuple

from _common import (
    AGENTS,
    DEPLOYMENT,
    MEMORY,
    TAG,
    WORKSPACE,
    Bench,
    Case,
    build_database,
    list_corpus,
    temporary_directory,
    time_cases,
)
from msgspec.structs import replace

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Position, Query, position
from segue.store.sqlite import SQLiteStore

MAX_RATIO_TO_SQLITE = 3.0
MAX_GROWTH = 1.5
DEPTHS = (0.0, 0.5, 0.9)
CASE_NAMES = ("sqlite", "store", "hub sqlite", "hub")

Medians = dict[int, dict[str, float]]


class Filter(NamedTuple):
    """A query, and the index ranges that plain SQL reads for it.

    Each range is a dict of columns that must equal a value.
    """

    query: Query
    ranges: list[dict[str, Any]]
    time_column: str = "active_at"
    time_bound: tuple[str, int] | None = None


def filters(median_time: int) -> dict[str, Filter]:
    """Return no filter and each filter alone. Half of the sessions are older than `median_time`."""
    active = {"state": 0}
    key = TAG.encode()
    return {
        "none": Filter(Query(), [active]),
        "none, by creation": Filter(Query(order="created"), [active], "created_at"),
        "cwd": Filter(
            Query(directories=("/home/ada/src/project-0",)),
            [{**active, "cwd": b"/home/ada/src/project-0"}],
        ),
        "agent": Filter(Query(agent_id=AGENTS[0]), [{**active, "agent": AGENTS[0]}]),
        "agent version": Filter(
            Query(agent_id=AGENTS[0], agent_version=1),
            [{**active, "agent": AGENTS[0], "version": 1}],
        ),
        "deployment": Filter(
            Query(deployment_id=DEPLOYMENT), [{**active, "deployment": DEPLOYMENT}]
        ),
        "memory store": Filter(Query(memory_store_id=MEMORY), [{**active, "store": MEMORY}]),
        "tag": Filter(Query(tag=TAG), [{**active, "tag": key}]),
        "source": Filter(Query(source="segue"), [{**active, "source": "segue"}]),
        "status": Filter(Query(statuses=("running",)), [{**active, "status": "running"}]),
        "two statuses": Filter(
            Query(statuses=("running", "idle")),
            [{**active, "status": "running"}, {**active, "status": "idle"}],
        ),
        "active after": Filter(
            Query(active_after=median_time), [active], time_bound=("active_at >", median_time)
        ),
        "created before": Filter(
            Query(created_lt=median_time, order="created"),
            [active],
            "created_at",
            ("created_at <", median_time),
        ),
        "with archived": Filter(Query(archived="include"), [active, {"state": 1}]),
        "only archived": Filter(Query(archived="only"), [{"state": 1}]),
        "trash": Filter(Query(trash=True), [{"state": 2}]),
    }


_NAMES = {"cwd", "agent", "version", "deployment", "tag", "source", "status"}


def plain_sql(filter: Filter, after: Position | None) -> tuple[str, list[Any]]:
    """Return SQL that reads the same rows, and its arguments."""
    parts, args = [], []
    for equal_columns in filter.ranges:
        links = "store" in equal_columns
        named = [name for name in equal_columns if name in _NAMES]
        table, t = ("links", "l") if links else ("sessions", "s")
        column = f"{named[-1]}_" if named else ""
        source = f"{table} {t} INDEXED BY {table}_{column}{filter.time_column.removesuffix('_at')}"
        if links:
            source += " CROSS JOIN sessions s ON s.pk = l.session"
        tests = [f"{t}.workspace = ?", *(f"{t}.{name} = ?" for name in equal_columns)]
        args += [WORKSPACE, *equal_columns.values()]
        if after is not None:
            # The position comes first: it lies within the time bound.
            tests.append(f"({t}.{filter.time_column}, {t}.id) < (?, ?)")
            args += after
        if filter.time_bound is not None:
            tests.append(f"{t}.{filter.time_bound[0]} ?")
            args.append(filter.time_bound[1])
        where = " AND ".join(tests)
        parts.append(f"SELECT {t}.{filter.time_column}, {t}.id, s.row FROM {source} WHERE {where}")
    return " UNION ALL ".join(parts) + " ORDER BY 1 DESC, 2 DESC LIMIT ?", args


class ListStart(NamedTuple):
    """Where a page begins: a position for the store, a cursor for the hub."""

    after: Position | None
    cursor: str | None


async def list_starts(hub: Hub, query: Query) -> list[ListStart]:
    """Return the starts of the first page and of pages at each of DEPTHS."""
    starts: list[ListStart] = [ListStart(None, None)]
    cursor: str | None = None
    while True:
        page = await hub.sessions.list(LOCAL, replace(query, limit=50), cursor)
        if page.next is None or len(page.sessions) < 50:
            break
        starts.append(ListStart(position(page.sessions[-1], query.order), page.next))
        cursor = page.next
        # Large pages: only the positions matter.
        query = replace(query, limit=1000)
        page = await hub.sessions.list(LOCAL, query, cursor)
        if page.next is None or len(page.sessions) < 1000:
            break
        starts.append(ListStart(position(page.sessions[-1], query.order), page.next))
        cursor = page.next
    return [starts[int(depth * (len(starts) - 1))] for depth in DEPTHS]


class OpenStore:
    """A store of one size, its hub, and a plain connection to the same file."""

    def __init__(self, path: Path) -> None:
        self.store = SQLiteStore.open(path)
        self.hub = Hub(self.store, path.parent)
        self.plain = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        self.plain.execute("PRAGMA cache_size = -16000")  # as the store does
        sql = "SELECT CAST(avg(created_at) AS INTEGER) FROM sessions"
        (self.median_time,) = self.plain.execute(sql).fetchone()

    async def close(self) -> None:
        self.plain.close()
        await self.hub.close()

    def cases(self, filter: Filter, start: ListStart) -> dict[str, Case]:
        """Return the calls to measure for one page."""
        execute = self.plain.execute
        sql, args = plain_sql(filter, start.after)
        reads_change_point = filter.time_column == "active_at" and start.after is None

        async def plain_page() -> None:
            assert len(execute(sql, [*args, 50]).fetchall()) == 50

        async def plain_page_of_hub() -> None:
            if reads_change_point:  # only the first page of a list by activity
                execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
            assert len(execute(sql, [*args, 51]).fetchall()) >= 50

        async def page() -> None:
            assert len(await self.store.page(WORKSPACE, filter.query, start.after)) == 50

        async def hub_page() -> None:
            assert (
                len((await self.hub.sessions.list(LOCAL, filter.query, start.cursor)).sessions)
                == 50
            )

        return {
            "sqlite": plain_page,
            "store": page,
            "hub sqlite": plain_page_of_hub,
            "hub": hub_page,
        }


async def measure(stores: dict[int, OpenStore], name: str, rounds: int) -> list[Medians]:
    """Return the median milliseconds of each case, by depth and by size of the store."""
    lists = {size: filters(store.median_time)[name] for size, store in stores.items()}
    starts = {
        size: await list_starts(store.hub, lists[size].query) for size, store in stores.items()
    }
    medians = []
    for depth in range(len(DEPTHS)):
        cases: dict[str, Case] = {}
        for size, store in stores.items():
            for case_name, case in store.cases(lists[size], starts[size][depth]).items():
                cases[f"{size} {case_name}"] = case
        times = await time_cases(cases, rounds)
        medians.append(
            {
                size: {
                    case_name: times[f"{size} {case_name}"].median * 1e3 for case_name in CASE_NAMES
                }
                for size in stores
            }
        )
    return medians


async def main() -> int:
    bench = Bench(
        "A list of 50 among 100,000 sessions: ms for the first page, worst ratio at any depth",
        ("sqlite", "store", "hub", "store/sqlite", "hub/sqlite", "store 100k/1k", "hub 100k/1k"),
    )
    sizes = (1_000, 10_000) if bench.quick else (1_000, 10_000, 100_000)
    small, large = sizes[0], sizes[-1]
    rounds = 30 if bench.quick else 200
    with temporary_directory() as directory:
        stores = {
            size: OpenStore(
                await build_database(bench, f"listed-{size}", directory, list_corpus(size), size)
            )
            for size in sizes
        }
        for name in filters(0):
            depths = await measure(stores, name, rounds)
            first = depths[0]
            cost = {
                "store/sqlite": max(
                    medians[large]["store"] / medians[large]["sqlite"] for medians in depths
                ),
                "hub/sqlite": max(
                    medians[large]["hub"] / medians[large]["hub sqlite"] for medians in depths
                ),
            }
            growth = {
                f"{case_name} 100k/1k": max(
                    medians[large][case_name] / medians[small][case_name] for medians in depths
                )
                for case_name in ("store", "hub")
            }
            bench.row(
                name,
                target=f"≤ {MAX_RATIO_TO_SQLITE:g}x, ≤ {MAX_GROWTH:g}x",
                ok=max(cost.values()) <= MAX_RATIO_TO_SQLITE and max(growth.values()) <= MAX_GROWTH,
                sqlite=first[large]["sqlite"],
                store=first[large]["store"],
                hub=first[large]["hub"],
                **cost,
                **growth,
            )
            if name == "none":
                for size in sizes:
                    _note_depths(bench, size, [medians[size] for medians in depths])
        for store in stores.values():
            await store.close()
    return bench.finish()


def _note_depths(bench: Bench, size: int, depths: list[dict[str, float]]) -> None:
    texts = (
        f"{case_name} " + " / ".join(f"{medians[case_name]:.3f}" for medians in depths)
        for case_name in CASE_NAMES
    )
    bench.note(f"no filter among {size:,}, first page / 50% / 90% deep, ms: {', '.join(texts)}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
