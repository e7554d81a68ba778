"""Opening the file: pragmas, migrations, and SQLite's errors as ours."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from time import monotonic, sleep

from segue.model import errors
from segue.sqlite_wal import enable_wal
from segue.store import migrations

from . import fts_index

BUSY_SECONDS = 30.0
QUIET_SECONDS = 2.0  # that long an opening says nothing of its work

_ERRORS: dict[int, tuple[type[errors.StoreError], str]] = {
    sqlite3.SQLITE_FULL: (errors.StoreFull, "the disk is full: nothing of this change was kept in"),
    # SQLite says "full" of a disk only: a used-up quota is to it a write that failed.
    sqlite3.SQLITE_IOERR_WRITE: (
        errors.StoreFull,
        "the disk or a quota is full, or the disk fails: nothing of this change was kept in",
    ),
    sqlite3.SQLITE_IOERR_SHMSIZE: (
        errors.StoreFull,
        "the disk or a quota is full: nothing of this change was kept in",
    ),
    sqlite3.SQLITE_READONLY: (errors.StoreReadOnly, "no permission to write"),
    sqlite3.SQLITE_CANTOPEN: (
        errors.StoreReadOnly,
        "cannot open or create (is the directory read-only, or another user's?)",
    ),
    sqlite3.SQLITE_PERM: (errors.StoreReadOnly, "no permission to open"),
    sqlite3.SQLITE_BUSY: (errors.StoreLocked, "another program has been holding the lock of"),
    sqlite3.SQLITE_LOCKED: (errors.StoreLocked, "another program has been holding the lock of"),
    sqlite3.SQLITE_CORRUPT: (errors.StoreCorrupt, "damaged:"),
    sqlite3.SQLITE_NOTADB: (errors.StoreCorrupt, "not a segue store:"),
}


class translated:
    """SQLite's errors, raised as the store's, with the file they concern.

    A class, for every read enters it and a generator would cost a tenth of a list.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", 0)
            other = (errors.StoreError, f"the store failed ({error}):")
            kind, words = _ERRORS.get(code) or _ERRORS.get(code & 0xFF) or other
            raise kind(f"{words} {self._path}") from error


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """A connection to a store that `prepare` has been over."""
    way = _reading(path)
    if way is not None and writable:
        raise errors.StoreReadOnly(f"the store is read-only, so this cannot be kept: {path}")
    connection = sqlite3.connect(
        _address(path, way), timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False,
        cached_statements=512, uri=way is not None,
    )  # fmt: skip
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA temp_store = MEMORY")
    if not writable:
        # The words in the full-text index, for as long as the connection is open.
        connection.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, search, row)")
        connection.execute("PRAGMA query_only = ON")
    return connection


def prepare(path: Path) -> None:
    """Make the store if it is not there, and bring it up to date.

    Several processes may do this at once: the first to get the write lock migrates, the others
    wait and find nothing left to do. A store that a newer program has closed to us is refused.
    One that cannot be written is read as it is.
    """
    with translated(path):
        if _exists(path):
            way = _reading(path)
            connection = sqlite3.connect(
                _address(path, way),
                timeout=BUSY_SECONDS,
                isolation_level=None,
                uri=way is not None,
            )
            try:
                if _current(connection, path):
                    if way is not None or fts_index.is_whole(connection.execute):
                        return
                elif way is not None:
                    raise errors.StoreReadOnly(
                        "it is an older segue's, and read-only, so it cannot be brought up to"
                        f" date: {path}"
                    )
            finally:
                connection.close()
        _make_directory(path)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            path.chmod(0o600)
            enable_wal(connection, BUSY_SECONDS)
            connection.execute("PRAGMA synchronous = FULL")
            _migrate(connection, path)
            _reindex(connection, path)
        finally:
            connection.close()


