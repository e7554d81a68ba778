"""Homes of Claude Code: nine real ones of different versions, and empty ones to fill."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from segue import Hub, open_hub
from tests.claude.entries import Home
from tests.claude.house import Within


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nine homes, their times as they were, and what both SDKs say of them. Only read these."""
    where = tmp_path_factory.mktemp("homes")
    with tarfile.open(Path(__file__).parent / "homes.tar.xz") as archive:
        archive.extractall(where, filter="data")
    return where


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home that the functions use."""
    root = tmp_path / "claude"
    (root / "projects").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(root))
    monkeypatch.delenv("CLAUDE_CODE_PROJECT_DIR_NAME", raising=False)
    return Home(root)


@pytest.fixture
def within(tmp_path: Path) -> Within:
    """Runs a function with a hub over the store of this test."""

    def do(work: Callable[[Hub], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with await open_hub(tmp_path / "data") as hub:
                return await work(hub)

        return asyncio.run(run())

    return do
