"""Signals between processes, over one connection that listens and notifies.

A notification within a change would delay every other commit until this one is on disk, because the
server queues notifications one transaction at a time. So notifications are sent right after, for
many changes at once, since each one interrupts every process that listens. Signals can be lost
while a connection is broken or when a process dies. So from time to time, and after each new
connection, recent changes are signalled again. A listener may get a signal twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

import msgspec

from segue.model import errors
from segue.store.base import Signal

from .connection import Connection, connect, translated

CHANNEL = "segue"
RESCAN_SECONDS = 10.0  # between searches for changes without a signal
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 5.0  # between tries to connect again
SEND_PAUSE_SECONDS = 0.02  # after a notification; the signals of this time share the next one
MAX_PAYLOAD_BYTES = 7_900  # the server's limit is 8,000

# A notification is not stored, so its commit need not wait for the disk.
_NOTIFY = f"""
    SELECT pg_notify('{CHANNEL}', payload), set_config('synchronous_commit', 'off', true)
    FROM unnest($1::text[]) AS t (payload)
"""
_OLDEST_RUNNING = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
# All sessions with inbox items or deltas: these are few, and have no change number.
_SINCE = """
    SELECT 'events', workspace, id FROM sessions WHERE change >= $1
    UNION ALL SELECT 'purged', workspace, id FROM purged p WHERE change >= $1
      AND NOT EXISTS (SELECT FROM sessions s WHERE s.workspace = p.workspace AND s.id = p.id)
    UNION ALL SELECT 'inbox', workspace, id FROM sessions
      WHERE pk = ANY (ARRAY (SELECT session FROM inbox))
    UNION ALL SELECT 'deltas', workspace, id FROM sessions
      WHERE pk = ANY (ARRAY (SELECT session FROM deltas))
"""

_decoder = msgspec.json.Decoder(list[Signal])


def _payloads(signals: Iterable[Signal]) -> list[str]:
    """Return the signals as JSON lists, each small enough for one notification."""
    payloads: list[bytes] = []
    for signal in signals:
        entry = msgspec.json.encode(signal)
        if payloads and len(payloads[-1]) + len(entry) < MAX_PAYLOAD_BYTES:
            payloads[-1] += b"," + entry
        else:
            payloads.append(entry)
    return [f"[{payload.decode()}]" for payload in payloads]


class Watcher:
    """Signal every change to this process's listeners, and its own changes to other processes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listeners: list[Callable[[Signal], None]] = []
        self._outgoing: dict[Signal, None] = {}  # in order, each once
        self._wake = asyncio.Event()
        self._closing = False
        self._connection: Connection = None
        self._task: asyncio.Task[None] | None = None
        # Changes of transactions below `_low` have been signalled. It lags one rescan behind, for
        # changes that were committed by then and notified a moment later.
        self._low = self._next = 0

    @classmethod
    async def open(cls, url: str) -> Self:
        """Return a watcher that signals every commit from now on."""
        watcher = cls(url)
        with translated(url):
            await watcher._connect()
            watcher._low = watcher._next = await watcher._connection.fetchval(_OLDEST_RUNNING)
        watcher._task = asyncio.get_running_loop().create_task(watcher._run())
        return watcher

    async def close(self) -> None:
        """Send the remaining signals, then stop."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=2)
            self._task.cancel()
            await asyncio.wait([self._task])
        self._listeners.clear()
        await self._disconnect()

    def listen(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def publish(self, signal: Signal) -> None:
        """Signal a change that this process has committed."""
        self._outgoing[signal] = None
        self._wake.set()
        asyncio.get_running_loop().call_soon(self._notify, signal)

    def _notify(self, signal: Signal) -> None:
        for listener in tuple(self._listeners):
            listener(signal)

    def _notify_soon(self, signals: Iterable[Signal]) -> None:
        """Call the listeners from the event loop: their errors must not affect other signals."""
        loop = asyncio.get_running_loop()
        for signal in signals:
            loop.call_soon(self._notify, signal)

    def _on_notification(
        self, connection: Connection, pid: int, _channel: str, payload: str
    ) -> None:
        if pid == connection.get_server_pid():
            return  # our own notification
        try:
            signals = _decoder.decode(payload)
        except msgspec.DecodeError:
            return  # from another program, or another version of segue
        self._notify_soon(signals)

    async def _run(self) -> None:
        while not self._closing:
            try:
                with translated(self._url):
                    await self._serve()
            except errors.SegueError:
                await self._reconnect()

    async def _serve(self) -> None:
        """Send signals and rescan from time to time, until the connection is lost."""
        clock = asyncio.get_running_loop().time
        due = clock() + RESCAN_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            self._wake.clear()
            if self._outgoing or self._connection.is_closed():
                await self._send()  # raises if the connection is lost
            if self._closing:
                return
            if clock() >= due:
                await self._signal_missed()
                due = clock() + RESCAN_SECONDS
            await asyncio.sleep(SEND_PAUSE_SECONDS)

    async def _send(self) -> None:
        batch, self._outgoing = self._outgoing, {}
        try:
            await self._connection.fetch(_NOTIFY, _payloads(batch), timeout=RESCAN_SECONDS)
        except BaseException:
            self._outgoing = {**batch, **self._outgoing}
            raise

    async def _signal_missed(self) -> None:
        oldest = await self._connection.fetchval(_OLDEST_RUNNING, timeout=RESCAN_SECONDS)
        missed = await self._connection.fetch(_SINCE, self._low, timeout=RESCAN_SECONDS)
        self._low, self._next = self._next, oldest
        self._notify_soon(Signal(*row) for row in missed)

    async def _connect(self) -> None:
        self._connection = await connect(self._url)
        self._connection.add_termination_listener(lambda _: self._wake.set())
        await self._connection.add_listener(CHANNEL, self._on_notification)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with translated(self._url):
                    await connection.close(timeout=1)
            except errors.StoreError:
                connection.terminate()

    async def _reconnect(self) -> None:
        """Connect again, however long it takes, and signal the missed changes."""
        pause = FIRST_PAUSE_SECONDS
        while not self._closing:
            await self._disconnect()
            try:
                with translated(self._url):
                    await self._connect()
                    await self._signal_missed()
                return
            except errors.SegueError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
