"""Write rows and files as opencode does, with nothing of segue's code for them."""

import json
import os
import sqlite3
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from segue.model.query import Query
from segue.model.session import Session
from segue.sources.kit.source import KitSource
from segue.sources.opencode.definition import OpencodeDefinition
from segue.sources.opencode.reader import OpencodeReader
from segue.testing import ToolSessions

MODEL = "some-model"
PROJECT = "2090989aa7261d1a6fd8e42269d27fea10302f16"
# Of version 1.2, which had no log of changes and no totals.
OLD_SCHEMA = """
CREATE TABLE session (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL, parent_id TEXT, slug TEXT NOT NULL,
    directory TEXT NOT NULL, title TEXT NOT NULL, version TEXT NOT NULL, share_url TEXT,
    revert TEXT, permission TEXT, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL,
    time_compacting INTEGER, time_archived INTEGER
);
CREATE TABLE message (
    id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER NOT NULL,
    time_updated INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE TABLE part (
    id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
    time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE INDEX session_parent_idx ON session (parent_id);
"""
SCHEMA = f"""
{OLD_SCHEMA}
ALTER TABLE session ADD COLUMN workspace_id TEXT;
ALTER TABLE session ADD COLUMN agent TEXT;
ALTER TABLE session ADD COLUMN model TEXT;
CREATE TABLE workspace (id TEXT PRIMARY KEY, branch TEXT, directory TEXT);
CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, data TEXT);
CREATE TABLE event_sequence (aggregate_id TEXT PRIMARY KEY, seq INTEGER NOT NULL);
"""


def millis(at: datetime) -> int:
    return int(at.timestamp() * 1000)


class OpencodeSessions(ToolSessions):
    """Sessions of one data directory: those of subclasses are in a database or in files."""

    definition = OpencodeDefinition()

    def __init__(self, directory: Path, index: Path) -> None:
        directory.mkdir(parents=True)
        self.directory: Path = directory
        self._index = index
        self._number = 0

    def open_source(self) -> KitSource:
        return KitSource(OpencodeReader(str(self.directory)), self._index, "opencode")

    def new_id(self, prefix: str) -> str:
        """Return an id; ids sort in the order of their creation."""
        self._number += 1
        return f"{prefix}_{self._number:012x}abcdefghijklmn"

    def put(self, table: str, id: str, at: datetime, data: dict[str, Any], **owner: str) -> str:
        """Write a session, a message or a part, or change it."""
        raise NotImplementedError

    def add_session(
        self, at: datetime, *, cwd: str = "/work", title: str = "A title", **fields: Any
    ) -> str:
        """Write a session without messages, and return its id."""
        time = {"created": millis(at), "updated": millis(at)}
        data = {"directory": cwd, "title": title, "version": "1.18.34", "slug": "a-b", **fields}
        data["time"] = {**time, **fields.get("time", {})}
        return self.put("session", self.new_id("ses"), at, data)

    def add_message(self, session: str, role: str, at: datetime, **data: Any) -> str:
        """Write a message without parts, and return its id."""
        data = {"role": role, "time": {"created": millis(at)}, **data}
        if role == "assistant":
            data = {"modelID": MODEL, "providerID": "p", **data}
        return self.put("message", self.new_id("msg"), at, data, session=session)

    def add_part(self, session: str, message: str, at: datetime, **data: Any) -> str:
        """Write a part, and return its id."""
        id = self.new_id("prt")
        return self.put("part", id, at, data, session=session, message=message)

    def add_prompt(self, session: str, text: str, at: datetime) -> str:
        """Write a message of the user."""
        message = self.add_message(session, "user", at)
        self.add_part(session, message, at, type="text", text=text)
        return message

    def add_answer(self, session: str, text: str, at: datetime, **data: Any) -> str:
        """Write a complete message of the agent."""
        times = {"created": millis(at), "completed": millis(at)}
        data = {"finish": "stop", **data}
        message = self.add_message(session, "assistant", at, time=times, **data)
        end = {"start": millis(at), "end": millis(at)}
        self.add_part(session, message, at, type="text", text=text, time=end)
        return message

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        native_id = self.add_session(at, cwd=cwd, title=prompt)
        self.add_prompt(native_id, prompt, at)
        self.add_answer(native_id, answer, at)
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

    async def native_id(self, id: str) -> str:
        return next(row.native_id or "" for row in await self.rows() if row.id == id)

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        native_id = await self.native_id(id)
        self.add_prompt(native_id, prompt, at)
        self.add_answer(native_id, answer, at)


