"""A large first index is read by worker processes; its rows are those that one process reads."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.model.query import Query
from segue.model.session import Session
from segue.sources.kit import indexing
from segue.testing import ToolSessions
from tests.sources.codex.rollout_files import CodexSessions
from tests.sources.copilot.session_files import CopilotSessions
from tests.sources.gemini.chat_files import GeminiSessions
from tests.sources.goose.goose_rows import GooseSessions
from tests.sources.kimi.session_files import KimiSessions
from tests.sources.opencode.opencode_rows import DatabaseSessions
from tests.sources.qwen.chat_files import QwenSessions

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
full = pytest.mark.full


async def read_rows(tool: ToolSessions, index: Path) -> list[Session]:
    """Return the rows of a new index."""
    tool_index = "index" if hasattr(tool, "index") else "_index"
    setattr(tool, tool_index, index)
    source = tool.open_source()
    try:
        await source.refresh()
        return await source.page(Query())
    finally:
        await source.close()


@pytest.mark.parametrize(
    "tool_sessions",
    [
        GeminiSessions,  # has references of its own
        GooseSessions,  # reads all sessions from one connection
        *(
            pytest.param(tool, marks=full)
            for tool in (CodexSessions, CopilotSessions, DatabaseSessions, QwenSessions)
        ),
        pytest.param(KimiSessions, marks=full),
    ],
    ids=lambda tool: tool.__module__.split(".")[2],
)
def test_worker_processes_read_the_same_rows(
    tool_sessions: Callable[[Path, Path], ToolSessions],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        tool = tool_sessions(tmp_path / "home", tmp_path / "unused")
        for number in range(4):
            at = AT + timedelta(minutes=number)
            await tool.create(f"question {number}", "reply", cwd="/work", at=at)
        rows = await read_rows(tool, tmp_path / "one")
        assert len({row.id for row in rows}) == 4
        monkeypatch.setattr(indexing, "_MIN_WORKER_BYTES", 0)
        monkeypatch.setattr(indexing, "parse_session", None)  # the workers read everything
        monkeypatch.setattr("segue.sources.index.parse_workers.os.cpu_count", lambda: 2)
        monkeypatch.setattr("segue.sources.index.parse_workers._OWN_BYTES", 0)
        assert await read_rows(tool, tmp_path / "workers") == rows

    asyncio.run(main())
