"""An append: what one costs over bare SQLite, and how many a second 32 writers get done.

The floor for one append does the same writes in one transaction with sqlite3 alone: the event, its
words in the full-text index, the session's row with the indexes that its activity moves, and the
change counter; WAL, synchronous=FULL. Its bytes are made beforehand, and it reads nothing.

The peers are used as their documentation shows, with the settings that they choose themselves: one
file, one process, 32 tasks that each add messages to a session of their own.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from _common import WORKSPACE, Bench, Words, built, interleaved, listed, scratch
from msgspec.structs import replace

from segue.hub import Hub
from segue.model import clock, codec, event, ids
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.store.sqlite import SQLiteStore
from segue.store.sqlite.writer import CHECKPOINT_PAGES

OVER_FLOOR = 2.0
OVER_OPENAI = 3.0
OVER_ADK = 10.0
WRITERS = 32
LOCKED: list[int] = []  # appends that google-adk refused and that were tried again

Append = Callable[[int, str], Awaitable[object]]  # writer number, text


class Prepared(NamedTuple):
    """What an append writes: bytes that are made before the clock starts."""

    seq: int
    body: bytes
    words: str
    row: bytes


class Floor:
    """The same writes, by hand."""

    def __init__(self, path: Path, session: Session) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA cache_size = -16000")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        sql = "SELECT pk, change FROM sessions WHERE workspace = ? AND id = ?"
        self._pk, self._change = self._connection.execute(sql, (WORKSPACE, session.id)).fetchone()
        self._session = session

    def prepared(self, message: str) -> Prepared:
        now = clock.now()
        self._session = replace(
            self._session,
            last_seq=self._session.last_seq + 1,
            messages=self._session.messages + 1,
            active_at=now,
            updated_at=now,
        )
        body = codec.encode(UserMessage(content=(Text(text=message),)))
        return Prepared(self._session.last_seq, body, message, codec.encode(self._session))

    def append(self, made: Prepared) -> None:
        execute = self._connection.execute
        now = clock.now()
        key = self._pk << 24 | made.seq
        self._change += 1
        execute("BEGIN IMMEDIATE")
        execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            (key, ids.new_id(), now, "user_message", event.BODY_VERSION, made.body),
        )
        execute("INSERT INTO search (rowid, tokens) VALUES (?, ?)", (key, made.words))
        sql = "UPDATE sessions SET active_at = ?, change = ?, row = ? WHERE pk = ?"
        execute(sql, (now, self._change, made.row, self._pk))
        execute("UPDATE meta SET value = ? WHERE name = 'change'", (self._change,))
        execute("COMMIT")


async def single(bench: Bench, directory: Path) -> None:
    count = 1_000 if bench.quick else 20_000
    original = await built(bench, f"listed-{count}", directory, listed(count), count)
    paths = [directory / f"{name}.db" for name in ("floor", "store", "hub")]
    for path in paths:
        shutil.copy(original, path)
    store, beneath = SQLiteStore.open(paths[1]), SQLiteStore.open(paths[2])
    hub = Hub(beneath, directory)
    listed_first = await store.page(WORKSPACE, Query(limit=50))
    session = next(each for each in listed_first if not each.memory_store_ids)
    floor = Floor(paths[0], session)
    chance, words = random.Random(5), Words()

    async def bare() -> None:
        floor.append(next(prepared))

    async def change() -> None:
        body = UserMessage(content=(Text(text=next(mine)),))
        await store.change(WORKSPACE, session.id, lambda _: [body])

    async def append() -> None:
        body = UserMessage(content=(Text(text=next(others)),))
        await hub.editor.append(LOCAL, session.id, body)

    rounds, warm = 100 if bench.quick else 1_500, 50
    messages = [words.text(chance) for _ in range(rounds + warm)]
    mine, others = iter(messages), iter(messages)
    prepared = iter([floor.prepared(message) for message in messages])
    cases = {"floor": bare, "store": change, "hub": append}
    times = await interleaved(cases, rounds, warm)
    least = times["floor"].median
    for name, label in (("store", "store.change"), ("hub", "hub.editor.append")):
        ratio = times[name].median / least
        bench.row(
            f"one append of 20 to 200 words, {label}",
            target=f"≤ {OVER_FLOOR:g}x",
            ok=ratio <= OVER_FLOOR,
            ours=times[name].median * 1e3,
            theirs=least * 1e3,
            unit="ms",
            ratio=ratio,
        )
    bench.note(
        "95th percentile, ms: "
        + ", ".join(f"{name} {times[name].quantile(0.95) * 1e3:.3g}" for name in cases)
    )
    await hub.close()
    await store.close()


async def ours(directory: Path) -> Append:
    hub = Hub(SQLiteStore.open(directory / "segue.db"), directory)
    made = [await hub.editor.create(LOCAL, cwd="/home/ada/src/project") for _ in range(WRITERS)]

    async def append(writer: int, message: str) -> None:
        await hub.editor.append(LOCAL, made[writer].id, UserMessage(content=(Text(text=message),)))

    return append


async def openai(directory: Path) -> Append:
    from agents import SQLiteSession

    made = [SQLiteSession(f"session-{n}", directory / "openai.db") for n in range(WRITERS)]

    async def append(writer: int, message: str) -> None:
        await made[writer].add_items([{"role": "user", "content": message}])

    return append


async def adk(directory: Path) -> Append:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.adk.events.event import Event
        from google.adk.sessions.sqlite_session_service import SqliteSessionService
        from google.genai import types

    service = SqliteSessionService(str(directory / "adk.db"))
    made = [await service.create_session(app_name="bench", user_id="ada") for _ in range(WRITERS)]

    async def append(writer: int, message: str) -> None:
        content = types.Content(role="user", parts=[types.Part(text=message)])
        added = Event(author="user", invocation_id=ids.new_id(), content=content)
        while True:
            try:
                await service.append_event(made[writer], added)
                return
            except sqlite3.OperationalError:  # "database is locked": it waits five seconds, no more
                LOCKED.append(writer)

    return append


async def concurrent(bench: Bench, directory: Path) -> None:
    peers = {"segue": ours, "openai": openai, "adk": adk}
    appends = {name: await make(directory) for name, make in peers.items()}
    await compete(bench, appends, "a sentence", 8, 30)
    # For information: here the cost is that of the full-text index, which the peers do not have.
    await compete(bench, appends, "20 to 200 words", 20, 200, judged=False)
    for name in appends:
        journal, sync = _durability(directory / f"{name}.db")
        again = f", {len(LOCKED)} appends refused as locked and tried again" if LOCKED else ""
        bench.note(
            f"{name}: journal_mode={journal}, synchronous={sync}{again if name == 'adk' else ''}"
        )


async def compete(
    bench: Bench,
    appends: dict[str, Append],
    size: str,
    low: int,
    high: int,
    *,
    judged: bool = True,
) -> None:
    each = {"segue": 60, "openai": 30, "adk": 10}  # so that each takes a while and none too long
    rounds = 2 if bench.quick else 7
    chance, words = random.Random(6), Words()
    rates: dict[str, list[float]] = {name: [] for name in appends}
    for number in range(-1, rounds):
        for name, append in appends.items():
            count = each[name]
            messages = [
                [words.text(chance, low, high) for _ in range(count)] for _ in range(WRITERS)
            ]

            async def write(writer: int, append: Append, texts: list[str]) -> None:
                for message in texts:
                    await append(writer, message)

            os.sync()  # what the one before left to be written is not this one's to wait for
            start = time.perf_counter()
            await asyncio.gather(*(write(n, append, messages[n]) for n in range(WRITERS)))
            took = time.perf_counter() - start
            if number >= 0:
                rates[name].append(WRITERS * count / took)
    mine = median(rates["segue"])
    for name, label, least in (
        ("openai", "openai-agents SQLiteSession", OVER_OPENAI),
        ("adk", "google-adk SqliteSessionService", OVER_ADK),
    ):
        other = median(rates[name])
        bench.row(
            f"{WRITERS} writers of {size}, to {label}",
            target=f"≥ {least:g}x" if judged else "",
            ok=mine / other >= least if judged else None,
            ours=mine,
            theirs=other,
            unit="per s",
            ratio=mine / other,
        )


def _durability(path: Path) -> tuple[str, str]:
    """How a file is written by whoever connects and changes nothing, as both peers do."""
    connection = sqlite3.connect(path)
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    connection.close()
    return journal, ("OFF", "NORMAL", "FULL", "EXTRA")[level]


async def main() -> int:
    bench = Bench("Appending messages", ("ours", "theirs", "unit", "ratio"))
    with scratch() as directory:
        await single(bench, directory)
        await concurrent(bench, directory)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
