"""Tables of tools by meaning: they translate a call of one agent's tool into another agent's.

A tool's package has one `ToolNames`. Its entries name the arguments of each tool. The arguments
of a meaning have these neutral names, of which the first ones are required:

| meaning | arguments |
|---|---|
| shell | command; directory, timeout_ms, description |
| read | path; offset, limit |
| write | path, content |
| edit | path, old, new; all |
| search | pattern; path, include |
| find | pattern; path |
| list | path |
| fetch | url; prompt |
| web_search | query |
| todo | items: a list of {content, status} |
| subagent | prompt; description, kind |

Other arguments keep their names, so a call that is translated back is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from segue.model import ids
from segue.model.content import Text
from segue.model.event import ToolCall, ToolResult

Meaning = Literal[
    "shell",
    "read",
    "write",
    "edit",
    "search",
    "find",
    "list",
    "fetch",
    "web_search",
    "todo",
    "subagent",
]
Arguments = dict[str, Any]
_REQUIRED: Mapping[Meaning, tuple[str, ...]] = {
    "shell": ("command",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("path", "old", "new"),
    "search": ("pattern",),
    "find": ("pattern",),
    "list": ("path",),
    "fetch": ("url",),
    "web_search": ("query",),
    "todo": ("items",),
    "subagent": ("prompt",),
}
_MCP = "mcp__"
_MAX_NAME_LENGTH = 64
_INVALID_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")


class NeutralCall(NamedTuple):
    """What a call means, with neutral names of its arguments."""

    meaning: Meaning
    arguments: Arguments


class ToolName(NamedTuple):
    """One tool of an agent.

    `arguments` has the tool's name of each neutral argument. `items` has the tool's names of the
    fields of a todo item. For a tool whose input is not such an object, `decode` returns the
    neutral arguments of an input, and `encode` the input for neutral arguments; both return None
    if that is not possible.
    """

    meaning: Meaning
    name: str
    arguments: Mapping[str, str] = {}
    items: Mapping[str, str] = {}
    decode: Callable[[Any], Arguments | None] | None = None
    encode: Callable[[Arguments], Any | None] | None = None

    def read(self, input: Any) -> Arguments | None:
        """Return the neutral arguments of an input; None if a required one is missing."""
        if self.decode is not None:
            arguments = self.decode(input)
        elif isinstance(input, dict):
            arguments = _rename(input, {name: neutral for neutral, name in self.arguments.items()})
        else:
            return None
        if arguments is None:
            return None
        if self.items:
            own = {name: neutral for neutral, name in self.items.items()}
            arguments = _rename_items(arguments, own)
        required = _REQUIRED[self.meaning]
        return arguments if all(name in arguments for name in required) else None

    def write(self, arguments: Arguments) -> Any | None:
        """Return the tool's input for neutral arguments; None if it has no place for one."""
        if self.items:
            arguments = _rename_items(arguments, self.items)
        if self.encode is not None:
            return self.encode(arguments)
        return _rename(arguments, self.arguments)


class ToolNames:
    """The tools of one agent. Of several tools with a meaning, the first one is written.

    `read_result` returns the result of a shell command without what the agent adds to its text.
    `write_result` adds that: it gets a result with the plain output and the exit code.
    `own_servers` are MCP servers that are parts of the agent.
    """

    def __init__(
        self,
        tools: Sequence[ToolName] = (),
        *,
        read_result: Callable[[ToolResult], ToolResult] | None = None,
        write_result: Callable[[ToolResult], ToolResult] | None = None,
        own_servers: Collection[str] = (),
    ) -> None:
        self._tools = tools
        self._by_meaning = {tool.meaning: tool for tool in reversed(tools)}
        self._read_result = read_result
        self._write_result = write_result
        self._own_servers = own_servers

    def meaning(self, call: ToolCall) -> NeutralCall | None:
        """Return what a call means; None if the table does not say."""
        if call.server is not None and call.server not in self._own_servers:
            return None
        for tool in self._tools:
            if tool.name == call.name and (arguments := tool.read(call.input)) is not None:
                return NeutralCall(tool.meaning, arguments)
        return None

    def translate(self, call: ToolCall, neutral: NeutralCall) -> ToolCall | None:
        """Return a call with this agent's name and arguments; None if it has no such tool."""
        tool = self._by_meaning.get(neutral.meaning)
        input = None if tool is None else tool.write(neutral.arguments)
        if tool is None or input is None:
            return None
        return replace(call, name=tool.name, input=input, server=None)

    def plain_result(self, result: ToolResult) -> ToolResult:
        """Return the result of this agent's shell command with the command's output alone."""
        return result if self._read_result is None else self._read_result(result)

    def native_result(self, result: ToolResult) -> ToolResult:
        """Return the result of a shell command with the text that this agent adds."""
        return result if self._write_result is None else self._write_result(result)


def split_server(call: ToolCall) -> ToolCall:
    """Return a call of an MCP tool with its server, which its name then does not have."""
    if call.server is not None:
        return replace(call, name=call.name.removeprefix(f"{call.server}__") or call.name)
    if not call.name.startswith(_MCP):
        return call
    server, _, name = call.name.removeprefix(_MCP).partition("__")
    return replace(call, server=server, name=name) if server and name else call


def full_name(call: ToolCall) -> str:
    """Return the name of a call's tool with that of its MCP server."""
    return call.name if call.server is None else f"{_MCP}{call.server}__{call.name}"


def function_name(call: ToolCall) -> str:
    """Return the full name of a call's tool, as the APIs of models accept it."""
    return _INVALID_NAME_CHARACTER.sub("_", full_name(call))[:_MAX_NAME_LENGTH]


def accepted_call_id(call: ToolCall, max_length: int) -> str:
    """Return the id of a call; another one if the APIs of models would refuse it."""
    id = call.call_id
    is_accepted = 0 < len(id) <= max_length and not _INVALID_NAME_CHARACTER.search(id)
    return id if is_accepted else ids.derived_id(id)


def argument_object(input: Any) -> Arguments:
    """Return the input of a call as the object that the APIs of models accept."""
    if input is None:
        return {}
    return input if isinstance(input, dict) else {"input": input}


def with_text(result: ToolResult, text: str) -> ToolResult:
    """Return a result whose first text is replaced."""
    others = list(result.content)
    index = next((number for number, one in enumerate(others) if isinstance(one, Text)), None)
    if index is None:
        return replace(result, content=(Text(text=text), *others))
    others[index] = Text(text=text)
    return replace(result, content=tuple(others))


def first_text(result: ToolResult) -> str:
    """Return the first text of a result; empty if it has none."""
    return next((block.text for block in result.content if isinstance(block, Text)), "")


def _rename(arguments: Mapping[str, Any], names: Mapping[str, str]) -> Arguments | None:
    """Return arguments with other names; None if two of them would get the same one."""
    renamed = {names.get(name, name): value for name, value in arguments.items()}
    return renamed if len(renamed) == len(arguments) else None


def _rename_items(arguments: Arguments, names: Mapping[str, str]) -> Arguments:
    items = arguments.get("items")
    if not isinstance(items, list):
        return arguments
    renamed = [
        {names.get(name, name): value for name, value in item.items()}
        if isinstance(item, dict)
        else item
        for item in items
    ]
    return {**arguments, "items": renamed}
