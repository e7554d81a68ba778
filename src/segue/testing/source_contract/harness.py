"""How the tests of a source run: the sessions of a tool, and a source that is opened over them.

A test is a coroutine. It names what it needs: `tool` writes sessions in the tool's format,
`source` is the source over them, `hub` is a hub with that source and a store in memory, and
`scratch` is an empty directory.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from segue.hub import Hub
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.base import Source, SourceDefinition, Transcripts
from segue.store.memory import MemoryStore
from segue.testing.helpers import CoroutineTest, ids_of, wrap_coroutine_tests

CWD = "/work/project"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIMEOUT_SECONDS = 60.0


class FileState(NamedTuple):
    """A file's content and times, to notice a change."""

    content: bytes
    modified_ns: int
    mode: int


class ToolSessions(ABC):
    """Writes sessions as the tool does, in the tool's own format.

    `directory` has all of the tool's files. `definition` is the tool's entry in the registry.
    """

    directory: Path | None = None
    definition: SourceDefinition | None = None

    @abstractmethod
    def open_source(self) -> Source:
        """Open the source. A later call opens it again, with the same index."""

    @abstractmethod
    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        """Write a session of one prompt and its answer; return the id that the source gives it."""

    @abstractmethod
    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        """Append a prompt and its answer to a session."""

    async def delete(self, id: str) -> None:
        """Delete a session, as the tool does."""
        pytest.skip("the tool does not delete sessions")

    async def damage(self, id: str) -> None:
        """Make a session unreadable: overwrite its file, or its rows in a database."""
        pytest.skip("a session cannot be damaged")

    def listed_directory(self, id: str) -> Path | None:
        """Return the directory where the source looks for a session; None if that is a database."""
        return None

    def snapshot(self) -> dict[str, FileState]:
        """Return the state of every file of the tool.

        Readers of an SQLite database create its `-shm` file and an empty `-wal` file: these are
        left out.
        """
        if self.directory is None:
            pytest.skip("the tool has no files")
        return {
            str(path): FileState(path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
            and not path.name.endswith("-shm")
            and (path.stat().st_size or not path.name.endswith("-wal"))
        }


class Contract:
    """Runs the coroutine tests of its subclasses with a source."""

    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        raise NotImplementedError("give your SourceContract a fixture `tool`")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        wrap_coroutine_tests(cls, _run_with_source)


def _run_with_source(test: CoroutineTest) -> Callable[..., None]:
    names = list(inspect.signature(test).parameters)[1:]

    async def run_with_source(contract: Contract, tool: ToolSessions, tmp_path: Path) -> None:
        source = tool.open_source()
        data_dir = tmp_path / "contract-data"
        data_dir.mkdir()
        async with Hub(MemoryStore(), data_dir, sources=[source]) as hub:
            # Without a model, no agent answers in sessions of another tool.
            await hub.config.set(source.workspace, "model", "demo")
            arguments = {
                "tool": tool,
                "source": source,
                "hub": hub,
                "scratch": data_dir,
                "tmp_path": tmp_path,
            }
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await test(contract, **{name: arguments[name] for name in names})

    def run(self: Contract, tool: ToolSessions, tmp_path: Path) -> None:
        asyncio.run(run_with_source(self, tool, tmp_path))

    run.__doc__ = test.__doc__
    return run


def minutes(count: float) -> datetime:
    """Return a time so many minutes after the tests' noon."""
    return NOON + timedelta(minutes=count)


async def create_session(
    tool: ToolSessions, prompt: str = "question", answer: str = "reply", *, minute: float = 0
) -> str:
    """Write a session in CWD at a minute after noon and return its id."""
    return await tool.create(prompt, answer, cwd=CWD, at=minutes(minute))


async def create_sessions(tool: ToolSessions, count: int) -> list[str]:
    """Write sessions one minute after the other and return their ids, the oldest first."""
    return [
        await create_session(tool, f"question {number}", f"reply {number}", minute=number)
        for number in range(count)
    ]


async def list_ids(source: Source, /, **query: Any) -> list[str]:
    """Return the ids of the first page of a list, after a refresh."""
    await source.refresh()
    return ids_of(await source.page(Query(**query)))


async def require_session(source: Source, id: str) -> Session:
    """Return a session that must exist."""
    session = await source.get(id)
    assert session is not None, f"the source does not find session {id}"
    return session


async def reopened(tool: ToolSessions, read: Callable[[Source], Awaitable[Any]]) -> Any:
    """Return what `read` returns for a source that is opened again."""
    source = tool.open_source()
    try:
        await source.refresh()
        return await read(source)
    finally:
        await source.close()


def require_transcripts(source: Source) -> Transcripts:
    """Return the source's transcripts; skip the test if it has none."""
    if source.transcripts is None:
        pytest.skip("the source cannot be imported")
    return source.transcripts


def require_definition(tool: ToolSessions) -> SourceDefinition:
    """Return the tool's definition; skip the test if it has none."""
    if tool.definition is None:
        pytest.skip("the source is not in the registry")
    return tool.definition
