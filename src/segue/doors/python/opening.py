"""Opening what a program asks of: a hub over the default store, or over one that it names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...home import data_dir, open_hub
from ...hub import Hub
from ...model.principal import LOCAL
from ...model.session import Session
from ...store.base import Store

if TYPE_CHECKING:
    from ...acp.wire import McpServer
    from ...agents.mcp import McpServers
    from ...hub.turns import Hold

Where = Hub | Store | str | os.PathLike[str] | None


class Opened:
    """A hub, with what one session holds of it."""

    def __init__(self, hub: Hub, *, ours: bool) -> None:
        self.hub = hub
        self._ours = ours
        self._hold: Hold | None = None
        self._servers: McpServers | None = None

    async def hold(self, session: Session, servers: Sequence[McpServer]) -> dict[str, str]:
        """Hold a session open with some MCP servers; why each that is missing failed."""
        failures: dict[str, str] = {}
        if servers:
            from ...agents.mcp import McpServers

            self._servers, failures = await McpServers.connect(servers, session.cwd, local=True)
        self._hold = await self.hub.hold(LOCAL, session.id, tools=self._servers)
        return failures

    async def close(self) -> None:
        if self._hold is not None:
            await self._hold.close()
        if self._servers is not None:
            await self._servers.close()
        if self._ours:
            await self.hub.close()


async def opened(where: Where) -> Opened:
    """The default store, a data directory, a database's URL, a store or a hub."""
    if isinstance(where, Hub):
        return Opened(where, ours=False)
    if isinstance(where, str) and "://" in where:
        return Opened(await open_hub(database_url=where), ours=True)
    if where is None or isinstance(where, str | os.PathLike):
        return Opened(await open_hub(where), ours=True)
    return Opened(Hub(where, data_dir()), ours=False)


@asynccontextmanager
async def hub_of(where: Where) -> AsyncIterator[Hub]:
    """The same for the length of one call."""
    held = await opened(where)
    try:
        yield held.hub
    finally:
        await held.close()
