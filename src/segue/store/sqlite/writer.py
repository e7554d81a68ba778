"""The writer: a thread that commits queued operations in groups.

While one group is synced to disk the next one gathers, so many writers share each sync. An
operation that fails changes nothing, and the rest of its group is committed. Operations that need
not survive a crash (deltas) are committed without a sync. What a group changes of a workspace's
usage is written once, before its commit. While the thread is idle, it completes the search index
and merges its segments, a few pages at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from segue.model import clock, errors
from segue.store.base import Signal

from .connection import CHECKPOINT_PAGES, check_compat, connect, transaction, translated
from .search_index import SearchIndex

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
MAX_GROUP = 512
IDLE_SECONDS = 0.1  # without a write, before and between merge steps
MAX_UNINDEXED_CHANGES = 500  # before events are indexed although further writes wait
CLOSING_INDEX_STEPS = 4  # when the process ends; the next one continues
CLOSING_MERGE_STEPS = 256  # after a purge, when the process ends


class UsageChange(NamedTuple):
    """How much more a workspace uses after an operation; negative for less."""

    workspace: str
    sessions: int = 0
    files: int = 0
    bytes: int = 0
    schedules: int = 0


class Transaction:
    """The connection, search index, time, change counter and signals that an operation uses.

    An operation adds what it changes of a workspace's usage to `usage_changes`.
    """

    def __init__(self, connection: sqlite3.Connection, index: SearchIndex, change: int) -> None:
        self.connection = connection
        self.index = index
        self.execute = connection.execute
        self.at = clock.now()
        self.change = change
        self.signals: list[Signal] = []
        self.usage_changes: list[UsageChange] = []

    def touch(self) -> int:
        """Return the next value of the store's change counter."""
        self.change += 1
        return self.change


