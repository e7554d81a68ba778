"""The MCP servers that a client names when it opens a session."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ...acp import wire
from ...acp.rpc import INVALID_PARAMS, RpcError


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
            raise RpcError(INVALID_PARAMS, f"two MCP servers are named {name!r}")
    return found


def _server(server: dict[str, Any], version: int) -> wire.McpServer:
    # In version 1 the transport that every agent speaks has no type.
    transport = server.get("type", "stdio" if version == 1 else None)
    kinds: dict[Any, type[wire.Stdio | wire.Http]] = {"stdio": wire.Stdio, "http": wire.Http}
    kind = kinds.get(transport) if isinstance(transport, str) else None
    if kind is None:
        raise RpcError(INVALID_PARAMS, f"the MCP transport {transport!r} is not supported")
    try:
        read = msgspec.convert(server, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"mcpServers: {error}") from None
    if isinstance(read, wire.Stdio) and not os.path.isabs(read.command):
        raise RpcError(INVALID_PARAMS, f"the command of {read.name!r} must be an absolute path")
    return read
