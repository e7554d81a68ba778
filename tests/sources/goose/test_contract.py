"""Goose passes the contract suite of sources."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from segue.testing import SourceContract, ToolSessions
from tests.sources.goose.goose_rows import GooseSessions


class TestGooseSource(SourceContract):
    @pytest.fixture
    def tool(self, tmp_path: Path) -> Iterator[ToolSessions]:
        with closing(GooseSessions(tmp_path / "goose", tmp_path / "goose.index")) as tool:
            yield tool
