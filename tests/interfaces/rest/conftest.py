"""Fixtures: a model provider, and an agent that works in the session directory."""

import pytest

from segue.agents.model.models import preload
from tests.agents.provider import Provider
from tests.interfaces.rest.directory_agent import DirectoryAgent


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Return a model provider, which the test starts."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    preload("anthropic:any")
    return Provider()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """Return the `database` of `open_api`: a PostgreSQL URL, or None for SQLite."""
    if request.param == "sqlite":
        return None
    url: str = request.getfixturevalue("migrated_database_url")
    return url


@pytest.fixture
def directory_agent() -> DirectoryAgent:
    return DirectoryAgent()
