"""The tools whose sessions segue reads, as interfaces show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from segue.sources.registry import built_in_names, label, names
from segue.sources.registry import definitions as all_tools
from segue.sources.registry import find as find_tool

if TYPE_CHECKING:
    from segue.sources.base import ResumeCommand
    from segue.sources.base import SourceDefinition as Tool
    from segue.sources.mcp_servers import McpConfig

__all__ = [
    "ResumeCommand",
    "Tool",
    "all_tools",
    "built_in_names",
    "deletes_resumed",
    "find_tool",
    "label",
    "mcp_caller",
    "mcp_config",
    "mcp_tools",
    "names",
    "writable_tools",
]


def writable_tools() -> list[Tool]:
    """Return the tools in whose own format segue can write sessions."""
    return [tool for tool in all_tools() if tool.transcripts().can_write]


def deletes_resumed(tool: Tool) -> bool:
    """Return whether a tool is known to delete sessions that it resumed."""
    writer = tool.writer()
    return writer is not None and writer.deletes_resumed


def mcp_config(name: str) -> McpConfig | None:
    """Return where a tool lists its MCP servers; None if segue does not know."""
    from segue.sources import mcp_servers

    return mcp_servers.mcp_config(name)


def mcp_tools() -> list[str]:
    """Return the tools to which segue can add its MCP server."""
    from segue.sources import mcp_servers

    return mcp_servers.supported_tools()


def mcp_caller(meta: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    """Return the id of the session that calls an MCP server, if its tool sends one."""
    from segue.sources import mcp_servers

    return mcp_servers.named_caller(meta, environment)
