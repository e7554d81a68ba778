"""PostgresStore: the parts put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from segue.store.base import Signal, Store

from .connection import Database
from .lists import Lists
from .records import Beside
from .reindex import reindex
from .sessions import Sessions
from .turns import Turns
from .watch import Watcher


class PostgresStore(Sessions, Lists, Turns, Beside, Store):
    """The store in a PostgreSQL database, for any number of processes and machines.

    It belongs to the event loop that it was opened in.
    """

    def __init__(self, database: Database, watcher: Watcher) -> None:
        self._database = database
        self._watcher = watcher
        self._cursor_key: bytes | None = None
        self._closing = asyncio.Event()
        self.reindexing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str) -> Self:
        """The store in a database, whose tables are made or brought up to date first."""
        database = await Database.open(url)
        try:
            unfinished = await database.fetch("SELECT true FROM bared")
            store = cls(database, await Watcher.open(url))
        except BaseException:
            await database.close()
            raise
        if unfinished:
            store.reindexing = asyncio.create_task(reindex(database, store._closing))
        return store

    async def close(self) -> None:
        if self.reindexing is not None:
            self._closing.set()  # a step is short, and asyncpg is not to be cut off in one
            await asyncio.wait([self.reindexing])
        await self._watcher.close()
        await self._database.close()

    def vitals(self) -> dict[str, int]:
        return {"commits": self._database.commits, "queue": self._database.queued}

    async def cursor_key(self) -> bytes:
        if self._cursor_key is None:  # it never changes, and every page needs it
            rows = await self._database.fetch("SELECT value FROM meta WHERE name = 'cursor_key'")
            self._cursor_key = bytes(rows[0][0])
        return self._cursor_key

    async def check(self) -> list[str]:
        sql = "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class t ON t.oid = indrelid"
        sql += " WHERE NOT indisvalid AND t.relnamespace = current_schema()::regnamespace"
        rows = await self._database.fetch(sql)
        return [f"the index {name} is not valid; REINDEX INDEX {name} mends it" for (name,) in rows]

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        return self._watcher.listen(listener)
