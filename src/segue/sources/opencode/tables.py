"""Read the rows of opencode's databases, whose columns differ between versions."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from segue.sources import safe_io
from segue.sources.kit import bodies, database, files
from segue.sources.kit.reader import SessionRef, Unreadable

from .records import Message, Part, SessionInfo, decode, millis, text_or_none

_SESSION_COLUMNS = (
    "id",
    "project_id",
    "workspace_id",
    "parent_id",
    "slug",
    "directory",
    "title",
    "version",
    "share_url",
    "revert",
    "agent",
    "model",
    "time_created",
    "time_updated",
    "time_archived",
)


_CONTENT_TABLES = ("session", "message", "part")
IMPORTS = "segue-imports"  # the directory with records of imports that have not ended


def find_databases(directory: str, path: str | None) -> list[str]:
    """Return the existing databases: the stable one, then those of other channels.

    `path` is the only one, if it is not found in the directory.
    """
    if path is not None:
        return [path] if os.path.exists(path) else []
    entries = safe_io.list_directory(directory)
    names = [entry.name for entry in entries if safe_io.is_regular_file(entry)]
    names = [name for name in names if name.startswith("opencode") and name.endswith(".db")]
    return [os.path.join(directory, name) for name in sorted(names, key=_stable_first)]


def _stable_first(name: str) -> tuple[bool, str]:
    return name != "opencode.db", name


def unfinished_imports(directory: str) -> list[str]:
    """Return the ids of sessions whose import has not ended, or was killed."""
    entries = safe_io.list_directory(os.path.join(directory, IMPORTS))
    return sorted(entry.name.removesuffix(".json") for entry in entries)


class _Changes(NamedTuple):
    """The rows of a session in a table: how many, the highest number, and its last change."""

    rows: int = 0
    last: int = 0
    updated_ms: int = 0


def session_refs(path: str) -> dict[str, SessionRef]:
    """Return all sessions of a database by their ids.

    A session changes with its rows and with those of its subagents.
    """
    with database.open_database(path) as connection:
        for table in ("session", "message", "part"):
            if "id" not in database.columns(connection, table):
                raise Unreadable(f"it has no table {table} of opencode")
        select = database.select(connection, "session", *_SESSION_COLUMNS)
        rows = {row["id"]: tuple(row) for row in connection.execute(select)}
        parents = {id: row[_SESSION_COLUMNS.index("parent_id")] for id, row in rows.items()}
        updated_column = _SESSION_COLUMNS.index("time_updated")
        parts, messages = _changes(connection, "part"), _changes(connection, "message")
        logged = _logged_changes(connection)
        facts = {}
        for id in rows:
            own = (parts.get(id, _Changes()), messages.get(id, _Changes()))
            changes = logged.get(id) or _last_update(connection, id)
            facts[id] = (own, changes)
    children: dict[str, list[str]] = {}
    for id, parent in parents.items():
        if parent in rows:
            children.setdefault(parent, []).append(id)
    refs = {}
    for id in rows:
        family = [id, *database.descendants(id, children)]
        updated_ms = 0
        for member in family:
            (part, message), _ = facts[member]
            own_ms = millis(rows[member][updated_column])
            updated_ms = max(updated_ms, own_ms, part.updated_ms, message.updated_ms)
        fingerprint = database.row_fingerprint(
            rows=parts.get(id, _Changes()).rows,
            updated_ns=updated_ms * 1_000_000,
            last_row=parts.get(id, _Changes()).last,
            others=files.digest_of(rows[id], [(member, facts[member]) for member in family]),
        )
        refs[id] = SessionRef(database.row_key(path, id), id, fingerprint)
    return refs


def _changes(connection: sqlite3.Connection, table: str) -> dict[str, _Changes]:
    """Return the number of rows of each session, and when the last row was changed.

    Only an index is read, and one row of each session.
    """
    sql = (
        f"SELECT session_id, rows, last, time_updated FROM {table} JOIN ("
        f" SELECT count(*) AS rows, max(rowid) AS last FROM {table} GROUP BY session_id"
        f") ON {table}.rowid = last"
    )
    return {
        id: _Changes(rows, last, millis(updated))
        for id, rows, last, updated in connection.execute(sql)
    }


def _logged_changes(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of changes of each session, in versions that have a log of them."""
    if not {"aggregate_id", "seq"} <= database.columns(connection, "event_sequence"):
        return {}
    return dict(connection.execute("SELECT aggregate_id, seq FROM event_sequence").fetchall())


