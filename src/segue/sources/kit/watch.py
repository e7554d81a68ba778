"""Notice what a tool writes: by notifications of the system, or else by polling."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Protocol

from segue.model.cursor import ChangePoint
from segue.model.errors import SegueError

log = logging.getLogger("segue.sources")

POLL_SECONDS = 1.0
_CHECK_PROCESSES_MS = 5000  # the end of a killed process changes no file
_DEBOUNCE_MS = 50


class WatchedSource(Protocol):
    """The part of a source that watching uses."""

    label: str
    watched: bool

    def places(self) -> Sequence[str]: ...
    def has_running(self) -> bool: ...
    def key_of_path(self, path: str) -> str | None: ...
    async def update_index(self, keys: Sequence[str] | None) -> Any: ...
    async def make_searchable(self) -> None: ...
    def current_change_point(self) -> ChangePoint: ...
    def notify_listeners(self, since: ChangePoint) -> ChangePoint: ...


async def watch_source(source: WatchedSource) -> None:
    """Keep a source's index current and notify its listeners, until cancelled."""
    point = source.current_change_point()
    async for keys in _changed_keys(source):
        try:
            await source.update_index(keys)
            point = source.notify_listeners(point)
            await source.make_searchable()
        except SegueError as error:
            log.warning("cannot update the index of %s's sessions: %s", source.label, error.message)


async def _changed_keys(source: WatchedSource) -> AsyncIterator[list[str] | None]:
    """Return the sessions that may have changed; None stands for all."""
    while True:
        if importlib.util.find_spec("watchfiles") is not None and _directories(source):
            async for keys in _notified_keys(source):
                yield keys
        yield None
        await asyncio.sleep(POLL_SECONDS)


def _directories(source: WatchedSource) -> list[str]:
    """Return the directories to watch: those of databases, whose logs take the writes."""
    places = [path if os.path.isdir(path) else os.path.dirname(path) for path in source.places()]
    return [path for path in dict.fromkeys(places) if os.path.isdir(path)]


async def _notified_keys(source: WatchedSource) -> AsyncIterator[list[str] | None]:
    """Return the same from the system's notifications; end if there are none."""
    from watchfiles import awatch

    # A database needs only its directory, which may have large directories of other things.
    has_files = any(os.path.isdir(path) for path in source.places())
    notifications = awatch(
        *_directories(source),
        recursive=has_files,
        step=_DEBOUNCE_MS,
        watch_filter=None,
        rust_timeout=_CHECK_PROCESSES_MS,
        yield_on_timeout=True,
    )
    next_changes = asyncio.ensure_future(anext(notifications))
    try:
        await asyncio.sleep(0)  # the watch starts now, so earlier changes need a full comparison
        yield None
        source.watched = True
        while True:
            changes = await next_changes
            next_changes = asyncio.ensure_future(anext(notifications))
            if changes or source.has_running():
                yield _keys(source, (path for _, path in changes)) if changes else None
    except (OSError, RuntimeError, StopAsyncIteration) as error:
        log.info("cannot watch the sessions of %s: %s", source.label, error)
    finally:
        source.watched = False
        next_changes.cancel()
        await asyncio.gather(next_changes, return_exceptions=True)
        await notifications.aclose()


def _keys(source: WatchedSource, paths: Iterable[str]) -> list[str] | None:
    """Return the sessions whose files changed; None if other files did."""
    # Readers of a database, segue included, change its -shm file.
    changed = [path for path in dict.fromkeys(paths) if not path.endswith("-shm")]
    keys = [source.key_of_path(path) for path in changed]
    known = [key for key in keys if key is not None]
    return known if len(known) == len(keys) else None
