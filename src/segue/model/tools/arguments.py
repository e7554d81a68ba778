"""Find the arguments that matter in a tool's input: tools name the same argument differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from segue.model.content import Block, Diff, FileChange
from segue.model.event import ToolCall, ToolResult
from segue.model.tools.patches import with_texts

_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "filePath", "absolute_path", "path", "target_file", "notebook_path", "uri")
_PATTERNS = ("pattern", "query", "regex", "glob", "search")
_OLD, _NEW = ("old_string", "oldString", "old_str"), ("new_string", "newString", "new_str")
_CONTENTS = ("content", "file_text", "contents")


def input_of(call: ToolCall) -> Mapping[str, Any]:
    """Return the input of a call by argument; empty if it has no named arguments."""
    return call.input if isinstance(call.input, dict) else {}


def first_text(values: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of some arguments that is a text, or ""."""
    return next((values[name] for name in names if isinstance(values.get(name), str)), "")


def command_of(call: ToolCall) -> str:
    """Return the command line that a call runs, or ""."""
    arguments = input_of(call)
    for name in _COMMANDS:
        words = arguments.get(name)
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            import shlex

            is_script = len(words) == 3 and words[1] in ("-c", "-lc")
            return str(words[2]) if is_script else shlex.join(words)
    return first_text(arguments, _COMMANDS)


def path_of(call: ToolCall) -> str:
    """Return the file that a call reads or changes, or ""."""
    if call.locations:
        return call.locations[0].path
    if path := first_text(input_of(call), _PATHS):
        return path
    block = next((block for block in call.content if isinstance(block, Diff | FileChange)), None)
    return "" if block is None else block.path


def pattern_of(call: ToolCall) -> str:
    """Return the text that a call searches for, or ""."""
    return first_text(input_of(call), _PATTERNS)


def first_argument(call: ToolCall) -> str:
    """Return the first argument that is a short value, for the row of an unknown tool."""
    if isinstance(call.input, str):
        return call.input
    for value in input_of(call).values():
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return ""


def line_range(call: ToolCall) -> tuple[int | None, int | None]:
    """Return the first and the last line that a call reads, as far as its input says."""
    arguments = input_of(call)
    view = arguments.get("view_range")
    if isinstance(view, list) and len(view) == 2 and all(type(line) is int for line in view):
        return view[0], view[1] if view[1] >= view[0] else None
    start = next(
        (arguments[name] for name in ("offset", "line", "start_line") if _is_line(arguments, name)),
        None,
    )
    if start is None and call.locations:
        start = call.locations[0].line
    if _is_line(arguments, "end_line"):
        return start or 1, arguments["end_line"]
    if _is_line(arguments, "limit"):
        return start or 1, (start or 1) + arguments["limit"] - 1
    return start, None


def _is_line(arguments: Mapping[str, Any], name: str) -> bool:
    return type(arguments.get(name)) is int and arguments[name] > 0


def changes_of(call: ToolCall | None, result: ToolResult | None) -> list[Diff | FileChange]:
    """Return how a call changed files: as its result says, as the call says, or by its input.

    The changes of a call that failed are those that it tried to make.
    """
    content = with_texts(result.content, call) if result is not None else ()
    changes = [block for block in content if _is_change(block)]
    if not changes and call is not None:
        changes = [block for block in call.content if _is_change(block)] or list(_planned(call))
    return [block for block in changes if isinstance(block, Diff | FileChange)]


def _is_change(block: Block) -> bool:
    return isinstance(block, Diff | FileChange)


def _planned(call: ToolCall) -> Iterator[Diff]:
    """Yield the changes that the input of a call describes."""
    arguments = input_of(call)
    path = path_of(call)
    edits = arguments.get("edits")
    for edit in edits if isinstance(edits, list) else [arguments]:
        if not isinstance(edit, dict):
            continue
        old, new = first_text(edit, _OLD), first_text(edit, _NEW)
        if old or new:
            yield Diff(path=path, old=old, new=new)
    if call.kind == "edit" and not edits and (text := first_text(arguments, _CONTENTS)):
        yield Diff(path=path, new=text)
