"""A list of 50 among 1k, 10k and 100k sessions: its cost over bare SQLite, and that it is flat.

The floor walks the same index from the same place with sqlite3 alone and fetches the same columns
of 50 rows, without looking into them. Ours makes sessions of them. The hub reads one row more, to
know whether there is a next page, and where the store's changes stand, and so does its floor; it
also signs cursors.
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
    built,
    interleaved,
    listed,
    scratch,
)
from msgspec.structs import replace

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Position, Query, position
from segue.store.sqlite import SQLiteStore

OVER_FLOOR = 3.0
GROWTH = 1.5
DEPTHS = (0.0, 0.5, 0.9)
WHO = ("floor", "store", "hub floor", "hub")

Medians = dict[int, dict[str, float]]


class Filter(NamedTuple):
    """One way to list, and the index range that a bare walk of it takes: arms of equal columns."""

    query: Query
    arms: list[dict[str, Any]]
    time: str = "active_at"
    bound: tuple[str, int] | None = None


def filters(middle: int) -> dict[str, Filter]:
    """No filter, and each by itself. `middle` is a time that half the sessions lie before."""
    live = {"state": 0}
    key = TAG.encode()
    return {
        "none": Filter(Query(), [live]),
        "none, by creation": Filter(Query(order="created"), [live], "created_at"),
        "cwd": Filter(
            Query(directories=("/home/ada/src/project-0",)),
            [{**live, "cwd": b"/home/ada/src/project-0"}],
        ),
        "agent": Filter(Query(agent_id=AGENTS[0]), [{**live, "agent": AGENTS[0]}]),
        "agent version": Filter(
            Query(agent_id=AGENTS[0], agent_version=1),
            [{**live, "agent": AGENTS[0], "version": 1}],
        ),
        "deployment": Filter(Query(deployment_id=DEPLOYMENT), [{**live, "deployment": DEPLOYMENT}]),
        "memory store": Filter(Query(memory_store_id=MEMORY), [{**live, "store": MEMORY}]),
        "tag": Filter(Query(tag=TAG), [{**live, "tag": key}]),
        "source": Filter(Query(source="segue"), [{**live, "source": "segue"}]),
        "status": Filter(Query(statuses=("running",)), [{**live, "status": "running"}]),
        "two statuses": Filter(
            Query(statuses=("running", "idle")),
            [{**live, "status": "running"}, {**live, "status": "idle"}],
        ),
        "active after": Filter(Query(active_after=middle), [live], bound=("active_at >", middle)),
        "created before": Filter(
            Query(created_lt=middle, order="created"),
            [live],
            "created_at",
            ("created_at <", middle),
        ),
        "archived too": Filter(Query(archived="include"), [live, {"state": 1}]),
        "archived only": Filter(Query(archived="only"), [{"state": 1}]),
        "trash": Filter(Query(trash=True), [{"state": 2}]),
    }


_NAMES = {"cwd", "agent", "version", "deployment", "tag", "source", "status"}


def floor_sql(wanted: Filter, after: Position | None) -> tuple[str, list[Any]]:
    """The same walk, written by hand."""
    parts, args = [], []
    for arm in wanted.arms:
        links = "store" in arm
        named = [name for name in arm if name in _NAMES]
        table, t = ("links", "l") if links else ("sessions", "s")
        middle = f"{named[-1]}_" if named else ""
        source = f"{table} {t} INDEXED BY {table}_{middle}{wanted.time.removesuffix('_at')}"
        if links:
            source += " CROSS JOIN sessions s ON s.pk = l.session"
        tests = [f"{t}.workspace = ?", *(f"{t}.{name} = ?" for name in arm)]
        args += [WORKSPACE, *arm.values()]
        if after is not None:
            # Before the bound, which a place in the list is within already.
            tests.append(f"({t}.{wanted.time}, {t}.id) < (?, ?)")
            args += after
        if wanted.bound is not None:
            tests.append(f"{t}.{wanted.bound[0]} ?")
            args.append(wanted.bound[1])
        where = " AND ".join(tests)
        parts.append(f"SELECT {t}.{wanted.time}, {t}.id, s.row FROM {source} WHERE {where}")
    return " UNION ALL ".join(parts) + " ORDER BY 1 DESC, 2 DESC LIMIT ?", args


class Place(NamedTuple):
    """Somewhere in a list: how the store is asked for it, and how the hub is."""

    after: Position | None
    cursor: str | None


async def places(hub: Hub, query: Query) -> list[Place]:
    """The first page, and pages that start after some share of the whole list."""
    stops: list[Place] = [Place(None, None)]
    cursor: str | None = None
    while True:
        page = await hub.sessions.list(LOCAL, replace(query, limit=50), cursor)
        if page.next is None or len(page.sessions) < 50:
            break
        stops.append(Place(position(page.sessions[-1], query.order), page.next))
        cursor = page.next
        # From here on quicker: only the places are of interest.
        query = replace(query, limit=1000)
        page = await hub.sessions.list(LOCAL, query, cursor)
        if page.next is None or len(page.sessions) < 1000:
            break
        stops.append(Place(position(page.sessions[-1], query.order), page.next))
        cursor = page.next
    return [stops[int(depth * (len(stops) - 1))] for depth in DEPTHS]


class Opened:
    """One size of store, with all that is asked of it."""

    def __init__(self, path: Path) -> None:
        self.store = SQLiteStore.open(path)
        self.hub = Hub(self.store, path.parent)
        self.bare = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        self.bare.execute("PRAGMA cache_size = -16000")  # as ours
        sql = "SELECT CAST(avg(created_at) AS INTEGER) FROM sessions"
        (self.middle,) = self.bare.execute(sql).fetchone()

    async def close(self) -> None:
        self.bare.close()
        await self.hub.close()

    def cases(self, wanted: Filter, place: Place) -> dict[str, Case]:
        execute = self.bare.execute
        sql, args = floor_sql(wanted, place.after)
        marked = wanted.time == "active_at" and place.after is None

        async def floor() -> None:
            assert len(execute(sql, [*args, 50]).fetchall()) == 50

        async def hub_floor() -> None:
            if marked:  # the hub notes where the changes stand when a list by activity begins
                execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
            assert len(execute(sql, [*args, 51]).fetchall()) >= 50

        async def page() -> None:
            assert len(await self.store.page(WORKSPACE, wanted.query, place.after)) == 50

        async def list_() -> None:
            assert (
                len((await self.hub.sessions.list(LOCAL, wanted.query, place.cursor)).sessions)
                == 50
            )

        return {"floor": floor, "store": page, "hub floor": hub_floor, "hub": list_}


async def measure(opened: dict[int, Opened], name: str, rounds: int) -> list[Medians]:
    """For each depth, milliseconds by size and by who was asked, all sizes in the same rounds."""
    lists = {size: filters(each.middle)[name] for size, each in opened.items()}
    spots = {size: await places(each.hub, lists[size].query) for size, each in opened.items()}
    found = []
    for depth in range(len(DEPTHS)):
        cases: dict[str, Case] = {}
        for size, each in opened.items():
            for who, case in each.cases(lists[size], spots[size][depth]).items():
                cases[f"{size} {who}"] = case
        times = await interleaved(cases, rounds)
        found.append(
            {size: {who: times[f"{size} {who}"].median * 1e3 for who in WHO} for size in opened}
        )
    return found


async def main() -> int:
    bench = Bench(
        "A list of 50 among 100,000 sessions: ms for the first page, worst ratio at any depth",
        ("floor", "store", "hub", "store/floor", "hub/floor", "store 100k/1k", "hub 100k/1k"),
    )
    sizes = (1_000, 10_000) if bench.quick else (1_000, 10_000, 100_000)
    small, large = sizes[0], sizes[-1]
    rounds = 30 if bench.quick else 200
    with scratch() as directory:
        opened = {
            size: Opened(await built(bench, f"listed-{size}", directory, listed(size), size))
            for size in sizes
        }
        for name in filters(0):
            depths = await measure(opened, name, rounds)
            first = depths[0]
            cost = {
                "store/floor": max(at[large]["store"] / at[large]["floor"] for at in depths),
                "hub/floor": max(at[large]["hub"] / at[large]["hub floor"] for at in depths),
            }
            growth = {
                f"{who} 100k/1k": max(at[large][who] / at[small][who] for at in depths)
                for who in ("store", "hub")
            }
            bench.row(
                name,
                target=f"≤ {OVER_FLOOR:g}x, ≤ {GROWTH:g}x",
                ok=max(cost.values()) <= OVER_FLOOR and max(growth.values()) <= GROWTH,
                floor=first[large]["floor"],
                store=first[large]["store"],
                hub=first[large]["hub"],
                **cost,
                **growth,
            )
            if name == "none":
                for size in sizes:
                    _note(bench, size, [at[size] for at in depths])
        for each in opened.values():
            await each.close()
    return bench.finish()


def _note(bench: Bench, size: int, depths: list[dict[str, float]]) -> None:
    shown = (f"{who} " + " / ".join(f"{at[who]:.3f}" for at in depths) for who in WHO)
    bench.note(f"no filter among {size:,}, first page / 50% / 90% deep, ms: {', '.join(shown)}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
