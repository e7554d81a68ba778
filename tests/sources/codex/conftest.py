"""A directory of Codex, and the sources that read it."""

from pathlib import Path

import pytest

from tests.sources.codex.rollout_files import CodexSessions
from tests.sources.opened import Opened


@pytest.fixture
def tool(tmp_path: Path) -> CodexSessions:
    return CodexSessions(tmp_path / "codex", tmp_path / "codex.index")


@pytest.fixture
def opened(tool: CodexSessions) -> Opened:
    return Opened(tool)
