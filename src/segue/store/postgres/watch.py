"""Hearing what any process commits: one connection that listens.

A notification is sent with the transaction that it tells of, to those who listen at that moment.
So when the connection breaks, everything that may have changed since the last moment it is known
to have worked is told as soon as there is a new one: too much rather than too little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

import msgspec

from ...model import errors
from ..base import Signal
from .connection import Connection, connect, translated
from .shared import CHANNEL, read_signal

BEAT = 30.0  # seconds between questions whether the connection still works
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between tries to connect again

_NOW = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
# Whatever is in an inbox, or still being written, is told: it is little, and bears no number.
_SINCE = """
    SELECT 'events', workspace, id FROM sessions WHERE change >= $1
    UNION ALL SELECT 'purged', workspace, id FROM purged WHERE change >= $1
    UNION ALL SELECT 'inbox', workspace, id FROM sessions
      WHERE pk = ANY (ARRAY (SELECT session FROM inbox))
    UNION ALL SELECT 'deltas', workspace, id FROM sessions
      WHERE pk = ANY (ARRAY (SELECT session FROM deltas))
"""


class Watcher:
    """Listens from beginning to end, and passes on what it hears."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listeners: list[Callable[[Signal], None]] = []
        # Everything by transactions below `_low` has been told. A notification may come a moment
        # after its transaction is seen to have ended, so `_low` is always a beat behind.
        self._low = self._next = 0
        self._lost = asyncio.Event()
        self._connection: Connection = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, url: str) -> Self:
        """A watcher that hears all that commits from now on."""
        watcher = cls(url)
        watcher._low = watcher._next = await watcher._connect()
        watcher._task = asyncio.get_running_loop().create_task(watcher._run())
        return watcher

    async def close(self) -> None:
        self._listeners.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._disconnect()

    def listen(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def _tell(self, signal: Signal) -> None:
        for listener in tuple(self._listeners):
            listener(signal)

    def _heard(self, _connection: Connection, _pid: int, _channel: str, payload: str) -> None:
        try:
            signal = read_signal(payload)
        except msgspec.DecodeError:
            return  # of another program, or one newer than this
        self._tell(signal)

    async def _connect(self) -> int:
        """Listen on a new connection; the oldest transaction that is running then."""
        with translated(self._url):
            self._connection = await connect(self._url)
            self._lost.clear()
            self._connection.add_termination_listener(lambda _: self._lost.set())
            await self._connection.add_listener(CHANNEL, self._heard)
            return int(await self._connection.fetchval(_NOW))

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with translated(self._url):
                    await connection.close(timeout=1)
            except errors.StoreError:
                connection.terminate()

    async def _run(self) -> None:
        while True:
            await self._beat()
            await self._reconnect()

    async def _beat(self) -> None:
        """Until the connection is lost."""
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(BEAT):
                    await self._lost.wait()
            except TimeoutError:
                try:
                    with translated(self._url):
                        now = await self._connection.fetchval(_NOW, timeout=BEAT)
                except errors.StoreError:
                    return
                self._low, self._next = self._next, int(now)

    async def _reconnect(self) -> None:
        """A new connection, however long it takes; then what was missed."""
        pause = FIRST_PAUSE
        while True:
            await self._disconnect()
            try:
                now = await self._connect()
                with translated(self._url):
                    missed = await self._connection.fetch(_SINCE, self._low)
            except errors.SegueError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                break
        self._low = self._next = now
        for row in missed:
            self._tell(Signal(*row))
