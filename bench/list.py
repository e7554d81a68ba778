"""A list of 50 sessions among 1k, 10k and 100k: what it costs over bare SQLite, and that it is flat.

The floor walks the same index from the same place with sqlite3 alone and fetches the same columns
of 50 rows, without reading them. Ours makes sessions of them; the hub also signs cursors, and
reads one row more to know whether there is a next page.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import Any, NamedTuple

from _common import (
    AGENTS,
    DEPLOYMENTS,
    STORES,
    TAGS,
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


class Filter(NamedTuple):
    """One way to list, and the index range that a bare walk of it takes: arms of equal columns."""

    query: Query
    arms: list[dict[str, Any]]
    time: str = "active_at"
    bound: tuple[str, int] | None = None


def filters(middle: int) -> dict[str, Filter]:
    """No filter, and each by itself. `middle` is a time that half the sessions lie before."""
    live = {"shelf": 0}
    key = TAGS[0].encode()
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
        "deployment": Filter(
            Query(deployment_id=DEPLOYMENTS[0]), [{**live, "deployment": DEPLOYMENTS[0]}]
        ),
        "memory store": Filter(Query(memory_store_id=STORES[0]), [{**live, "store": STORES[0]}]),
        "tag": Filter(Query(tag=TAGS[0]), [{**live, "tag": key}]),
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
        "archived too": Filter(Query(archived="include"), [live, {"shelf": 1}]),
        "archived only": Filter(Query(archived="only"), [{"shelf": 1}]),
        "trash": Filter(Query(trash=True), [{"shelf": 2}]),
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
        if wanted.bound is not None:
            tests.append(f"{t}.{wanted.bound[0]} ?")
            args.append(wanted.bound[1])
        if after is not None:
            tests.append(f"({t}.{wanted.time}, {t}.id) < (?, ?)")
            args += after
        where = " AND ".join(tests)
        parts.append(f"SELECT {t}.{wanted.time}, {t}.id, s.row FROM {source} WHERE {where}")
    return " UNION ALL ".join(parts) + " ORDER BY 1 DESC, 2 DESC LIMIT 50", args


class Place(NamedTuple):
    """Somewhere in a list: how the store is asked for it, and how the hub is."""

    after: Position | None
    cursor: str | None


async def places(hub: Hub, query: Query) -> list[Place]:
    """The first page, and pages that start after some share of the whole list."""
    stops: list[Place] = [Place(None, None)]
    cursor: str | None = None
    while True:
        page = await hub.list(LOCAL, replace(query, limit=50), cursor)
        if page.next is None or len(page.sessions) < 50:
            break
        stops.append(Place(position(page.sessions[-1], query.order), page.next))
        cursor = page.next
        # From here on quicker: only the places are of interest.
        query = replace(query, limit=1000)
        page = await hub.list(LOCAL, query, cursor)
        if page.next is None or len(page.sessions) < 1000:
            break
        stops.append(Place(position(page.sessions[-1], query.order), page.next))
        cursor = page.next
    return [stops[int(depth * (len(stops) - 1))] for depth in DEPTHS]


async def measure(path: Path, names: dict[str, Filter], rounds: int) -> dict[str, float]:
    """Medians in milliseconds by (filter, depth, who)."""
    store = SQLiteStore.open(path)
    hub = Hub(store, path.parent)
    bare = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    bare.execute("PRAGMA cache_size = -16000")  # as ours
    found: dict[str, float] = {}
    for name, wanted in names.items():
        for depth, place in zip(DEPTHS, await places(hub, wanted.query), strict=True):
            times = await interleaved(_cases(store, hub, bare, wanted, place), rounds)
            for who, took in times.items():
                found[f"{name}|{depth}|{who}"] = took.median * 1e3
    bare.close()
    await hub.close()
    return found


def _cases(
    store: SQLiteStore, hub: Hub, bare: sqlite3.Connection, wanted: Filter, place: Place
) -> dict[str, Case]:
    sql, args = floor_sql(wanted, place.after)

    async def floor() -> None:
        assert len(bare.execute(sql, args).fetchall()) == 50

    async def page() -> None:
        assert len(await store.page(WORKSPACE, wanted.query, place.after)) == 50

    async def list_() -> None:
        assert len((await hub.list(LOCAL, wanted.query, place.cursor)).sessions) == 50

    return {"floor": floor, "store": page, "hub": list_}


async def main() -> int:
    bench = Bench(
        "A list of 50 among 100,000 sessions, in ms",
        ("floor", "store", "hub", "store/floor", "hub/floor", "store 100k/1k", "hub 100k/1k"),
    )
    sizes = (1_000, 10_000) if bench.quick else (1_000, 10_000, 100_000)
    rounds = 30 if bench.quick else 150
    with scratch() as directory:
        found: dict[int, dict[str, float]] = {}
        for size in sizes:
            path = await built(bench, f"listed-{size}", directory, listed(size), size)
            middle = await _middle(path)
            found[size] = await measure(path, filters(middle), rounds)
            bench.say(f"listed among {size:,}")
    small, large = found[sizes[0]], found[sizes[-1]]
    worst = 0.0
    for name in filters(0):
        for depth in DEPTHS:
            at = f"{name}|{depth}"
            floor, store, hub = (large[f"{at}|{who}"] for who in ("floor", "store", "hub"))
            growth = [large[f"{at}|{who}"] / small[f"{at}|{who}"] for who in ("store", "hub")]
            ratios = [store / floor, hub / floor]
            worst = max(worst, *growth)
            bench.row(
                f"{name}, {'first page' if not depth else f'{depth:.0%} deep'}",
                target=f"≤ {OVER_FLOOR:g}x, ≤ {GROWTH:g}x",
                ok=max(ratios) <= OVER_FLOOR and max(growth) <= GROWTH,
                floor=floor,
                store=store,
                hub=hub,
                **{"store/floor": ratios[0], "hub/floor": ratios[1]},
                **{"store 100k/1k": growth[0], "hub 100k/1k": growth[1]},
            )
    for size, times in found.items():
        shown = [
            times[f"none|{depth}|{who}"] for who in ("floor", "store", "hub") for depth in DEPTHS
        ]
        bench.note(
            f"no filter among {size:,}, first page / 50% / 90% deep: "
            + ", ".join(
                f"{who} {' / '.join(f'{took:.3g}' for took in shown[3 * n : 3 * n + 3])}"
                for n, who in enumerate(("floor", "store", "hub"))
            )
        )
    return bench.finish()


async def _middle(path: Path) -> int:
    with sqlite3.connect(path) as bare:
        return int(bare.execute("SELECT avg(created_at) FROM sessions").fetchone()[0])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