class DatabaseSessions(OpencodeSessions):
    """Sessions in a database with a write-ahead log, which opencode keeps open."""

    def __init__(self, directory: Path, index: Path, schema: str = SCHEMA) -> None:
        super().__init__(directory, index)
        self.path = directory / "opencode.db"
        self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.executescript(schema)
        self._has_log = "event_sequence" in schema
        self._changes = 0

    def close(self) -> None:
        self.connection.close()

    def put(self, table: str, id: str, at: datetime, data: dict[str, Any], **owner: str) -> str:
        row: dict[str, Any] = {"id": id}
        if table == "session":
            time = data.pop("time")
            row |= {f"time_{name}": value for name, value in time.items()}
            row |= {"project_id": PROJECT, **data}
        else:
            row |= {f"{name}_id": value for name, value in owner.items()}
            time = data.get("time")
            created = time["created"] if table == "message" and time else millis(at)
            self._changes += 1  # no two changes are in one millisecond
            updated = millis(at) + self._changes
            row |= {"time_created": created, "time_updated": updated, "data": json.dumps(data)}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        changes = ", ".join(f"{name} = excluded.{name}" for name in row if name != "id")
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO UPDATE SET {changes}"
        self.connection.execute("BEGIN")
        self.connection.execute(sql, [*row.values()])
        self.log(owner.get("session", id))
        self.connection.execute("COMMIT")
        return id

    def log(self, session: str) -> None:
        """Count a change of a session, as versions from 1.14 do."""
        if self._has_log:
            sql = (
                "INSERT INTO event_sequence VALUES (?, 0)"
                " ON CONFLICT DO UPDATE SET seq = event_sequence.seq + 1"
            )
            self.connection.execute(sql, (session,))

    def update(self, session: str, **fields: Any) -> None:
        """Change the row of a session."""
        changes = ", ".join(f"{name} = ?" for name in fields)
        sql = f"UPDATE session SET {changes} WHERE id = ?"
        self.connection.execute(sql, [*fields.values(), session])
        self.log(session)

    async def delete(self, id: str) -> None:
        native_id = await self.native_id(id)
        for table in ("part", "message"):
            self.connection.execute(f"DELETE FROM {table} WHERE session_id = ?", (native_id,))
        self.connection.execute("DELETE FROM session WHERE id = ?", (native_id,))

    async def damage(self, id: str) -> None:
        native_id = await self.native_id(id)
        for table in ("part", "message"):
            sql = f"UPDATE {table} SET data = x'00ff7b' WHERE session_id = ?"
            self.connection.execute(sql, (native_id,))
        self.log(native_id)


class FileSessions(OpencodeSessions):
    """Sessions in the files of version 1.1."""

    def put(self, table: str, id: str, at: datetime, data: dict[str, Any], **owner: str) -> str:
        folder = {"session": PROJECT, "message": owner.get("session"), "part": owner.get("message")}
        path = self.directory / "storage" / table / str(folder[table]) / f"{id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"id": id, "projectID": PROJECT, **data}
        record |= {f"{name}ID": value for name, value in owner.items()}
        path.write_text(json.dumps(record))
        # As if it had been written then; another write gets another time.
        self._number += 1
        written_ns = int(at.timestamp()) * 1_000_000_000 + self._number
        os.utime(path, ns=(written_ns, written_ns))
        os.utime(path.parent, ns=(time.time_ns(), time.time_ns() - 10**12 + self._number))
        return id

    def path(self, id: str) -> Path:
        (path,) = self.directory.rglob(f"{id}.json")
        return path

    async def delete(self, id: str) -> None:
        self.path(await self.native_id(id)).unlink()

    async def damage(self, id: str) -> None:
        self.path(await self.native_id(id)).write_bytes(b'\x00\xff{"id": [}')
