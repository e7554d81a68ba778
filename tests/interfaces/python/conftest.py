"""The fixture of tests that run sessions with a model on loopback."""

from pathlib import Path

import pytest

from tests.interfaces.python.model_session import Environment


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    return Environment(tmp_path)