class _Job:
    __slots__ = ("durable", "error", "future", "loop", "operation", "result")

    def __init__(
        self,
        operation: Callable[[Transaction], Any],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
        *,
        durable: bool,
    ) -> None:
        self.operation = operation
        self.durable = durable
        self.loop = loop
        self.future = future
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if isinstance(self.error, StopIteration):  # a future cannot hold it
            self.future.set_exception(RuntimeError("an operation raised StopIteration"))
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Run operations in the order they arrive. `published` is called with each group's signals."""

    def __init__(self, path: Path, published: Callable[[list[Signal]], None]) -> None:
        self._path = path
        self._published = published
        self._index = SearchIndex(path, file_only=True)
        self._unindexed_changes = 0
        self._index_unmerged = False
        self._queue: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self.commits = 0

    @property
    def queued(self) -> int:
        """Return how many operations wait."""
        return len(self._queue)

    async def run(self, operation: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Return the operation's result, once it is committed."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._wake:
            if self._closing:
                raise errors.StoreError("the store is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="segue-writer", daemon=True)
                self._thread.start()
            self._queue.append(_Job(operation, loop, future, durable=durable))
        # Not at once: other tasks of this iteration of the loop join the same group.
        loop.call_soon(self._wake_thread)
        return await future

    def _wake_thread(self) -> None:
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """Finish what is queued, then stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            while group := self._next_group():
                try:
                    if connection is None:
                        with translated(self._path):
                            connection = connect(self._path, writable=True)
                            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
                            connection.execute("PRAGMA secure_delete = ON")
                    signals = self._commit(connection, group)
                except Exception as error:
                    signals = []
                    for job in group:
                        job.error = job.error or error
                if signals:
                    self._published(signals)
                _deliver(group)
                if connection is not None:
                    self._update_index()
        finally:
            if connection is not None:
                self._finish_index()
                self._index.close()
                connection.close()

    def _next_group(self) -> list[_Job]:
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUP))]

    def _update_index(self) -> None:
        """Index new events, then merge segments of the index, until a write arrives.

        Events are indexed many at a time. A search that comes earlier indexes them itself.
        """
        if not self._index_unmerged:
            return
        try:
            with translated(self._index.path):
                if self._unindexed_changes >= MAX_UNINDEXED_CHANGES:
                    self._complete_index()
                if not self._complete_index(iter(self._is_idle, False)):
                    return
                self._index.erase(iter(self._is_idle, False))
                while self._is_idle():
                    if not self._index.merge():
                        self._index_unmerged = False
                        return
        except errors.StoreError:
            return  # a search reports the error to its caller

    def _complete_index(self, steps: Iterable[object] | None = None) -> bool:
        if self._unindexed_changes and not self._index.complete(steps):
            return False
        self._unindexed_changes = 0
        return True

    def _finish_index(self) -> None:
        """Index new events and erase purged words, as far as some steps allow."""
        if not self._index_unmerged:
            return
        try:
            with translated(self._index.path):
                self._complete_index(range(CLOSING_INDEX_STEPS))
                self._index.erase(range(CLOSING_MERGE_STEPS))
        except errors.StoreError:
            return  # a search reports the error to its caller

    def _is_idle(self) -> bool:
        with self._wake:
            return not self._wake.wait_for(lambda: self._queue or self._closing, IDLE_SECONDS)

    def _commit(self, connection: sqlite3.Connection, group: list[_Job]) -> list[Signal]:
        while jobs := [job for job in group if job.error is None]:
            try:
                return self._transact(connection, jobs)
            except _PartlyWritten:
                continue
        return []

    def _transact(self, connection: sqlite3.Connection, jobs: list[_Job]) -> list[Signal]:
        durable = any(job.durable for job in jobs)
        with translated(self._path):
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with transaction(connection, "BEGIN IMMEDIATE"):
                check_compat(connection, self._path)
                sql = "SELECT value FROM meta WHERE name = 'change'"
                (change,) = connection.execute(sql).fetchone()
                tx = Transaction(connection, self._index, change)
                for job in jobs:
                    _attempt(tx, job)
                if tx.change != change:
                    sql = "UPDATE meta SET value = ? WHERE name = 'change'"
                    connection.execute(sql, (tx.change,))
                _write_usage(tx)
        self.commits += 1
        if tx.change != change:
            self._unindexed_changes += tx.change - change
            self._index_unmerged = True
        return tx.signals


class _PartlyWritten(Exception):
    """An operation failed after it had written; the others are run again without it.

    A savepoint for each operation would work as well, but FTS5 writes a segment at every
    savepoint, which costs more than everything else.
    """


def _attempt(transaction: Transaction, job: _Job) -> None:
    signals, change = len(transaction.signals), transaction.change
    usage_changes = len(transaction.usage_changes)
    written = transaction.connection.total_changes
    try:
        job.result = job.operation(transaction)
    except Exception as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
            # A duplicate id or a value too large: the operation is wrong, not the database.
            error = errors.InvalidInput(f"the store cannot keep that: {error}")
        elif isinstance(error, sqlite3.Error):
            raise  # the database failed, and the whole group with it
        job.error = error
        if transaction.connection.total_changes != written:
            raise _PartlyWritten from None
        del transaction.signals[signals:]
        del transaction.usage_changes[usage_changes:]
        transaction.change = change


_ADD_USAGE = """
INSERT INTO usage (workspace, sessions, files, bytes, schedules) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (workspace) DO UPDATE SET
  sessions = sessions + excluded.sessions,
  files = files + excluded.files,
  bytes = bytes + excluded.bytes,
  schedules = schedules + excluded.schedules"""


def _write_usage(transaction: Transaction) -> None:
    """Add the changes of a group's operations to the usage of their workspaces."""
    sums: dict[str, list[int]] = {}
    for workspace, *amounts in transaction.usage_changes:
        sums[workspace] = list(map(add, sums.get(workspace, (0, 0, 0, 0)), amounts))
    for workspace, amounts in sums.items():
        transaction.execute(_ADD_USAGE, (workspace, *amounts))


def _deliver(group: list[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, jobs)
        except RuntimeError:
            continue  # the loop has ended, so no task waits any more


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()
