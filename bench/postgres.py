"""Measure the PostgreSQL store against bare asyncpg, with few and with many sessions.

The server is the one of the tests (tests/postgres.py), with its default settings, on disk. The
sessions are copies of one that segue wrote, made by SQL, with times, ids and words of their own,
and one message of 12 words each in the search index.

The lower bound of a list reads the same rows with the same index, without decoding them. The lower
bound of an append does the same writes in one statement: the event, its words for search, and the
session's row. Its values are encoded in advance, and it reads nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it ships no types
from _common import WORKSPACE, Bench, Vocabulary, temporary_directory, time_cases
from msgspec.structs import replace

from segue.model import clock, codec, event, ids, search_text
from segue.model.content import Text
from segue.model.event import Created, UserMessage
from segue.model.query import Query
from segue.model.session import Session
from segue.store import migrations
from segue.store.postgres import PostgresStore
from segue.store.postgres.connection import POOL_SIZE
from segue.store.postgres.tsquery import vectors

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.postgres import fresh_database, running_server

MAX_LIST_RATIO = 3.0
MAX_GROWTH = 1.5
MIN_APPEND_RATIO = 0.6
MAX_SEARCH_MS = 10.0
WRITERS = 32
PROCESSES = 4
KILL_SECONDS = 5.0
FEW = 10_000
SIZED_MESSAGES = 300  # of each writer
# The ranks of words by how many sessions have them: `_GENERATE_WORDS` puts the word of rank r into
# about 1.1 / r of the sessions.
COMMON, OCCASIONAL, MEDIUM, RARE = (2, 55), (110, 550), (550, 1100), (20_000, 40_000)
SEARCHES: dict[str, tuple[tuple[int, int], ...]] = {
    "a common word (in 2 to 50 % of the sessions)": (COMMON,),
    "an occasional word (in 0.2 to 1 %)": (OCCASIONAL,),
    "a medium word (in 0.1 to 0.2 %)": (MEDIUM,),
    "a rare word (in 0.003 to 0.006 %)": (RARE,),
    "two common words": (COMMON, COMMON),
    "a common and an occasional word": (COMMON, OCCASIONAL),
    "a common and a medium word": (COMMON, MEDIUM),
    "two occasional words": (OCCASIONAL, OCCASIONAL),
    "two medium words": (MEDIUM, MEDIUM),
    "the beginning of a medium word": (MEDIUM,),
    "a word that does not occur": (),
}
# Every program that writes names the format that it knows.
OPTIONS = {"server_settings": {"segue.format": str(migrations.load("postgres")[-1].number)}}
# Sentinels of the row that every generated session is a copy of.
ID = "01a1ed50-0000-7000-8000-000000000000"
CREATED_AT, ACTIVE_AT = 1_111_111_111_111_111, 1_222_222_222_222_222

# A session every 100 seconds, as in list.py; an index on most columns of `sessions` exists.
_GENERATE_SESSIONS = """
    INSERT INTO segue.sessions (workspace, id, state, status, cwd, source, created_at, active_at,
      change, born, row, bytes)
    SELECT workspace, g.id, state, status, convert_to('/home/ada/project-' || g.n % 20, 'UTF8'),
      source, g.created, g.active, change, born,
      convert_to(replace(replace(replace(convert_from(row, 'UTF8'), $2, g.id),
        $3::text, g.created::text), $4::text, g.active::text), 'UTF8'),
      bytes
    FROM segue.sessions,
      LATERAL (
        SELECT n, gen_random_uuid()::text AS id, 1780000000000000 - n * 100000000 AS created,
          1780000000000000 - n * 100000000 + (random() * 50000000)::bigint AS active
        FROM generate_series($5::bigint, $6::bigint) AS n
      ) AS g
    WHERE sessions.id = $1
"""
# One message of 12 words for each session. A word's frequency is inverse to its rank.
_GENERATE_WORDS = """
    INSERT INTO segue.search (session, seq, part, words)
    SELECT pk, 2, 0, array_to_tsvector(array_agg(DISTINCT word))
    FROM (
      SELECT pk, floor(power(50000, random()))::int AS rank
      FROM segue.sessions, generate_series(1, 12)
    ) AS drawn
    JOIN unnest($1::text[]) WITH ORDINALITY AS words (word, rank) USING (rank)
    GROUP BY pk ON CONFLICT DO NOTHING
