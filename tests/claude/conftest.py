"""Homes of Claude Code: nine real ones of different versions, and empty ones to fill."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.claude.entries import Home


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
