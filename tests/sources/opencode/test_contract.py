"""opencode passes the contract suite of sources, with a database and with files."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.opencode.opencode_rows import DatabaseSessions, FileSessions


class TestOpencodeDatabase(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> Iterator[ToolSessions]:
        tool = DatabaseSessions(tmp_path / "opencode", tmp_path / "opencode.index")
        with closing(tool):
            yield tool


class TestOpencodeFiles(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> ToolSessions:
        return FileSessions(tmp_path / "opencode", tmp_path / "opencode.index")
