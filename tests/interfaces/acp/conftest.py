"""Fixtures of the ACP tests."""

from pathlib import Path

import pytest

from tests.clients import toolbox
from tests.command_server import CommandServer
from tests.interfaces.acp.testbed import AcpTestbed


@pytest.fixture(scope="session", autouse=True)
def schemas() -> None:
    """Install the official schemas before the first test."""
    toolbox.node_packages()


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    """Return each protocol version in turn."""
    number: int = request.param
    return number


@pytest.fixture
def testbed(tmp_path: Path, command_server: CommandServer) -> AcpTestbed:
    return AcpTestbed(tmp_path, command_server)
