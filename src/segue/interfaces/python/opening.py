"""Opening what a program asks of: a hub over the default store, or over one that it names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from segue.factory import data_dir, open_hub
from segue.hub import Hub
from segue.model.principal import LOCAL
from segue.model.session import Session
from segue.store.base import Store

if TYPE_CHECKING:
    from segue.acp.wire import McpServer
    from segue.agents.mcp import McpServers

Where = Hub | Store | str | os.PathLike[str] | None


class Opened:
    """A hub, with what one session holds of it; `done` is how a hub of our own ends."""

    def __init__(self, hub: Hub, done: Callable[[], Awaitable[None]] | None = None) -> None:
        self.hub = hub
        self._held = AsyncExitStack()
        if done is not None:
            self._held.push_async_callback(done)

    async def hold(self, session: Session, servers: Sequence[McpServer]) -> dict[str, str]:
        """Hold a session open with some MCP servers; why each that is missing failed."""
        failures: dict[str, str] = {}
        tools: McpServers | None = None
        if servers:
            from segue.agents.mcp import McpServers

            tools, failures = await McpServers.connect(servers, session.cwd, local=True)
            self._held.push_async_callback(tools.close)
        hold = await self.hub.hold(LOCAL, session.id, tools=tools)
        self._held.push_async_callback(hold.close)
        return failures

    async def close(self) -> None:
        await self._held.aclose()


async def opened(where: Where) -> Opened:
    """The default store, a data directory, a database's URL, a store or a hub."""
    if isinstance(where, Hub):
        return Opened(where)
    if isinstance(where, str) and "://" in where:
        hub = await open_hub(database_url=where)
    elif where is None or isinstance(where, str | os.PathLike):
        hub = await open_hub(where)
    else:
        hub = Hub(where, data_dir())
        return Opened(hub, hub.leave)
    return Opened(hub, hub.close)


@asynccontextmanager
async def hub_of(where: Where) -> AsyncIterator[Hub]:
    """The same for the length of one call."""
    held = await opened(where)
    try:
        yield held.hub
    finally:
        await held.close()
