"""Sessions in a tool's SQLite database are read with the kit, and the database is never written."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from segue.model.query import Query
from segue.model.session import Session
from segue.sources.base import ResumeCommand, Source
from segue.sources.kit import bodies, database
from segue.sources.kit.definition import ToolDefinition
from segue.sources.kit.reader import (
    End,
    Item,
    Items,
    Reader,
    Report,
    Resume,
    Rewritten,
    SessionFacts,
    SessionRef,
    Unreadable,
)
from segue.sources.kit.source import KitSource
from segue.testing import SourceContract, ToolSessions
from segue.testing.helpers import message_texts
from tests.store.damage import damage_schema

SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, cwd TEXT, created INTEGER);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, role TEXT, text TEXT, at INTEGER);
CREATE INDEX messages_session ON messages (session, id, at);
"""


class RowReader(Reader):
    """Reads sessions that are rows of a database."""

    name = "rows"

    def __init__(self, path: str) -> None:
        self.path = path

    def session_paths(self) -> Sequence[str]:
        return [self.path]

    def discover(self, report: Report) -> Iterable[SessionRef]:
        if os.path.exists(self.path):
            try:
                yield from list(self._refs())
            except (Unreadable, sqlite3.Error) as error:
                report(self.path, str(error))

    def ref(self, key: str) -> SessionRef | None:
        path, native_id = database.split_key(key)
        return None if path != self.path else next(self._refs(native_id), None)

    def find(self, native_id: str) -> SessionRef | None:
        return next(self._refs(native_id), None)

    def _refs(self, native_id: str | None = None) -> Iterator[SessionRef]:
        where = "" if native_id is None else "WHERE sessions.id = ?"
        sql = (
            "SELECT sessions.id, count(messages.id) AS rows, max(messages.id) AS last,"
            " max(messages.at) AS at FROM sessions JOIN messages ON session = sessions.id"
            f" {where} GROUP BY sessions.id"
        )
        with database.open_database(self.path) as connection:
            for row in connection.execute(sql, () if native_id is None else (native_id,)):
                fingerprint = database.row_fingerprint(
                    rows=row["rows"], updated_ns=row["at"] * 1000, last_row=row["last"]
                )
                yield SessionRef(database.row_key(self.path, row["id"]), row["id"], fingerprint)

    def read(self, ref: SessionRef, resume: Resume | None = None) -> Items:
        last, count = resume.data["position"] if resume else (0, 0)
        with database.open_database(self.path) as connection:
            (before,) = connection.execute(
                "SELECT count(*) FROM messages WHERE session = ? AND id <= ?", (ref.native_id, last)
            ).fetchone()
            if before != count:
                raise Rewritten("rows were deleted")
            session = connection.execute(
                f"{database.select(connection, 'sessions', 'cwd', 'created', 'model')}"
                " WHERE id = ?",
                (ref.native_id,),
            ).fetchone()
            sql = "SELECT * FROM messages WHERE session = ? AND id > ? ORDER BY id"
            for row in connection.execute(sql, (ref.native_id, last)):
                make = bodies.prompt if row["role"] == "user" else bodies.answer
                if not isinstance(row["text"], str):
                    raise Unreadable(f"message {row['id']} has no text")
                yield Item(1 + row["id"], row["at"], make(row["text"]))
                last, count = row["id"], count + 1
        facts = SessionFacts(
            created_at=session["created"], cwd=session["cwd"], model=session["model"]
        )
        return End(facts, Resume(data={"position": [last, count]}))

    def original_lines(self, ref: SessionRef) -> Iterable[bytes]:
        with database.open_database(self.path) as connection:
            sql = "SELECT * FROM messages WHERE session = ? ORDER BY id"
            rows = connection.execute(sql, (ref.native_id,)).fetchall()
        return [json.dumps(dict(row)).encode() + b"\n" for row in rows]


class RowDefinition(ToolDefinition):
    name = "rows"
    label = "Rows"
    program = "rows"
    resume_usage = "rows --resume"
    symbol = "r"

    def home(self) -> str:
        return "/nowhere"

    def reader(self) -> Reader:
        return RowReader(self.home())

    def resume_command(self, session: Session, *, local: bool) -> ResumeCommand:
        return ResumeCommand((self.program, "--resume", session.native_id or session.id))


