"""Noticing what Claude Code writes: by the operating system's word, or else by looking."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from segue.model.errors import SegueError
from segue.sources.claude.format import processes
from segue.sources.claude.format.paths import ClaudeHome

if TYPE_CHECKING:
    from segue.sources.claude.source import ClaudeSource

log = logging.getLogger("segue.claude")

POLL_SECONDS = 1.0
_QUIET_MS = 5000
_GATHER_MS = 50  # a burst of writes is over when nothing came for so long


async def watching(source: ClaudeSource) -> None:
    """Keep a source's index true for as long as somebody listens, and tell them of changes."""
    mark = source.noted()
    async for paths in _noticed(source):
        try:
            await source.look(paths)
            mark = source.tell(mark)
        except SegueError as error:
            log.warning("Claude Code's sessions: %s", error.message)


async def _noticed(source: ClaudeSource) -> AsyncIterator[list[str] | None]:
    """The transcripts that something may have happened to; None for all of them."""
    while True:
        if (
            os.path.isdir(source.home.projects)
            and importlib.util.find_spec("watchfiles") is not None
        ):
            async for paths in _told(source):
                yield paths
        yield None
        await asyncio.sleep(POLL_SECONDS)


async def _told(source: ClaudeSource) -> AsyncIterator[list[str] | None]:
    """The same by the system's word; ends when that cannot be had."""
    from watchfiles import awatch

    home = source.home
    wanted = (home.projects, home.trash, processes.process_files_directory(home))
    places = [path for path in wanted if os.path.isdir(path)]
    # That a process of Claude Code's was killed is told by nobody: hence a look now and then.
    notices = awatch(
        *places, step=_GATHER_MS, watch_filter=None, rust_timeout=_QUIET_MS, yield_on_timeout=True
    )
    following = asyncio.ensure_future(anext(notices))
    try:
        await asyncio.sleep(0)  # the watch is set now: whatever was before is seen by a look
        yield None
        source.watched = True
        while True:
            changes = await following
            following = asyncio.ensure_future(anext(notices))
            yield _transcripts(home, (path for _, path in changes))
    except (OSError, RuntimeError, StopAsyncIteration) as error:
        log.info("cannot watch %s: %s", home.projects, error)
    finally:
        source.watched = False
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await notices.aclose()


def _transcripts(home: ClaudeHome, paths: Iterable[str]) -> list[str] | None:
    """The transcripts that some paths belong to."""
    found = set()
    for path in paths:
        if os.path.dirname(path) == processes.process_files_directory(home):
            continue
        parts = os.path.relpath(path, home.projects).split(os.sep)
        if parts[0] == os.pardir or len(parts) < 2:
            return None  # the trash, or a whole project
        name = parts[1] if parts[1].endswith(".jsonl") else f"{parts[1]}.jsonl"
        found.add(os.path.join(home.projects, parts[0], name))
    return sorted(found)
