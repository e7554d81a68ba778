"""The tools of Qwen Code, by meaning."""

from __future__ import annotations

from typing import Any

from segue.sources.writing import shell_output
from segue.sources.writing.tool_names import Arguments, ToolName, ToolNames

_SHELL = {
    "command": "command",
    "directory": "directory",
    "timeout_ms": "timeout",
    "description": "description",
}
_EDIT = {"path": "file_path", "old": "old_string", "new": "new_string", "all": "replace_all"}
_SUBAGENT = {"prompt": "prompt", "description": "description", "kind": "subagent_type"}
_TODO_ITEMS = {"content": "content", "status": "status"}


def _decode_read(input: Any) -> Arguments | None:
    """Return the arguments of `read_file`, which counts lines from 0."""
    if not isinstance(input, dict):
        return None
    arguments: Arguments = dict(input)
    # Older versions have the path by another name.
    path = arguments.pop("file_path", arguments.pop("absolute_path", None))
    if not isinstance(path, str):
        return None
    arguments["path"] = path
    if isinstance(offset := arguments.get("offset"), int):
        arguments["offset"] = offset + 1
    return arguments


def _encode_read(arguments: Arguments) -> Arguments | None:
    input = dict(arguments)
    input["file_path"] = input.pop("path")
    offset = input.get("offset")
    if offset is not None:
        if not isinstance(offset, int) or offset < 1:
            return None
        input["offset"] = offset - 1
    return input


NAMES = ToolNames(
    [
        ToolName("shell", "run_shell_command", _SHELL),
        ToolName("read", "read_file", decode=_decode_read, encode=_encode_read),
        ToolName("write", "write_file", {"path": "file_path", "content": "content"}),
        ToolName("edit", "edit", _EDIT),
        ToolName(
            "search", "grep_search", {"pattern": "pattern", "path": "path", "include": "glob"}
        ),
        ToolName("find", "glob", {"pattern": "pattern", "path": "path"}),
        ToolName("list", "list_directory", {"path": "path"}),
        ToolName("fetch", "web_fetch", {"url": "url", "prompt": "prompt"}),
        ToolName("web_search", "web_search", {"query": "query"}),
        ToolName("todo", "todo_write", {"items": "todos"}, items=_TODO_ITEMS),
        ToolName("subagent", "agent", _SUBAGENT),
        ToolName("subagent", "task", _SUBAGENT),
    ],
    read_result=shell_output.plain_result,
    write_result=shell_output.native_result,
)
