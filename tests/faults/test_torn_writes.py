"""The SQLite store after a power failure, simulated in copies of its files.

A disk writes sectors, in any order until they are synced. So after a failure, everything that was
synced is there, and of what was written since, any sectors may be there, missing or garbage.
"""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import StoreCorrupt
from segue.model.event import Created, InfoChanged, UserMessage
from segue.model.query import Query
from segue.store.sqlite import SQLiteStore, writer
from segue.store.sqlite import connection as connections
from segue.store.sqlite.search_index import complete_index, index_path
from tests.faults import audit
from tests.faults.ledger import seed

WORKSPACE = "local"
SECTOR = 512
OPERATIONS = 40
COPIES = [8, pytest.param(1000, marks=pytest.mark.full)]

Promise = dict[str, int]  # the last acknowledged seq of each session


class Recording:
    """A store's files, and after each operation the length of its log and what was promised.

    `indexes` has the files of the search index after each operation: its database and its log.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "segue.db"
        self.moments: list[tuple[int, Promise]] = []
        self.indexes: list[tuple[bytes, bytes]] = []

    async def make(self, chance: random.Random) -> None:
        """Do some operations, and copy the files before the store is closed."""
        store = SQLiteStore.open(self.path)
        promised: Promise = {}
        for _ in range(OPERATIONS):
            if not promised or chance.random() < 0.2:
                session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
            else:
                words = " ".join(chance.choices(["one", "two", "three", "four", "five"], k=200))
                bodies = [UserMessage(content=as_content(words)), InfoChanged(title=words[:20])]
                drafts = bodies * chance.choice([1, 1, 1, 20])
                id = chance.choice(list(promised))
                session, _ = await store.change(WORKSPACE, id, lambda _, drafts=drafts: drafts)
            promised[session.id] = session.last_seq
            self.moments.append((self.log.stat().st_size, dict(promised)))
            if chance.random() < 0.7:
                await store.page(WORKSPACE, Query(text="one"))  # completes the index
            index = index_path(self.path)
            files = (index, index.with_name(f"{index.name}-wal"))
            database, log = (path.read_bytes() if path.exists() else b"" for path in files)
            self.indexes.append((database, log))
        for path in (self.path, self.log):
            shutil.copyfile(path, self.copied(path))
        await store.close()

    @property
    def log(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    def copied(self, path: Path) -> Path:
        return path.with_name(f"copy-{path.name}")

    def database_after_checkpoint(self) -> bytes:
        """Return the database once every page of the log was written to it."""
        target = self.directory / "checkpointed.db"
        shutil.copyfile(self.copied(self.path), target)
        shutil.copyfile(self.copied(self.log), target.with_name(f"{target.name}-wal"))
        connection = sqlite3.connect(target)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return target.read_bytes()


def check_copy(
    directory: Path,
    database: bytes,
    log: bytes,
    promised: Promise,
    index: tuple[bytes, bytes] | None = None,
) -> None:
    """Check that a store with these files opens, is whole and has what was promised."""
    directory.mkdir()
    path = directory / "segue.db"
    files = {path: (database, log)} | ({index_path(path): index} if index else {})
    for file, (content, its_log) in files.items():
        file.write_bytes(content)
        file.with_name(f"{file.name}-wal").write_bytes(its_log)

    async def main() -> None:
        store = SQLiteStore.open(path)
        for id, seq in promised.items():
            session = await store.get(WORKSPACE, id)
            assert session is not None and session.last_seq >= seq, f"{id} lost events"
        await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
        await store.close()

    asyncio.run(main())
    audit.sqlite_file(path, thorough=True)
    shutil.rmtree(directory)


def zeros(data: bytes, _: random.Random) -> bytes:
    return bytes(len(data))


def garbage(data: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(len(data))


def some_sectors(data: bytes, chance: random.Random) -> bytes:
    """Return data of which some sectors were not written."""
    parts = [data[start : start + SECTOR] for start in range(0, len(data), SECTOR)]
    return b"".join(part if chance.random() < 0.7 else bytes(len(part)) for part in parts)


def beginning(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


@pytest.fixture
def chance() -> random.Random:
    begun_with = seed()
    print(f"SEGUE_FAULT_SEED={begun_with}")
    return random.Random(begun_with)


@pytest.fixture
def recording(tmp_path: Path, chance: random.Random) -> Recording:
    recording = Recording(tmp_path)
    asyncio.run(recording.make(chance))
    return recording


async def test_every_acknowledged_change_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tests rely on it: they damage only what was written after the acknowledgement."""
    statements: list[str] = []

    def connect(path: Path, **options: Any) -> sqlite3.Connection:
        connection = connections.connect(path, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(writer, "connect", connect)
    store = SQLiteStore.open(tmp_path / "segue.db")
    session = await store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")])
    body = UserMessage(content=as_content("hello"))
    changes: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.create(WORKSPACE, ids.new_id(), [Created(cwd="/work")]),
        lambda: store.change(WORKSPACE, session.id, lambda _: [body]),
        lambda: store.put_inbox(WORKSPACE, session.id, "prompt", "p", {}),
        lambda: store.acquire(WORKSPACE, session.id, "holder"),
        lambda: store.purge(WORKSPACE, session.id, lambda _: None),
    ]
    for change in changes:
        # Without a sync, and the next change sets its own level.
        await store.ack(WORKSPACE, session.id, 1)
        statements.clear()
        await change()
        level = next(line for line in statements if line.startswith("PRAGMA synchronous"))
        assert level == "PRAGMA synchronous = FULL"
        assert statements.index(level) < statements.index("BEGIN IMMEDIATE")
        assert statements.index("BEGIN IMMEDIATE") < statements.index("COMMIT")
    await store.close()


