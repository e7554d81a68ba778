"""Open the hub that the `store` option names, for one call or for one session."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from segue.factory import open_hub
from segue.hub import Hub, Store
from segue.hub.location import data_dir
from segue.hub.turns.opened import OpenSession
from segue.model.principal import LOCAL
from segue.model.session import Session

if TYPE_CHECKING:
    from segue.acp.wire import McpServer

# A hub, a store, a database URL, a data directory, or None for the default data directory.
StoreLocation = Hub | Store | str | os.PathLike[str] | None


class HubHandle:
    """A hub and what one session holds open on it; `on_close` closes a hub that we opened."""

    def __init__(self, hub: Hub, on_close: Callable[[], Awaitable[None]] | None = None) -> None:
        self.hub = hub
        self.opened: OpenSession | None = None
        self._resources = AsyncExitStack()
        if on_close is not None:
            self._resources.push_async_callback(on_close)

    async def hold(self, session: Session, servers: Sequence[McpServer]) -> dict[str, str]:
        """Open a session with its MCP servers.

        Returns the reason for each server that could not be connected, by its name.
        """
        tools = await self.hub.agents.connect_mcp(LOCAL, servers, session.cwd)
        if tools is not None:
            self._resources.push_async_callback(tools.close)
            await tools.wait_connected()
        self.opened = await self.hub.turns.open(LOCAL, session.id, tools=tools)
        self._resources.push_async_callback(self.opened.close)
        return {} if tools is None else dict(tools.failures)

    async def close(self) -> None:
        """Release the session and its MCP servers, and close the hub if we opened it."""
        await self._resources.aclose()


async def open_handle(location: StoreLocation) -> HubHandle:
    """Open the hub at a location; a hub or store that the program passed stays open."""
    if isinstance(location, Hub):
        return HubHandle(location)
    if isinstance(location, str) and "://" in location:
        hub = await open_hub(database_url=location)
    elif location is None or isinstance(location, str | os.PathLike):
        hub = await open_hub(location)
    else:
        hub = Hub(location, data_dir())
        return HubHandle(hub, hub.detach)
    return HubHandle(hub, hub.close)


@asynccontextmanager
async def open_for_call(location: StoreLocation) -> AsyncIterator[Hub]:
    """Yield the hub at a location, for the duration of one call."""
    handle = await open_handle(location)
    try:
        yield handle.hub
    finally:
        await handle.close()
