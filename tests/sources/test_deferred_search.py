"""The first list of many sessions does not wait for the full-text index; searches do."""

import asyncio
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from sqlite3 import Connection, connect

import pytest

from segue.model.query import Query
from segue.model.search_text import terms
from segue.sources.index import database
from segue.sources.index.database import ROW_TEXT_NUMBER
from segue.sources.kit import indexing
from segue.testing import ToolSessions
from tests.sources.codex.rollout_files import CodexSessions

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodexSessions:
    """Return a tool with two sessions whose first update is a large one."""
    monkeypatch.setattr(indexing, "MIN_DEFERRED_BYTES", 0)
    sessions = CodexSessions(tmp_path / "home", tmp_path / "index")
    for number, word in enumerate(("heron", "kingfisher")):
        at = AT + timedelta(minutes=number)
        asyncio.run(sessions.create(f"find the {word}", "done", cwd="/work", at=at))
    return sessions


def searchable_texts(directory: Path) -> tuple[int, int]:
    """Return how many texts the full-text index has, and how many there are."""
    path = directory if directory.is_file() else next(directory.glob("*.index"))
    with closing(connect(path)) as connection:
        sql = "SELECT sum(searchable), sum(texts) FROM files"
        searchable, texts = connection.execute(sql).fetchone()
        sql = "SELECT count(*) FROM search_docsize WHERE id & ? <> ?"  # without texts of rows
        (rows,) = connection.execute(sql, (ROW_TEXT_NUMBER, ROW_TEXT_NUMBER)).fetchone()
    assert rows == searchable
    return int(searchable), int(texts)


async def list_sessions(tool: ToolSessions, text: str | None = None) -> list[str | None]:
    """Return the titles that a new process lists."""
    source = tool.open_source()
    try:
        await source.refresh()
        return [row.title for row in await source.page(Query(text=text))]
    finally:
        await source.close()


def test_first_list_leaves_texts_to_the_first_search(tool: CodexSessions, tmp_path: Path) -> None:
    assert len(asyncio.run(list_sessions(tool))) == 2
    searchable, texts = searchable_texts(tmp_path / "index")
    assert (searchable, texts > 0) == (0, True)
    assert asyncio.run(list_sessions(tool, "kingfisher")) == ["find the kingfisher"]
    assert searchable_texts(tmp_path / "index") == (texts, texts)


@pytest.mark.parametrize("kind", ["page", "ranked", "newest", "occurrences"])
def test_every_kind_of_search_finds_deferred_texts(tool: CodexSessions, kind: str) -> None:
    async def search() -> int:
        source = tool.open_source()
        try:
            await source.refresh()
            rows = await source.page(Query())
            row = next(row for row in rows if row.title == "find the kingfisher")
            query = Query(text="kingfisher")
            if kind == "page":
                return len(await source.page(query))
            if kind == "ranked":
                return len(await source.ranked(query))
            if kind == "newest":
                matches = await source.newest_matches([row], terms("kingfisher"))
                return len([event for event in matches if event is not None])
            return len(await source.occurrences(row.id, terms("kingfisher"), None, 10))
        finally:
            await source.close()

    assert asyncio.run(search()) == 1


def test_update_between_list_and_search_is_found_once(tool: CodexSessions, tmp_path: Path) -> None:
    asyncio.run(list_sessions(tool))
    asyncio.run(tool.create("find the osprey", "done", cwd="/work", at=AT + timedelta(hours=1)))
    asyncio.run(list_sessions(tool))
    searchable, texts = searchable_texts(tmp_path / "index")
    assert 0 < searchable < texts  # the new session is small, and searchable at once
    assert asyncio.run(list_sessions(tool, "osprey")) == ["find the osprey"]
    assert asyncio.run(list_sessions(tool, "heron")) == ["find the heron"]
    assert searchable_texts(tmp_path / "index") == (texts, texts)


def test_deleted_session_with_deferred_texts_is_not_found(
    tool: CodexSessions, tmp_path: Path
) -> None:
    asyncio.run(list_sessions(tool))
    newest = max((tmp_path / "home").rglob("rollout-*.jsonl"))
    newest.unlink()
    assert len(asyncio.run(list_sessions(tool))) == 1
    assert asyncio.run(list_sessions(tool, "kingfisher")) == []
    assert asyncio.run(list_sessions(tool, "heron")) == ["find the heron"]


def test_read_only_index_is_searched_in_a_copy(
    tool: CodexSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(asyncio.run(list_sessions(tool))) == 2
    assert len(asyncio.run(list_sessions(tool))) == 2  # saves the digests, which is optional
    index = tmp_path / "index"
    open_database = database._open

    def open_read_only(path: Path) -> Connection:
        connection = open_database(path)
        if path == index or index in path.parents:
            connection.execute("PRAGMA query_only = ON")  # root may write to any file
        return connection

    monkeypatch.setattr(database, "_open", open_read_only)
    assert asyncio.run(list_sessions(tool, "kingfisher")) == ["find the kingfisher"]
    searchable, texts = searchable_texts(index)
    assert (searchable, texts > 0) == (0, True)
