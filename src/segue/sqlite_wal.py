"""What every SQLite file of ours begins with: its changes are logged, so that readers go on."""

from __future__ import annotations

import sqlite3
import time


def enable_wal(connection: sqlite3.Connection, seconds: float) -> None:
    """Waits for the lock that this needs; SQLite itself does not, however long its timeout is."""
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