@pytest.mark.parametrize("copies", COPIES)
def test_store_has_everything_acknowledged_whatever_is_left_of_later_writes(
    recording: Recording, tmp_path: Path, chance: random.Random, copies: int
) -> None:
    database = recording.copied(recording.path).read_bytes()
    log = recording.copied(recording.log).read_bytes()
    damages: list[Callable[[bytes, random.Random], bytes]]
    damages = [zeros, garbage, some_sectors, beginning]
    for number in range(copies):
        size, promised = chance.choice(recording.moments)
        later = chance.choice(damages)(log[size:], chance)
        check_copy(tmp_path / f"copy{number}", database, log[:size] + later, promised)


@pytest.mark.parametrize("copies", COPIES)
def test_store_has_everything_acknowledged_after_a_failure_during_a_checkpoint(
    recording: Recording, tmp_path: Path, chance: random.Random, copies: int
) -> None:
    before = recording.copied(recording.path).read_bytes()
    after = recording.database_after_checkpoint()
    log = recording.copied(recording.log).read_bytes()
    _, promised = recording.moments[-1]
    for number in range(copies):
        size = chance.choice([len(before), len(after), chance.randrange(len(before), len(after))])
        mixed = bytearray((before + bytes(len(after)))[:size])
        for start in range(0, size, SECTOR):
            if chance.random() < 0.5:
                mixed[start : start + SECTOR] = after[start : min(start + SECTOR, size)]
        check_copy(tmp_path / f"copy{number}", bytes(mixed), log, promised)


@pytest.mark.parametrize("copies", COPIES)
def test_search_has_every_word_whatever_is_left_of_the_index(
    recording: Recording, tmp_path: Path, chance: random.Random, copies: int
) -> None:
    """The index is older or newer than the store, and the end of its log is torn."""
    store_database = recording.copied(recording.path).read_bytes()
    store_log = recording.copied(recording.log).read_bytes()
    for number in range(copies):
        size, promised = chance.choice(recording.moments)
        database, log = chance.choice(recording.indexes)
        kept = chance.choice([len(log), chance.randrange(len(log) + 1)])
        damage = chance.choice([zeros, garbage, some_sectors, beginning])
        index = (database, log[:kept] + damage(log[kept:], chance))
        check_copy(tmp_path / f"copy{number}", store_database, store_log[:size], promised, index)


def test_index_that_lost_a_page_is_noticed(
    recording: Recording, tmp_path: Path, chance: random.Random
) -> None:
    store = tmp_path / "lost.db"
    store.write_bytes(recording.database_after_checkpoint())
    complete_index(store)
    path = index_path(store)
    whole = path.read_bytes()
    page_size = int.from_bytes(whole[16:18], "big")
    pages = len(whole) // page_size
    assert pages > 5

    async def check() -> list[str]:
        opened = SQLiteStore.open(store)
        try:
            return await opened.check()
        finally:
            await opened.close()

    for number in chance.sample(range(pages), min(pages, 12)):
        lost = bytearray(whole)
        lost[number * page_size : (number + 1) * page_size] = bytes(page_size)
        path.write_bytes(lost)
        if not any(path.name in problem for problem in asyncio.run(check())):
            audit.sqlite_file(store, thorough=True)  # it was a free page
        path.write_bytes(whole)


def test_database_that_lost_a_page_is_noticed(
    recording: Recording, tmp_path: Path, chance: random.Random
) -> None:
    database = recording.database_after_checkpoint()
    page_size = int.from_bytes(database[16:18], "big")
    pages = len(database) // page_size
    unnoticed = 0

    async def check(path: Path) -> bool:
        """Return whether the damage is noticed when everything is read or checked."""
        try:
            store = SQLiteStore.open(path)
        except StoreCorrupt:
            return True
        try:
            return bool(await store.check())
        except StoreCorrupt:
            return True
        finally:
            await store.close()

    for number in chance.sample(range(pages), min(pages, 12)):
        path = tmp_path / f"lost{number}.db"
        lost = bytearray(database)
        lost[number * page_size : (number + 1) * page_size] = bytes(page_size)
        path.write_bytes(lost)
        unnoticed += not asyncio.run(check(path))
        assert not unnoticed, f"page {number} of {pages} is lost, and nothing says so"
        index_path(path).unlink(missing_ok=True)
