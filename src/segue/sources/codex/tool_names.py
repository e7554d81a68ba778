"""The tools of Codex, by meaning. Its files are changed with patches."""

from __future__ import annotations

import re
import shlex
from typing import Any

from msgspec.structs import replace

from segue.model.event import ToolResult
from segue.sources.writing import patches
from segue.sources.writing.tool_names import (
    Arguments,
    ToolName,
    ToolNames,
    first_text,
    with_text,
)

PATCH_TOOL = "apply_patch"
_BEGIN, _END = "*** Begin Patch\n", "*** End Patch"
_SHELLS = (["bash", "-lc"], ["bash", "-c"], ["sh", "-c"], ["zsh", "-lc"])
# What Codex writes before the output of a command: lines such as "Chunk ID: 1", and the exit code.
_FIELDS = r"(?:[A-Z][A-Za-z ]*: .*\n)*"
_HEADER = re.compile(
    rf"{_FIELDS}(?:Process exited with code|Exit code:) (-?\d+)\n{_FIELDS}Output:\n"
)
_TODO_ITEMS = {"content": "step", "status": "status"}


def _decode_shell(input: Any) -> Arguments | None:
    """Return the arguments of `shell`, whose command is a list of words."""
    if not isinstance(input, dict):
        return None
    arguments: Arguments = dict(input)
    if "workdir" in arguments:
        arguments["directory"] = arguments.pop("workdir")
    words = arguments.get("command")
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        is_script = len(words) == 3 and words[:2] in _SHELLS
        arguments["command"] = words[2] if is_script else shlex.join(words)
    return arguments if isinstance(arguments.get("command"), str) else None


def _encode_edit(arguments: Arguments) -> str | None:
    """Return a patch that replaces whole lines; None if the edit replaces every occurrence."""
    if set(arguments) - {"path", "old", "new", "all"} or arguments.get("all"):
        return None
    path, old, new = arguments["path"], arguments["old"], arguments["new"]
    if not old or not _fits(path, old, new):
        return None
    return f"{_BEGIN}*** Update File: {path}\n@@\n{_hunk(_split(old), _split(new))}{_END}"


def _encode_write(arguments: Arguments) -> str | None:
    """Return a patch that adds a file; None for an empty file."""
    path, content = arguments["path"], arguments["content"]
    if len(arguments) > 2 or not content or not _fits(path, content):
        return None
    return f"{_BEGIN}*** Add File: {path}\n{_lines('+', _split(content))}{_END}"


def _fits(path: Any, *texts: Any) -> bool:
    """Return whether a patch can hold a path and texts."""
    if not all(isinstance(text, str) and _END not in text for text in (path, *texts)):
        return False
    return bool(path) and path == path.strip() and "\n" not in path


def _split(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _hunk(old: list[str], new: list[str]) -> str:
    """Return the lines of a hunk; common lines at both ends are its context."""
    before = after = 0
    shorter = min(len(old), len(new))
    while before < shorter and old[before] == new[before]:
        before += 1
    while after < shorter - before and old[-1 - after] == new[-1 - after]:
        after += 1
    removed, added = old[before : len(old) - after], new[before : len(new) - after]
    context = _lines(" ", old[:before]), _lines(" ", old[len(old) - after :])
    return f"{context[0]}{_lines('-', removed)}{_lines('+', added)}{context[1]}"


def _lines(sign: str, lines: list[str]) -> str:
    return "".join(f"{sign}{line}\n" for line in lines)


def _plain_result(result: ToolResult) -> ToolResult:
    text = first_text(result)
    match = _HEADER.match(text)
    if match is None:
        return result
    return with_text(replace(result, exit_code=int(match[1])), text[match.end() :])


def _native_result(result: ToolResult) -> ToolResult:
    code = result.exit_code
    if code is None and result.status == "completed":
        code = 0
    if code is None:
        return result
    return with_text(
        replace(result, exit_code=code),
        f"Process exited with code {code}\nOutput:\n{first_text(result)}",
    )


NAMES = ToolNames(
    [
        ToolName("shell", "exec_command", {"command": "cmd", "directory": "workdir"}),
        ToolName("shell", "shell_command", {"directory": "workdir"}),
        ToolName("shell", "shell", decode=_decode_shell),
        ToolName("shell", "local_shell", decode=_decode_shell),
        ToolName("edit", PATCH_TOOL, decode=patches.decode_edit, encode=_encode_edit),
        ToolName("write", PATCH_TOOL, decode=patches.decode_write, encode=_encode_write),
        ToolName("todo", "update_plan", {"items": "plan"}, items=_TODO_ITEMS),
        ToolName("web_search", "web_search", {"query": "query"}),
        ToolName("subagent", "spawn_agent", {"prompt": "message", "kind": "agent_type"}),
    ],
    read_result=_plain_result,
    write_result=_native_result,
)
