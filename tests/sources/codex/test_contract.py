"""Codex passes the contract suite of sources."""

from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.codex.rollout_files import CodexSessions


class TestCodexSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return CodexSessions(tmp_path / "codex", tmp_path / "codex.index")
