"""Open the store's file: settings, migrations, and SQLite's errors as the store's own."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from segue.model import errors
from segue.sqlite_files import as_sqlite_error, enable_wal, sqlite_errors
from segue.store import migrations

BUSY_SECONDS = 30.0
CHECKPOINT_PAGES = 4000  # in the log before a checkpoint; many are versions of the same page


_ERRORS: dict[int, tuple[type[errors.StoreError], str]] = {
    sqlite3.SQLITE_FULL: (errors.StoreFull, "the disk is full: nothing of this change was kept in"),
    # SQLite reports "full" only for a disk. A used-up quota is a write that failed.
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
    """Raise SQLite's errors as the store's, with the path of the file.

    A class, because every read enters it: a generator would make a list a tenth slower.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if sqlite_error := as_sqlite_error(error):
            code = getattr(sqlite_error, "sqlite_errorcode", 0)
            other = (errors.StoreError, f"the store failed ({sqlite_error}):")
            kind, message = _ERRORS.get(code) or _ERRORS.get(code & 0xFF) or other
            raise kind(f"{message} {self._path}") from error


def connect(path: Path, *, writable: bool, with_index: bool = False) -> sqlite3.Connection:
    """Return a connection to a store that `prepare` has checked.

    To one `with_index` the search index can be attached and written.
    """
    parameters = read_only_parameters(path)
    if parameters is not None and writable:
        raise errors.StoreReadOnly(f"the store is read-only, so this cannot be kept: {path}")
    connection = sqlite3.connect(
        address(path, parameters), timeout=BUSY_SECONDS, isolation_level=None,
        check_same_thread=False, cached_statements=512, uri=with_index or parameters is not None,
    )  # fmt: skip
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -12000")
    connection.execute("PRAGMA temp_store = MEMORY")
    if not writable and not with_index:
        connection.execute("PRAGMA query_only = ON")
    return connection


def prepare(path: Path) -> None:
    """Create the store if it does not exist, and run the migrations it lacks.

    Several processes may do this at once: the first to get the write lock migrates, the others
    wait and find nothing left to do. Raises StoreTooNew for a store that a newer segue has
    migrated, StoreTooOld for one of an unreleased segue; neither is changed. A store that cannot
    be written is read as it is.
    """
    with translated(path):
        if _exists(path):
            _refuse_older_format(path)
            parameters = read_only_parameters(path)
            connection = sqlite3.connect(
                address(path, parameters),
                timeout=BUSY_SECONDS,
                isolation_level=None,
                uri=parameters is not None,
            )
            with closing(connection):
                if _is_current(connection, path):
                    return
            if parameters is not None:
                raise errors.StoreReadOnly(
                    "an older segue wrote this store, and it is read-only, so it cannot be"
                    f" migrated: {path}"
                )
        _make_directory(path)
        with closing(
            sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        ) as connection:
            path.chmod(0o600)
            enable_wal(connection, BUSY_SECONDS)
            connection.execute("PRAGMA synchronous = FULL")
            _migrate(connection, path)


def read_only_parameters(path: Path) -> str | None:
    """Return the URI parameters to read a store that cannot be written; None if it can be.

    Even to read, SQLite needs the files `-wal` and `-shm`, or creates them. If it cannot, it may
    read the file as immutable, provided that the log is empty.
    """
    writable = os.access(path, os.W_OK)
    if writable and os.access(path.parent, os.W_OK):
        return None
    log = Path(f"{path}-wal")
    log_files = [file for file in (log, Path(f"{path}-shm")) if file.exists()]
    if len(log_files) == 2:
        log_writable = writable and all(os.access(file, os.W_OK) for file in log_files)
        return None if log_writable else "mode=ro"
    if log in log_files and log.stat().st_size:
        raise errors.StoreReadOnly(
            "the newest changes of this read-only store are still in its log, so it cannot be"
            f" read; copy it, together with {log.name}, to a directory you can write to: {path}"
        )
    return "immutable=1"


def address(path: Path, parameters: str | None) -> str:
    """Return the name by which SQLite opens a file, with URI parameters if there are any."""
    return str(path) if parameters is None else f"{path.absolute().as_uri()}?{parameters}"


def _exists(path: Path) -> bool:
    try:
        if path.is_dir():
            raise errors.StoreReadOnly(f"a directory is in the place of the store: {path}")
        return path.exists()
    except OSError as error:
        raise errors.StoreReadOnly(f"cannot check if {path} exists: {error.strerror}") from error


def _make_directory(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise errors.StoreReadOnly(f"cannot make {path.parent}: {error.strerror}") from error


def _refuse_older_format(path: Path) -> None:
    """Raise StoreTooOld for a store of an unreleased segue.

    Such a store must not be altered. An ordinary connection may move changes from the log into
    the file when it closes; a read-only one does not. The file is opened by SQLite only: closing
    any other descriptor of it would drop the locks of this process's connections.
    """
    version = _older_format(path, "immutable=1")  # creates no file, but ignores the log
    log = Path(f"{path}-wal")
    if version == 0 and log.exists() and log.stat().st_size:
        version = _older_format(path, "mode=ro")
    if version:
        raise migrations.older_format_error("SQLite", str(path), version)


def _older_format(path: Path, parameters: str) -> int | None:
    """Return the format of a store of an unreleased segue, 0 if the file has none, else None."""
    try:
        with (
            sqlite_errors(),
            closing(sqlite3.connect(address(path, parameters), uri=True)) as connection,
        ):
            version: int = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                return 0
            if version >= _oldest_format():
                return None
            sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'"
            is_store = connection.execute(sql).fetchone()[0]
    except sqlite3.Error:
        return None  # opening the store reports it
    return version if is_store else None


def _is_current(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether all migrations have run. Raises StoreTooNew if a newer segue is required."""
    # In one statement: another process may be creating the store between two.
    (version, tables, meta) = connection.execute(
        "SELECT (SELECT user_version FROM pragma_user_version), count(*),"
        " count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema"
    ).fetchone()
    if (version == 0 and tables) or (version != 0 and not meta):
        raise errors.StoreCorrupt(f"the database of another program, not a segue store: {path}")
    if version == 0:
        return False
    if version < _oldest_format():
        raise migrations.older_format_error("SQLite", str(path), version)
    check_compat(connection, path)
    return bool(version >= _newest_format())


def check_compat(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreTooNew if a newer segue has migrated the store to a format unknown here.

    Every write checks this too: a process may run for days after others were upgraded.
    """
    (compat,) = connection.execute("SELECT value FROM meta WHERE name = 'compat'").fetchone()
    if compat > _newest_format():
        raise errors.StoreTooNew(
            f"{path} was written by a newer segue (it asks for format {compat}, this one knows"
            f" {_newest_format()}); upgrade segue to use it"
        )


@cache
def _newest_format() -> int:
    return migrations.load("sqlite")[-1].number


@cache
def _oldest_format() -> int:
    return migrations.load("sqlite")[0].number


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection, "BEGIN IMMEDIATE"):
        if not _is_current(connection, path):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            for migration in migrations.load("sqlite"):
                if migration.number > version:
                    _run(connection, migration)


@contextmanager
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """Commit what is written, or roll it back after an error."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _run(connection: sqlite3.Connection, migration: migrations.Migration) -> None:
    # Statement by statement: `executescript` would commit the open transaction.
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
