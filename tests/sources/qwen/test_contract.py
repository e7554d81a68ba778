"""Qwen Code passes the contract suite of sources."""

from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.qwen.chat_files import QwenSessions


class TestQwenSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return QwenSessions(tmp_path / "qwen", tmp_path / "qwen.index")