def _last_update(connection: sqlite3.Connection, id: str) -> tuple[Any, ...]:
    """Return when the messages and parts of a session were changed last."""
    sql = (
        "SELECT (SELECT max(time_updated) FROM part WHERE session_id = ?),"
        " (SELECT max(time_updated) FROM message WHERE session_id = ?)"
    )
    return tuple(connection.execute(sql, (id, id)).fetchone())


def newest_model(path: str) -> tuple[str, str] | None:
    """Return the provider and the name of the model that was used last; None if none is known."""
    if not os.path.exists(path):
        return None
    with database.open_database(path) as connection:
        if not {"model", "time_updated"} <= database.columns(connection, "session"):
            return None
        sql = "SELECT model FROM session WHERE model IS NOT NULL ORDER BY time_updated DESC LIMIT 1"
        row = connection.execute(sql).fetchone()
    model = decode(row["model"]) if row is not None else None
    provider, name = (text_or_none((model or {}).get(field)) for field in ("providerID", "id"))
    return (provider, name) if provider and name else None


def count_rows(path: str, id: str) -> tuple[int, int] | None:
    """Return how many messages and parts a session has; None if there is no session."""
    with database.open_database(path) as connection:
        if not all("id" in database.columns(connection, name) for name in _CONTENT_TABLES):
            return None
        if connection.execute("SELECT 1 FROM session WHERE id = ?", (id,)).fetchone() is None:
            return None
        messages, parts = (
            connection.execute(
                f"SELECT count(*) FROM {table} WHERE session_id = ?", (id,)
            ).fetchone()[0]
            for table in ("message", "part")
        )
        return messages, parts


