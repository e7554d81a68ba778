"""Measure one append against plain SQLite, and the throughput of 32 concurrent writers.

The lower bound for one append does the same writes in one transaction with sqlite3 alone: the
event, the session row with the indexes that its activity changes, and the change counter; WAL,
synchronous=FULL. Its bytes are encoded in advance, and it reads nothing. The full-text index is
not part of it: segue writes the index later, while it is idle or every few hundred events.

The other libraries are used as their documentation shows, with their default settings: one file,
one process, 32 tasks that each add messages to their own session.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle, repeat
from pathlib import Path
from statistics import median
from typing import NamedTuple

from _common import (
    WORKSPACE,
    Bench,
    Case,
    Vocabulary,
    build_database,
    copy_store,
    list_corpus,
    temporary_directory,
    time_cases,
)
from msgspec.structs import replace

from segue.hub import Hub
from segue.model import clock, codec, event, ids
from segue.model.content import Text
from segue.model.event import (
    ThreadChanged,
    ThreadStarted,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.connection import CHECKPOINT_PAGES

MAX_RATIO_TO_SQLITE = 2.0
MIN_RATIO_TO_OPENAI = 3.0
MIN_RATIO_TO_ADK = 10.0
MAX_RATIO_OF_THREADS = 1.1
WRITERS, THREADS = 32, 20
LOCKED_APPENDS: list[int] = []  # appends that google-adk refused and that were repeated

Append = Callable[[int, str], Awaitable[object]]  # writer number, text


class PreparedAppend(NamedTuple):
    """The bytes that an append writes, encoded before the measurement."""

    seq: int
    body: str
    row: str


class PlainSqlite:
    """The writes of an append in one transaction, without segue."""

    def __init__(self, path: Path, session: Session) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA cache_size = -16000")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        sql = "SELECT pk, change FROM sessions WHERE workspace = ? AND id = ?"
        self._pk, self._change = self._connection.execute(sql, (WORKSPACE, session.id)).fetchone()
        self._session = session

    def prepare(self, message: str) -> PreparedAppend:
        now = clock.now()
        self._session = replace(
            self._session,
            last_seq=self._session.last_seq + 1,
            messages=self._session.messages + 1,
            active_at=now,
            updated_at=now,
        )
        body = codec.encode(UserMessage(content=(Text(text=message),))).decode()
        return PreparedAppend(self._session.last_seq, body, codec.encode(self._session).decode())

    def append(self, prepared: PreparedAppend) -> None:
        execute = self._connection.execute
        now = clock.now()
        key = self._pk << 24 | prepared.seq
        self._change += 1
        execute("BEGIN IMMEDIATE")
        execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            (key, ids.new_id(), now, "user_message", event.BODY_VERSION, prepared.body),
        )
        sql = "UPDATE sessions SET active_at = ?, change = ?, row = ? WHERE pk = ?"
        execute(sql, (now, self._change, prepared.row, self._pk))
        execute("UPDATE meta SET value = ? WHERE name = 'change'", (self._change,))
        execute("COMMIT")


async def measure_single_appends(bench: Bench, directory: Path) -> None:
    """Compare an append through the store and the hub with plain SQLite."""
    count = 1_000 if bench.quick else 20_000
    original = await build_database(bench, f"listed-{count}", directory, list_corpus(count), count)
    paths = [directory / f"{name}.db" for name in ("sqlite", "store", "hub")]
    for path in paths:
        copy_store(original, path)
    store, hub_store = SQLiteStore.open(paths[1]), SQLiteStore.open(paths[2])
    hub = Hub(hub_store, directory)
    page = await store.page(WORKSPACE, Query(limit=50))
    session = next(session for session in page if not session.memory_store_ids)
    plain = PlainSqlite(paths[0], session)
    rng, words = random.Random(5), Vocabulary()

    async def plain_append() -> None:
        plain.append(next(prepared))

    async def change() -> None:
        body = UserMessage(content=(Text(text=next(store_texts)),))
        await store.change(WORKSPACE, session.id, lambda _: [body])

    async def append() -> None:
        body = UserMessage(content=(Text(text=next(hub_texts)),))
        await hub.editor.append(LOCAL, session.id, body)

    rounds, warm = 100 if bench.quick else 1_500, 50
    messages = [words.text(rng) for _ in range(rounds + warm)]
    store_texts, hub_texts = iter(messages), iter(messages)
    prepared = iter([plain.prepare(message) for message in messages])
    cases = {"sqlite": plain_append, "store": change, "hub": append}
    times = await time_cases(cases, rounds, warm)
    lower_bound = times["sqlite"].median
    for name, label in (("store", "store.change"), ("hub", "hub.editor.append")):
        ratio = times[name].median / lower_bound
        bench.row(
            f"one append of 20 to 200 words, {label}, compared with plain SQLite",
            target=f"≤ {MAX_RATIO_TO_SQLITE:g}x",
            ok=ratio <= MAX_RATIO_TO_SQLITE,
            segue=times[name].median * 1e3,
            other=lower_bound * 1e3,
            unit="ms",
            ratio=ratio,
        )
    bench.note(
        "95th percentile, ms: "
        + ", ".join(f"{name} {times[name].quantile(0.95) * 1e3:.3g}" for name in cases)
    )
    await hub.close()
    await store.close()


async def segue_append(directory: Path) -> Append:
    """Return a function that appends through a hub."""
    hub = Hub(SQLiteStore.open(directory / "segue.db"), directory)
    sessions = [await hub.editor.create(LOCAL, cwd="/home/ada/src/project") for _ in range(WRITERS)]

    async def append(writer: int, message: str) -> None:
        await hub.editor.append(
            LOCAL, sessions[writer].id, UserMessage(content=(Text(text=message),))
        )

    return append


async def openai_append(directory: Path) -> Append:
    """Return a function that appends with openai-agents."""
    from agents import SQLiteSession

    sessions = [SQLiteSession(f"session-{n}", directory / "openai.db") for n in range(WRITERS)]

    async def append(writer: int, message: str) -> None:
        await sessions[writer].add_items([{"role": "user", "content": message}])

    return append


async def adk_append(directory: Path) -> Append:
    """Return a function that appends with google-adk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.adk.events.event import Event
        from google.adk.sessions.sqlite_session_service import SqliteSessionService
        from google.genai import types

    service = SqliteSessionService(str(directory / "adk.db"))
    sessions = [
        await service.create_session(app_name="bench", user_id="ada") for _ in range(WRITERS)
    ]

    async def append(writer: int, message: str) -> None:
        content = types.Content(role="user", parts=[types.Part(text=message)])
        added = Event(author="user", invocation_id=ids.new_id(), content=content)
        while True:
            try:
                await service.append_event(sessions[writer], added)
                return
            except sqlite3.OperationalError:  # "database is locked", after five seconds
                LOCKED_APPENDS.append(writer)

    return append


