"""A model's provider, for turns that are to be answered by a model."""

import pytest

from segue.agents.model.models import preload
from tests.agents.provider import Provider


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """To be entered by the test."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    preload("anthropic:any")
    return Provider()
