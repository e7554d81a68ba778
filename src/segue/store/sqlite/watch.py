"""Notice what other processes commit.

`PRAGMA data_version` shows that another connection changed the file, but not what. A short timer
reads it, and after a change reads the rows above the last known numbers: the change counter (of
sessions and released leases), the newest inbox item, the newest delta. Signals of this process's
writer come without the timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from segue.store.base import Signal

from .reads import Reader

INTERVAL_SECONDS = 0.02


class Watcher:
    """Poll the store while it has listeners."""

    def __init__(self, reader: Callable[[], Reader]) -> None:
        self._open = reader
        self._listeners: list[Callable[[Signal], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self, listener: Callable[[Signal], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        if self._task is None:
            self._loop = asyncio.get_running_loop()
            # The numbers are read before this returns, so no later commit can be missed.
            reader = self._open()
            self._task = self._loop.create_task(self._poll(_LastSeen(reader)))
            # Not in the task itself, which may be cancelled before it begins.
            self._task.add_done_callback(lambda _: reader.close())

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
            if not self._listeners:
                self.close()

        return stop

    def close(self) -> None:
        self._listeners.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def publish(self, signals: list[Signal]) -> None:
        """Pass on signals of this process's writer; called from its thread."""
        if self._listeners and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._notify, signals)
            except RuntimeError:
                return  # the loop has ended, so no listener is left

    def _notify(self, signals: list[Signal]) -> None:
        for signal in signals:
            for listener in tuple(self._listeners):
                listener(signal)

    async def _poll(self, last_seen: _LastSeen) -> None:
        while True:
            if signals := last_seen.new_signals():
                self._notify(signals)
            await asyncio.sleep(INTERVAL_SECONDS)


class _LastSeen:
    """The newest numbers seen, to find the rows above them."""

    def __init__(self, reader: Reader) -> None:
        self._execute = reader.execute
        self._version = self._one("PRAGMA data_version")
        self._change = self._one("SELECT value FROM meta WHERE name = 'change'")
        self._inbox = self._one("SELECT coalesce(max(number), 0) FROM inbox")
        self._delta = self._one("SELECT coalesce(max(number), 0) FROM deltas")

    def _one(self, sql: str) -> int:
        return int(self._execute(sql).fetchone()[0])

    def new_signals(self) -> list[Signal]:
        version = self._one("PRAGMA data_version")
        if version == self._version:
            return []
        self._version = version
        signals: list[Signal] = []
        change = self._one("SELECT value FROM meta WHERE name = 'change'")
        if change != self._change:
            sql = "SELECT workspace, id FROM sessions WHERE change > ?"
            for workspace, id in self._execute(sql, (self._change,)):
                signals.append(Signal("events", workspace, id))
            sql = "SELECT workspace, id FROM purged WHERE change > ?"
            for workspace, id in self._execute(sql, (self._change,)):
                signals.append(Signal("purged", workspace, id))
            sql = "SELECT s.workspace, s.id FROM leases l JOIN sessions s ON s.pk = l.session"
            for workspace, id in self._execute(f"{sql} WHERE l.released > ?", (self._change,)):
                signals.append(Signal("inbox", workspace, id))
            self._change = change
        for kind, table in (("inbox", "inbox"), ("deltas", "deltas")):
            seen = self._inbox if kind == "inbox" else self._delta
            sql = f"SELECT max(t.number), s.workspace, s.id FROM {table} t"
            sql += " JOIN sessions s ON s.pk = t.session WHERE t.number > ? GROUP BY t.session"
            for number, workspace, id in self._execute(sql, (seen,)):
                signals.append(Signal("inbox" if kind == "inbox" else "deltas", workspace, id))
                seen = max(seen, number)
            if kind == "inbox":
                self._inbox = seen
            else:
                self._delta = seen
        return signals
