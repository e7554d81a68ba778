"""Signals between processes: one connection that listens and notifies.

A notification that is part of a change would hold up every other commit until this one is on disk,
since the server queues notifications one transaction at a time. So it is sent right after, for many
changes at once. What is said while a connection is broken, or what a process did not live to say,
is made good: from time to time, and after each new connection, all that may have changed of late
is told again. Too much rather than too little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec

from segue.model import errors
from segue.store.base import Signal

from .connection import Connection, connect, translated

CHANNEL = "segue"
BEAT = 10.0  # seconds between looks for what was not told
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between tries to connect again

# Waiting for the disk would be of no use: nothing is kept.
_NOTIFY = f"""
    SELECT pg_notify('{CHANNEL}', payload), set_config('synchronous_commit', 'off', true)
    FROM unnest($1::text[]) AS t (payload)
"""
_MARK = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
# Whatever is in an inbox, or still being written, is told: it is little, and bears no number.
_SINCE = """
    SELECT 'events', workspace, id FROM sessions WHERE change >= $1
    UNION ALL SELECT 'purged', workspace, id FROM purged p WHERE change >= $1
      AND NOT EXISTS (SELECT FROM sessions s WHERE s.workspace = p.workspace AND s.id = p.id)
    UNION ALL SELECT 'inbox', workspace, id FROM sessions
      WHERE pk = ANY (ARRAY (SELECT session FROM inbox))
    UNION ALL SELECT 'deltas', workspace, id FROM sessions
      WHERE pk = ANY (ARRAY (SELECT session FROM deltas))
"""

_decoder = msgspec.json.Decoder(Signal)


class Watcher:
    """Tells this process's listeners of every change, and other processes of ours."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._listeners: list[Callable[[Signal], None]] = []
        self._outgoing: dict[Signal, None] = {}  # in order, each once
        self._wake = asyncio.Event()
        self._closing = False
        self._connection: Connection = None
        self._task: asyncio.Task[None] | None = None
        # What transactions below `_low` did has been told. It stays a beat behind, for what was
        # committed by then and notified a moment later.
        self._low = self._next = 0

    @classmethod
    async def open(cls, url: str) -> Self:
        """A watcher that hears all that commits from now on."""
        watcher = cls(url)
        with translated(url):
            await watcher._connect()
            watcher._low = watcher._next = await watcher._connection.fetchval(_MARK)
        watcher._task = asyncio.get_running_loop().create_task(watcher._run())
        return watcher

    async def close(self) -> None:
        """Stop, after saying what is still to be said."""
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
        """Tell of something that was committed here."""
        self._outgoing[signal] = None
        self._wake.set()
        asyncio.get_running_loop().call_soon(self._tell, signal)

    def _tell(self, signal: Signal) -> None:
        for listener in tuple(self._listeners):
            listener(signal)

    def _heard(self, connection: Connection, pid: int, _channel: str, payload: str) -> None:
        if pid == connection.get_server_pid():
            return  # our own words
        try:
            signal = _decoder.decode(payload)
        except msgspec.DecodeError:
            return  # of another program, or a newer one
        self._tell(signal)

    async def _run(self) -> None:
        while not self._closing:
            try:
                with translated(self._url):
                    await self._serve()
            except errors.SegueError:
                await self._reconnect()

    async def _serve(self) -> None:
        """Pass on what is published, and see to what was missed, while the connection lasts."""
        clock = asyncio.get_running_loop().time
        due = clock() + BEAT
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            self._wake.clear()
            if self._outgoing or self._connection.is_closed():
                await self._send()  # which fails, as it should, on a connection that is lost
            if self._closing:
                return
            if clock() >= due:
                await self._catch_up()
                due = clock() + BEAT

    async def _send(self) -> None:
        batch, self._outgoing = self._outgoing, {}
        try:
            payloads = [msgspec.json.encode(signal).decode() for signal in batch]
            await self._connection.fetch(_NOTIFY, payloads, timeout=BEAT)
        except BaseException:
            self._outgoing = {**batch, **self._outgoing}
            raise

    async def _catch_up(self) -> None:
        mark = await self._connection.fetchval(_MARK, timeout=BEAT)
        missed = await self._connection.fetch(_SINCE, self._low, timeout=BEAT)
        self._low, self._next = self._next, mark
        for row in missed:
            # Not from here: what a listener raises is not this task's end.
            asyncio.get_running_loop().call_soon(self._tell, Signal(*row))

    async def _connect(self) -> None:
        self._connection = await connect(self._url)
        self._connection.add_termination_listener(lambda _: self._wake.set())
        await self._connection.add_listener(CHANNEL, self._heard)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with translated(self._url):
                    await connection.close(timeout=1)
            except errors.StoreError:
                connection.terminate()

    async def _reconnect(self) -> None:
        """A new connection, however long it takes; then what was missed."""
        pause = FIRST_PAUSE
        while not self._closing:
            await self._disconnect()
            try:
                with translated(self._url):
                    await self._connect()
                    await self._catch_up()
                return
            except errors.SegueError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