def _reading(path: Path) -> str | None:
    """How SQLite is told to read a store that cannot be written; None for one that can be.

    Even to read, it wants the log and the memory shared with it, `-wal` and `-shm`, or to make
    them. Where it cannot, it may take the file for one that nobody changes, if the log is empty.
    """
    writable = os.access(path, os.W_OK)
    if writable and os.access(path.parent, os.W_OK):
        return None
    log = Path(f"{path}-wal")
    beside = [each for each in (log, Path(f"{path}-shm")) if each.exists()]
    if len(beside) == 2:
        makes = writable and all(os.access(each, os.W_OK) for each in beside)
        return None if makes else "mode=ro"
    if log in beside and log.stat().st_size:
        raise errors.StoreReadOnly(
            "what was last written to a store that cannot be written here is still in its log, so"
            f" it cannot be read; copy it, and {log.name} beside it, to where you can: {path}"
        )
    return "immutable=1"


def _address(path: Path, way: str | None) -> str:
    return str(path) if way is None else f"{path.absolute().as_uri()}?{way}"


def _exists(path: Path) -> bool:
    try:
        if path.is_dir():
            raise errors.StoreReadOnly(f"a directory is in the place of the store: {path}")
        return path.exists()
    except OSError as error:
        raise errors.StoreReadOnly(f"cannot look for {path}: {error.strerror}") from error


def _make_directory(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.StoreReadOnly(f"cannot make {path.parent}: {error.strerror}") from error


def _current(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether every migration we know is in. Raises StoreTooNew for a store closed to us."""
    # In one statement: another process may be making the store between two.
    (version, tables, ours) = connection.execute(
        "SELECT (SELECT user_version FROM pragma_user_version), count(*),"
        " count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema"
    ).fetchone()
    if (version == 0 and tables) or (version != 0 and not ours):
        raise errors.StoreCorrupt(f"the database of another program, not a segue store: {path}")
    if version == 0:
        return False
    check_compat(connection, path)
    return bool(version >= _newest())


def check_compat(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreTooNew for a store that a newer program has closed to us.

    Asked by every write, too: a process may be at work for days after others were upgraded.
    """
    (compat,) = connection.execute("SELECT value FROM meta WHERE name = 'compat'").fetchone()
    if compat > _newest():
        raise errors.StoreTooNew(
            f"{path} was written by a newer segue (it asks for format {compat}, this one knows"
            f" {_newest()}); upgrade segue to use it"
        )


@cache
def _newest() -> int:
    return migrations.load("sqlite")[-1].number


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with _transaction(connection):
        if not _current(connection, path):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for migration in migrations.load("sqlite"):
                if migration.number > version:
                    _run(connection, migration)


def _reindex(connection: sqlite3.Connection, path: Path) -> None:
    """Go over an older store's full-text index, a little at a time, for others wait meanwhile."""
    connection.execute("PRAGMA synchronous = NORMAL")  # what a crash takes back is done again
    # Where that cannot be done now, the store serves as it is, and who opens it next goes on.
    with suppress(sqlite3.Error):
        more, told, opened = True, False, monotonic()
        while more:
            begun = monotonic()
            if not told and begun - opened > QUIET_SECONDS:
                told = True
                _say_reindexing(path)
            with _transaction(connection):
                check_compat(connection, path)
                more = fts_index.step(connection.execute)
            if more:  # who waits for the lock looks for it now and then, and must find it free
                sleep((monotonic() - begun) / 2)


def _say_reindexing(path: Path) -> None:
    import logging

    words = "bringing the full-text index of %s up to date; it may take minutes, this once"
    logging.getLogger("segue.store").warning(words, path)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _run(connection: sqlite3.Connection, migration: migrations.Migration) -> None:
    # Statement by statement: `executescript` would commit the transaction that we are in.
    statement = ""
    for line in migration.sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(
        "UPDATE meta SET value = max(value, ?) WHERE name = 'compat'", (migration.compat,)
    )
    connection.execute(f"PRAGMA user_version = {migration.number}")
