"""Several new sources are indexed by helper processes, with the rows that one process writes."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.model.query import Query
from segue.model.session import Session
from segue.sources.index import helpers
from segue.sources.kit import indexing
from segue.testing import ToolSessions
from tests.sources.codex.rollout_files import CodexSessions
from tests.sources.gemini.chat_files import GeminiSessions
from tests.sources.goose.goose_rows import GooseSessions

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def create_tools(home: Path) -> list[ToolSessions]:
    """Return three tools with sessions."""
    tools: list[ToolSessions] = [
        tool(home / tool.__name__, home / "unused")
        for tool in (CodexSessions, GeminiSessions, GooseSessions)
    ]
    for tool in tools:
        for number in range(3):
            at = AT + timedelta(minutes=number)
            await tool.create(f"question {number}", "reply", cwd="/work", at=at)
    return tools


async def indexed_rows(
    tools: Sequence[ToolSessions], directory: Path, *, searchable: bool
) -> tuple[list[list[Session]], list[list[Session]]]:
    """Return the rows of new indexes, and those with a word."""
    for number, tool in enumerate(tools):
        index = "index" if hasattr(tool, "index") else "_index"
        setattr(tool, index, directory / str(number))
    sources = [tool.open_source() for tool in tools]
    try:
        await helpers.index_new_sources(sources, searchable=searchable)
        for source in sources:
            await source.refresh()
        return (
            [await source.page(Query()) for source in sources],
            [await source.page(Query(text="question")) for source in sources],
        )
    finally:
        for source in sources:
            await source.close()


@pytest.mark.parametrize("searchable", [False, True])
def test_helper_processes_write_the_same_rows(
    searchable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = asyncio.run(create_tools(tmp_path / "home"))
    monkeypatch.setattr(helpers, "MAX_HELPERS", 0)
    expected = asyncio.run(indexed_rows(tools, tmp_path / "one", searchable=searchable))
    assert [len(rows) for rows in expected[0]] == [3, 3, 3]
    monkeypatch.setattr(helpers, "MAX_HELPERS", 2)
    monkeypatch.setattr(helpers, "MIN_BYTES", 0)
    monkeypatch.setattr("segue.sources.index.helpers.os.cpu_count", lambda: 3)
    read_here = list[str]()
    parse_session = indexing.parse_session

    def parse_and_note(*arguments: object) -> object:
        read_here.append("session")
        return parse_session(*arguments)  # type: ignore[arg-type]  # whatever the kit passes

    monkeypatch.setattr(indexing, "parse_session", parse_and_note)
    assert asyncio.run(indexed_rows(tools, tmp_path / "two", searchable=searchable)) == expected
    assert len(read_here) == 3  # of one source; the helpers had one each


def test_process_indexes_everything_if_helpers_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = asyncio.run(create_tools(tmp_path / "home"))
    expected = asyncio.run(indexed_rows(tools, tmp_path / "one", searchable=False))
    monkeypatch.setattr(helpers, "MIN_BYTES", 0)
    monkeypatch.setattr("segue.sources.index.helpers.os.cpu_count", lambda: 2)
    monkeypatch.setattr("segue.sources.index.helpers.sys.executable", "/bin/false")
    assert asyncio.run(indexed_rows(tools, tmp_path / "two", searchable=False)) == expected
