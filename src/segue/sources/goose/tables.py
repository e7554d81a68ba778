"""Read the rows of Goose's database, whose columns differ between versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from segue.model.event import Usage
from segue.sources.kit import bodies, database, files
from segue.sources.kit.reader import SessionRef, Unreadable

_SESSION_COLUMNS = (
    "id",
    "name",
    "description",
    "user_set_name",
    "session_type",
    "working_dir",
    "created_at",
    "updated_at",
    "archived_at",
    "accumulated_input_tokens",
    "accumulated_output_tokens",
    "accumulated_cache_read_tokens",
    "accumulated_cache_write_tokens",
    "accumulated_cost",
    "provider_name",
    "model_config_json",
    "goose_mode",
    "schedule_id",
    "project_id",
    "parent_session_id",
)
_MESSAGE_COLUMNS = (
    "id",
    "message_id",
    "role",
    "content_json",
    "created_timestamp",
    "metadata_json",
)
_TOTALS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost")


class SessionRow(NamedTuple):
    """A row of `sessions`."""

    fields: dict[str, Any]

    @property
    def id(self) -> str:
        return bodies.text(self.fields["id"])

    @property
    def identity(self) -> str:
        """The id and the time of creation: the newest id of a day is used again if deleted."""
        return f"{self.id}@{self.fields['created_at']}"

    @property
    def type(self) -> str:
        """How the session was started, or that it is a subagent's."""
        return bodies.text(self.fields["session_type"]) or "user"

    @property
    def created_at(self) -> int:
        return bodies.time_of(self.fields["created_at"]) or 0

    @property
    def updated_at(self) -> int:
        return bodies.time_of(self.fields["updated_at"]) or self.created_at

    @property
    def model(self) -> str | None:
        config = decode(self.fields["model_config_json"])
        name = config.get("model_name") if isinstance(config, dict) else None
        return bodies.text(name) or None

    @property
    def parent(self) -> str | None:
        """The session that started this one as its subagent; empty if the row does not name it."""
        parent = bodies.text(self.fields["parent_session_id"])
        return parent or ("" if self.type == "sub_agent" else None)


class RowCount(NamedTuple):
    """How many rows a session has in a table, and the highest number of a row."""

    rows: int = 0
    last: int = 0


def decode(data: Any) -> Any:
    """Return a JSON value of a column; None if there is none."""
    if not isinstance(data, str | bytes):
        return None
    try:
        return msgspec.json.decode(data)
    except files.DECODE_ERRORS:
        return None


def find_session(connection: sqlite3.Connection, native_id: str) -> SessionRow | None:
    """Return the row of a session; None if there is none."""
    select = database.select(connection, "sessions", *_SESSION_COLUMNS)
    row = connection.execute(f"{select} WHERE id = ?", (native_id,)).fetchone()
    return row and SessionRow(dict(row))


def session_refs(path: str) -> dict[str, SessionRef]:
    """Return all sessions of a database by their identities.

    A session changes with its rows and with those of its subagents.
    """
    with database.open_database(path) as connection:
        if not {"id", "session_id"} <= database.columns(connection, "messages"):
            raise Unreadable("it has no messages of Goose")
        select = database.select(connection, "sessions", *_SESSION_COLUMNS)
        sessions = [SessionRow(dict(row)) for row in connection.execute(select)]
        messages = _count_rows(connection, "messages")
        requests = _count_rows(connection, "usage_ledger")
    rows = {row.id: row for row in sessions if row.id}
    children: dict[str, list[str]] = {}
    for row in rows.values():
        if row.parent:
            children.setdefault(row.parent, []).append(row.id)
    refs = {}
    for row in rows.values():
        count = messages.get(row.id, RowCount())
        family = [rows[id] for id in database.descendants(row.id, children)]
        others = files.digest_of(
            tuple(row.fields.values()),
            requests.get(row.id),
            [(child.id, child.updated_at, messages.get(child.id)) for child in family],
        )
        updated_at = max(member.updated_at for member in (row, *family))
        fingerprint = database.row_fingerprint(
            rows=count.rows, updated_ns=updated_at * 1000, last_row=count.last, others=others
        )
        key = database.row_key(path, row.identity)
        refs[row.identity] = SessionRef(key, row.id, fingerprint, row.identity)
    return refs


def _count_rows(connection: sqlite3.Connection, table: str) -> dict[str, RowCount]:
    if not {"id", "session_id"} <= database.columns(connection, table):
        return {}
    sql = f"SELECT session_id, count(*), max(id) FROM {table} GROUP BY session_id"
    return {id: RowCount(rows, last) for id, rows, last in connection.execute(sql)}


