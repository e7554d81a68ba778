"""Packages that the peers publish."""

from pathlib import Path

import pytest

from tests.clients.toolbox import python_with, source_of
from tests.peers.claude_expected import VERSION

PACKAGE = f"claude-agent-sdk=={VERSION}"


@pytest.fixture(scope="session")
def claude_sdk_tests() -> Path:
    """The directory of the tests in claude-agent-sdk's source distribution."""
    return source_of(PACKAGE) / "tests"


@pytest.fixture(scope="session")
def claude_sdk_source(claude_sdk_tests: Path) -> Path:
    """The directory to import the real claude-agent-sdk from, without the program it starts."""
    return claude_sdk_tests.parent / "src"


@pytest.fixture(scope="session")
def claude_program() -> Path:
    """Claude Code itself, which the SDK's wheel carries: some hundred megabytes."""
    environment = Path(python_with(PACKAGE)).parent.parent
    (program,) = environment.glob("lib/python*/site-packages/claude_agent_sdk/_bundled/claude")
    program.chmod(0o755)
    return program
