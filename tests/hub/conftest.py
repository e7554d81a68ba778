"""A hub to test: over each embedded store, or over the one that a test names."""

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
    """Opens a hub; the test closes it. Hubs over SQLite share one file, as processes would."""

    def make(**options: Any) -> Hub:
        if request.param == "memory":
            return Hub(MemoryStore(), tmp_path, **options)
        return Hub(SQLiteStore.open(tmp_path / "segue.db"), tmp_path, **options)

    return make
