"""The MCP servers that a client names when it opens a session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from segue.acp import wire
from segue.acp.rpc import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from segue.agents.mcp import McpServers


def read_servers(
    given: list[dict[str, Any]] | UnsetType | None, version: int
) -> list[wire.McpServer]:
    """The servers, each of a transport that we speak and with a name of its own."""
    if given is UNSET or given is None:
        return []
    assert not isinstance(given, UnsetType)
    found = [_server(server, version) for server in given]
    names = [server.name for server in found]
    for name in names:
        if names.count(name) > 1:
            raise RpcError(INVALID_PARAMS, f"two MCP servers are named {name!r}", {"name": name})
    return found


def _server(server: dict[str, Any], version: int) -> wire.McpServer:
    # In version 1 the transport that every agent speaks has no type.
    transport = server.get("type", "stdio" if version == 1 else None)
    kinds: dict[Any, type[wire.StdioMcpServer | wire.HttpMcpServer]] = {
        "stdio": wire.StdioMcpServer,
        "http": wire.HttpMcpServer,
    }
    kind = kinds.get(transport) if isinstance(transport, str) else None
    if kind is None:
        why = f"the MCP transport {transport!r} is not supported"
        raise RpcError(INVALID_PARAMS, why, {"type": transport})
    try:
        read = msgspec.convert(server, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"mcpServers: {error}") from None
    if isinstance(read, wire.StdioMcpServer) and not os.path.isabs(read.command):
        raise RpcError(INVALID_PARAMS, f"the command of {read.name!r} must be an absolute path")
    return read


class Connected:
    """Servers that are connected, until somebody keeps them or the block ends."""

    def __init__(self, tools: McpServers | None, failures: dict[str, str]) -> None:
        self.tools = tools
        self.failures = failures
        self._kept = False

    def keep(self) -> McpServers | None:
        self._kept = True
        return self.tools

    async def __aenter__(self) -> Connected:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.tools is not None and not self._kept:
            await self.tools.close()


async def connect(
    servers: Sequence[wire.McpServer], cwd: str, *, local: bool, here: bool = True
) -> Connected:
    """Connect what can be; the failures say why the others could not.

    Those that are not to be connected `here`, the agent connects itself.
    """
    if not servers:
        return Connected(None, {})
    from segue.agents.mcp import McpServers

    if not here:
        return Connected(McpServers.unconnected(servers, cwd), {})
    return Connected(*await McpServers.connect(servers, cwd, local=local))
