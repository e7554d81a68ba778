"""The tools of Copilot, by meaning. It has no list of todos: its agent keeps a table of them."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from segue.model.event import ToolResult
from segue.sources.writing import patches
from segue.sources.writing.tool_names import Arguments, ToolName, ToolNames, first_text, with_text

_EXIT_CODE = re.compile(r"(?:\A|\n)<(?:exited|shellId: \S+ completed) with exit code (-?\d+)>\s*\Z")
_END_CHARS = 200  # in which the exit code is
_SUBAGENT = {"prompt": "prompt", "description": "description", "kind": "agent_type"}
_EDIT = {"path": "path", "old": "old_str", "new": "new_str"}
_LAST_LINE = -1


def _decode_read(input: Any) -> Arguments | None:
    """Return the arguments of `view`, which has the first and the last line."""
    if not isinstance(input, dict):
        return None
    arguments: Arguments = dict(input)
    lines = arguments.pop("view_range", None)
    if isinstance(lines, list) and len(lines) == 2 and all(isinstance(n, int) for n in lines):
        first, last = lines
        if first != 1:
            arguments["offset"] = first
        if last != _LAST_LINE:
            arguments["limit"] = last - first + 1
    return arguments


def _encode_read(arguments: Arguments) -> Arguments | None:
    input = dict(arguments)
    offset, limit = input.pop("offset", None), input.pop("limit", None)
    if not all(isinstance(value, int | None) for value in (offset, limit)):
        return None
    if offset is not None or limit is not None:
        first = 1 if offset is None else offset
        input["view_range"] = [first, _LAST_LINE if limit is None else first + limit - 1]
    return input


def _plain_result(result: ToolResult) -> ToolResult:
    """Return the result of a command without the line that says its exit code."""
    text = first_text(result)
    match = _EXIT_CODE.search(text, max(0, len(text) - _END_CHARS))
    if match is None:
        return result
    return with_text(replace(result, exit_code=int(match[1])), text[: match.start()])


def _native_result(result: ToolResult) -> ToolResult:
    code = result.exit_code
    if code is None and result.status == "completed":
        code = 0
    if code is None:
        return result
    text = first_text(result)
    line = f"<exited with exit code {code}>"
    return with_text(replace(result, exit_code=code), f"{text}\n{line}" if text else line)


NAMES = ToolNames(
    [
        ToolName("shell", "bash"),
        ToolName("read", "view", decode=_decode_read, encode=_encode_read),
        ToolName("write", "create", {"path": "path", "content": "file_text"}),
        ToolName("write", "apply_patch", decode=patches.decode_write),
        ToolName("edit", "edit", _EDIT),
        ToolName("edit", "apply_patch", decode=patches.decode_edit),
        ToolName("search", "grep", {"pattern": "pattern", "path": "path", "include": "glob"}),
        ToolName("search", "rg", {"pattern": "pattern", "path": "paths", "include": "glob"}),
        ToolName("find", "glob", {"pattern": "pattern", "path": "path"}),
        ToolName("fetch", "web_fetch", {"url": "url"}),
        ToolName("web_search", "web_search", {"query": "query"}),
        ToolName("subagent", "task", _SUBAGENT),
    ],
    read_result=_plain_result,
    write_result=_native_result,
)
