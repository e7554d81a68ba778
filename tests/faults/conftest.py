"""Locations for the stores of the fault tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.processes import StoreLocation
from tests.postgres import fresh_database

LocationFactory = Callable[[int], list[StoreLocation]]


@pytest.fixture(params=["sqlite", "postgres"])
def make_locations(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocationFactory]:
    """Return a function that makes locations for new stores of one kind."""
    with ExitStack() as stack:

        def make(count: int) -> list[StoreLocation]:
            directories = [tmp_path / f"store{number}" for number in range(count)]
            if request.param == "sqlite":
                return [StoreLocation(directory) for directory in directories]
            server = request.getfixturevalue("quick_postgres_url")
            return [
                StoreLocation(directory, stack.enter_context(fresh_database(server)))
                for directory in directories
            ]

        yield make


@pytest.fixture
def location(make_locations: LocationFactory) -> StoreLocation:
    """The location of a new store, of either kind."""
    return make_locations(1)[0]


@pytest.fixture
def sqlite_location(tmp_path: Path) -> StoreLocation:
    return StoreLocation(tmp_path)
