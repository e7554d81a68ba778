"""A Copilot home, and a source over it."""

from pathlib import Path

import pytest

from tests.sources.copilot.session_files import CopilotSessions
from tests.sources.opened import Opened


@pytest.fixture
def tool(tmp_path: Path) -> CopilotSessions:
    return CopilotSessions(tmp_path / "copilot", tmp_path / "copilot.index")


@pytest.fixture
def opened(tool: CopilotSessions) -> Opened:
    return Opened(tool)