async def measure_concurrent_writers(bench: Bench, directory: Path) -> None:
    """Compare concurrent writers of segue and the other libraries."""
    libraries = {"segue": segue_append, "openai": openai_append, "adk": adk_append}
    appends = {name: await open_store(directory) for name, open_store in libraries.items()}
    await compare_writers(bench, appends, "one sentence", 8, 30)
    # Without a target: most of this cost is the full-text index, which the others do not have.
    await compare_writers(bench, appends, "20 to 200 words", 20, 200, has_target=False)
    for name in appends:
        journal, sync = _read_durability(directory / f"{name}.db")
        locked = f", {len(LOCKED_APPENDS)} locked appends repeated" if LOCKED_APPENDS else ""
        bench.note(
            f"{name}: journal_mode={journal}, synchronous={sync}{locked if name == 'adk' else ''}"
        )


async def compare_writers(
    bench: Bench,
    appends: dict[str, Append],
    size: str,
    min_words: int,
    max_words: int,
    *,
    has_target: bool = True,
) -> None:
    messages_per_writer = {"segue": 60, "openai": 30, "adk": 10}  # similar durations
    rounds = 2 if bench.quick else 7
    rng, words = random.Random(6), Vocabulary()
    rates: dict[str, list[float]] = {name: [] for name in appends}
    for number in range(-1, rounds):
        for name, append in appends.items():
            count = messages_per_writer[name]
            messages = [
                [words.text(rng, min_words, max_words) for _ in range(count)]
                for _ in range(WRITERS)
            ]

            async def write(writer: int, append: Append, texts: list[str]) -> None:
                for message in texts:
                    await append(writer, message)

            os.sync()  # writes of the library before must not slow this one down
            start = time.perf_counter()
            await asyncio.gather(*(write(n, append, messages[n]) for n in range(WRITERS)))
            elapsed = time.perf_counter() - start
            if number >= 0:
                rates[name].append(WRITERS * count / elapsed)
    own_rate = median(rates["segue"])
    for name, label, min_ratio in (
        ("openai", "openai-agents SQLiteSession", MIN_RATIO_TO_OPENAI),
        ("adk", "google-adk SqliteSessionService", MIN_RATIO_TO_ADK),
    ):
        other_rate = median(rates[name])
        bench.row(
            f"{WRITERS} writers, {size} per message, compared with {label}",
            target=f"≥ {min_ratio:g}x" if has_target else "",
            ok=own_rate / other_rate >= min_ratio if has_target else None,
            segue=own_rate,
            other=other_rate,
            unit="per s",
            ratio=own_rate / other_rate,
        )