def subagents(connection: sqlite3.Connection, native_id: str) -> list[SessionRow]:
    """Return the sessions whose rows name a session as their parent."""
    if native_id not in database.remembered(connection, "parents", lambda: _parents(connection)):
        return []
    select = database.select(connection, "sessions", *_SESSION_COLUMNS)
    rows = connection.execute(f"{select} WHERE parent_session_id = ? ORDER BY id", (native_id,))
    return [SessionRow(dict(row)) for row in rows]


def _parents(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of all sessions with subagents: no index of Goose leads to them."""
    if "parent_session_id" not in database.columns(connection, "sessions"):
        return set()
    sql = "SELECT DISTINCT parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL"
    return {str(id) for (id,) in connection.execute(sql)}


def messages_after(
    connection: sqlite3.Connection, native_id: str, last_row: int = -1
) -> Iterator[dict[str, Any]]:
    """Return the messages of a session with higher numbers, in Goose's order."""
    select = database.select(connection, "messages", *_MESSAGE_COLUMNS)
    sql = f"{select} WHERE session_id = ? AND id > ? ORDER BY created_timestamp, id"
    for row in connection.execute(sql, (native_id, last_row)):
        created = row["created_timestamp"]
        yield {**dict(row), "created_timestamp": created if isinstance(created, int) else 0}


def count_until(connection: sqlite3.Connection, native_id: str, last_row: int) -> int:
    """Return how many messages a session has up to a number."""
    sql = "SELECT count(*) FROM messages WHERE session_id = ? AND id <= ?"
    count: int = connection.execute(sql, (native_id, last_row)).fetchone()[0]
    return count


def find_origin(
    connection: sqlite3.Connection, row: SessionRow, message_id: str
) -> SessionRow | None:
    """Return the older session that has the same message, if this one is a fork of it."""
    sql = (
        "SELECT sessions.id FROM messages JOIN sessions ON sessions.id = session_id"
        " WHERE message_id = ? AND sessions.id <> ? AND sessions.created_at <= ?"
        " ORDER BY sessions.created_at, messages.id LIMIT 1"
    )
    arguments = (message_id, row.id, row.fields["created_at"])
    origin = connection.execute(sql, arguments).fetchone()
    return None if origin is None else find_session(connection, origin[0])


def session_with(connection: sqlite3.Connection, message_id: str) -> str | None:
    """Return the id of the first session that has a message; None if there is none."""
    if "message_id" not in database.columns(connection, "messages"):
        return None
    sql = "SELECT session_id FROM messages WHERE message_id = ? ORDER BY id LIMIT 1"
    row = connection.execute(sql, (message_id,)).fetchone()
    return None if row is None else str(row[0])


def message_ids(connection: sqlite3.Connection, native_id: str) -> set[str]:
    """Return the ids of a session's messages."""
    sql = "SELECT message_id FROM messages WHERE session_id = ? AND message_id IS NOT NULL"
    return {id for (id,) in connection.execute(sql, (native_id,))}


def has_ledger(connection: sqlite3.Connection) -> bool:
    """Return whether this version records each request to a model."""
    return bool(database.columns(connection, "usage_ledger"))


def total_usage(connection: sqlite3.Connection, row: SessionRow) -> Usage:
    """Return the tokens and the cost of all requests of a session.

    The session's own totals also have the requests from before Goose kept a ledger of them.
    """
    fields = [row.fields[f"accumulated_{name}"] for name in _TOTALS]
    if has_ledger(connection):
        select = database.select(connection, "usage_ledger", *_TOTALS, "session_id")
        sums = ", ".join(f"sum({name})" for name in _TOTALS)
        sql = f"SELECT {sums} FROM ({select}) WHERE session_id = ?"
        ledger = connection.execute(sql, (row.id,)).fetchone()
        fields = [_larger(own, sum) for own, sum in zip(fields, ledger, strict=True)]
    return usage_of(*fields)


def _larger(first: Any, second: Any) -> Any:
    """Return the larger of two numbers, each of which may be missing."""
    numbers = [value for value in (first, second) if isinstance(value, int | float)]
    return max(numbers, default=None)


def usage_of(input: Any, output: Any, cache_read: Any, cache_write: Any, cost: Any) -> Usage:
    """Return tokens as Goose counts them."""
    return bodies.usage(
        input=input,
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        cost=cost if isinstance(cost, int | float) else None,
        input_includes_cache=True,
    )
