"""The tools of Goose, by meaning. Those of its own extensions are called without their names."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from segue.model.event import ToolResult
from segue.sources.writing.tool_names import (
    Arguments,
    Meaning,
    ToolName,
    ToolNames,
    first_text,
    with_text,
)

DEVELOPER, SUMMON = "developer", "summon"
OWN_EXTENSIONS = frozenset({DEVELOPER, SUMMON})
_EXIT_CODE = re.compile(r"(?:\A|\n\n)Command exited with code (-?\d+)\Z")


def extension(meaning: Meaning) -> str:
    """Return the extension whose tool has a meaning."""
    return SUMMON if meaning == "subagent" else DEVELOPER


def _plain_result(result: ToolResult) -> ToolResult:
    """Return the result of a command without the line that says its exit code."""
    text = first_text(result)
    match = _EXIT_CODE.search(text)
    if match is None:
        return result
    return with_text(replace(result, exit_code=int(match[1])), text[: match.start()])


def _native_result(result: ToolResult) -> ToolResult:
    if result.status != "failed" or not result.exit_code:
        return result
    text = first_text(result)
    return with_text(
        result, f"{text}\n\nCommand exited with code {result.exit_code}".removeprefix("\n\n")
    )


def _decode_shell(input: Any) -> Arguments | None:
    if not isinstance(input, dict):
        return None
    arguments: Arguments = dict(input)
    seconds = arguments.get("timeout_secs")
    if isinstance(seconds, int):
        del arguments["timeout_secs"]
        arguments["timeout_ms"] = seconds * 1000
    return arguments


def _encode_shell(arguments: Arguments) -> Any:
    """Return the arguments with a time limit in seconds."""
    milliseconds = arguments.get("timeout_ms")
    if not isinstance(milliseconds, int) or milliseconds % 1000:
        return arguments
    others = {name: value for name, value in arguments.items() if name != "timeout_ms"}
    return {**others, "timeout_secs": milliseconds // 1000}


NAMES = ToolNames(
    [
        ToolName("shell", "shell", decode=_decode_shell, encode=_encode_shell),
        ToolName("write", "write", {"path": "path", "content": "content"}),
        ToolName("edit", "edit", {"path": "path", "old": "before", "new": "after"}),
        ToolName("list", "tree", {"path": "path"}),
        ToolName("subagent", "delegate", {"prompt": "instructions"}),
    ],
    read_result=_plain_result,
    write_result=_native_result,
    own_servers=OWN_EXTENSIONS,
)
