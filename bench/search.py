"""Search among 100,000 sessions, newest first: how long until 50 of them are found.

The store is asked for a page of sessions; the hub for the same with, for each session, the newest
message that has the words and a snippet of it. Words are chosen by how many sessions they occur in,
and each case asks for another word every time, so that nothing is measured that was asked before.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from itertools import cycle
from pathlib import Path

from _common import (
    WORKSPACE,
    Bench,
    Case,
    Words,
    built,
    interleaved,
    scratch,
    searched,
)

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.sqlite import SQLiteStore

WORD_MS = 5.0
TYPED_MS = 30.0
EACH = 12  # different words of a kind


def frequencies(path: Path) -> list[tuple[int, str]]:
    """Every word with the number of events that have it, the rarest first."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, search, row)")
    found = connection.execute("SELECT doc, term FROM temp.words ORDER BY doc").fetchall()
    connection.close()
    return found


def sessions_of(path: Path, word: str) -> int:
    connection = sqlite3.connect(path)
    sql = "SELECT count(DISTINCT rowid >> 24) FROM search WHERE search MATCH ?"
    (count,) = connection.execute(sql, (f'"{word}"',)).fetchone()
    connection.close()
    return int(count)


def near(words: list[tuple[int, str]], events: float) -> list[str]:
    """Some words that occur in about so many events."""
    nearest = sorted(words, key=lambda word: abs(word[0] - events))[:EACH]
    return [word for _, word in nearest]


def queries(path: Path, count: int, chance: random.Random) -> dict[str, tuple[list[str], float]]:
    """What is searched for, by name, with the most milliseconds that it may take."""
    words = frequencies(path)
    # A space after a word says that it is whole; a word at the very end may be only begun.
    rare = near(words, 20)
    middling = near(words, count * 0.0105)
    common = [word for _, word in words[-EACH:]]
    some = near(words, count * 0.2)
    found: dict[str, tuple[list[str], float]] = {}
    for name, chosen in (("rare", rare), ("middling", middling), ("common", common)):
        held = sorted(sessions_of(path, word) for word in chosen)
        label = f"{name} word, in {held[0]:,} to {held[-1]:,} sessions"
        found[label] = ([f"{word} " for word in chosen], WORD_MS)
    held = sorted(sessions_of(path, word) for word in some)
    label = f"in-between word, in {held[0]:,} to {held[-1]:,}"
    found[label] = ([f"{word} " for word in some], TYPED_MS)
    pairs = {"rare and common": (rare, common), "two middling": (middling, middling)}
    pairs |= {"two common": (common, common)}
    for name, (first, second) in pairs.items():
        mixed = list(zip(first, chance.sample(second, len(second)), strict=True))
        found[f"two words, {name}"] = ([f"{one} {two} " for one, two in mixed], TYPED_MS)
    typed = [word for word in chance.sample(common + some + middling, 3 * EACH) if len(word) > 5]
    for length in range(2, 7):
        starts = list(dict.fromkeys(word[:length] for word in typed))[:EACH]
        found[f"first {length} letters of a word"] = (starts, TYPED_MS)
    return found


def cases(store: SQLiteStore, hub: Hub, name: str, texts: list[str]) -> dict[str, Case]:
    turns, hub_turns = cycle(texts), cycle(texts)

    async def page() -> None:
        assert await store.page(WORKSPACE, Query(text=next(turns))) or "two" in name

    async def search() -> None:
        assert (
            await hub.sessions.search(LOCAL, Query(text=next(hub_turns)))
        ).matches or "two" in name

    return {f"{name}|store": page, f"{name}|hub": search}


async def measure(bench: Bench, path: Path, count: int, label: str, checked: bool) -> None:
    store = SQLiteStore.open(path)
    hub = Hub(store, path.parent)
    asked = queries(path, count, random.Random(4))
    every: dict[str, Case] = {}
    for name, (texts, _) in asked.items():
        every |= cases(store, hub, name, texts)
    rounds = (2 if bench.quick else 8) * EACH
    times = await interleaved(every, rounds)
    for name, (_, most) in asked.items():
        page, search = times[f"{name}|store"], times[f"{name}|hub"]
        bench.row(
            f"{label}{name}",
            target=f"≤ {most:g} ms" if checked else "",
            ok=max(page.median, search.median) * 1e3 <= most if checked else None,
            store=page.median * 1e3,
            hub=search.median * 1e3,
            **{"hub, 95%": search.quantile(0.95) * 1e3},
        )
    await hub.close()


async def main() -> int:
    bench = Bench(
        "Search among 100,000 sessions, newest first, in ms", ("store", "hub", "hub, 95%")
    )
    count = 5_000 if bench.quick else 100_000
    words = Words()
    with scratch() as directory:
        made = searched(count, words)
        path = await built(bench, f"searched-{count}", directory, made, count)
        await measure(bench, path, count, "", True)
        if not bench.quick:
            made = searched(count, words, shuffled=True)
            path = await built(bench, f"shuffled-{count}", directory, made, count)
            await measure(bench, path, count, "shuffled: ", False)
            bench.note("shuffled: last activity has nothing to do with the order of creation")
    if bench.quick:
        bench.note(f"quick: among {count:,} sessions only")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
