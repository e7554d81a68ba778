"""Compute the titles of tool calls and permission requests.

An event stores a title only if it differs from the one that is computed here.
"""

from __future__ import annotations

from msgspec.structs import replace

from segue.model.event import PermissionAsked, ToolCall

MAX_INPUT_CHARACTERS = 200  # of an input in the title of a permission request
_UNKNOWN_CALL = "Use a tool"
# The words before an argument in the title of a call, and the names of that argument.
_TITLES = {
    "bash": ("", ("command",)),
    "read": ("Read ", ("file_path", "path")),
    "write": ("Write ", ("file_path", "path")),
    "edit": ("Edit ", ("file_path", "path")),
    "glob": ("Find ", ("pattern",)),
    "grep": ("Search for ", ("pattern",)),
    "web_fetch": ("Fetch ", ("url",)),
    "web_search": ("Search the web for ", ("query",)),
}


def call_title(call: ToolCall) -> str:
    """Return the title of a tool call: its own, the computed one, or the tool's name."""
    return call.title or computed_title(call) or call.name


def computed_title(call: ToolCall) -> str | None:
    """Return the title that the name and the input of a call give, if there is one."""
    known = _TITLES.get(call.name)
    if known is None or call.server is not None or call.custom or not isinstance(call.input, dict):
        return None
    words, names = known
    for name in names:
        argument = call.input.get(name)
        if isinstance(argument, str) and argument:
            return words + argument
    return "Restart the shell" if call.name == "bash" and call.input.get("restart") else None


def without_computed_title(call: ToolCall) -> ToolCall:
    """Return the call as it is stored: without a title that `call_title` returns anyway."""
    if call.title is None:
        return call
    untitled = replace(call, title=None)
    return untitled if call_title(untitled) == call.title else call


def request_title(request: PermissionAsked, call: ToolCall | None) -> str:
    """Return the title of a permission request. `call` is the tool call that it is about."""
    if request.title is not None:
        return request.title
    return _UNKNOWN_CALL if call is None else request_title_of(call)


def request_title_of(call: ToolCall) -> str:
    """Return the title of a permission request that has none of its own."""
    if call.title is None and call.server is not None:
        import json

        return f"{call.name} {json.dumps(call.input)[:MAX_INPUT_CHARACTERS]}"
    return call_title(call)
