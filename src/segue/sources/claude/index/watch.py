"""Notice what Claude Code writes: by notifications of the system, or else by polling."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

from segue.model.cursor import ChangePoint
from segue.model.errors import SegueError
from segue.sources.claude.format import processes
from segue.sources.claude.format.paths import ClaudeHome

log = logging.getLogger("segue.claude")

POLL_SECONDS = 1.0
_CHECK_PROCESSES_MS = 5000  # the end of a killed process changes no file
_DEBOUNCE_MS = 50


class WatchedSource(Protocol):
    """The part of a source that watching uses."""

    @property
    def home(self) -> ClaudeHome: ...

    watched: bool

    async def update_index(self, paths: list[str] | None) -> Any: ...
    async def make_searchable(self) -> None: ...
    def current_change_point(self) -> ChangePoint: ...
    def notify_listeners(self, since: ChangePoint) -> ChangePoint: ...


async def watch_source(source: WatchedSource) -> None:
    """Keep a source's index current and notify its listeners, until cancelled."""
    point = source.current_change_point()
    async for paths in _changed_paths(source):
        try:
            await source.update_index(paths)
            point = source.notify_listeners(point)
            await source.make_searchable()
        except SegueError as error:
            log.warning("cannot update the index of Claude Code's sessions: %s", error.message)


async def _changed_paths(source: WatchedSource) -> AsyncIterator[list[str] | None]:
    """Return the transcripts that may have changed; None stands for all."""
    while True:
        if (
            os.path.isdir(source.home.projects)
            and importlib.util.find_spec("watchfiles") is not None
        ):
            async for paths in _notified_paths(source):
                yield paths
        yield None
        await asyncio.sleep(POLL_SECONDS)


async def _notified_paths(source: WatchedSource) -> AsyncIterator[list[str] | None]:
    """Return the same from the system's notifications; end if there are none."""
    from watchfiles import awatch

    home = source.home
    watched = (home.projects, home.trash, processes.process_files_directory(home))
    directories = [path for path in watched if os.path.isdir(path)]
    notifications = awatch(
        *directories,
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
            yield _transcripts(home, (path for _, path in changes))
    except (OSError, RuntimeError, StopAsyncIteration) as error:
        log.info("cannot watch %s: %s", home.projects, error)
    finally:
        source.watched = False
        next_changes.cancel()
        await asyncio.gather(next_changes, return_exceptions=True)
        await notifications.aclose()


def _transcripts(home: ClaudeHome, paths: Iterable[str]) -> list[str] | None:
    """Return the transcripts that some paths belong to; None stands for all."""
    transcripts = set()
    for path in paths:
        if os.path.dirname(path) == processes.process_files_directory(home):
            continue
        parts = os.path.relpath(path, home.projects).split(os.sep)
        if parts[0] == os.pardir or len(parts) < 2:
            return None  # the trash, or a whole project
        name = parts[1] if parts[1].endswith(".jsonl") else f"{parts[1]}.jsonl"
        transcripts.add(os.path.join(home.projects, parts[0], name))
    return sorted(transcripts)