def _read_durability(path: Path) -> tuple[str, str]:
    """Return the journal mode and the synchronous level of a connection with default settings."""
    connection = sqlite3.connect(path)
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()
    return journal, ("OFF", "NORMAL", "FULL", "EXTRA")[level]


async def measure_threads(bench: Bench, directory: Path) -> None:
    """Compare appends to a session with many open threads with the same events in one thread."""
    store = SQLiteStore.open(directory / "threads.db")
    hub = Hub(store, directory)
    plain = await hub.editor.create(LOCAL, cwd="/home/ada/src/project")
    delegating = await hub.editor.create(LOCAL, cwd="/home/ada/src/project")
    calls = [ids.new_id() for _ in range(THREADS)]
    for session in (plain, delegating):
        opened = [ToolCall(call_id=call, name="delegate", input={}) for call in calls]
        await store.change(WORKSPACE, session.id, lambda _, opened=opened: opened)
    for number, call in enumerate(calls, 1):
        id = str(number)
        started = ThreadStarted(id=id, name="worker", call_id=call)
        running = ThreadChanged(thread=id, status="running", call_id=call)
        await store.change(WORKSPACE, delegating.id, lambda _, new=(started, running): new)
    rng, words = random.Random(7), Vocabulary()
    usage = Usage(input_tokens=900, output_tokens=90, cost=1000)
    rounds, warm = 100 if bench.quick else 1_000, 50
    texts = [words.text(rng) for _ in range(rounds + warm)]

    def case(session: str, threads: Iterator[str | None]) -> Case:
        remaining = iter(texts)

        async def append() -> None:
            thread, text = next(threads), (Text(text=next(remaining)),)
            call_id = ids.new_id()
            for body in (
                ToolCall(call_id=call_id, name="read", input={}, usage=usage, thread=thread),
                ToolResult(call_id=call_id, content=text, thread=thread),
            ):
                await store.change(WORKSPACE, session, lambda _, body=body: [body])

        return append

    cases = {
        "one": case(plain.id, repeat(None)),
        "threads": case(delegating.id, cycle(str(n) for n in range(1, THREADS + 1))),
    }
    times = await time_cases(cases, rounds, warm)
    ratio = times["threads"].median / times["one"].median
    bench.row(
        f"a tool call and its result in a session of {THREADS} threads, compared with one thread",
        target=f"≤ {MAX_RATIO_OF_THREADS:g}x",
        ok=ratio <= MAX_RATIO_OF_THREADS,
        segue=times["threads"].median * 1e3,
        other=times["one"].median * 1e3,
        unit="ms",
        ratio=ratio,
    )
    await hub.close()


async def main() -> int:
    bench = Bench("Appending messages", ("segue", "other", "unit", "ratio"))
    with temporary_directory() as directory:
        await measure_single_appends(bench, directory)
        await measure_threads(bench, directory)
        await measure_concurrent_writers(bench, directory)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
