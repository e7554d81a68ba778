"""The source that docs/sources.md shows passes the contract suite."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from segue.sources.base import Source
from segue.sources.kit.source import KitSource
from segue.testing import SourceContract, ToolSessions

DOCUMENT = Path(__file__).parents[2] / "docs/sources.md"
MAX_LINES = 150


def documented_code() -> list[str]:
    """Return the Python code of the page: the definition, the reader, and parts."""
    return re.findall(r"```py\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def documented_names() -> dict[str, Any]:
    """Run the definition and the reader, and return what they define."""
    names: dict[str, Any] = {}
    for code in documented_code()[:2]:
        exec(code, names)
    return names


NAMES = documented_names()


class ExampleSessions(ToolSessions):
    """Sessions of the tool that the page describes."""

    definition = NAMES["DEFINITION"]

    def __init__(self, home: Path, index: Path) -> None:
        self.directory: Path = home
        self._index = index
        (home / "chats").mkdir(parents=True)

    def open_source(self) -> Source:
        return KitSource(NAMES["ExampleReader"](str(self.directory)), self._index, "Example")

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        id = str(uuid4())
        self._append(id, {"type": "start", "cwd": cwd, "time": at.isoformat()})
        await self.add_turn(id, prompt, answer, at=at)
        return id

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        time = at.isoformat()
        tokens = {"in": 10, "out": 2, "model": "example-1"}
        self._append(id, {"type": "prompt", "text": prompt, "time": time})
        self._append(id, {"type": "answer", "text": answer, "time": time, **tokens})

    def _append(self, id: str, record: dict[str, Any]) -> None:
        with self._path(id).open("a") as file:
            file.write(json.dumps(record) + "\n")

    async def delete(self, id: str) -> None:
        self._path(id).unlink()

    async def damage(self, id: str) -> None:
        self._path(id).write_bytes(b'\x00\xff{"type": [}\n' * 3)

    def listed_directory(self, id: str) -> Path:
        return self.directory / "chats"

    def _path(self, id: str) -> Path:
        return self.directory / "chats" / f"{id}.jsonl"


class TestDocumentedSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return ExampleSessions(tmp_path / "example", tmp_path / "example.index")


def test_documented_source_is_short() -> None:
    lines = [line for code in documented_code()[:2] for line in code.splitlines()]
    assert len(lines) < MAX_LINES