class DatabaseStore:
    """The sessions of one database, during one read."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    def session(self, id: str) -> SessionInfo | None:
        """Return a session; None if there is none."""
        rows = self._sessions("WHERE id = ?", id)
        return rows[0] if rows else None

    def has_session(self, session: SessionInfo, id: str) -> bool:
        """Return whether the database has another session."""
        return bool(self._sessions("WHERE id = ?", id))

    def children(self, session: SessionInfo) -> list[SessionInfo]:
        """Return the subagents of a session, in the order of their start."""
        if "parent_id" not in database.columns(self._connection, "session"):
            return []
        return self._sessions("WHERE parent_id = ? ORDER BY time_created", session.id)

    def _sessions(self, where: str, *arguments: Any) -> list[SessionInfo]:
        select = database.select(self._connection, "session", *_SESSION_COLUMNS)
        rows = self._connection.execute(f"{select} {where}", arguments).fetchall()
        return [self._session(dict(row)) for row in rows]

    def _session(self, row: dict[str, Any]) -> SessionInfo:
        model = decode(row["model"]) or {}
        extra = {"version": row["version"], "slug": row["slug"], "share_url": row["share_url"]}
        extra |= {"project_id": row["project_id"], "revert": decode(row["revert"])}
        return SessionInfo(
            id=row["id"],
            project=bodies.text(row["project_id"]),
            parent=text_or_none(row["parent_id"]),
            directory=bodies.text(row["directory"]),
            title=bodies.text(row["title"]),
            created_ms=millis(row["time_created"]),
            updated_ms=millis(row["time_updated"]),
            archived_ms=millis(row["time_archived"]) or None,
            revert=decode(row["revert"]),
            model=text_or_none(model.get("id") or model.get("modelID")),
            agent=text_or_none(row["agent"]),
            branch=self._branch(row["workspace_id"]),
            extra={name: value for name, value in extra.items() if value},
        )

    def _branch(self, workspace: Any) -> str | None:
        """Return the branch of the workspace that a session was started in."""
        if not workspace or not {"id", "branch"} <= database.columns(self._connection, "workspace"):
            return None
        sql = "SELECT branch FROM workspace WHERE id = ?"
        row = self._connection.execute(sql, (workspace,)).fetchone()
        return row and text_or_none(row["branch"])

    def messages(self, id: str, last_ms: int = 0, last_id: str = "") -> Iterator[Message]:
        """Return the messages of a session after another one, in order, with their parts."""
        sql = (
            "SELECT id, time_created, data FROM message WHERE session_id = ?"
            " AND (time_created, id) > (?, ?) ORDER BY time_created, id"
        )
        for row in self._connection.execute(sql, (id, last_ms, last_id)):
            yield Message(row["id"], row["time_created"], decode(row["data"]), self._parts(row))

    def _parts(self, message: sqlite3.Row) -> list[Part]:
        sql = "SELECT id, time_updated, data FROM part WHERE message_id = ? ORDER BY id"
        rows = self._connection.execute(sql, (message["id"],))
        return [Part(row["id"], millis(row["time_updated"]), decode(row["data"])) for row in rows]

    def count_messages(self, id: str, last_ms: int, last_id: str) -> int:
        """Return how many messages a session has up to one of them."""
        sql = "SELECT count(*) FROM message WHERE session_id = ? AND (time_created, id) <= (?, ?)"
        count: int = self._connection.execute(sql, (id, last_ms, last_id)).fetchone()[0]
        return count

    def count_parts(self, id: str, last_ms: int, last_id: str) -> int:
        """Return how many parts the messages of a session have up to one of them."""
        sql = (
            "SELECT count(*) FROM message JOIN part ON message_id = message.id"
            " WHERE message.session_id = ? AND (message.time_created, message.id) <= (?, ?)"
        )
        count: int = self._connection.execute(sql, (id, last_ms, last_id)).fetchone()[0]
        return count

    def has_newer_messages(self, id: str) -> bool:
        """Return whether a session's messages are in the table of a newer version."""
        if "session_id" not in database.columns(self._connection, "session_message"):
            return False
        sql = "SELECT 1 FROM session_message WHERE session_id = ? LIMIT 1"
        return self._connection.execute(sql, (id,)).fetchone() is not None

    def origin(self, session: SessionInfo, created_ms: int) -> str | None:
        """Return the older session that has a message of the same time: a fork copies times."""
        sql = (
            "SELECT id FROM session WHERE id <> ? AND time_created <= ? AND EXISTS ("
            " SELECT 1 FROM message WHERE session_id = session.id AND time_created = ?"
            ") ORDER BY time_created LIMIT 1"
        )
        arguments = (session.id, session.created_ms, created_ms)
        row = self._connection.execute(sql, arguments).fetchone()
        return None if row is None else str(row["id"])

    def key(self, session: SessionInfo) -> str:
        """Return the key of a session."""
        return database.row_key(self.path, session.id)

    def lines(self, session: SessionInfo) -> list[dict[str, Any]]:
        """Return the rows of a session, its messages and parts, as they are."""
        lines: list[dict[str, Any]] = []
        for table, column in (("session", "id"), ("message", "session_id"), ("part", "session_id")):
            order = "id" if table == "session" else "time_created, id"
            sql = f"SELECT * FROM {table} WHERE {column} = ? ORDER BY {order}"
            lines += [
                {"table": table, **dict(row)}
                for row in self._connection.execute(sql, (session.id,))
            ]
        return lines
