"""Every source passes the contract suite."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from segue.hub.sync.memory_source import MemorySource
from segue.model import ids
from segue.model.content import as_content
from segue.model.event import AgentMessage, Created, Draft, UserMessage
from segue.sources.base import Source
from segue.sources.claude.definition import ClaudeDefinition
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.source import ClaudeSource
from segue.testing import SourceContract, ToolSessions


class MemorySessions(ToolSessions):
    """Sessions of a source in memory."""

    def __init__(self) -> None:
        self._source = MemorySource(edits=("title", "tag", "archive", "trash", "delete"))

    def open_source(self) -> Source:
        return self._source

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        created = Draft(body=Created(cwd=cwd, source=self._source.name), at=_microseconds(at))
        session = await self._source.create(ids.new_id(), [created, *_turn(prompt, answer, at)])
        return session.id

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        await self._source.append(id, _turn(prompt, answer, at))

    async def delete(self, id: str) -> None:
        await self._source.delete(id)


class ClaudeSessions(ToolSessions):
    """Sessions in the files of a Claude Code home."""

    definition = ClaudeDefinition()

    def __init__(self, home: Path, index: Path) -> None:
        self.directory = home
        self._index = index
        (home / "projects").mkdir(parents=True)

    def open_source(self) -> Source:
        assert self.directory is not None
        return ClaudeSource(self._index, ClaudeHome(str(self.directory)))

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        assert self.directory is not None
        id = str(uuid4())
        path = self.directory / "projects" / cwd.replace("/", "-") / f"{id}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_entries(id, None, prompt, answer, cwd, at))
        return id

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        path = self._path(id)
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        last = next(entry for entry in reversed(entries) if "uuid" in entry)
        with path.open("ab") as file:
            file.write(_entries(id, last["uuid"], prompt, answer, last["cwd"], at))

    async def delete(self, id: str) -> None:
        self._path(id).unlink()

    async def damage(self, id: str) -> None:
        self._path(id).write_bytes(b'\x00\xff{"type": "user", "uuid": [}\n' * 3)

    def _path(self, id: str) -> Path:
        assert self.directory is not None
        (path,) = self.directory.glob(f"projects/*/{id}.jsonl")
        return path


class TestMemorySource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return MemorySessions()


class TestClaudeSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return ClaudeSessions(tmp_path / "claude", tmp_path / "index.db")


def _turn(prompt: str, answer: str, at: datetime) -> list[Draft]:
    bodies = UserMessage(content=as_content(prompt)), AgentMessage(content=as_content(answer))
    return [Draft(body=body, at=_microseconds(at)) for body in bodies]


def _microseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


def _entries(
    id: str, parent: str | None, prompt: str, answer: str, cwd: str, at: datetime
) -> bytes:
    """Return the lines of a prompt and its answer in Claude Code's format."""
    common: dict[str, Any] = {
        "isSidechain": False,
        "sessionId": id,
        "cwd": cwd,
        "version": "2.1.112",
        "timestamp": at.isoformat().replace("+00:00", "Z"),
    }
    prompt_id, answer_id = str(uuid4()), str(uuid4())
    entries = [
        {
            **common,
            "type": "user",
            "uuid": prompt_id,
            "parentUuid": parent,
            "message": {"role": "user", "content": prompt},
        },
        {
            **common,
            "type": "assistant",
            "uuid": answer_id,
            "parentUuid": prompt_id,
            "message": {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        },
    ]
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