"""


class Floor:
    """The writes and reads of the store through bare asyncpg, with a pool of the same size."""

    _APPEND = f"""
        WITH s AS (
          UPDATE segue.sessions SET change = pg_current_xact_id()::text::bigint,
            bytes = bytes + octet_length($2::bytea), active_at = $3, row = $4 WHERE pk = $1
          RETURNING pk
        ),
        added AS (
          INSERT INTO segue.events (session, seq, id, at, type, version, body)
          SELECT pk, $5, $6, $3, 'user_message', {event.BODY_VERSION}, $2 FROM s
        )
        INSERT INTO segue.search (session, seq, part, words)
        SELECT pk, $5, 0, $7::text::tsvector FROM s
    """
    _LIST = """
        SELECT active_at, id, row FROM segue.sessions
        WHERE workspace = $1 AND state = 0 AND status <> 'by time'
        ORDER BY active_at DESC, id DESC LIMIT 50
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._prepared: list[list[tuple[Any, ...]]] = []

    async def list(self) -> None:
        assert len(await self._pool.fetch(self._LIST, WORKSPACE)) == 50

    async def prepare(self, sessions: list[Session], texts: list[list[str]]) -> None:
        """Encode the appends of each writer to its session."""
        self._prepared = []
        for session, messages in zip(sessions, texts, strict=True):
            sql = "SELECT pk FROM segue.sessions WHERE workspace = $1 AND id = $2"
            pk = await self._pool.fetchval(sql, WORKSPACE, session.id)
            prepared = []
            for message in messages:
                session = replace(session, last_seq=session.last_seq + 1, active_at=clock.now())
                body = codec.encode(UserMessage(content=(Text(text=message),)))
                (words,) = vectors(search_text.tokens(message))
                row = codec.encode(session)
                at, seq = session.active_at, session.last_seq
                prepared.append((pk, body, at, row, seq, ids.new_id(), words))
            self._prepared.append(prepared)

    async def append(self, writer: int, number: int) -> None:
        async with self._pool.acquire() as connection:
            await connection.fetch(self._APPEND, *self._prepared[writer][number])


async def create_pool(url: str) -> Any:
    async def keep_settings(_: Any) -> None:
        """Reset nothing when a connection is returned: that would be another round trip."""

    return await asyncpg.create_pool(
        url, min_size=POOL_SIZE, max_size=POOL_SIZE, reset=keep_settings, **OPTIONS
    )


async def generate(store: PostgresStore, connection: Any, first: int, last: int) -> None:
    """Generate sessions and their words, as copies of one that the store has written."""
    drafts = [Created(cwd="/home/ada"), UserMessage(content=(Text(text="hello"),))]
    session = await store.create(WORKSPACE, ids.new_id(), drafts)
    row = replace(session, id=ID, created_at=CREATED_AT, active_at=ACTIVE_AT, updated_at=ACTIVE_AT)
    sql = "UPDATE segue.sessions SET row = $2 WHERE id = $1"
    await connection.execute(sql, session.id, codec.encode(row))
    values = (session.id, ID, str(CREATED_AT), str(ACTIVE_AT), first, last)
    # A trigger counts each row in one row of `usage`; PostgreSQL keeps every version of that row
    # until the end of the transaction, and each update reads all of them.
    await connection.execute("ALTER TABLE segue.sessions DISABLE TRIGGER count_session")
    await connection.execute(_GENERATE_SESSIONS, *values)
    await connection.execute("ALTER TABLE segue.sessions ENABLE TRIGGER count_session")
    await store.purge(WORKSPACE, session.id, lambda _: None)
    await connection.execute("DROP INDEX segue.search_words")
    await connection.execute(_GENERATE_WORDS, Vocabulary().words)
    await connection.execute(
        "CREATE INDEX search_words ON segue.search USING gin (words) WITH (fastupdate = off)"
    )
    await connection.execute("VACUUM ANALYZE segue.sessions, segue.search")


