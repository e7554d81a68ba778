"""The writer: a thread that commits queued operations in groups.

While one group is synced to disk the next one gathers, so many writers share each sync. An
operation that fails changes nothing, and the rest of its group is committed. Operations that need
not survive a crash (deltas) are committed without a sync. What a group changes of a workspace's
usage is written once, before its commit. While the thread is idle, it merges segments of the
full-text index, a few pages at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from segue import fts5
from segue.model import clock, errors
from segue.store.base import Signal

from .connection import check_compat, connect, translated

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
MAX_GROUP = 512
IDLE_SECONDS = 0.1  # without a write, before and between merge steps
MERGE_PAGES = 64  # of the full-text index, in one step
CLOSING_MERGE_STEPS = 256  # after a purge, when the process ends
CHECKPOINT_PAGES = 4000  # in the log before a checkpoint; many are versions of the same page


class UsageChange(NamedTuple):
    """How much more a workspace uses after an operation; negative for less."""

    workspace: str
    sessions: int = 0
    files: int = 0
    bytes: int = 0
    schedules: int = 0


class Transaction:
    """The connection, time, change counter and signals that an operation uses.

    An operation adds what it changes of a workspace's usage to `usage_changes`.
    """

    def __init__(self, connection: sqlite3.Connection, change: int) -> None:
        self.connection = connection
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
        durable: bool,
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any],
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
        if isinstance(self.error, StopIteration):  # which a future cannot hold
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
            self._queue.append(_Job(operation, durable, loop, future))
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
                    signals = self._commit(connection, group)
                except Exception as error:
                    signals = []
                    for job in group:
                        job.error = job.error or error
                if signals:
                    self._published(signals)
                _deliver(group)
                if connection is not None:
                    self._merge_index(connection)
        finally:
            if connection is not None:
                self._erase_purged_words(connection, closing=True)
                connection.close()

    def _next_group(self) -> list[_Job]:
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUP))]

    def _merge_index(self, connection: sqlite3.Connection) -> None:
        """Merge segments of the full-text index until few are left or a write arrives.

        Every commit adds a segment, and every search reads all of them. Without this, FTS5 merges
        many at once, within the write that exceeds its limit.
        """
        self._erase_purged_words(connection)
        while self._is_idle():
            before = connection.total_changes
            try:
                check_compat(connection, self._path)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(
                    "INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGE_PAGES,)
                )
            except (sqlite3.Error, errors.StoreError):
                return  # the next write reports the error to its caller
            if connection.total_changes - before < 2:  # FTS5 reports that nothing is left to merge
                return

    def _erase_purged_words(self, connection: sqlite3.Connection, *, closing: bool = False) -> None:
        """Rewrite the full-text index after a purge: FTS5 keeps deleted words until then.

        Stops when a write arrives, or after a number of steps if the process is `closing`. The
        next idle writer, of any process, continues.
        """
        steps = range(CLOSING_MERGE_STEPS) if closing else iter(self._is_idle, False)
        try:
            with translated(self._path):
                sql = "SELECT value FROM meta WHERE name = 'unmerged_purge'"
                purge = connection.execute(sql).fetchone()
                if purge is None:
                    return
                check_compat(connection, self._path)
                if fts5.erase_deleted(connection, steps, MERGE_PAGES):
                    sql = "DELETE FROM meta WHERE name = 'unmerged_purge' AND value = ?"
                    connection.execute(sql, purge)
        except errors.StoreError:
            return  # the next write reports the error to its caller

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
            connection.execute("BEGIN IMMEDIATE")
            try:
                check_compat(connection, self._path)
                sql = "SELECT value FROM meta WHERE name = 'change'"
                (change,) = connection.execute(sql).fetchone()
                transaction = Transaction(connection, change)
                for job in jobs:
                    _attempt(transaction, job)
                if transaction.change != change:
                    sql = "UPDATE meta SET value = ? WHERE name = 'change'"
                    connection.execute(sql, (transaction.change,))
                _write_usage(transaction)
                connection.execute("COMMIT")
                self.commits += 1
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return transaction.signals


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
            continue  # that loop has ended, so no task waits any more


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()
