"""Stores in an event loop, for tests that compare them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.store.base import Store
from segue.store.sqlite import SQLiteStore, fts_query, text_search


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture
def sqlite(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[Store]:
    store = SQLiteStore.open(tmp_path / "segue.db")
    yield store
    loop.run_until_complete(store.close())


@pytest.fixture
def postgres(loop: asyncio.AbstractEventLoop, migrated_database_url: str) -> Iterator[Store]:
    from segue.store.postgres import PostgresStore

    store = loop.run_until_complete(PostgresStore.open(migrated_database_url))
    yield store
    loop.run_until_complete(store.close())


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a search of few sessions use the strategies for very many."""
    monkeypatch.setattr(text_search, "VERY_RARE_EVENTS", 1)
    monkeypatch.setattr(text_search, "RARE_EVENTS", 5)
    for module, name in (
        (text_search, "MAX_SCANNED_SESSIONS"),
        (text_search, "RANK_BATCH_EVENTS"),
        (fts_query, "MAX_SKIPPED_HITS"),
        (fts_query, "MAX_WRONG_HITS"),
        (fts_query, "RECENT_EVENTS"),
    ):
        monkeypatch.setattr(module, name, 1)
