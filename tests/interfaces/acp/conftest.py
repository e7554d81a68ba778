"""What tests of the ACP door may ask for."""

from pathlib import Path

import pytest

from tests.clients import toolbox
from tests.interfaces.acp.testbed import House


@pytest.fixture(scope="session", autouse=True)
def schemas() -> None:
    """The official schemas are there before anything is judged by them."""
    toolbox.node_packages()


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    """Each version of the protocol."""
    chosen: int = request.param
    return chosen


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