async def measure_lists(bench: Bench, few_url: str, url: str, count: int) -> None:
    """Compare a list of 50 in a database with few sessions and in one with many, and search."""
    cases, stores, pools = {}, [], []
    for sessions, database in {min(FEW, count): few_url, count: url}.items():
        store = await PostgresStore.open(database)
        pool = await create_pool(database)
        start = time.perf_counter()
        async with pool.acquire() as connection:
            await generate(store, connection, 1, sessions)
        bench.progress(f"generated {sessions:,} sessions in {time.perf_counter() - start:.0f} s")

        async def list_sessions(store: PostgresStore = store) -> None:
            assert len(await store.page(WORKSPACE, Query(limit=50))) == 50

        cases |= {f"segue {sessions}": list_sessions, f"asyncpg {sessions}": Floor(pool).list}
        stores.append(store)
        pools.append(pool)
    times = await time_cases(cases, 20 if bench.quick else 500)
    medians = {case: times[case].median * 1e3 for case in cases}
    for sessions in dict.fromkeys((min(FEW, count), count)):
        own, floor = medians[f"segue {sessions}"], medians[f"asyncpg {sessions}"]
        bench.row(
            f"a list of 50 among {sessions:,} sessions, compared with asyncpg",
            target=f"≤ {MAX_LIST_RATIO:g}x",
            ok=own / floor <= MAX_LIST_RATIO,
            segue=own,
            asyncpg=floor,
            unit="ms",
            ratio=own / floor,
        )
    growth = medians[f"segue {count}"] / medians[f"segue {min(FEW, count)}"]
    bench.row(
        f"the same list among {count:,} sessions, compared with {min(FEW, count):,}",
        target=f"≤ {MAX_GROWTH:g}x",
        ok=growth <= MAX_GROWTH,
        ratio=growth,
    )
    await measure_searches(bench, stores[-1], count)
    size = await pools[-1].fetchval("SELECT pg_database_size(current_database())")
    bench.note(f"{count:,} sessions without events take {size / 1e6:,.0f} MB with all indexes.")
    for pool in pools:
        await pool.close()
    for store in stores:
        await store.close()


async def measure_searches(bench: Bench, store: PostgresStore, count: int) -> None:
    """Search for words of several frequencies; each search runs three times in a row."""
    words, rng = Vocabulary().words, random.Random(1)
    for label, ranks in SEARCHES.items():
        bench.progress(f"searching for {label}")
        seconds = []
        for number in range(5 if bench.quick else 30):
            chosen = [words[rng.randrange(*bounds)] for bounds in ranks] or [f"qqq{number}"]
            # The end of the query may be the beginning of a word, unless a space follows.
            text = chosen[0][:-1] if label.startswith("the beginning") else " ".join(chosen) + " "
            for _ in range(3):
                start = time.perf_counter()
                await store.page(WORKSPACE, Query(limit=20, text=text))
                seconds.append(time.perf_counter() - start)
        middle, slow = (quantiles(seconds, n=10)[index] * 1e3 for index in (4, 8))
        bench.row(
            f"a search for {label} among {count:,} sessions",
            target=f"< {MAX_SEARCH_MS:g} ms",
            ok=middle < MAX_SEARCH_MS,
            segue=middle,
            p90=slow,
            unit="ms",
        )


async def measure_appends(bench: Bench, url: str) -> None:
    """Compare 32 writers in one process with asyncpg."""
    store = await PostgresStore.open(url)
    pool = await create_pool(url)
    floor, words, rng = Floor(pool), Vocabulary(), random.Random(5)
    appends, rounds = (20, 2) if bench.quick else (100, 5)
    floor_sessions, own_sessions = await new_sessions(store), await new_sessions(store)
    rates: dict[str, list[float]] = {"segue": [], "asyncpg": []}
    for number in range(rounds):
        bench.progress(f"{WRITERS} writers in one process, round {number + 1} of {rounds}")
        texts = [[words.text(rng, 8, 30) for _ in range(appends)] for _ in range(WRITERS)]
        floor_sessions = [await get(store, session.id) for session in floor_sessions]
        await floor.prepare(floor_sessions, texts)

        async def change(writer: int, number: int, texts: list[list[str]] = texts) -> None:
            body = UserMessage(content=(Text(text=texts[writer][number]),))
            await store.change(WORKSPACE, own_sessions[writer].id, lambda _: [body])

        cases: dict[str, Callable[[int, int], Awaitable[None]]] = {
            "segue": change,
            "asyncpg": floor.append,
        }
        for name, append in cases.items():
            rates[name].append(await rate(append, appends))
    ratio = median(rates["segue"]) / median(rates["asyncpg"])
    bench.row(
        f"appends a second by {WRITERS} writers in one process",
        target=f"≥ {MIN_APPEND_RATIO:g}x",
        ok=ratio >= MIN_APPEND_RATIO,
        segue=median(rates["segue"]),
        asyncpg=median(rates["asyncpg"]),
        unit="1/s",
        ratio=ratio,
    )
    await measure_size(bench, store, pool)
    await pool.close()
    await store.close()


