"""Write rows as Goose does, with nothing of segue's code for them."""

import json
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from segue.model.query import Query
from segue.model.session import Session
from segue.sources.goose.definition import GooseDefinition
from segue.sources.goose.reader import GooseReader
from segue.sources.kit.source import KitSource
from segue.testing import ToolSessions

MODEL = "gpt-4o"
MESSAGES = """
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL,
    role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,
    timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER, metadata_json TEXT
);
CREATE INDEX idx_messages_session ON messages(session_id);
CREATE INDEX idx_messages_message_id ON messages(message_id);
"""
SCHEMA = f"""
CREATE TABLE schema_version (version INTEGER PRIMARY KEY);
INSERT INTO schema_version VALUES (16);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '',
    user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user',
    working_dir TEXT NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP,
    extension_data TEXT DEFAULT '{{}}', total_tokens INTEGER,
    accumulated_total_tokens INTEGER, accumulated_input_tokens INTEGER,
    accumulated_output_tokens INTEGER, accumulated_cache_read_tokens INTEGER,
    accumulated_cache_write_tokens INTEGER, accumulated_cost REAL, provider_name TEXT,
    model_config_json TEXT, goose_mode TEXT NOT NULL DEFAULT 'auto', archived_at TIMESTAMP,
    parent_session_id TEXT
);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
{MESSAGES}
CREATE TABLE usage_ledger (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
    created_timestamp INTEGER NOT NULL, model TEXT, input_tokens INTEGER, output_tokens INTEGER,
    total_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER, cost REAL,
    cost_source TEXT, is_compaction INTEGER DEFAULT 0
);
CREATE INDEX idx_usage_ledger_session ON usage_ledger(session_id);
"""
# Of versions before sessions had types, totals and visibility.
OLD_SCHEMA = f"""
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, description TEXT NOT NULL DEFAULT '', working_dir TEXT NOT NULL,
    created_at TIMESTAMP, updated_at TIMESTAMP
);
{MESSAGES}
"""
VISIBLE = {"userVisible": True, "agentVisible": True}
HIDDEN = {"userVisible": False, "agentVisible": True}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def request(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    value = {"name": name, "arguments": arguments}
    return {"type": "toolRequest", "id": call_id, "toolCall": {"status": "success", "value": value}}


def response(call_id: str, output: str, **value: Any) -> dict[str, Any]:
    value = {"content": [text(output)], "isError": False, **value}
    result = {"status": "success", "value": value}
    return {"type": "toolResponse", "id": call_id, "toolResult": result}


class GooseSessions(ToolSessions):
    """Sessions in a database with a write-ahead log, which Goose keeps open."""

    definition = GooseDefinition()

    def __init__(self, directory: Path, index: Path, schema: str = SCHEMA) -> None:
        directory.mkdir(parents=True)
        self.directory: Path = directory
        self.path = directory / "sessions.db"
        self._index = index
        self._number = 0
        self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.executescript(schema)

    def close(self) -> None:
        self.connection.close()

    def open_source(self) -> KitSource:
        return KitSource(GooseReader(str(self.directory)), self._index, "Goose")

    def add_session(self, at: datetime, *, cwd: str = "/work", **fields: Any) -> str:
        """Write the row of a session, and return its id."""
        self._number += 1
        row = {"id": f"{at:%Y%m%d}_{self._number}", "working_dir": cwd, **fields}
        row |= {"created_at": stamp(at), "updated_at": stamp(at)}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", [*row.values()])
        return str(row["id"])

    def add_message(
        self,
        session: str,
        role: str,
        *content: Any,
        at: datetime,
        metadata: Any = VISIBLE,
        message_id: str | None = None,
    ) -> None:
        """Write a message, as a transaction."""
        sql = (
            "INSERT INTO messages"
            " (message_id, session_id, role, content_json, created_timestamp, metadata_json)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )
        id = message_id or f"msg_{uuid4()}"
        data = json.dumps(content)
        row = (id, session, role, data, int(at.timestamp()), json.dumps(metadata))
        self.connection.execute("BEGIN")
        self.connection.execute(sql, row)
        self.update(session, updated_at=stamp(at))
        self.connection.execute("COMMIT")

    def update(self, session: str, **fields: Any) -> None:
        """Change the row of a session."""
        changes = ", ".join(f"{name} = ?" for name in fields)
        sql = f"UPDATE sessions SET {changes} WHERE id = ?"
        self.connection.execute(sql, [*fields.values(), session])

    def add_turn_rows(self, session: str, prompt: str, answer: str, at: datetime) -> None:
        self.add_message(session, "user", text(prompt), at=at)
        self.add_message(session, "assistant", text(answer), at=at)

    def replace_conversation(self, session: str) -> None:
        """Delete all messages and insert them again, as a compaction does."""
        columns = "message_id, session_id, role, content_json, created_timestamp, metadata_json"
        select = f"SELECT {columns} FROM messages WHERE session_id = ? ORDER BY id"
        rows = self.connection.execute(select, (session,)).fetchall()
        self.connection.execute("DELETE FROM messages WHERE session_id = ?", (session,))
        sql = f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?)"
        self.connection.executemany(sql, rows)

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        config = json.dumps({"model_name": MODEL})
        native_id = self.add_session(at, cwd=cwd, model_config_json=config)
        self.add_turn_rows(native_id, prompt, answer, at)
        return (await self.row(native_id)).id

    async def rows(self) -> list[Session]:
        """Return all rows of a source that is opened for it."""
        source = self.open_source()
        try:
            await source.refresh()
            return await source.page(Query(archived="include", limit=1000))
        finally:
            await source.close()

    async def row(self, native_id: str) -> Session:
        return next(row for row in await self.rows() if row.native_id == native_id)

    async def _native_id(self, id: str) -> str:
        return next(row.native_id or "" for row in await self.rows() if row.id == id)

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        self.add_turn_rows(await self._native_id(id), prompt, answer, at)

    async def delete(self, id: str) -> None:
        native_id = await self._native_id(id)
        self.connection.execute("DELETE FROM messages WHERE session_id = ?", (native_id,))
        self.connection.execute("DELETE FROM sessions WHERE id = ?", (native_id,))

    async def damage(self, id: str) -> None:
        native_id = await self._native_id(id)
        self.connection.execute(
            "UPDATE messages SET content_json = x'00ff', metadata_json = '{' WHERE session_id = ?",
            (native_id,),
        )
        self.update(native_id, name="damaged")


def stamp(at: datetime) -> str:
    """Return a time as SQLite's CURRENT_TIMESTAMP has it."""
    return f"{at:%Y-%m-%d %H:%M:%S}"