class RowSessions(ToolSessions):
    """Writes sessions into a database with a write-ahead log, which it keeps open."""

    definition = RowDefinition()

    def __init__(self, directory: Path, index: Path) -> None:
        directory.mkdir()
        self.directory: Path = directory
        self.path = directory / "rows.db"
        self._index = index
        self._number = 0
        self.connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.executescript(SCHEMA)

    def open_source(self) -> KitSource:
        return KitSource(RowReader(str(self.path)), self._index, "Rows")

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        self._number += 1
        native_id = f"20260101_{self._number}"
        sql = "INSERT INTO sessions VALUES (?, ?, ?)"
        self.connection.execute(sql, (native_id, cwd, _micros(at)))
        self._add(native_id, prompt, answer, at)
        (session,) = [row for row in await self._rows() if row.native_id == native_id]
        return session.id

    async def _rows(self) -> list[Session]:
        source = self.open_source()
        try:
            await source.refresh()
            return await source.page(Query(archived="include", limit=1000))
        finally:
            await source.close()

    async def _native_id(self, id: str) -> str:
        return next(row.native_id or "" for row in await self._rows() if row.id == id)

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        self._add(await self._native_id(id), prompt, answer, at)

    def _add(self, native_id: str, prompt: str, answer: str, at: datetime) -> None:
        sql = "INSERT INTO messages (session, role, text, at) VALUES (?, ?, ?, ?)"
        rows = [(native_id, "user", prompt), (native_id, "assistant", answer)]
        self.connection.execute("BEGIN")
        self.connection.executemany(sql, [(*row, _micros(at)) for row in rows])
        self.connection.execute("COMMIT")

    async def delete(self, id: str) -> None:
        native_id = await self._native_id(id)
        self.connection.execute("DELETE FROM messages WHERE session = ?", (native_id,))
        self.connection.execute("DELETE FROM sessions WHERE id = ?", (native_id,))

    async def damage(self, id: str) -> None:
        native_id = await self._native_id(id)
        sql = "UPDATE messages SET text = x'00ff', at = at + 1 WHERE session = ?"
        self.connection.execute(sql, (native_id,))


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class TestSourceOverADatabase(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> Iterator[ToolSessions]:
        tool = RowSessions(tmp_path / "rows", tmp_path / "rows.index")
        with closing(tool.connection):
            yield tool


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[RowSessions]:
    tool = RowSessions(tmp_path / "rows", tmp_path / "rows.index")
    with closing(tool.connection):
        yield tool


async def list_titles(source: Source) -> list[str | None]:
    await source.refresh()
    return [row.title for row in await source.page(Query())]


async def test_rows_in_the_log_are_read(tool: RowSessions) -> None:
    await tool.create("in the log", "yes", cwd="/work", at=NOON)
    blind = sqlite3.connect(f"file:{tool.path}?immutable=1", uri=True)
    with closing(blind), pytest.raises(sqlite3.Error):
        blind.execute("SELECT * FROM sessions")
    assert await list_titles(tool.open_source()) == ["in the log"]


async def test_locked_database_loses_no_session(
    tool: RowSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    await tool.create("question", "reply", cwd="/work", at=NOON)
    source = tool.open_source()
    assert await list_titles(source) == ["question"]
    tool.connection.execute("PRAGMA journal_mode = DELETE")
    tool.connection.execute("BEGIN EXCLUSIVE")
    assert await list_titles(source) == ["question"]
    ((path, reason),) = (await source.examine()).problems
    assert (path, "locked" in reason) == (str(tool.path), True)
    tool.connection.execute("ROLLBACK")
    assert await list_titles(source) == ["question"]
    assert (await source.examine()).problems == []


async def test_file_that_is_no_database_is_a_problem(tool: RowSessions, tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("not a database at all" * 100)
    source = KitSource(RowReader(str(path)), tmp_path / "text.index", "Rows")
    assert await list_titles(source) == []
    ((problem, reason),) = (await source.examine()).problems
    assert (problem, "not a database" in reason) == (str(path), True)


async def test_database_whose_schema_is_not_text_is_a_problem(
    tool: RowSessions, tmp_path: Path
) -> None:
    path = tmp_path / "damaged.db"
    with closing(sqlite3.connect(path)) as copy:
        tool.connection.backup(copy)
    damage_schema(path)
    source = KitSource(RowReader(str(path)), tmp_path / "damaged.index", "Rows")
    assert await list_titles(source) == []
    ((problem, reason),) = (await source.examine()).problems
    assert (problem, "malformed database schema" in reason) == (str(path), True)


async def test_database_in_a_read_only_directory_is_read_from_a_copy(
    tool: RowSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite cannot open a log there without its -shm file."""
    await tool.create("question", "reply", cwd="/work", at=NOON)
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{tool.path}{suffix}", copy)
    connect = sqlite3.connect

    def connect_unless_in_place(target: str, *args: Any, **options: Any) -> sqlite3.Connection:
        if str(copy) in str(target):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(target, *args, **options)

    monkeypatch.setattr(sqlite3, "connect", connect_unless_in_place)
    source = KitSource(RowReader(str(copy / tool.path.name)), tmp_path / "index-copy", "Rows")
    assert await list_titles(source) == ["question"]
    assert sorted(path.name for path in copy.iterdir()) == ["rows.db", "rows.db-wal"]


async def test_column_that_a_version_lacks_is_empty(tool: RowSessions) -> None:
    id = await tool.create("question", "reply", cwd="/work", at=NOON)
    source = tool.open_source()
    session = await source.get(id)
    assert session is not None and session.agent is not None and not session.agent.overrides
    tool.connection.execute("ALTER TABLE sessions ADD COLUMN model TEXT DEFAULT 'new-model'")
    await tool.add_turn(id, "more", "more", at=NOON)
    session = await source.get(id)
    assert session is not None and session.agent is not None
    assert session.agent.overrides == {"model": "new-model"}


async def test_rows_that_are_deleted_are_no_longer_in_the_history(tool: RowSessions) -> None:
    id = await tool.create("one", "two", cwd="/work", at=NOON)
    await tool.add_turn(id, "three", "four", at=NOON)
    source = tool.open_source()
    await source.get(id)
    assert message_texts(await source.events(id)) == ["one", "two", "three", "four"]
    tool.connection.execute("DELETE FROM messages WHERE text IN ('one', 'two')")
    await source.get(id)
    assert message_texts(await source.events(id)) == ["three", "four"]