async def measure_size(bench: Bench, store: PostgresStore, pool: Any) -> None:
    """Compare the size of long messages in the database with that of their JSON."""
    sql = "SELECT pg_database_size(current_database())"
    words, rng = Vocabulary(), random.Random(6)
    sessions, before, body_bytes = await new_sessions(store), await pool.fetchval(sql), 0
    messages = 20 if bench.quick else SIZED_MESSAGES
    bench.progress(f"appending {WRITERS * messages:,} messages to measure their size")

    async def write(session: Session) -> None:
        nonlocal body_bytes
        for _ in range(messages):
            body = UserMessage(content=(Text(text=words.text(rng, 20, 200)),))
            body_bytes += len(codec.encode(body))
            await store.change(WORKSPACE, session.id, lambda _, body=body: [body])

    await asyncio.gather(*map(write, sessions))
    grown = await pool.fetchval(sql) - before
    bench.row(
        "bytes of a message of 20 to 200 words with all indexes, compared with its JSON",
        segue=grown / (WRITERS * messages),
        asyncpg=body_bytes / (WRITERS * messages),
        unit="B",
        ratio=grown / body_bytes,
    )


async def new_sessions(store: PostgresStore) -> list[Session]:
    return [
        await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/home/ada")])
        for _ in range(WRITERS)
    ]


async def get(store: PostgresStore, id: str) -> Session:
    session = await store.get(WORKSPACE, id)
    assert session is not None
    return session


async def rate(append: Callable[[int, int], Awaitable[None]], appends: int) -> float:
    """Return the appends a second of concurrent writers."""

    async def write(writer: int) -> None:
        for number in range(appends):
            await append(writer, number)

    start = time.perf_counter()
    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    return WRITERS * appends / (time.perf_counter() - start)


# Several processes. Each is this script with a URL and a number of writers, and prints the ids of
# the events that were acknowledged, one JSON list for each writer's append.


async def write_for_ever(url: str, writers: int) -> None:
    store = await PostgresStore.open(url)
    words, rng = Vocabulary(), random.Random(os.getpid())
    texts = [words.text(rng, 8, 30) for _ in range(1000)]

    async def write() -> None:
        session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/home/ada")])
        while True:
            body = UserMessage(content=(Text(text=rng.choice(texts)),))
            _, events = await store.change(WORKSPACE, session.id, lambda _, body=body: [body])
            line = json.dumps([session.id, events[0].seq, events[0].id])
            os.write(1, line.encode() + b"\n")

    await asyncio.gather(*(write() for _ in range(writers)))


class WriterProcess:
    """A process that appends until it is killed, and the file of what was acknowledged."""

    def __init__(self, url: str, directory: Path, number: int, writers: int) -> None:
        self._path = directory / f"acknowledged-{number}"
        with self._path.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--writer", url, str(writers)], stdout=output
            )

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def count(self) -> int:
        return self._path.read_bytes().count(b"\n")

    def acknowledged(self) -> list[tuple[str, int, str]]:
        lines = self._path.read_text().splitlines(keepends=True)
        return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]


