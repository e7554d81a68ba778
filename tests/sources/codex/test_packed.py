"""Rollouts that Codex has compressed are read; without the package for it, they are listed."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.errors import NotFound
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.codex import packed
from segue.sources.kit.source import KitSource
from segue.store.memory import MemoryStore
from segue.testing.helpers import message_texts
from tests.sources.codex.rollout_files import CodexSessions, meta, thread_id, turn

CWD = "/work/project"
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(packed, "_zstd", lambda: None)
    yield


def write_packed(tool: CodexSessions, at: datetime = NOON) -> tuple[str, Path]:
    """Write a compressed thread, and return its id and its path."""
    id = thread_id(at)
    data = meta(id, at, CWD) + turn(at, "packed question", "packed answer", CWD)
    path = tool.write(id, data, at)
    target = path.with_name(path.name + ".zst")
    target.write_bytes(packed._zstd().compress(data))
    path.unlink()
    return id, target


async def rows(source: KitSource) -> list[Session]:
    await source.refresh()
    return await source.page(Query(archived="include"))


async def test_compressed_thread_is_listed_searched_read_and_forked(
    tool: CodexSessions, tmp_path: Path
) -> None:
    id, path = write_packed(tool)
    source = tool.open_source()
    async with Hub(MemoryStore(), tmp_path / "data", sources=[source]) as hub:
        (row,) = await rows(source)
        assert (row.id, row.title, row.messages, row.cwd) == (id, "packed question", 2, CWD)
        assert message_texts(await source.events(id)) == ["packed question", "packed answer"]
        assert (await source.examine()).problems == []
        fork = await hub.editor.fork(LOCAL, id)
        texts = message_texts([event async for event in source.conversation(fork.id)])
        assert texts == ["packed question", "packed answer"]
        lines = list(source.transcripts.original_lines(row))
        assert len(lines) > 2 and lines[0].startswith(b"{")
        await hub.editor.trash(LOCAL, id)
        assert not path.exists()
        await hub.editor.restore(LOCAL, id)
        assert path.exists()


async def test_file_that_is_not_compressed_counts(tool: CodexSessions) -> None:
    id, path = write_packed(tool)
    later = NOON + timedelta(minutes=1)
    data = meta(id, NOON, CWD) + turn(NOON, "question", "answer", CWD)
    plain = path.with_name(path.name.removesuffix(".zst"))
    plain.write_bytes(data + turn(later, "next question", "next answer", CWD))
    source = tool.open_source()
    (row,) = await rows(source)
    assert (row.id, row.title, row.messages) == (id, "question", 4)
    assert source.reader.ref(str(path)) is None
    await source.close()


async def test_thread_is_listed_with_what_the_database_knows(
    tool: CodexSessions, without_package: None
) -> None:
    id = thread_id(NOON)
    path = tool.write(id, b"compressed", NOON)
    path.rename(path.with_name(path.name + ".zst"))
    unknown = tool.write(thread_id(NOON + timedelta(minutes=1)), b"compressed", NOON)
    unknown = unknown.rename(unknown.with_name(unknown.name + ".zst"))
    with sqlite3.connect(tool.directory / "state_5.sqlite") as connection:
        connection.execute(
            "CREATE TABLE threads (id TEXT PRIMARY KEY, cwd TEXT, first_user_message TEXT,"
            " created_at INTEGER, updated_at INTEGER, model TEXT, git_branch TEXT, name TEXT)"
        )
        seconds = int(NOON.timestamp())
        values = (id, CWD, "A question of the database", seconds, seconds + 5, "gpt-5.4", "main")
        connection.execute("INSERT INTO threads VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", values)
    source = tool.open_source()
    (row,) = await rows(source)
    assert (row.id, row.title, row.cwd) == (id, "A question of the database", CWD)
    assert (row.git_branch, row.messages) == ("main", 0)
    assert row.updated_at == (seconds + 5) * 1_000_000
    problems = {problem.path: problem.reason for problem in (await source.examine()).problems}
    assert len(problems) == 2 and str(unknown) in problems
    assert all(
        "install the Python package backports.zstd" in reason for reason in problems.values()
    )
    with pytest.raises(NotFound):
        await source.events(thread_id(NOON + timedelta(minutes=1)))
    await source.close()


async def test_thread_is_read_once_the_package_is_installed(
    tool: CodexSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, _ = write_packed(tool)
    with monkeypatch.context() as patch:
        patch.setattr(packed, "_zstd", lambda: None)
        source = tool.open_source()
        assert await rows(source) == []
        await source.close()
    source = tool.open_source()
    assert [(row.id, row.messages) for row in await rows(source)] == [(id, 2)]
    await source.close()


async def test_cut_file_is_named_and_hides_no_other(tool: CodexSessions) -> None:
    _, path = write_packed(tool)
    path.write_bytes(path.read_bytes()[:40])
    good, _ = write_packed(tool, NOON + timedelta(minutes=1))
    source = tool.open_source()
    assert [row.id for row in await rows(source)] == [good]
    (problem,) = (await source.examine()).problems
    assert problem.path == str(path) and "damaged" in problem.reason
    await source.close()
