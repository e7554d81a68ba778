"""Notice what a tool writes: by notifications of the system, or else by polling."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from segue.model.cursor import ChangePoint
from segue.model.errors import SegueError

from .current_index import CurrentIndex

log = logging.getLogger("segue.sources")

POLL_SECONDS = 1.0
_CHECK_PROCESSES_MS = 5000  # the end of a killed process changes no file
_DEBOUNCE_MS = 50


class WatchedFiles(Protocol):
    """The files of a tool in which its sessions are."""

    @property
    def label(self) -> str:
        """The name of the tool."""

    def directories(self) -> Sequence[str]:
        """Return the directories to watch; none if they do not exist yet."""

    def is_recursive(self) -> bool:
        """Return whether the directories in them are watched, too."""

    def changed_keys(self, paths: Iterable[str]) -> list[str] | None:
        """Return the keys of the sessions that some paths belong to; None stands for all."""


class SourceWatch:
    """Keeps a source's index current while it has listeners, and notifies them."""

    def __init__(self, current: CurrentIndex[Any], files: WatchedFiles) -> None:
        self._current = current
        self._files = files
        self._listeners: list[Callable[[str], None]] = []
        self._notified_running: Mapping[str, int] = {}  # the running sessions at the last notice
        self._task: asyncio.Task[None] | None = None
        self._ending_tasks: set[asyncio.Task[None]] = set()  # cancelled, and not ended yet

    async def close(self) -> None:
        self._stop()
        if self._ending_tasks:
            await asyncio.wait(self._ending_tasks)

    def add(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener with the id of each session that changes; return how to stop that."""
        self._listeners.append(listener)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

        def stop() -> None:
            self._listeners.remove(listener)
            if not self._listeners:
                self._stop()

        return stop

    def _stop(self) -> None:
        self._current.watched = False
        if self._task is not None:
            self._task.cancel()
            self._ending_tasks.add(self._task)
            self._task.add_done_callback(self._ending_tasks.discard)
            self._task = None

    async def _run(self) -> None:
        """Update the index after each change, until cancelled."""
        point = self._current.current_change_point()
        async for keys in self._changed_keys():
            try:
                await self._current.update(keys)
                point = self._notify_listeners(point)
                await self._current.make_searchable()
            except SegueError as error:
                log.warning(
                    "cannot update the index of %s's sessions: %s", self._files.label, error.message
                )

    def _notify_listeners(self, since: ChangePoint) -> ChangePoint:
        """Notify the listeners of sessions that changed since a point, and return the next one."""
        point = self._current.current_change_point()
        running = self._current.info.running
        changed = set(self._current.ask(lambda index: index.changed_since(since)))
        changed |= {id for id, _ in self._notified_running.items() ^ running.items()}
        self._notified_running = running
        for id in changed:
            for listener in tuple(self._listeners):
                listener(id)
        return point

    async def _changed_keys(self) -> AsyncIterator[list[str] | None]:
        """Return the sessions that may have changed; None stands for all."""
        while True:
            if self._files.directories() and importlib.util.find_spec("watchfiles") is not None:
                async for keys in self._notified_keys():
                    yield keys
            yield None
            await asyncio.sleep(POLL_SECONDS)

    async def _notified_keys(self) -> AsyncIterator[list[str] | None]:
        """Return the same from the system's notifications; end if there are none."""
        from watchfiles import awatch

        notifications = awatch(
            *self._files.directories(),
            recursive=self._files.is_recursive(),
            step=_DEBOUNCE_MS,
            watch_filter=None,
            rust_timeout=_CHECK_PROCESSES_MS,
            yield_on_timeout=True,
        )
        next_changes = asyncio.ensure_future(anext(notifications))
        try:
            await asyncio.sleep(0)  # the watch starts now, so earlier changes need a comparison
            yield None
            self._current.watched = True
            while True:
                changes = await next_changes
                next_changes = asyncio.ensure_future(anext(notifications))
                yield self._files.changed_keys(path for _, path in changes)
        except (OSError, RuntimeError, StopAsyncIteration) as error:
            log.info("cannot watch the sessions of %s: %s", self._files.label, error)
        finally:
            self._current.watched = False
            next_changes.cancel()
            await asyncio.gather(next_changes, return_exceptions=True)
            await notifications.aclose()
