"""The one writer: a thread that takes queued operations and commits them in groups.

While one group is being synced to disk the next one gathers, so many writers share each sync.
Every operation stands alone: one that fails is rolled back to its savepoint and the rest commit.
Operations that need not survive a crash (deltas) are committed without a sync of their own.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...model import clock, errors
from ..base import Signal
from .connection import connect, translated

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
MAX_GROUP = 512


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
        if self.error is not None:
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
            self._wake.notify()
        return await future

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
                    signals = self._commit(connection, group)
                except Exception as error:
                    signals = []
                    for job in group:
                        job.error = job.error or error
                if signals:
                    self._published(signals)
                _deliver(group)
        finally:
            if connection is not None:
                connection.close()

    def _next_group(self) -> list[_Job]:
        with self._wake:
            while not self._queue and not self._closing:
                self._wake.wait()
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUP))]

    def _commit(self, connection: sqlite3.Connection, group: list[_Job]) -> list[Signal]:
        durable = any(job.durable for job in group)
        with translated(self._path):
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                sql = "SELECT value FROM meta WHERE name = 'change'"
                (change,) = connection.execute(sql).fetchone()
                transaction = Transaction(connection, change)
                for job in group:
                    self._attempt(transaction, job, alone=len(group) == 1)
                if transaction.change != change:
                    sql = "UPDATE meta SET value = ? WHERE name = 'change'"
                    connection.execute(sql, (transaction.change,))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return transaction.signals

    def _attempt(self, transaction: Transaction, job: _Job, *, alone: bool) -> None:
        signals, change = len(transaction.signals), transaction.change
        execute = transaction.execute
        if not alone:
            execute("SAVEPOINT job")
        try:
            job.result = job.operation(transaction)
        except sqlite3.Error:
            raise  # the database's own trouble: the whole group fails with it
        except Exception as error:
            if alone:
                raise
            job.error = error
            del transaction.signals[signals:]
            transaction.change = change
            execute("ROLLBACK TO job")
        if not alone:
            execute("RELEASE job")


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
