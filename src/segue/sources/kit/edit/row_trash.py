"""The trash for sessions that a tool keeps in a database.

The tool's program deletes the rows and imports an export again. segue keeps two copies of a session
and its subagents. A session is restored from the tool's own export of it. While it is in the trash,
it is read from a database with its rows. Each session has a directory of its own:
segue-trash/MICROSECONDS-ID/.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote

from segue.model import clock
from segue.model.errors import AgentFailed
from segue.sources import safe_io
from segue.sources.kit import database
from segue.sources.kit.reader import Unreadable

_NAME = re.compile(r"(\d+)-(.+)")
_ROWS = "rows.db"
_SUFFIX = ".json"


class TrashedSession(NamedTuple):
    """A session in the trash."""

    directory: str
    native_id: str
    deleted_at: int

    @property
    def rows(self) -> str:
        """The path of the database with the rows."""
        return os.path.join(self.directory, _ROWS)

    def exports(self) -> list[str]:
        """Return the paths of the exports: of the session, then of its subagents."""
        names = (entry.name for entry in safe_io.list_directory(self.directory))
        return sorted(os.path.join(self.directory, name) for name in names if _is_export(name))

    def remove(self) -> None:
        """Delete the session permanently."""
        import shutil  # a list does not need it

        shutil.rmtree(self.directory)


def _is_export(name: str) -> bool:
    return name.endswith(_SUFFIX)


class RowTrash:
    """The trash of one home."""

    def __init__(self, home: str) -> None:
        self.directory = os.path.join(home, "segue-trash")

    def sessions(self) -> Iterator[TrashedSession]:
        """Return the sessions in the trash."""
        for entry in safe_io.list_directory(self.directory):
            match = _NAME.fullmatch(entry.name)
            if match is not None and safe_io.is_directory(entry, follow_symlinks=False):
                yield TrashedSession(entry.path, match[2], int(match[1]))

    def of_rows(self, path: str) -> TrashedSession | None:
        """Return the session whose rows a database has; None if it is not in the trash."""
        directory, name = os.path.split(path)
        parent, entry = os.path.split(directory)
        match = _NAME.fullmatch(entry)
        if parent != self.directory or name != _ROWS or match is None:
            return None
        return TrashedSession(directory, match[2], int(match[1]))

    def add(
        self,
        native_id: str,
        path: str,
        rows: Mapping[str, tuple[str, Sequence[str]]],
        exports: Sequence[bytes],
    ) -> TrashedSession:
        """Copy a session to the trash, whole and at once.

        `path` is the tool's database. `rows` has a column and its values for each table.
        """
        now = clock.now()
        directory = os.path.join(self.directory, f"{now}-{native_id}")
        temporary = os.path.join(self.directory, f".{now}-{native_id}.{os.getpid()}")
        os.makedirs(temporary, mode=0o700)
        try:
            _copy_rows(path, os.path.join(temporary, _ROWS), rows)
            for number, export in enumerate(exports):
                safe_io.write_file(os.path.join(temporary, f"{number:06}{_SUFFIX}"), [export])
            os.rename(temporary, directory)
        except BaseException:
            import shutil

            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return TrashedSession(directory, native_id, now)


@contextmanager
def deletion(trashed: TrashedSession, path: str, table: str) -> Iterator[None]:
    """Let the tool's program delete a session in a `with` block, after it was copied to the trash.

    If the tool still has the session afterwards, the copy is deleted. It stays if the block fails
    after the session was deleted, or if nothing is known. Raises AgentFailed if the program has
    deleted nothing.
    """
    try:
        yield
    except BaseException:
        with suppress(Unreadable, sqlite3.Error):
            if has_session(path, table, trashed.native_id):
                trashed.remove()
        raise
    if has_session(path, table, trashed.native_id):
        trashed.remove()
        raise AgentFailed(f"the program did not delete session {trashed.native_id} from {path}")


def rows_of_sessions(
    path: str, table: str, ids: Sequence[str], *columns: str
) -> dict[str, tuple[str, Sequence[str]]]:
    """Return which rows of a tool's database belong to sessions, for `RowTrash.add`.

    Those are their own rows in a table, and the rows of every other table that has one of the
    columns: a later version may have further tables.
    """
    rows: dict[str, tuple[str, Sequence[str]]] = {table: ("id", ids)}
    with database.open_database(path) as connection:
        sql = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        names = [str(row["name"]) for row in connection.execute(sql)]
        for name in names:
            existing = database.columns(connection, name)
            column = next((column for column in columns if column in existing), None)
            if name != table and column is not None:
                rows[name] = (column, ids)
    return rows


def require_imported(paths: Sequence[str], table: str, native_id: str) -> None:
    """Raise AgentFailed if none of a tool's databases has a session that was imported."""
    if not any(has_session(path, table, native_id) for path in paths):
        names = " or ".join(paths)
        raise AgentFailed(f"the program did not import session {native_id} into {names}")


def has_session(path: str, table: str, native_id: str) -> bool:
    """Return whether a tool's database has a session."""
    with database.open_database(path) as connection:
        sql = f'SELECT 1 FROM "{table}" WHERE id = ?'
        return connection.execute(sql, (native_id,)).fetchone() is not None


def _copy_rows(path: str, copy: str, rows: Mapping[str, tuple[str, Sequence[str]]]) -> None:
    """Copy some rows of a database into a new one, with the same columns and indexes."""
    with closing(sqlite3.connect(f"file:{quote(copy)}", uri=True, isolation_level=None)) as target:
        target.execute("ATTACH ? AS tool", (f"file:{quote(path)}?mode=ro",))
        target.execute("BEGIN")
        for table, (column, values) in rows.items():
            _copy_table(target, table, column, values)
        target.execute("COMMIT")


def _copy_table(target: sqlite3.Connection, table: str, column: str, values: Sequence[str]) -> None:
    sql = (
        "SELECT sql FROM tool.sqlite_master WHERE tbl_name = ? AND type IN ('table', 'index')"
        " AND sql IS NOT NULL ORDER BY type DESC"
    )
    for (definition,) in target.execute(sql, (table,)).fetchall():
        target.execute(definition)
    names = ", ".join(f'"{row[1]}"' for row in target.execute(f'PRAGMA tool.table_info("{table}")'))
    for value in values if names else ():
        target.execute(
            f'INSERT INTO main."{table}" ({names})'
            f' SELECT {names} FROM tool."{table}" WHERE "{column}" = ?',
            (value,),
        )
