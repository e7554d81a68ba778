"""Damage SQLite files as a bad disk could."""

import sqlite3
from contextlib import closing
from pathlib import Path


def damage_schema(path: Path) -> None:
    """Replace a table's name and definition by bytes that are not UTF-8.

    SQLite's message about it has these bytes, for which Python raises UnicodeDecodeError.
    """
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET name = CAST(x'a6' AS TEXT), sql = 'CREATE nothing'"
            " WHERE rowid = (SELECT min(rowid) FROM sqlite_schema WHERE type = 'table')"
        )
