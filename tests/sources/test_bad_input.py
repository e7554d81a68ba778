"""Files and databases in every bad state: the other sessions stay listed, and doctor says why."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from segue.model.errors import SegueError
from segue.model.query import Query
from segue.sources.kit import files
from segue.sources.kit.source import KitSource
from segue.testing import ToolSessions
from segue.testing.helpers import message_texts
from tests.sources.codex.rollout_files import CodexSessions
from tests.sources.copilot.session_files import CopilotSessions
from tests.sources.gemini.chat_files import GeminiSessions
from tests.sources.goose.goose_rows import GooseSessions
from tests.sources.kimi.session_files import KimiSessions
from tests.sources.opencode.opencode_rows import DatabaseSessions
from tests.sources.qwen.chat_files import QwenSessions

NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
FILE_TOOLS = [CodexSessions, CopilotSessions, GeminiSessions, QwenSessions, KimiSessions]
DATABASE_TOOLS = [GooseSessions, DatabaseSessions]


class Opened:
    """A tool with two sessions, its source, and the file or database of the second session."""

    def __init__(self, tool: ToolSessions, source: KitSource, good: str, bad: str) -> None:
        self.tool, self.source, self.good, self.bad = tool, source, good, bad

    async def path(self) -> Path:
        session = await self.source.get(self.bad)
        assert session is not None
        ref = self.source.reader.find(session.native_id or session.id)
        assert ref is not None
        return Path(ref.key.partition("#")[0])

    async def listed(self) -> list[str]:
        await self.source.refresh()
        return sorted(row.id for row in await self.source.page(Query()))

    async def texts(self, id: str) -> list[str]:
        return message_texts([event async for event in self.source.conversation(id)])

    async def problems(self) -> dict[str, str]:
        report = await self.source.examine()
        return {problem.path: problem.reason for problem in report.problems}


async def open_tool(type: Any, tmp_path: Path) -> Opened:
    tool = type(tmp_path / "home", tmp_path / "unused.index")
    good = await tool.create("good question", "good answer", cwd="/work", at=NOON)
    later = NOON + timedelta(minutes=1)
    bad = await tool.create("bad question", "bad answer", cwd="/work", at=later)
    source = KitSource(tool.open_source().reader, tmp_path / "source.index", "A tool")
    await source.refresh()
    return Opened(tool, source, good, bad)


@pytest.fixture(params=FILE_TOOLS, ids=lambda type: type.__name__)
def in_files(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    return request.param, tmp_path


@pytest.fixture(params=DATABASE_TOOLS, ids=lambda type: type.__name__)
def in_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    yield request.param, tmp_path


async def test_truncated_file_is_read_as_far_as_it_goes(in_files: tuple[Any, Path]) -> None:
    opened = await open_tool(*in_files)
    path = await opened.path()
    data = path.read_bytes()
    for size in (len(data) - 3, len(data) // 2, 1):
        os.truncate(path, size)
        assert opened.good in await opened.listed()
        assert await opened.texts(opened.good) == ["good question", "good answer"]
    path.write_bytes(data)
    assert opened.bad in await opened.listed()
    assert await opened.texts(opened.bad) == ["bad question", "bad answer"]
    await opened.source.close()


async def test_vanishing_file_takes_only_its_session(in_files: tuple[Any, Path]) -> None:
    opened = await open_tool(*in_files)
    path = await opened.path()
    data = path.read_bytes()
    path.unlink()
    with pytest.raises(SegueError):
        await opened.texts(opened.bad)
    assert await opened.listed() == [opened.good]
    assert await opened.problems() == {}
    path.write_bytes(data)
    assert await opened.listed() == sorted([opened.good, opened.bad])
    await opened.source.close()


async def test_rotated_file_is_read_again(in_files: tuple[Any, Path]) -> None:
    """The file is moved away, and another with the same name has other messages."""
    opened = await open_tool(*in_files)
    path = await opened.path()
    data = path.read_bytes().replace(b"bad answer", b"a longer answer")
    os.rename(path, path.with_name(f".{path.name}.1"))
    path.write_bytes(data)
    assert await opened.listed() == sorted([opened.good, opened.bad])
    assert await opened.texts(opened.bad) == ["bad question", "a longer answer"]
    assert [row.id for row in await opened.source.page(Query(text="longer"))] == [opened.bad]
    await opened.source.close()


async def test_record_that_is_too_long_is_left_out_and_named(
    in_files: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = await open_tool(*in_files)
    path = await opened.path()
    monkeypatch.setattr(files, "MAX_RECORD_BYTES", 1 << 20)
    with path.open("ab") as file:
        file.write(b'{"type": "x", "output": "' + b"y" * (3 << 20) + b'"}\n')
    assert await opened.listed() == sorted([opened.good, opened.bad])
    assert await opened.texts(opened.bad) == ["bad question", "bad answer"]
    assert "too long" in (await opened.problems())[str(path)]
    await opened.source.close()


async def test_locked_database_loses_no_session(in_database: tuple[Any, Path]) -> None:
    opened = await open_tool(*in_database)
    connection: sqlite3.Connection = opened.tool.connection  # type: ignore[attr-defined]
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("BEGIN EXCLUSIVE")
    assert await opened.listed() == sorted([opened.good, opened.bad])
    assert "locked" in " ".join((await opened.problems()).values())
    connection.execute("ROLLBACK")
    assert await opened.problems() == {}
    await opened.source.close()


async def test_log_without_its_index_file_is_read(in_database: tuple[Any, Path]) -> None:
    type, tmp_path = in_database
    opened = await open_tool(type, tmp_path)
    path = await opened.path()
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", copy)
    reader = type.open_source(_Moved(copy)).reader
    source = KitSource(reader, tmp_path / "copy.index", "A tool")
    await source.refresh()
    titles = {row.messages for row in await source.page(Query())}
    assert titles == {2} and len(await source.page(Query())) == 2
    await source.close()


class _Moved:
    """What `open_source` needs of a tool."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._index = directory, directory / "unused.index"


async def test_database_of_a_newer_version_is_named(in_database: tuple[Any, Path]) -> None:
    opened = await open_tool(*in_database)
    connection: sqlite3.Connection = opened.tool.connection  # type: ignore[attr-defined]
    table = "messages" if isinstance(opened.tool, GooseSessions) else "message"
    connection.execute(f"ALTER TABLE {table} RENAME TO of_a_later_version")
    assert await opened.listed() == sorted([opened.good, opened.bad])
    assert str(await _database(opened)) in await opened.problems()
    connection.execute(f"ALTER TABLE of_a_later_version RENAME TO {table}")
    assert await opened.problems() == {}
    await opened.source.close()


async def test_file_that_is_no_database_is_named(in_database: tuple[Any, Path]) -> None:
    opened = await open_tool(*in_database)
    path = await _database(opened)
    opened.tool.connection.close()  # type: ignore[attr-defined]
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(b"this is no database" * 1000)
    assert await opened.listed() == sorted([opened.good, opened.bad])
    assert "not a database" in (await opened.problems())[str(path)]
    path.unlink()
    assert await opened.listed() == []
    assert await opened.problems() == {}
    await opened.source.close()


async def _database(opened: Opened) -> Path:
    return Path(opened.source.session_paths()[0])
