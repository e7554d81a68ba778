from collections.abc import Iterator

import pytest

from .harness import Sandbox, open_sandbox


@pytest.fixture(scope="session", params=["landlock", "bubblewrap"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session", params=["own", "nobody"])
def user(request: pytest.FixtureRequest) -> str:
    """Return whose programs are sandboxed: "own" is the user of the tests (often root)."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def sandbox(backend: str, user: str) -> Iterator[Sandbox]:
    """Yield a sandbox that many tests share: no test may end its process."""
    with open_sandbox(backend, user) as sandbox:
        yield sandbox
