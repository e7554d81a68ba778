"""Places for stores to be broken in."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.processes import Place
from tests.postgres import fresh_database

Rooms = Callable[[int], list[Place]]


@pytest.fixture(params=["sqlite", "postgres"])
def rooms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rooms]:
    """So many places for new stores, all of either kind."""
    with ExitStack() as stack:

        def make(count: int) -> list[Place]:
            directories = [tmp_path / f"room{number}" for number in range(count)]
            if request.param == "sqlite":
                return [Place(directory) for directory in directories]
            server = request.getfixturevalue("quick_postgres_url")
            return [
                Place(directory, stack.enter_context(fresh_database(server)))
                for directory in directories
            ]

        yield make


@pytest.fixture
def place(rooms: Rooms) -> Place:
    """Where a new store is to be, of either kind."""
    return rooms(1)[0]


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Place:
    return Place(tmp_path)
