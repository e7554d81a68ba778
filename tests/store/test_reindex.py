"""Stores whose words were indexed with the codes that drive terminals are gone over when opened."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from segue.model import ids, search_text
from segue.model.event import Created
from segue.model.query import Query
from segue.model.session import Session
from segue.store.base import Store
from segue.store.postgres import PostgresStore
from segue.store.postgres import reindex as postgres_reindex
from segue.store.sqlite import SQLiteStore, connection, fts_index
from segue.testing.store_contract.harness import HERE, add, anyway, draft, make, nothing, user

RED = "\x1b[31mfailed\x1b[0m"
SAID = [f"{RED} one", "plain", "\x1b[31m", f"é {RED}", "a" * 70 + RED, "\\u001b[31mwritten"]


async def fill(store: Store) -> list[Session]:
    return [await make(store, *map(user, SAID[number:])) for number in range(4)]


async def found(store: Store, words: str) -> set[str]:
    return {session.id for session in await store.page(HERE, Query(text=words))}


async def age(path: Path) -> list[Session]:
    """A store as the programs before this left it, and its sessions."""
    await SQLiteStore.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = 0 WHERE name = 'bared'")
    store = SQLiteStore(path)
    made = await fill(store)
    assert await found(store, "31mfailed") == {session.id for session in made}
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'bared'")
        connection.execute("UPDATE meta SET value = 1 WHERE name = 'compat'")
        connection.execute("PRAGMA user_version = 3")
    return made


async def check(path: Path) -> None:
    """Every event is indexed by its words, and when all are gone nothing is left of them."""
    store = SQLiteStore.open(path)
    assert len(await found(store, '"failed"')) >= 4 and not await found(store, "31mfailed")
    every = await store.page(HERE, Query(limit=100, archived="include"))
    events = [event for session in every for event in await store.events(HERE, session.id)]
    said = [search_text.searchable_text(event.body) for event in events]
    assert indexed(path) == sorted(word for each in said for word in search_text.tokens(each))
    for session in every:
        await store.purge(HERE, session.id, anyway)
    assert indexed(path) == []
    await store.close()


def indexed(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
        connection.execute(
            "CREATE VIRTUAL TABLE temp.seen USING fts5vocab (main, search, instance)"
        )
        return sorted(term for (term,) in connection.execute("SELECT term FROM seen"))


async def test_it_is_said_once_when_it_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "segue.db"
    await age(path)
    monkeypatch.setattr(fts_index, "STEP", 2)
    monkeypatch.setattr(connection, "QUIET_SECONDS", -1.0)
    await SQLiteStore.open(path).close()
    (said,) = caplog.messages
    assert str(path) in said and "this once" in said
    await SQLiteStore.open(path).close()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("steps", range(0, 15, 2))
async def test_what_happens_between_two_steps_is_indexed_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    path = tmp_path / "segue.db"
    first, second, third, last = await age(path)
    left = iter([fts_index.step] * steps)

    def broken_off(execute: fts_index.Execute) -> bool:
        more = indexing_step(execute)
        if next(left, None) is None:
            raise sqlite3.OperationalError("no room")
        return more

    indexing_step = fts_index.step
    monkeypatch.setattr(fts_index, "STEP", 2)
    monkeypatch.setattr(fts_index, "step", broken_off)
    store = SQLiteStore.open(path)
    for session in (first, last):
        await add(store, session, user(f"{RED} again"))
    for session in (second, last):
        await store.fork(HERE, session.id, ids.new_id(), 3, draft(Created(cwd="/")), nothing)
    await store.purge(HERE, third.id, anyway)
    assert await found(store, "again") == {first.id, last.id}
    await store.close()
    monkeypatch.setattr(fts_index, "step", indexing_step)
    await check(path)


async def test_a_step_looks_at_so_many_bytes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segue.db"
    await age(path)
    monkeypatch.setattr(fts_index, "LOOKED", 100)
    reached = []

    def counted(execute: fts_index.Execute) -> bool:
        before = fts_index._reached(execute)
        more = step(execute)
        sql = "SELECT length(body) FROM events WHERE key > ? AND key <= ? ORDER BY key"
        sizes = [size for (size,) in execute(sql, (before, fts_index._reached(execute)))]
        reached.append(sum(sizes[:-1]))
        return more

    step = fts_index.step
    monkeypatch.setattr(fts_index, "step", counted)
    await SQLiteStore.open(path).close()
    assert len(reached) > 4 and max(reached) <= 100
    await check(path)


@pytest.mark.parametrize("body", [b"\\u001b", b'{"type":"\\u001b","x":' + b"[" * 99_999])
async def test_what_cannot_be_read_keeps_nobody_out(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "segue.db"
    await age(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET version = 99, body = ? WHERE key & 1", (body,))
    store = SQLiteStore.open(path)
    assert await found(store, '"failed"')
    await store.close()
    with sqlite3.connect(path) as connection:
        assert fts_index.is_whole(connection.execute)


KILLED = """
import os, signal, sys
from segue.store.sqlite import SQLiteStore, connection, indexing
indexing.STEP, left, step = 1, int(sys.argv[2]), indexing.step
def killed(execute):
    global left
    more, left = step(execute), left - 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return more
indexing.step = killed
SQLiteStore.open(sys.argv[1])
"""


async def test_processes_that_do_it_at_once_may_be_killed_at_it(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    await age(path)
    started = [
        subprocess.Popen([sys.executable, "-c", KILLED, path, str(steps)]) for steps in (1, 2, 3, 4)
    ]
    assert {process.wait() for process in started} == {-signal.SIGKILL}
    await check(path)


async def test_postgres_is_gone_over_by_those_who_open_it(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database_url
    store = await PostgresStore.open(url)
    with monkeypatch.context() as before:
        before.setattr(
            search_text, "searchable_text", partial(search_text.searchable_text, codes=True)
        )
        made = {session.id for session in await fill(store)}
    assert (await found(store, "31mfailed"), await found(store, '"failed"')) == (made, set())
    async with store._database._pool.acquire() as connection:
        await connection.execute("DROP TABLE bared; DELETE FROM migrations WHERE number = 5")
    monkeypatch.setattr(postgres_reindex, "STEP", 2)
    monkeypatch.setattr(postgres_reindex, "PAUSE", 0.01)
    await (await PostgresStore.open(url)).close()  # before it is done
    others = await asyncio.gather(PostgresStore.open(url), PostgresStore.open(url))
    for other in others:
        assert other.reindexing is not None
        await other.reindexing
        assert (await found(other, "31mfailed"), await found(other, '"failed"')) == (set(), made)
        await other.close()
    await store.close()
    again = await PostgresStore.open(url)
    assert again.reindexing is None
    await again.close()
