"""Fixtures for tests of the hub: a hub over each embedded store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore

MakeHub = Callable[..., Hub]


@pytest.fixture(params=["memory", "sqlite"])
def make_hub(request: pytest.FixtureRequest, tmp_path: Path) -> MakeHub:
    """Return a function that opens a hub. Hubs over SQLite share one file, as processes do."""

    def make(**options: Any) -> Hub:
        if request.param == "memory":
            return Hub(MemoryStore(), tmp_path, **options)
        return Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path, **options)

    return make
