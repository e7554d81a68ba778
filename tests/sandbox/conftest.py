from collections.abc import Iterator

import pytest

from .harness import Sandbox, opened


@pytest.fixture(scope="session", params=["landlock", "bubblewrap"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session", params=["own", "nobody"])
def user(request: pytest.FixtureRequest) -> str:
    """The user whose programs are sandboxed: the one of the tests (often root), or nobody."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def sandbox(backend: str, user: str) -> Iterator[Sandbox]:
    """A sandbox that many tests share: no test may end its process."""
    with opened(backend, user) as sandbox:
        yield sandbox
