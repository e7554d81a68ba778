"""The built-in tools of the model agent, compatible with `agent_toolset_20260401`."""

from .base import Tool, ToolContext, ToolError, failed_result
from .bash import BASH
from .files import EDIT, READ, WRITE
from .find import GLOB, GREP
from .path_guard import PathGuard
from .shell import ShellPool
from .web import FETCH
from .websearch import SEARCH

BUILT_IN: dict[str, Tool] = {
    tool.name: tool for tool in (BASH, READ, WRITE, EDIT, GLOB, GREP, FETCH, SEARCH)
}

__all__ = [
    "BUILT_IN",
    "PathGuard",
    "ShellPool",
    "Tool",
    "ToolContext",
    "ToolError",
    "failed_result",
]
