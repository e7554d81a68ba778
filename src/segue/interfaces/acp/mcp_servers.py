"""Read the MCP servers that a client passes when it opens a session."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from segue.acp import wire
from segue.acp.rpc import INVALID_PARAMS, RpcError

_SERVER_TYPES: dict[Any, type[wire.StdioMcpServer | wire.HttpMcpServer]] = {
    "stdio": wire.StdioMcpServer,
    "http": wire.HttpMcpServer,
}


def parse_servers(
    servers: list[dict[str, Any]] | UnsetType | None, default_transport: str | None
) -> list[wire.McpServer]:
    """Return the servers of a request.

    Raises RpcError for an unsupported transport, an invalid server or a name that is used twice.
    """
    if servers is UNSET or servers is None:
        return []
    assert not isinstance(servers, UnsetType)
    parsed = [_parse_server(server, default_transport) for server in servers]
    names = [server.name for server in parsed]
    for name in names:
        if names.count(name) > 1:
            raise RpcError(INVALID_PARAMS, f"two MCP servers are named {name!r}", {"name": name})
    return parsed


def _parse_server(server: dict[str, Any], default_transport: str | None) -> wire.McpServer:
    transport = server.get("type", default_transport)
    server_type = _SERVER_TYPES.get(transport) if isinstance(transport, str) else None
    if server_type is None:
        message = f"the MCP transport {transport!r} is not supported"
        raise RpcError(INVALID_PARAMS, message, {"type": transport})
    try:
        parsed = msgspec.convert(server, server_type)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"mcpServers: {error}") from None
    if isinstance(parsed, wire.StdioMcpServer) and not os.path.isabs(parsed.command):
        raise RpcError(INVALID_PARAMS, f"the command of {parsed.name!r} must be an absolute path")
    return parsed
