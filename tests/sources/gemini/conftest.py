"""A directory of Gemini, and the source that reads it."""

from pathlib import Path

import pytest

from segue.sources.gemini.reader import GeminiReader
from tests.sources.gemini.chat_files import GeminiSessions
from tests.sources.opened_source import OpenedSource


@pytest.fixture
def tool(tmp_path: Path) -> GeminiSessions:
    return GeminiSessions(tmp_path / "gemini", tmp_path / "gemini.index")


@pytest.fixture
def source(tool: GeminiSessions) -> OpenedSource:
    return OpenedSource(GeminiReader(str(tool.directory)), tool.index)
