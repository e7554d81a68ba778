from pathlib import Path

import pytest

from .session_directory import SessionDirectory


@pytest.fixture
def directory(tmp_path: Path) -> SessionDirectory:
    return SessionDirectory(tmp_path)
