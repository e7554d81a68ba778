"""The one writer: a thread that takes queued operations and commits them in groups.

While one group is being synced to disk the next one gathers, so many writers share each sync.
Every operation stands alone: one that fails leaves nothing behind and the rest commit.
Operations that need not survive a crash (deltas) are committed without a sync of their own.
Between writes the thread merges what the full-text index has piled up, a little at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from segue.model import clock, errors
from segue.store.base import Signal

from .connection import check_compat, connect, translated

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
MAX_GROUP = 512
PAUSE = 0.1  # seconds without a write before, and between, steps of merging
STEP = 64  # pages of the full-text index that one step merges
CHECKPOINT = 4000  # pages in the log before they are moved; many of them are the same page again


class Transaction:
    """What an operation works with: the connection, the time, the change counter, its signals."""

    def __init__(self, connection: sqlite3.Connection, change: int) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.at = clock.now()
        self.change = change
        self.signals: list[Signal] = []

    def touch(self) -> int:
        """The next value of the store's change counter."""
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
        if isinstance(self.error, StopIteration):  # which no future can carry
            self.future.set_exception(RuntimeError("an operation raised StopIteration"))
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs operations in the order they came. `published` is told each group's signals."""

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
        """How many operations wait."""
        return len(self._queue)

    async def run(self, operation: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """The operation's result, once it is committed."""
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
        # Not at once: whoever else runs in this round of the loop gets into the same group.
        loop.call_soon(self._stir)
        return await future

    def _stir(self) -> None:
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
                            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
                    signals = self._commit(connection, group)
                except Exception as error:
                    signals = []
                    for job in group:
                        job.error = job.error or error
                if signals:
                    self._published(signals)
                _deliver(group)
                if connection is not None:
                    self._tidy(connection)
        finally:
            if connection is not None:
                connection.close()

    def _next_group(self) -> list[_Job]:
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUP))]

    def _tidy(self, connection: sqlite3.Connection) -> None:
        """Merge the full-text index's pieces until few are left or something is to be written.

        Every commit adds a piece and every search looks into all of them. Left to itself the index
        merges many at once, inside the write that happens to bring one too many.
        """
        while self._rests():
            before = connection.total_changes
            try:
                check_compat(connection, self._path)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (STEP,))
            except (sqlite3.Error, errors.StoreError):
                return  # whatever ails the store, the next write will say so to somebody
            if connection.total_changes - before < 2:  # FTS5's way to say that this is done
                return

    def _rests(self) -> bool:
        with self._wake:
            return not self._wake.wait_for(lambda: self._queue or self._closing, PAUSE)

    def _commit(self, connection: sqlite3.Connection, group: list[_Job]) -> list[Signal]:
        while jobs := [job for job in group if job.error is None]:
            try:
                return self._transact(connection, jobs)
            except _Torn:
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
                connection.execute("COMMIT")
                self.commits += 1
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return transaction.signals


class _Torn(Exception):
    """An operation failed when it had written something: the others begin again without it.

    A savepoint for each would do as well, but the full-text index writes a piece of its own at
    every savepoint, and those pieces cost more than all the rest.
    """


def _attempt(transaction: Transaction, job: _Job) -> None:
    signals, change = len(transaction.signals), transaction.change
    written = transaction.connection.total_changes
    try:
        job.result = job.operation(transaction)
    except Exception as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
            # An id given twice, a value too large: the operation's fault, not the database's.
            error = errors.InvalidInput(f"the store cannot keep that: {error}")
        elif isinstance(error, sqlite3.Error):
            raise  # the database's own trouble: the whole group fails with it
        job.error = error
        if transaction.connection.total_changes != written:
            raise _Torn from None
        del transaction.signals[signals:]
        transaction.change = change


def _deliver(group: list[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, jobs)
        except RuntimeError:
            continue  # that loop has ended, and with it everybody who waited


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()
