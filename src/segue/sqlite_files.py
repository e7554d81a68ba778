"""Switch a SQLite file to write-ahead logging, so that readers do not wait for writers."""

from __future__ import annotations

import sqlite3
import time


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
