"""Every store passes the contract suite."""

from pathlib import Path

import pytest

from segue.store.base import Store
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore
from segue.testing import OpenStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        store = MemoryStore()  # opened again, it is the same object

        async def open() -> Store:
            return store

        return open


class TestSQLiteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        async def open() -> Store:
            return SQLiteStore.open(tmp_path / "segue.db")

        return open


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self, migrated_database_url: str) -> OpenStore:
        async def open() -> Store:
            from segue.store.postgres import PostgresStore

            return await PostgresStore.open(migrated_database_url)

        return open
