"""The counters of usage equal a full recount of the rows, after any writes of several processes."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.content import as_content
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.event import Created, Draft, Event, UserMessage
from segue.model.record import Record
from segue.model.session import Session
from segue.store.base import SHARE_KIND, Store, share_record_id
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore, writer
from segue.store.sqlite import connection as sqlite_connection

from .postgres_helpers import connect

COUNTED = """
SELECT workspace, sum(sessions), sum(files), sum(bytes), sum(schedules) FROM usage
GROUP BY workspace"""
RECOUNT = """
SELECT workspace, sum(sessions), sum(files), sum(bytes), sum(schedules) FROM (
  SELECT workspace, 1 AS sessions, 0 AS files, 0 AS bytes, 0 AS schedules FROM sessions
  UNION ALL
  SELECT s.workspace, 0, 0, {length}(e.body), 0 FROM events e JOIN sessions s ON s.pk = {session}
  UNION ALL
  SELECT workspace, 0,
    CASE WHEN newest AND (kind IN ('file', 'archive') OR kind LIKE 'memory:%') THEN 1 ELSE 0 END,
    {length}(row), CASE WHEN newest AND kind = 'schedule' THEN 1 ELSE 0 END
  FROM records
  UNION ALL
  SELECT workspace, 0, 0, {length}(data), 0 FROM parts
) AS counted GROUP BY workspace"""
SQLITE_RECOUNT = RECOUNT.format(length="octets", session="e.key >> 24")
POSTGRES_RECOUNT = RECOUNT.format(length="octet_length", session="e.session")

Totals = dict[str, tuple[int, ...]]  # of each workspace: sessions, files, bytes, schedules


def as_totals(rows: list[Any]) -> Totals:
    totals = {workspace: tuple(map(int, sums)) for workspace, *sums in rows}
    return {workspace: sums for workspace, sums in totals.items() if any(sums)}


def as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def read_sqlite(path: Path) -> tuple[Totals, Totals]:
    """Return the counters of a store and a recount of its rows."""
    with closing(sqlite3.connect(path)) as connection:
        # SQLite counts characters of text, and bytes only in newer versions.
        connection.create_function("octets", 1, lambda value: len(as_bytes(value)))
        connection.execute("BEGIN")  # both statements read the same state
        counted = connection.execute(COUNTED).fetchall()
        return as_totals(counted), as_totals(connection.execute(SQLITE_RECOUNT).fetchall())


class Operation(NamedTuple):
    """A write of one of two stores. `number` names a session, record or file."""

    name: str
    store: int
    workspace: str
    number: int
    words: int


def operation_names() -> list[str]:
    return [name for name in vars(Writes) if not name.startswith("_")]


class Writes:
    """The writes of a store that change what is counted; some are refused half way."""

    def __init__(self, store: Store, operation: Operation, example: str) -> None:
        self._store = store
        self._workspace = operation.workspace + example
        self._id = ids.derived_id("session", str(operation.number))
        self._number = operation.number
        self._text = "word " * operation.words
        self._message = UserMessage(content=as_content(self._text))

    async def create(self) -> None:
        await self._store.create(self._workspace, self._id, [Created(cwd="/"), self._message])

    async def append(self) -> None:
        await self._store.change(self._workspace, self._id, lambda _: [self._message])

    async def append_twice(self) -> None:
        draft = Draft(body=self._message, id=ids.derived_id("event", self._text))
        await self._store.change(self._workspace, self._id, lambda _: [draft, draft])

    async def append_nothing(self) -> None:
        await self._store.change(self._workspace, self._id, lambda _: [])

    async def append_and_fail(self) -> None:
        def refuse(_: Session) -> list[Draft]:
            raise InvalidInput("refused")

        await self._store.change(self._workspace, self._id, refuse)

    async def fork(self) -> None:
        created = Draft(body=Created(cwd="/"))
        name = (self._workspace, self._id)
        await self._store.fork(*name, ids.new_id(), 2, created, lambda _: [self._message])

    async def load(self) -> None:
        await self._store.load(self._workspace, ids.new_id(), self._events("one", "two"))

    async def load_and_fail(self) -> None:
        """Write a session and its first event, and fail at the second, which has the same id."""
        await self._store.load(self._workspace, ids.new_id(), self._events("one", "one"))

    def _events(self, *event_ids: str) -> list[Event]:
        bodies = (Created(cwd="/"), self._message)
        return [
            Event(seq=seq, id=id, at=1, body=body)
            for seq, (id, body) in enumerate(zip(event_ids, bodies, strict=True), 1)
        ]

    async def share(self) -> None:
        await self._put(SHARE_KIND, share_record_id(self._id))

    async def purge(self) -> None:
        await self._store.purge(self._workspace, self._id, lambda _: None)

    async def put_record(self) -> None:
        await self._put(self._kind, self._id)

    async def put_archived_record(self) -> None:
        await self._put(self._kind, self._id, archived_at=1)

    async def put_record_without_earlier_versions(self) -> None:
        newest = await self._newest()
        await self._store.put_record(replace(newest, version=newest.version + 1), drop_earlier=True)

    async def amend_record(self) -> None:
        newest = await self._newest()
        await self._store.put_record(replace(newest, body={"text": self._text}), amend=True)

    async def replace_records(self) -> None:
        added = self._record(self._kind, ids.new_id())
        await self._store.put_records([added], drop=[await self._newest()])

    async def replace_records_and_fail(self) -> None:
        """Write one record, and fail at the next, whose version is not the next one."""
        added = self._record(self._kind, ids.new_id())
        await self._store.put_records([added, replace(added, version=9)])

    async def put_part(self) -> None:
        await self._store.put_part(
            self._workspace, self._id, len(self._text) % 3, self._text.encode()
        )

    async def drop_parts(self) -> None:
        await self._store.drop_parts(self._workspace, self._id)

    async def drop_unfinished_uploads(self) -> None:
        await self._store.drop_unfinished_uploads(clock.LATEST)

    @property
    def _kind(self) -> str:
        return ("file", "memory:x", "schedule", "agent")[self._number]

    def _record(self, kind: str, id: str, **fields: Any) -> Record:
        values = {"version": 1, "created_at": 1, "updated_at": 1, "body": {"text": self._text}}
        return Record(workspace=self._workspace, kind=kind, id=id, **{**values, **fields})

    async def _newest(self) -> Record:
        newest = await self._store.get_record(self._workspace, self._kind, self._id)
        if newest is None:
            raise NotFound("no record")
        return newest

    async def _put(self, kind: str, id: str, **fields: Any) -> None:
        newest = await self._store.get_record(self._workspace, kind, id)
        version = newest.version + 1 if newest else 1
        await self._store.put_record(self._record(kind, id, version=version, **fields))


operations = st.builds(
    Operation,
    st.sampled_from(operation_names()),
    st.integers(0, 1),
    st.sampled_from(("this", "that")),
    st.integers(0, 3),
    st.integers(0, 400),
)
# The operations of one list run at the same time, so that a writer commits them together.
histories = st.lists(st.lists(operations, min_size=1, max_size=12), min_size=1, max_size=6)


def start() -> list[Operation]:
    """Return the operations that every history begins with; later ones change what they add."""
    return [
        Operation(name, number % 2, workspace, number, 20)
        for name in ("create", "put_record", "put_part", "share")
        for workspace in ("this", "that")
        for number in range(4)
    ]


async def run_all(stores: list[Store], group: list[Operation], example: str) -> list[Any]:
    """Run operations at the same time, and return the error of each that was refused."""
    results = await asyncio.gather(
        *(
            getattr(Writes(stores[operation.store], operation, example), operation.name)()
            for operation in group
        ),
        return_exceptions=True,
    )
    for result in results:
        if result is not None and not isinstance(result, Conflict | InvalidInput | NotFound):
            raise result
    return [result for result in results if result is not None]


async def write(stores: list[Store], history: list[list[Operation]], example: str) -> None:
    assert await run_all(stores, start(), example) == []
    for group in history:
        await run_all(stores, group, example)


def check_histories(
    loop: asyncio.AbstractEventLoop,
    stores: list[Store],
    read: Callable[[], Awaitable[tuple[Totals, Totals]]],
) -> None:
    """Write random histories, each to workspaces of its own, and recount these after each."""

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(history=histories)
    def run(history: list[list[Operation]]) -> None:
        example = ids.new_id()
        loop.run_until_complete(write(stores, history, example))
        counted, recounted = (
            {workspace: sums for workspace, sums in totals.items() if workspace.endswith(example)}
            for totals in loop.run_until_complete(read())
        )
        assert counted == recounted != {}

    try:
        run()
    finally:
        for store in stores:
            loop.run_until_complete(store.close())


def test_sqlite_counters_equal_a_recount(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    path = tmp_path / "segue.db"

    async def read() -> tuple[Totals, Totals]:
        return read_sqlite(path)

    check_histories(loop, [SQLiteStore.open(path) for _ in range(2)], read)


def test_postgres_counters_equal_a_recount(
    loop: asyncio.AbstractEventLoop, migrated_database_url: str
) -> None:
    async def open_stores() -> list[Store]:
        return [await PostgresStore.open(migrated_database_url) for _ in range(2)]

    async def read() -> tuple[Totals, Totals]:
        async with connect(migrated_database_url) as connection:
            counted = await connection.fetch(COUNTED)
            return as_totals(counted), as_totals(await connection.fetch(POSTGRES_RECOUNT))

    check_histories(loop, loop.run_until_complete(open_stores()), read)


async def test_sqlite_operation_that_fails_half_way_is_not_counted(tmp_path: Path) -> None:
    """The others of its group are run again, and are counted once."""
    path = tmp_path / "segue.db"
    stores: list[Store] = [SQLiteStore.open(path)]
    names = ("create", "load_and_fail", "put_part", "replace_records_and_fail", "put_record")
    group = [Operation(name, 0, "this", 0, 9) for name in names]
    refusals = await run_all(stores, group, "")
    await stores[0].close()
    assert [type(refusal) for refusal in refusals] == [InvalidInput, Conflict]
    counted, recounted = read_sqlite(path)
    assert counted == recounted
    assert counted["this"][:2] == (1, 1)  # one session and one file


async def test_a_sqlite_writer_that_is_killed_before_any_statement_leaves_exact_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill, a store has what other connections see of it just before."""
    path = tmp_path / "segue.db"
    visible: list[tuple[Totals, Totals]] = []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = sqlite_connection.connect(*args, **options)
        connection.set_trace_callback(lambda _: visible.append(read_sqlite(path)))
        return connection

    monkeypatch.setattr(writer, "connect", connect)
    stores: list[Store] = [SQLiteStore.open(path) for _ in range(2)]
    await run_all(stores, start(), "")
    await run_all(stores, [op._replace(name="append") for op in start()], "")
    await run_all(stores, [op._replace(name="purge") for op in start()], "")
    for store in stores:
        await store.close()
    assert [counted for counted, _ in visible] == [recounted for _, recounted in visible]
    assert len({tuple(counted.values()) for counted, _ in visible}) > 3
