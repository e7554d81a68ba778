"""What all files of SQLite need: write-ahead logging, and errors that say that one is damaged."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager


def enable_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """Enable write-ahead logging. Waits for the lock, which SQLite's own timeout does not."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def as_sqlite_error(error: BaseException | None) -> sqlite3.Error | None:
    """Return SQLite's error; None for an error of something else.

    SQLite's message about a damaged schema quotes bytes of the file. Python raises
    UnicodeDecodeError instead of sqlite3.DatabaseError if they are not UTF-8.
    """
    if isinstance(error, sqlite3.Error):
        return error
    if not isinstance(error, UnicodeDecodeError):
        return None
    damaged = sqlite3.DatabaseError("malformed database schema, with bytes that are not text")
    damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    damaged.sqlite_errorname = "SQLITE_CORRUPT"
    return damaged


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Raise sqlite3.DatabaseError where Python raises UnicodeDecodeError for SQLite's message."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise as_sqlite_error(error) from error  # type: ignore[misc]  # it is one
