"""Read the MCP servers that a client passes when it opens a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from segue.acp import wire
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.model import codec

from .errors import invalid_params

_SERVER_TYPES: dict[Any, type[wire.McpServer]] = {
    "stdio": wire.StdioMcpServer,
    "http": wire.HttpMcpServer,
}
_ACP_SERVER_TYPES: dict[Any, type[wire.McpServer]] = {**_SERVER_TYPES, "acp": wire.AcpMcpServer}


def parse_servers(
    servers: list[dict[str, Any]] | UnsetType | None,
    default_transport: str | None,
    *,
    over_acp: bool = False,
) -> list[wire.McpServer]:
    """Return the servers of a request. With `over_acp`, the client may have servers itself.

    Raises RpcError for an unsupported transport, an invalid server or a name that is used twice.
    """
    if servers is UNSET or servers is None:
        return []
    assert not isinstance(servers, UnsetType)
    types = _ACP_SERVER_TYPES if over_acp else _SERVER_TYPES
    parsed = [
        _parse_server(server, f"mcpServers[{index}]", default_transport, types)
        for index, server in enumerate(servers)
    ]
    names = [server.name for server in parsed]
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"mcpServers[{index}].name: two MCP servers are named {name!r}"
            raise RpcError(INVALID_PARAMS, message, {"name": name})
    return parsed


def _parse_server(
    server: dict[str, Any],
    path: str,
    default_transport: str | None,
    types: Mapping[Any, type[wire.McpServer]],
) -> wire.McpServer:
    """Return the server at `path` of a request; `types` has those of each transport."""
    transport = server.get("type", default_transport)
    server_type = types.get(transport) if isinstance(transport, str) else None
    if server_type is None:
        message = f"{path}.type: the MCP transport {transport!r} is not supported"
        raise RpcError(INVALID_PARAMS, message, {"type": transport})
    try:
        parsed = codec.convert(server, server_type)
    except msgspec.ValidationError as error:
        raise invalid_params(error, path) from None
    if isinstance(parsed, wire.StdioMcpServer) and not os.path.isabs(parsed.command):
        message = f"{path}.command must be an absolute path, not {parsed.command!r}"
        raise RpcError(INVALID_PARAMS, message)
    return parsed
