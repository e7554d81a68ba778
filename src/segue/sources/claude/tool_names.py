"""The tools of Claude Code, by meaning."""

from __future__ import annotations

import re

from msgspec.structs import replace

from segue.model.event import ToolResult
from segue.sources.writing.tool_names import ToolName, ToolNames, first_text, with_text

_EXIT_CODE = re.compile(r"Exit code (\d{1,3})(?:\n|$)")
_TODO_ITEMS = {"content": "content", "status": "status"}
_SHELL = {
    "command": "command",
    "timeout_ms": "timeout",
    "description": "description",
}
_SUBAGENT = {"prompt": "prompt", "description": "description", "kind": "subagent_type"}


def _plain_result(result: ToolResult) -> ToolResult:
    """Return the result of a command without the line that says its exit code."""
    text = first_text(result)
    match = _EXIT_CODE.match(text) if result.status == "failed" else None
    if match is None:
        return result
    return with_text(replace(result, exit_code=int(match[1])), text[match.end() :])


def _native_result(result: ToolResult) -> ToolResult:
    if result.status != "failed" or not result.exit_code:
        return result
    return with_text(result, f"Exit code {result.exit_code}\n{first_text(result)}")


NAMES = ToolNames(
    [
        ToolName("shell", "Bash", _SHELL),
        ToolName("read", "Read", {"path": "file_path", "offset": "offset", "limit": "limit"}),
        ToolName("write", "Write", {"path": "file_path", "content": "content"}),
        ToolName(
            "edit",
            "Edit",
            {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"},
        ),
        ToolName("search", "Grep", {"pattern": "pattern", "path": "path", "include": "glob"}),
        ToolName("find", "Glob", {"pattern": "pattern", "path": "path"}),
        ToolName("list", "LS", {"path": "path"}),
        ToolName("fetch", "WebFetch", {"url": "url", "prompt": "prompt"}),
        ToolName("web_search", "WebSearch", {"query": "query"}),
        ToolName("todo", "TodoWrite", {"items": "todos"}, items=_TODO_ITEMS),
        ToolName("subagent", "Task", _SUBAGENT),
        ToolName("subagent", "Agent", _SUBAGENT),
    ],
    read_result=_plain_result,
    write_result=_native_result,
)
