"""All session methods of one client, by their names: `session/list` is `session_list`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .handlers.manage import Keeping
from .handlers.open import Opening
from .handlers.prompt import Talking

Method = Callable[[Any], Awaitable[Any]]


class Sessions(Opening, Talking, Keeping):
    """What a door hands everything to that is not about the connection itself."""

    def method(self, name: str) -> Method:
        found: Method = getattr(self, name.replace("/", "_"))
        return found

    async def close(self) -> None:
        """The client is gone: cancel what it began, let its sessions go."""
        await asyncio.gather(*(self._let_go(id) for id in list(self._opened)))

    async def _let_go(self, id: str) -> None:
        async with self._alone(id):
            await self._shut(id)
