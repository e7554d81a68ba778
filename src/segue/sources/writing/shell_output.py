"""The lines around the output of a command in results of Gemini CLI and of its descendants.

Output: the output
Exit Code: 2
Process Group PGID: 1103
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from segue.model.event import ToolResult

from .tool_names import first_text, with_text

_BEFORE = r"(?:Command: .*?\nDirectory: [^\n]*\n)?"
_AFTER = r"(?:\n(?:(?:Error|Signal): \(none\)|(?:Background PIDs|Process Group PGID): [^\n]*))*"
_RESULT = re.compile(
    rf"{_BEFORE}Output: (?P<output>.*?){_AFTER}(?:\nExit Code: (?P<code>-?\d+))?{_AFTER}",
    re.DOTALL,
)
_EXIT_CODE = "\nExit Code: "
_EMPTY = "(empty)"


def plain_result(result: ToolResult) -> ToolResult:
    """Return the result of a command with its output alone; a code other than 0 is a failure."""
    match = _RESULT.fullmatch(first_text(result))
    if match is None:
        return result
    output = "" if match["output"] == _EMPTY else match["output"]
    if match["code"] is None:
        return with_text(result, output)
    code = int(match["code"])
    status = "failed" if code else result.status
    return with_text(replace(result, exit_code=code, status=status), output)


def native_result(result: ToolResult) -> ToolResult:
    """Return the result of a command with the lines around it.

    A command that failed without an exit code did not run: its text stays as it is.
    """
    if result.status != "completed" and not result.exit_code:
        return result
    text = f"Output: {first_text(result) or _EMPTY}"
    if result.exit_code or _EXIT_CODE in text:
        text += f"{_EXIT_CODE}{result.exit_code or 0}"
    return with_text(result, text)
