"""Pull what a tool adds to an imported session while a client follows the copy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from .follow import LiveUpdates, Name

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
        if name not in self._tasks:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._pull(name))
        self._followers[name] = self._followers.get(name, 0) + 1
        try:
            yield
        finally:
            self._followers[name] -= 1
            if not self._followers[name]:
                del self._followers[name]
                self._tasks.pop(name).cancel()

    async def _pull(self, name: Name) -> None:
        with self._live.subscribe(name) as subscription:
            while True:
                subscription.clear()
                await self._ensure_current(*name)
                await subscription.wait()
