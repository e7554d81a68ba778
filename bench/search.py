"""Measure searches among 100,000 sessions, newest first.

The store returns a page of sessions. The hub also returns, for each session, the newest message
that matches and a snippet of it. Words are chosen by the number of sessions that contain them, and
each call searches for another word, so that no result is cached.
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
    Vocabulary,
    build_database,
    search_corpus,
    temporary_directory,
    time_cases,
)

from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.search_index import index_path

MAX_WORD_MS = 5.0
MAX_TYPED_MS = 30.0
WORDS_PER_CASE = 12


def read_frequencies(path: Path) -> list[tuple[int, str]]:
    """Return each word with the number of events that contain it, the rarest first."""
    connection = sqlite3.connect(index_path(path))
    connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, search, row)")
    rows = connection.execute("SELECT doc, term FROM temp.words ORDER BY doc").fetchall()
    connection.close()
    return rows


def count_sessions(path: Path, word: str) -> int:
    """Return the number of sessions that contain a word."""
    connection = sqlite3.connect(index_path(path))
    sql = "SELECT count(DISTINCT rowid >> 24) FROM search WHERE search MATCH ?"
    (count,) = connection.execute(sql, (f'"{word}"',)).fetchone()
    connection.close()
    return int(count)


def words_of_frequency(words: list[tuple[int, str]], events: float) -> list[str]:
    """Return the words whose number of events is closest to `events`."""
    nearest = sorted(words, key=lambda word: abs(word[0] - events))[:WORDS_PER_CASE]
    return [word for _, word in nearest]


def make_queries_of_medium_words(path: Path, count: int) -> list[str]:
    """Return searches for complete words that about one session of a hundred contains."""
    return [f"{word} " for word in words_of_frequency(read_frequencies(path), count * 0.0105)]


def make_queries(path: Path, count: int, rng: random.Random) -> dict[str, tuple[list[str], float]]:
    """Return the queries of each case, and its maximum duration in milliseconds."""
    words = read_frequencies(path)
    # A trailing space marks a complete word; without it, the last word is a prefix.
    rare = words_of_frequency(words, 20)
    medium = words_of_frequency(words, count * 0.0105)
    common = [word for _, word in words[-WORDS_PER_CASE:]]
    frequent = words_of_frequency(words, count * 0.2)
    queries: dict[str, tuple[list[str], float]] = {}
    for name, group in (("rare", rare), ("medium", medium), ("common", common)):
        counts = sorted(count_sessions(path, word) for word in group)
        label = f"{name} word, in {counts[0]:,} to {counts[-1]:,} sessions"
        queries[label] = ([f"{word} " for word in group], MAX_WORD_MS)
    counts = sorted(count_sessions(path, word) for word in frequent)
    label = f"frequent word, in {counts[0]:,} to {counts[-1]:,}"
    queries[label] = ([f"{word} " for word in frequent], MAX_TYPED_MS)
    pairs = {"rare and common": (rare, common), "two medium": (medium, medium)}
    pairs |= {"two common": (common, common)}
    for name, (first, second) in pairs.items():
        combined = list(zip(first, rng.sample(second, len(second)), strict=True))
        queries[f"two words, {name}"] = (
            [f"{word} {other_word} " for word, other_word in combined],
            MAX_TYPED_MS,
        )
    typed_words = [
        word for word in rng.sample(common + frequent + medium, 3 * WORDS_PER_CASE) if len(word) > 5
    ]
    for length in range(2, 7):
        starts = list(dict.fromkeys(word[:length] for word in typed_words))[:WORDS_PER_CASE]
        queries[f"first {length} letters of a word"] = (starts, MAX_TYPED_MS)
    return queries


def cases(store: SQLiteStore, hub: Hub, name: str, texts: list[str]) -> dict[str, Case]:
    """Return the calls to measure for one kind of query."""
    store_texts, hub_texts = cycle(texts), cycle(texts)

    async def page() -> None:
        assert await store.page(WORKSPACE, Query(text=next(store_texts))) or "two" in name

    async def search() -> None:
        assert (
            await hub.sessions.search(LOCAL, Query(text=next(hub_texts)))
        ).matches or "two" in name

    return {f"{name}|store": page, f"{name}|hub": search}


async def measure(bench: Bench, path: Path, count: int, label: str, *, has_target: bool) -> None:
    """Measure all queries on one database."""
    store = SQLiteStore.open(path)
    hub = Hub(store, path.parent)
    queries = make_queries(path, count, random.Random(4))
    all_cases: dict[str, Case] = {}
    for name, (texts, _) in queries.items():
        all_cases |= cases(store, hub, name, texts)
    rounds = (2 if bench.quick else 8) * WORDS_PER_CASE
    times = await time_cases(all_cases, rounds)
    for name, (_, max_ms) in queries.items():
        page, search = times[f"{name}|store"], times[f"{name}|hub"]
        bench.row(
            f"{label}{name}",
            target=f"≤ {max_ms:g} ms" if has_target else "",
            ok=max(page.median, search.median) * 1e3 <= max_ms if has_target else None,
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
    words = Vocabulary()
    with temporary_directory() as directory:
        sessions = search_corpus(count, words)
        path = await build_database(bench, f"searched-{count}", directory, sessions, count)
        await measure(bench, path, count, "", has_target=True)
        if not bench.quick:
            sessions = search_corpus(count, words, shuffled=True)
            path = await build_database(bench, f"shuffled-{count}", directory, sessions, count)
            await measure(bench, path, count, "shuffled: ", has_target=False)
            bench.note("shuffled: the order of last activity is unrelated to the order of creation")
    if bench.quick:
        bench.note(f"quick: only {count:,} sessions")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
