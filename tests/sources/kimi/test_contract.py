"""Kimi Code passes the contract suite of sources."""

from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.kimi.session_files import KimiSessions


class TestKimiSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return KimiSessions(tmp_path / "kimi", tmp_path / "kimi.index")