async def measure_processes(bench: Bench, url: str, directory: Path) -> None:
    """Compare the appends a second of four processes and of one, with as many writers, in turn."""
    seconds, rounds = (2, 2) if bench.quick else (5, 8)
    rates: dict[int, list[float]] = {1: [], PROCESSES: []}
    for number in range(rounds):
        for processes in (1, PROCESSES) if number % 2 else (PROCESSES, 1):
            rate = await rate_of_processes(url, directory, number, processes, seconds)
            rates[processes].append(rate)
            bench.progress(f"{rate:,.0f} appends a second, processes: {processes}")
    one, several = median(rates[1]), median(rates[PROCESSES])
    ratio = median(b / a for a, b in zip(rates[1], rates[PROCESSES], strict=True))
    bench.row(
        f"appends a second by {WRITERS} writers in {PROCESSES} processes, compared with one",
        target="≥ 1x",
        ok=ratio >= 1,
        segue=several,
        unit="1/s",
        ratio=ratio,
    )
    bench.note(
        f"One process with {WRITERS} writers: {one:,.0f} appends a second. The ratio is the median"
        f" of {rounds} pairs that were measured in turn."
    )


async def rate_of_processes(
    url: str, directory: Path, number: int, processes: int, seconds: float
) -> float:
    """Return the appends a second of some new processes together."""
    first = 1000 * (number + 1) + 100 * processes
    children = [
        WriterProcess(url, directory, first + child, WRITERS // processes)
        for child in range(processes)
    ]
    while not all(child.count() for child in children):
        await asyncio.sleep(0.05)
    before, start = sum(child.count() for child in children), time.perf_counter()
    await asyncio.sleep(seconds)
    after, elapsed = sum(child.count() for child in children), time.perf_counter() - start
    for child in children:
        child.kill()
    return (after - before) / elapsed


async def measure_losses(bench: Bench, url: str, directory: Path, seconds: float) -> None:
    """Kill one of four processes every few seconds; count what was acknowledged and is lost."""
    number = 0

    def start() -> WriterProcess:
        nonlocal number
        number += 1
        return WriterProcess(url, directory, number, WRITERS // PROCESSES)

    running, ended = [start() for _ in range(PROCESSES)], []
    while not all(process.count() for process in running):
        await asyncio.sleep(0.05)
    rng, deadline = random.Random(3), time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(min(KILL_SECONDS, seconds / 3))
        bench.progress(f"killing a process, {deadline - time.monotonic():.0f} s to go")
        killed = running.pop(rng.randrange(PROCESSES))
        killed.kill()
        ended.append(killed)
        running.append(start())
    for process in running:
        process.kill()
    connection = await asyncpg.connect(url)
    acknowledged = [line for process in [*ended, *running] for line in process.acknowledged()]
    rows = await connection.fetch(
        "SELECT s.id, e.seq, e.id FROM segue.events e JOIN segue.sessions s ON s.pk = e.session"
    )
    await connection.close()
    stored = Counter(tuple(row) for row in rows)
    lost = sum(stored[entry] != 1 for entry in acknowledged)
    bench.row(
        f"acknowledged events that are lost or stored twice, after {len(ended)} kills in"
        f" {seconds:.0f} s",
        target="0",
        ok=lost == 0 and len(acknowledged) > 0,
        segue=lost,
        unit=f"of {len(acknowledged):,}",
    )


def main() -> int:
    bench = Bench(
        "PostgreSQL",
        ("segue", "p90", "asyncpg", "unit", "ratio"),
        {"sessions": 1_000_000, "kill-seconds": 300},
    )
    count = 2_000 if bench.quick else bench.numbers["sessions"]
    kill_seconds = 4.0 if bench.quick else bench.numbers["kill-seconds"]

    async def measure(few_url: str, url: str, directory: Path) -> None:
        await measure_lists(bench, few_url, url, count)
        await measure_appends(bench, url)
        await measure_processes(bench, url, directory)
        await measure_losses(bench, url, directory, kill_seconds)

    with (
        running_server() as server,
        fresh_database(server) as few_url,
        fresh_database(server) as url,
        temporary_directory() as directory,
    ):
        asyncio.run(measure(few_url, url, directory))
    one, _, fifteen = os.getloadavg()
    bench.note(f"Load at the end: {one:.1f} in the last minute, {fifteen:.1f} in the last 15.")
    return bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--writer"]:
        asyncio.run(write_for_ever(sys.argv[2], int(sys.argv[3])))
    sys.exit(main())
