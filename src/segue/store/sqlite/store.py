"""SQLiteStore: reads run in the calling thread, writes in the writer's thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from segue.event_loop import run_in_thread
from segue.model.errors import StoreError
from segue.model.query import Query
from segue.store.base import Signal

from . import writes
from .connection import prepare, read_only_parameters, translated
from .reads import Reader
from .search_index import complete_index, erase_deleted
from .writer import Transaction, Writer

if TYPE_CHECKING:
    from segue.model.webhooks.delivery import Delivery
    from segue.model.webhooks.notices import Notice

P = ParamSpec("P")
T = TypeVar("T")
MAX_INLINE_CHANGES = 1_000  # a search indexes up to so many itself, in the event loop's thread


class SQLiteStore:
    """The store in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader = reader = Reader(path)
        self._watcher: Any = None
        self._writer = writer = Writer(path, self._publish)

        # Reads.
        self.cursor_key = _reading(path, reader.cursor_key)
        self.check = _reading(path, reader.check)
        self.get = _reading(path, reader.get)
        self.existing_ids = _reading(path, reader.existing_ids)
        self.in_id_range = _reading(path, reader.in_id_range)
        self.directories = _reading(path, reader.directories)
        self.events = _reading(path, reader.events)
        self.locate = _reading(path, reader.locate)
        self.checkpoint = _reading(path, reader.checkpoint)
        self.page = self._listing(reader.page)
        self.change_point = _reading(path, reader.change_point)
        self.sweep = self._listing(reader.sweep)
        self.ranked = self._listing(reader.ranked)
        self.newest_matches = _reading(path, reader.newest_matches)
        self.known_words = _reading(path, reader.known_words)
        self.occurrences = _reading(path, reader.occurrences)
        self.stale = _reading(path, reader.stale)
        self.lease_of = _reading(path, reader.lease_of)
        self.leases = _reading(path, reader.leases)
        self.inbox = _reading(path, reader.inbox)
        self.waiting = _reading(path, reader.waiting)
        self.deltas = _reading(path, reader.deltas)
        self.new_deltas = _reading(path, reader.new_deltas)
        self.acked_seq = _reading(path, reader.acked_seq)
        self.find_key = _reading(path, reader.find_key)
        self.keys = _reading(path, reader.keys)
        self.get_record = _reading(path, reader.get_record)
        self.part = _reading(path, reader.part)
        self.records = _reading(path, reader.records)
        self.usage = _reading(path, reader.usage)
        self.overlays = _reading(path, reader.overlays)
        self.settings = _reading(path, reader.settings)
        self.next_delivery = _reading(path, reader.next_delivery)
        self.deliveries = _reading(path, reader.deliveries)

        # Writes.
        self.probe_write = _writing(writer, writes.probe_write)
        self.create = _writing(writer, writes.create)
        self.load = _writing(writer, writes.load)
        self.change = _writing(writer, writes.change)
        self.fork = _writing(writer, writes.fork)
        self.purge = _writing(writer, writes.purge)
        self.acquire = _writing(writer, writes.acquire)
        self.renew = _writing(writer, writes.renew, durable=False)
        self.release = _writing(writer, writes.release, durable=False)
        self.put_inbox = _writing(writer, writes.put_inbox)
        self.drop_inbox = _writing(writer, writes.drop_inbox)
        self.disown_inbox = _writing(writer, writes.disown_inbox)
        self.put_deltas = _writing(writer, writes.put_deltas, durable=False)
        self.ack = _writing(writer, writes.ack, durable=False)
        self.put_key = _writing(writer, writes.put_key)
        self.put_record = _writing(writer, writes.put_record)
        self.put_records = _writing(writer, writes.put_records)
        # The commit of the file's record syncs whatever was written before it.
        self.put_part = _writing(writer, writes.put_part, durable=False)
        self.drop_parts = _writing(writer, writes.drop_parts)
        self.drop_unfinished_uploads = _writing(writer, writes.drop_unfinished_uploads)
        self.set_overlay = _writing(writer, writes.set_overlay)
        self.set_setting = _writing(writer, writes.set_setting)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Return the store in a file, which is created or migrated first."""
        path = Path(path)
        prepare(path)
        return cls(path)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        self._writer.close()
        self.reader.close()

    def _listing(
        self, read: Callable[Concatenate[str, Query, P], T]
    ) -> Callable[Concatenate[str, Query, P], Coroutine[Any, Any, T]]:
        """Return the store's method for a list or search.

        A search completes the index itself, unless so much is missing that a thread is needed.
        """

        async def method(workspace: str, query: Query, /, *args: P.args, **options: P.kwargs) -> T:
            with translated(self.path):
                if query.text is not None:
                    index = self.reader.search.index
                    if index.missing_changes() > MAX_INLINE_CHANGES and not index.in_memory:
                        # If this fails, the search uses an index in memory, or fails as well.
                        with suppress(sqlite3.Error, StoreError):
                            await run_in_thread(lambda: complete_index(self.path))
                return read(workspace, query, *args, **options)

        return method

    @property
    def read_only(self) -> bool:
        return read_only_parameters(self.path) is not None

    async def erase_deleted(self) -> str | None:
        with translated(self.path):
            return await run_in_thread(lambda: erase_deleted(self.path))

    def vitals(self) -> dict[str, int]:
        return {"commits": self._writer.commits, "queue": self._writer.queued}

    def _publish(self, signals: list[Signal]) -> None:
        if self._watcher is not None:
            self._watcher.publish(signals)

    def watch(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        if self._watcher is None:
            from .watch import Watcher

            self._watcher = Watcher(lambda: Reader(self.path))
        stop: Callable[[], None] = self._watcher.listen(listener)
        return stop

    # Writes for webhooks. Their module is imported late: lists do not need it.

    async def notify(self, workspace: str, notices: Sequence[Notice]) -> None:
        from . import deliveries

        await self._writer.run(lambda tx: deliveries.notify(tx, workspace, notices))

    async def put_delivery(self, delivery: Delivery) -> Delivery:
        from . import deliveries

        return await self._writer.run(lambda tx: deliveries.put(tx, delivery))

    # An attempt whose outcome is lost is repeated, so these need not survive a power failure.

    async def claim_deliveries(self, *, now: int, until: int, limit: int) -> list[Delivery]:
        from . import deliveries

        return await self._writer.run(
            lambda tx: deliveries.claim(tx, now=now, until=until, limit=limit), durable=False
        )

    async def save_deliveries(self, saved: Sequence[Delivery]) -> None:
        from . import deliveries

        await self._writer.run(lambda tx: deliveries.save(tx, saved), durable=False)

    async def trim_deliveries(
        self, workspace: str, webhook: str, *, finished: int, pending: int
    ) -> None:
        from . import deliveries

        await self._writer.run(
            lambda tx: deliveries.trim(tx, workspace, webhook, finished=finished, pending=pending),
            durable=False,
        )

    async def revoke_key(self, workspace: str, id: str, at: int) -> bool:
        for key in await self.keys(workspace):
            if key.id == id and key.revoked_at is None:
                await self.put_key(msgspec.structs.replace(key, revoked_at=at))
                return True
        return False


def _reading(path: Path, read: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the store's method for a read of its reader."""

    async def method(*args: P.args, **options: P.kwargs) -> T:
        with translated(path):
            return read(*args, **options)

    return method


def _writing(
    writer: Writer, write: Callable[Concatenate[Transaction, P], T], *, durable: bool = True
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the store's method for a write, which the writer runs in a transaction."""

    async def method(*args: P.args, **options: P.kwargs) -> T:
        return await writer.run(lambda tx: write(tx, *args, **options), durable=durable)

    return method
