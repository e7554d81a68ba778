"""Stores of sessions and events: one interface, implemented for SQLite, PostgreSQL and memory.

`open_store` chooses by address, and imports only the store that is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from segue.model.errors import InvalidInput

if TYPE_CHECKING:
    from .base import Store


async def open_store(data_dir: Path, database_url: str | None = None) -> Store:
    """Return the store at a PostgreSQL address, or the SQLite store in `data_dir`."""
    if database_url is None:
        from .sqlite import SQLiteStore

        return SQLiteStore.open(data_dir / "segue.db")
    if database_url.startswith(("postgresql://", "postgres://")):
        from .postgres import PostgresStore

        return await PostgresStore.open(database_url)
    raise InvalidInput(
        "the database URL must begin with postgresql://; leave it out for the SQLite store"
    )
