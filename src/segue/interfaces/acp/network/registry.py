"""The connections of this process, by id."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from segue.hub import Hub
from segue.model.errors import Overloaded, QuotaInUse
from segue.model.principal import Principal

from .connection import NetworkConnection
from .stream import KEPT_SECONDS

log = logging.getLogger("segue.acp")

MAX_CONNECTIONS = 4000
MAX_CONNECTIONS_OF_CALLER = 1000  # of one API key, in this process
SWEEP_SECONDS = 15.0


class ConnectionRegistry:
    """Creates connections, and closes those that no client has used for KEPT_SECONDS."""

    def __init__(self, hub: Hub, *, prefix: str = "") -> None:
        """Create a registry. `prefix` is the beginning of all its connection ids."""
        self._hub = hub
        self._prefix = prefix
        self._connections: dict[str, NetworkConnection] = {}
        self._of_caller: dict[Principal, int] = {}  # the number of connections of each caller
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[Any]] = set()

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def create(self, principal: Principal, *, per_session: bool) -> NetworkConnection:
        """Create a connection.

        Raises Overloaded if this process has too many, QuotaInUse if the caller has too many.
        """
        if self.count >= MAX_CONNECTIONS:
            raise Overloaded("the server has too many ACP connections; try again")
        if self._of_caller.get(principal, 0) >= MAX_CONNECTIONS_OF_CALLER:
            raise QuotaInUse(
                f"this key has {MAX_CONNECTIONS_OF_CALLER} ACP connections; close one of them"
            )
        connection = NetworkConnection(
            self._hub, principal, prefix=self._prefix, per_session=per_session
        )
        self._connections[connection.id] = connection
        self._of_caller[principal] = self._of_caller.get(principal, 0) + 1
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        return connection

    def find(self, id: str, principal: Principal) -> NetworkConnection | None:
        """Return a connection of a caller, or None if the caller has no such connection."""
        connection = self._connections.get(id)
        if connection is None or connection.principal != principal:
            return None
        connection.used_at = time.monotonic()
        return connection

    def close(self, connection: NetworkConnection) -> None:
        """Close a connection in the background."""
        if self._connections.pop(connection.id, None) is None:
            return
        left = self._of_caller.pop(connection.principal) - 1
        if left:
            self._of_caller[connection.principal] = left
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close_all(self) -> None:
        """Close all connections, and wait until they are closed."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
        for connection in list(self._connections.values()):
            self.close(connection)
        await asyncio.gather(*self._closing)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_unused(time.monotonic() - KEPT_SECONDS)

    def close_unused(self, before: float) -> None:
        """Close the connections that have no reader and were last used before a time."""
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if connection.has_reader:
                connection.used_at = now
            elif connection.used_at < before:
                self.close(connection)


async def _close(connection: NetworkConnection) -> None:
    try:
        await connection.close()
    except Exception:
        log.exception("closing a connection failed")
