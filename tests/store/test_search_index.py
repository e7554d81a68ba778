"""The search index of a SQLite store is a file of its own that can be deleted, damaged or old."""

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids, search_text
from segue.model.content import as_content
from segue.model.event import Created, Draft, UserMessage
from segue.model.query import Query
from segue.store.base import MAX_SEQ
from segue.store.sqlite import SQLiteStore, search_index, writer
from segue.store.sqlite import connection as sqlite_connection
from segue.store.sqlite.search_index import SearchIndex, index_path
from tests.faults import audit
from tests.store.damage import damage_schema

WORKSPACE = "here"


def message(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


async def create(store: SQLiteStore, *texts: str) -> str:
    id = ids.new_id()
    await store.create(WORKSPACE, id, [Created(cwd="/work"), *map(message, texts)])
    return id


async def append(store: SQLiteStore, id: str, text: str) -> None:
    await store.change(WORKSPACE, id, lambda _: [message(text)])


async def purge(store: SQLiteStore, id: str) -> None:
    await store.purge(WORKSPACE, id, lambda _: None)


async def found(store: SQLiteStore, text: str) -> set[str]:
    return {session.id for session in await store.page(WORKSPACE, Query(text=text))}


async def make(path: Path) -> tuple[str, str]:
    """Create a store with two sessions and a complete index, and return the sessions' ids."""
    store = SQLiteStore.open(path)
    first = await create(store, "alpha beta", "gamma")
    second = await create(store, "alpha delta")
    assert await found(store, "alpha") == {first, second}
    await store.close()
    return first, second


async def check(path: Path, first: str, second: str) -> None:
    """Check that a search has exactly the matches of the two sessions."""
    store = SQLiteStore.open(path)
    assert await found(store, "alpha ") == {first, second}
    assert await found(store, "gam") == {first}
    assert await found(store, "nothing") == set()
    assert await store.check() == []
    await store.close()
    audit.sqlite_file(path, thorough=True)


def indexed_keys(path: Path) -> set[int]:
    with closing(sqlite3.connect(index_path(path))) as connection:
        # The keys of events; the text of a session's row has the seq 0.
        keys = connection.execute("SELECT id FROM search_docsize")
        return {key for (key,) in keys if key & MAX_SEQ}


def set_state(path: Path, change: str) -> None:
    with closing(sqlite3.connect(index_path(path), isolation_level=None)) as connection:
        connection.execute(change)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_bytes(b"no database" * 1000),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "header overwritten": lambda path: overwrite(path, 0, b"x" * 100),
    "pages overwritten": lambda path: overwrite(path, 4096, b"x" * (path.stat().st_size - 4096)),
    "schema is not text": damage_schema,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_a_deleted_or_damaged_index_is_built_again(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "segue.db"
    sessions = await make(path)
    damage(index_path(path))
    await check(path, *sessions)


@pytest.mark.parametrize("damage", ["pages overwritten", "schema is not text"])
async def test_a_check_reports_a_damaged_index_and_leaves_it_alone(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "segue.db"
    sessions = await make(path)
    DAMAGES[damage](index_path(path))
    damaged = index_path(path).read_bytes()
    store = SQLiteStore.open(path)
    (problem, *_) = await store.check()
    assert str(index_path(path)) in problem and "the next search builds this file again" in problem
    await store.close()
    assert index_path(path).read_bytes() == damaged
    await check(path, *sessions)


CHANGES = {
    "words are lost": "DELETE FROM search_data WHERE id > 10",
    "older format": "PRAGMA user_version = 99",
    "index of another store": "UPDATE state SET store = 'another'",
    "index is ahead of the store": "UPDATE state SET position = position + 1",
    "newest event is not in the store": "UPDATE state SET newest_id = 'x', position = 0",
    "missed a purge": "UPDATE state SET last_purge = -1, position = 0",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_an_index_that_does_not_fit_the_store_is_built_again(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "segue.db"
    sessions = await make(path)
    set_state(path, change)
    await check(path, *sessions)


async def test_an_index_that_was_deleted_while_the_store_is_open_is_built_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    store = SQLiteStore.open(path)
    assert await found(store, "alpha") == {first, second}
    for file in tmp_path.glob("segue-search*"):
        file.unlink()
    await append(store, first, "epsilon")
    assert await found(store, "epsilon") == {first}
    assert await found(store, "alpha") == {first, second}
    await store.close()
    audit.sqlite_file(path, thorough=True)


async def test_two_processes_find_what_either_has_written(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    one, two = SQLiteStore.open(path), SQLiteStore.open(path)
    id = await create(one, "alpha")
    assert await found(two, "alpha") == {id}
    await append(two, id, "beta")
    assert await found(one, "beta") == {id}
    await purge(one, id)
    assert await found(two, "alpha") == set()
    again = await create(two, "alpha beta")  # gets the primary key of the purged session
    assert await found(one, "beta") == await found(two, "alpha") == {again}
    for store in (one, two):
        await store.close()
    audit.sqlite_file(path, thorough=True)


async def test_a_session_whose_purge_was_not_committed_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    index = SearchIndex(path)
    index.remove(1, [(1 << 24 | 2, "alpha beta"), (1 << 24 | 3, "gamma")], 99)
    index.close()
    assert {key >> 24 for key in indexed_keys(path)} == {2}
    await check(path, first, second)


# A store of which only a part was written before a kill, a power failure or a backup.


class Copies:
    """Copies of a store's files before every statement of its writing connections."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        self._count = 0

    def connect(self, path: Path, **options: Any) -> sqlite3.Connection:
        connection = sqlite_connection.connect(path, **options)
        if options.get("writable") or options.get("with_index"):
            connection.set_trace_callback(lambda _: self._copy())
        return connection

    def _copy(self) -> None:
        target = self._directory / str(self._count)
        target.mkdir()
        self._count += 1
        # By another process: if this one closed the files, SQLite would lose its locks.
        files = [str(file) for file in self._path.parent.glob("*") if "-shm" not in file.name]
        subprocess.run(["cp", *files, str(target)], check=True)

    def distinct(self) -> list[Path]:
        """Return a copy of each different state of the files."""
        states: dict[tuple[bytes, ...], Path] = {}
        for number in range(self._count):
            copy = self._directory / str(number)
            if (copy / "segue.db").exists():
                content = tuple(file.read_bytes() for file in sorted(copy.iterdir()))
                states.setdefault(content, copy)
        return list(states.values())


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Copies of a store during appends, searches and purges, in the order of time."""
    path = tmp_path_factory.mktemp("store") / "segue.db"
    taken = Copies(path, tmp_path_factory.mktemp("copies"))

    async def write() -> None:
        store = SQLiteStore.open(path)
        sessions = [await create(store, f"alpha {number}", "beta") for number in range(3)]
        await found(store, "alpha")
        await append(store, sessions[0], "gamma")
        await found(store, "gamma")
        await purge(store, sessions[2])
        sessions[2] = await create(store, "delta")  # gets the primary key of the purged session
        await asyncio.gather(purge(store, sessions[1]), append(store, sessions[0], "epsilon"))
        await found(store, "epsilon")
        await create(store, "zeta")
        await asyncio.gather(purge(store, sessions[0]), purge(store, sessions[2]))
        await store.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "connect", taken.connect)
        patch.setattr(search_index, "connect", taken.connect)
        asyncio.run(write())
    return taken.distinct()


def combine(directory: Path, store: Path, index: Path) -> Path:
    """Return a store whose files are from two copies."""
    for file in store.glob("segue.db*"):
        shutil.copy(file, directory)
    for file in index.glob("segue-search.db*"):
        shutil.copy(file, directory)
    return directory / "segue.db"


def test_a_process_killed_before_any_statement_leaves_an_index_that_is_completed(
    copies: list[Path], tmp_path: Path
) -> None:
    assert len(copies) > 20
    for number, copy in enumerate(copies):
        directory = tmp_path / str(number)
        directory.mkdir()
        audit.sqlite_file(combine(directory, copy, copy), thorough=True)


@pytest.mark.parametrize("older", ["index", "store"])
def test_an_index_from_another_time_than_the_store_is_completed_or_built_again(
    copies: list[Path], tmp_path: Path, older: str
) -> None:
    """The index is older after a power failure; the store, if it was restored from a backup."""
    chance = random.Random(1)
    for number in range(60):
        early, late = sorted(chance.sample(range(len(copies)), 2))
        store, index = (late, early) if older == "index" else (early, late)
        directory = tmp_path / str(number)
        directory.mkdir()
        path = combine(directory, copies[store], copies[index])
        audit.sqlite_file(path, thorough=True)


async def test_a_restored_store_that_is_written_at_once_has_no_wrong_matches(
    tmp_path: Path,
) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    backup = path.read_bytes()
    store = SQLiteStore.open(path)
    for number in range(5):
        await append(store, first, f"lost {number}")
    assert await found(store, "lost") == {first}
    await store.close()
    path.write_bytes(backup)
    store = SQLiteStore.open(path)
    await asyncio.gather(*(append(store, second, f"kept {number}") for number in range(9)))
    assert await found(store, "lost") == set()
    assert await found(store, "kept") == {second}
    await store.close()
    await check(path, first, second)


# A store or disk that cannot be written.


@pytest.mark.parametrize("index", ["complete", "missing", "behind"])
async def test_a_read_only_store_is_searched_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    if index == "missing":
        index_path(path).unlink()
    if index == "behind":
        set_state(path, "UPDATE state SET position = 1, newest_key = NULL")
        set_state(path, "DELETE FROM indexed WHERE session = 2")
        with closing(sqlite3.connect(index_path(path), isolation_level=None)) as connection:
            delete = "INSERT INTO search (search, rowid, tokens) VALUES ('delete', ?, ?)"
            connection.execute(delete, (2 << 24 | 2, "alpha delta"))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(os, "access", lambda file, mode: mode != os.W_OK)
    store = SQLiteStore.open(path)
    assert await found(store, "alpha ") == {first, second}
    assert await found(store, "delt") == {second}
    await store.close()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


async def test_a_search_finds_new_events_although_the_index_has_no_space_left(
    tmp_path: Path,
) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    store = SQLiteStore.open(path)
    connection = store.reader.search.index.connection()
    (pages,) = connection.execute("PRAGMA fts.page_count").fetchone()
    connection.execute(f"PRAGMA fts.max_page_count = {pages}")
    await append(store, first, " ".join(os.urandom(8).hex() for _ in range(5000)) + " omega")
    assert await found(store, "omega") == {first}
    assert await found(store, "alpha") == {first, second}
    await store.close()
    await check(path, first, second)


async def test_a_directory_in_the_place_of_the_index_does_not_stop_searches_and_purges(
    tmp_path: Path,
) -> None:
    path = tmp_path / "segue.db"
    index_path(path).mkdir()
    store = SQLiteStore.open(path)
    id = await create(store, "alpha")
    assert await found(store, "alpha") == {id}
    await purge(store, id)
    assert await found(store, "alpha") == set()
    assert not store._writer._index.in_memory
    await store.close()


async def test_a_search_uses_memory_if_the_thread_cannot_complete_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    store = SQLiteStore.open(path)
    await store.page(WORKSPACE, Query(text="alpha"))
    monkeypatch.setattr("segue.store.sqlite.store.MAX_INLINE_CHANGES", 0)
    text = " ".join(os.urandom(8).hex() for _ in range(5000))
    await append(store, first, f"{text} omega")

    limited = store.reader.search.index.connection()
    (pages,) = limited.execute("PRAGMA fts.page_count").fetchone()
    limited.execute(f"PRAGMA fts.max_page_count = {pages}")

    def fail(path: Path) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("segue.store.sqlite.store.complete_index", fail)
    assert await found(store, "omega") == {first}
    assert await found(store, "alpha") == {first, second}
    assert store.reader.search.index.in_memory
    await store.close()


# The work of an append and of a search.


async def test_an_append_writes_few_pages_and_nothing_to_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE_SECONDS", 3600.0)
    path = tmp_path / "segue.db"
    store = SQLiteStore.open(path)
    id = await create(store, "alpha")
    await append(store, id, "beta")
    log = Path(f"{path}-wal")
    before = log.stat().st_size
    for number in range(10):
        await append(store, id, f"gamma {number}")
    pages = (log.stat().st_size - before) / (4096 + 24) / 10
    # The event, its id, the session, five of its indexes, the change counter and the usage.
    assert pages == 10
    assert not index_path(path).exists()
    await store.close()
    assert len(indexed_keys(path)) == 12


async def test_many_appends_are_indexed_together_while_the_writer_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "IDLE_SECONDS", 3600.0)
    monkeypatch.setattr(writer, "MAX_UNINDEXED_CHANGES", 50)
    path = tmp_path / "segue.db"
    store = SQLiteStore.open(path)
    id = await create(store)
    for number in range(120):
        await append(store, id, f"beta {number}")
    assert 99 <= len(indexed_keys(path)) <= 120
    await store.close()


async def test_a_search_indexes_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    first, _ = await make(path)
    store = SQLiteStore.open(path)
    await append(store, first, "epsilon")
    statements: list[str] = []
    connection = store.reader.search.index.connection()
    connection.set_trace_callback(statements.append)
    assert await found(store, "epsilon") == {first}
    inserted = [sql for sql in statements if sql.startswith("INSERT INTO search (rowid")]
    assert len(inserted) == 1
    statements.clear()
    assert await found(store, "alpha ")
    assert not [sql for sql in statements if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
    connection.set_trace_callback(None)
    await store.close()


async def test_a_search_far_behind_does_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segue.db"
    first, second = await make(path)
    index_path(path).unlink()
    monkeypatch.setattr("segue.store.sqlite.store.MAX_INLINE_CHANGES", 1)
    threads: list[Path] = []
    complete = search_index.complete_index
    monkeypatch.setattr(
        "segue.store.sqlite.store.complete_index",
        lambda store: (threads.append(store), complete(store)),
    )
    store = SQLiteStore.open(path)
    assert await found(store, "alpha") == {first, second}
    assert threads == [path]
    await store.close()


def test_the_words_of_an_event_are_those_of_its_text() -> None:
    assert search_index.tokens(message("Alpha, béta")) == " ".join(
        search_text.tokens("Alpha, béta")
    )


async def test_ids_of_drafts_are_not_indexed_twice(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    store = SQLiteStore.open(path)
    id = await create(store)
    draft = Draft(id=ids.new_id(), body=message("alpha"))
    for _ in range(2):
        await store.change(WORKSPACE, id, lambda _: [draft])
        assert await found(store, "alpha") == {id}
    await store.close()
    audit.sqlite_file(path, thorough=True)
