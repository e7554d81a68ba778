"""The tools of Gemini CLI, by meaning."""

from __future__ import annotations

from typing import Any

from segue.sources.writing import shell_output
from segue.sources.writing.tool_names import Arguments, ToolName, ToolNames

_SHELL = {"command": "command", "directory": "dir_path", "description": "description"}
_EDIT = {"path": "file_path", "old": "old_string", "new": "new_string", "all": "allow_multiple"}
_SEARCH = {"pattern": "pattern", "path": "dir_path", "include": "include_pattern"}
_TODO_ITEMS = {"content": "description", "status": "status"}


def _decode_read(input: Any) -> Arguments | None:
    """Return the arguments of `read_file`, which has the first and the last line."""
    if not isinstance(input, dict):
        return None
    arguments: Arguments = dict(input)
    # Older versions have the path by another name.
    path = arguments.pop("file_path", arguments.pop("absolute_path", None))
    start, end = arguments.pop("start_line", None), arguments.pop("end_line", None)
    if not isinstance(path, str):
        return None
    arguments["path"] = path
    if isinstance(start, int):
        arguments["offset"] = start
    if isinstance(end, int):
        arguments["limit"] = end - (start if isinstance(start, int) else 1) + 1
    return arguments


def _encode_read(arguments: Arguments) -> Arguments | None:
    input = dict(arguments)
    offset, limit = input.pop("offset", None), input.pop("limit", None)
    input["file_path"] = input.pop("path")
    if not all(isinstance(value, int | None) for value in (offset, limit)):
        return None
    if offset is not None:
        input["start_line"] = offset
    if limit is not None:
        input["end_line"] = (1 if offset is None else offset) + limit - 1
    return input


def _decode_fetch(input: Any) -> Arguments | None:
    """Return the address in a prompt of `web_fetch` that consists of it, or begins with it."""
    prompt = input.get("prompt") if isinstance(input, dict) else None
    if not isinstance(prompt, str) or not prompt.startswith(("http://", "https://")):
        return None
    url, _, question = prompt.partition("\n\n")
    arguments = {**input, "url": url, "prompt": question}
    if not question:
        del arguments["prompt"]
    return None if any(character.isspace() for character in url) else arguments


def _encode_fetch(arguments: Arguments) -> Arguments | None:
    url, question = arguments["url"], arguments.get("prompt", "")
    if not isinstance(url, str) or not isinstance(question, str):
        return None
    others = {name: value for name, value in arguments.items() if name != "url"}
    return {**others, "prompt": f"{url}\n\n{question}" if question else url}


NAMES = ToolNames(
    [
        ToolName("shell", "run_shell_command", _SHELL),
        ToolName("read", "read_file", decode=_decode_read, encode=_encode_read),
        ToolName("write", "write_file", {"path": "file_path", "content": "content"}),
        ToolName("edit", "replace", _EDIT),
        ToolName("search", "grep_search", _SEARCH),
        ToolName("search", "search_file_content", {**_SEARCH, "include": "include"}),
        ToolName("find", "glob", {"pattern": "pattern", "path": "dir_path"}),
        ToolName("list", "list_directory", {"path": "dir_path"}),
        ToolName("fetch", "web_fetch", decode=_decode_fetch, encode=_encode_fetch),
        ToolName("web_search", "google_web_search", {"query": "query"}),
        ToolName("todo", "write_todos", {"items": "todos"}, items=_TODO_ITEMS),
        ToolName("subagent", "invoke_agent", {"prompt": "prompt", "kind": "agent_name"}),
    ],
    read_result=shell_output.plain_result,
    write_result=shell_output.native_result,
)
