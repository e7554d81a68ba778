"""Copilot passes the contract suite of sources."""

from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.copilot.session_files import CopilotSessions


class TestCopilotSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return CopilotSessions(tmp_path / "copilot", tmp_path / "copilot.index")
