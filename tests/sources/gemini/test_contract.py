"""Gemini CLI passes the contract suite of sources."""

from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.gemini.chat_files import GeminiSessions


class TestGeminiSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return GeminiSessions(tmp_path / "gemini", tmp_path / "gemini.index")
