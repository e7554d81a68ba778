"""Home directories of Claude Code: nine real ones of different versions, and an empty one."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from segue import Hub, open_hub
from tests.claude.entries import Home
from tests.claude.helpers import Within


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the nine homes with their original times and the answers of both SDKs. Read only."""
    directory = tmp_path_factory.mktemp("homes")
    with tarfile.open(Path(__file__).parent / "homes.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return an empty home, which the functions of segue.claude use."""
    root = tmp_path / "claude"
    (root / "projects").mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(root))
    monkeypatch.delenv("CLAUDE_CODE_PROJECT_DIR_NAME", raising=False)
    return Home(root)


@pytest.fixture
def within(tmp_path: Path) -> Within:
    """Return a function that runs a coroutine function with a hub over the store of this test."""

    def run_with_hub(work: Callable[[Hub], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with await open_hub(tmp_path / "data") as hub:
                await hub.config.set("local", "model", "demo")
                return await work(hub)

        return asyncio.run(run())

    return run_with_hub
