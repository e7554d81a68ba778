"""POSIX locks of the SQLite store: a process has them as long as it has a connection."""

import os
import subprocess
import sys
from pathlib import Path

from segue.model.event import Created
from segue.store.sqlite import SQLiteStore


async def test_opening_a_store_again_keeps_the_locks_of_its_first_connection(
    tmp_path: Path,
) -> None:
    path = tmp_path / "segue.db"
    first = SQLiteStore.open(path)
    await first.create("local", "01900000-0000-7000-8000-000000000001", [Created(cwd="/")])
    log = tmp_path / "segue.db-wal"
    inode = os.stat(log).st_ino
    second = SQLiteStore.open(path)
    await second.close()
    # If the first connection had lost its lock, this process would believe to be the last one,
    # and delete the log when it closes.
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "c.execute('SELECT * FROM meta').fetchall(); c.close()"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert os.stat(log).st_ino == inode
    await first.close()
