"""Pull what a tool adds to an imported session while a client follows the copy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from segue.model.errors import SegueError, StoreUnreachable

from .follow import LiveUpdates, Name

log = logging.getLogger("segue.sync")
RETRY_SECONDS = 1.0  # after a failed pull, unless the session changes earlier

EnsureCurrent = Callable[[str, str], Awaitable[None]]  # workspace, session


class BackgroundPulls:
    """Run one task per followed session that pulls after each change of the session."""

    def __init__(self, live: LiveUpdates, ensure_current: EnsureCurrent) -> None:
        self._live = live
        self._ensure_current = ensure_current
        self._tasks: dict[Name, asyncio.Task[None]] = {}
        self._followers: dict[Name, int] = {}

    @contextmanager
    def while_followed(self, name: Name) -> Iterator[None]:
        """Pull in the background until the context ends; followers of a session share a task."""
        if name not in self._tasks or self._tasks[name].done():
            self._tasks[name] = asyncio.get_running_loop().create_task(self._pull(name))
        self._followers[name] = self._followers.get(name, 0) + 1
        try:
            yield
        finally:
            self._followers[name] -= 1
            if not self._followers[name]:
                del self._followers[name]
                self._tasks.pop(name).cancel()

    async def close(self) -> None:
        """Stop all pulls, and wait until they have stopped."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pull(self, name: Name) -> None:
        with self._live.subscribe(name) as subscription:
            while True:
                subscription.clear()
                timeout: float | None = None
                try:
                    await self._ensure_current(*name)
                except Exception as error:
                    is_unexpected = not isinstance(error, SegueError)
                    if not isinstance(error, StoreUnreachable):  # the store logs the outage
                        log.warning(
                            "session %s: a pull failed and is repeated: %s",
                            name[1],
                            error,
                            exc_info=is_unexpected,
                        )
                    timeout = RETRY_SECONDS
                with suppress(TimeoutError):
                    await asyncio.wait_for(subscription.wait(), timeout)
