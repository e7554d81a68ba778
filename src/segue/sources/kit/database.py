"""Read a tool's SQLite database without ever writing to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from time import time_ns
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from segue.sqlite_files import sqlite_errors

from .reader import Fingerprint, Unreadable

BUSY_SECONDS = 2.0
T = TypeVar("T")
_SUFFIXES = ("", "-wal", "-shm")
_ROW_BYTES = 2048  # an estimate: long updates run outside the event loop
_CLOCK_TICK_NS = 50_000_000  # after a write in which the next write may get the same time

# The open databases by path, of a thread that reads many sessions.
_kept_connections: ContextVar[dict[str, _Connection] | None] = ContextVar("kept", default=None)


@contextmanager
def keep_open() -> Iterator[None]:
    """Keep databases open between transactions inside a `with` block of one thread."""
    connections: dict[str, _Connection] = {}
    token = _kept_connections.set(connections)
    try:
        yield
    finally:
        _kept_connections.reset(token)
        for connection in connections.values():
            connection.close()


@contextmanager
def open_database(path: str) -> Iterator[sqlite3.Connection]:
    """Open a database for reading, in one transaction, and close it unless `keep_open` was called.

    Rows have names. Raises Unreadable if this is no database, and sqlite3.OperationalError while
    another program has locked it. If the log cannot be read in place, as in a read-only directory,
    a copy is read.
    """
    if not os.path.isfile(path):
        raise Unreadable("there is no such file")
    kept_connections = _kept_connections.get()
    kept = None if kept_connections is None else kept_connections.get(path)
    try:
        connection = _connect(path) if kept is None else _begin(kept)
    except sqlite3.OperationalError as error:
        if _is_busy(error):
            raise
        with _copied(path) as copy, closing(_connect_copy(copy)) as connection:
            yield connection
        return
    if kept_connections is None:
        with closing(connection):
            yield connection
        return
    kept_connections[path] = connection
    try:
        yield connection
    finally:
        connection.rollback()


class _Connection(sqlite3.Connection):
    """A connection that remembers the columns of tables, and values until the next write."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.schema_version = -1
        self.table_columns: dict[str, set[str]] = {}
        self.data_version = -1
        self.values: dict[str, Any] = {}


def _connect(path: str) -> _Connection:
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=ro",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        factory=_Connection,
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.text_factory = _decode_text
        return _begin(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise Unreadable(f"it cannot be read: {error}") from error


def _begin(connection: _Connection) -> _Connection:
    """Begin a transaction, which reads the schema. Raises sqlite3.DatabaseError if it cannot."""
    connection.execute("BEGIN")
    with sqlite_errors():
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    if version != connection.schema_version:
        connection.schema_version, connection.table_columns = version, {}
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    if version != connection.data_version:
        connection.data_version, connection.values = version, {}
    return connection


def _connect_copy(path: str) -> _Connection:
    try:
        return _connect(path)
    except sqlite3.OperationalError as error:
        raise Unreadable(f"it cannot be opened: {error}") from error


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextmanager
def _copied(path: str) -> Iterator[str]:
    """Copy a database with its log into a temporary directory."""
    import shutil  # most databases are read in place
    import tempfile

    with tempfile.TemporaryDirectory(prefix="segue-") as directory:
        copy = os.path.join(directory, "copy.db")
        for suffix in _SUFFIXES[:2]:
            try:
                shutil.copyfile(path + suffix, copy + suffix)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Unreadable(f"it cannot be read: {error.strerror}") from error
        yield copy


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; none if the database has no such table."""
    known = connection.table_columns if isinstance(connection, _Connection) else {}
    if table not in known:
        rows = connection.execute(f'PRAGMA table_info("{table}")')
        known[table] = {row["name"] for row in rows}
    return known[table]


def remembered(connection: sqlite3.Connection, name: str, load: Callable[[], T]) -> T:
    """Return what `load` returned for a name since the last write to the database."""
    known = connection.values if isinstance(connection, _Connection) else {}
    if name not in known:
        known[name] = load()
    value: T = known[name]
    return value


def select(connection: sqlite3.Connection, table: str, *names: str) -> str:
    """Return `SELECT … FROM table` with NULL for the columns that this version does not have."""
    existing = columns(connection, table)
    values = (f'"{name}"' if name in existing else f'NULL AS "{name}"' for name in names)
    return f'SELECT {", ".join(values)} FROM "{table}"'


def row_key(path: str, native_id: str) -> str:
    """Return the key of a session that is in a database."""
    return f"{path}#{native_id}"


def split_key(key: str) -> tuple[str, str]:
    """Return the path of the database and the native id of a key."""
    path, _, native_id = key.rpartition("#")
    return path, native_id


def row_fingerprint(*, rows: int, updated_ns: int, last_row: int, others: int = 0) -> Fingerprint:
    """Return the fingerprint of a session in a database."""
    return Fingerprint(last_row, rows * _ROW_BYTES, updated_ns, others)


def log_status(path: str) -> tuple[tuple[int, int, int], ...]:
    """Return the status of a database and its log, which takes the writes at first.

    Readers create an empty log.
    """
    statuses = []
    for suffix in _SUFFIXES[:2]:
        try:
            status = os.stat(path + suffix)
            fields = (status.st_ino, status.st_size, status.st_mtime_ns)
            statuses.append(fields if status.st_size else (0, 0, 0))
        except OSError:
            statuses.append((0, 0, 0))
    return tuple(statuses)


def settled_status(path: str) -> tuple[tuple[int, int, int], ...] | None:
    """Return the same; None right after a write, as the next write may get the same time."""
    status = log_status(path)
    now = time_ns()
    return status if all(now - written > _CLOCK_TICK_NS for _, _, written in status) else None


class UnchangedCache(Generic[T]):
    """Caches values loaded from databases until a database or its log is written.

    If nothing changed, that costs two stats for each database.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, tuple[tuple[int, int, int], ...]] = {}
        self._values: dict[str, T] = {}

    def get(self, path: str, load: Callable[[], T]) -> T:
        """Return what `load` returned for a database when it was last written."""
        status = settled_status(path)
        if status is not None and self._statuses.get(path) == status:
            return self._values[path]
        value = load()
        self._statuses.pop(path, None)
        if status is not None:
            self._statuses[path], self._values[path] = status, value
        return value


def descendants(id: str, children: dict[str, list[str]]) -> list[str]:
    """Return the subagents of a session, and theirs."""
    descendants: list[str] = []
    parents = [id]
    while parents:
        for child in children.get(parents.pop(), ()):
            if child != id and child not in descendants:
                descendants.append(child)
                parents.append(child)
    return descendants
