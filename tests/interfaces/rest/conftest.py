"""Fixtures: a model provider, and an agent that works in the session directory."""

import pytest

from segue.agents.model.models import preload
from tests.agents.provider import Provider
from tests.interfaces.rest.directory_agent import DirectoryAgent


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """To be entered by the test."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    preload("anthropic:any")
    return Provider()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """For `open_api`: the address of a PostgreSQL, if the test is to have one."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("migrated_database_url")
    return found


@pytest.fixture
def directory_agent() -> DirectoryAgent:
    return DirectoryAgent()
