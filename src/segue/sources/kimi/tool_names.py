"""The tools of Kimi Code, by meaning."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from segue.model.event import ToolResult
from segue.sources.writing.tool_names import Arguments, ToolName, ToolNames, first_text, with_text

_EXIT_CODE = re.compile(r"(?:\A|\n)Command failed with exit code: (-?\d+)\.?\s*\Z")
_END_CHARS = 100  # in which the exit code is
_EDIT = {"path": "path", "old": "old_string", "new": "new_string", "all": "replace_all"}
_SUBAGENT = {"prompt": "prompt", "description": "description", "kind": "subagent_type"}
_STATUSES = {"completed": "done"}


def _decode_shell(input: Any) -> Arguments | None:
    """Return the arguments of `Bash`, whose timeout is in seconds."""
    if not isinstance(input, dict):
        return None
    arguments: Arguments = dict(input)
    if "cwd" in arguments:
        arguments["directory"] = arguments.pop("cwd")
    if isinstance(seconds := arguments.pop("timeout", None), int | float):
        arguments["timeout_ms"] = round(seconds * 1000)
    return arguments


def _encode_shell(arguments: Arguments) -> Arguments | None:
    input = dict(arguments)
    if "directory" in input:
        input["cwd"] = input.pop("directory")
    if (timeout := input.pop("timeout_ms", None)) is not None:
        if not isinstance(timeout, int | float):
            return None
        input["timeout"] = timeout // 1000 if timeout % 1000 == 0 else timeout / 1000
    return input


def _decode_write(input: Any) -> Arguments | None:
    """Return the file that `Write` creates; None if it appends to one."""
    if not isinstance(input, dict) or input.get("mode", "overwrite") != "overwrite":
        return None
    return dict(input)


def _decode_todos(input: Any) -> Arguments | None:
    """Return the items of `TodoList`; None if it only reads them."""
    return _renamed_todos(input, "todos", "items", {"title": "content"}, _reversed(_STATUSES))


def _encode_todos(arguments: Arguments) -> Arguments | None:
    return _renamed_todos(arguments, "items", "todos", {"content": "title"}, _STATUSES)


def _renamed_todos(
    input: Any, old: str, new: str, fields: dict[str, str], statuses: dict[str, str]
) -> Arguments | None:
    items = input.get(old) if isinstance(input, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    renamed = []
    for item in items:
        fresh = {fields.get(name, name): value for name, value in item.items()}
        status = fresh.get("status")
        if isinstance(status, str):
            fresh["status"] = statuses.get(status, status)
        renamed.append(fresh)
    others = {name: value for name, value in input.items() if name != old}
    return {**others, new: renamed}


def _reversed(names: dict[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


def _plain_result(result: ToolResult) -> ToolResult:
    """Return the result of a command without the line that says its exit code."""
    text = first_text(result)
    start = max(0, len(text) - _END_CHARS)
    match = _EXIT_CODE.search(text, start) if result.status == "failed" else None
    if match is None:
        return result
    return with_text(replace(result, exit_code=int(match[1])), text[: match.start()])


def _native_result(result: ToolResult) -> ToolResult:
    if result.status != "failed" or not result.exit_code:
        return result
    text = first_text(result)
    line = f"Command failed with exit code: {result.exit_code}."
    return with_text(result, f"{text}\n{line}" if text else line)


NAMES = ToolNames(
    [
        ToolName("shell", "Bash", decode=_decode_shell, encode=_encode_shell),
        ToolName("read", "Read", {"path": "path", "offset": "line_offset", "limit": "n_lines"}),
        ToolName("write", "Write", decode=_decode_write),
        ToolName("edit", "Edit", _EDIT),
        ToolName("search", "Grep", {"pattern": "pattern", "path": "path", "include": "glob"}),
        ToolName("find", "Glob", {"pattern": "pattern", "path": "path"}),
        ToolName("fetch", "FetchURL", {"url": "url"}),
        ToolName("web_search", "WebSearch", {"query": "query"}),
        ToolName("todo", "TodoList", decode=_decode_todos, encode=_encode_todos),
        ToolName("subagent", "Agent", _SUBAGENT),
    ],
    read_result=_plain_result,
    write_result=_native_result,
)
