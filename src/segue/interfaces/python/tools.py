"""A program's own functions as tools that the model may call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import msgspec

from segue.model.content import as_content
from segue.model.errors import InvalidInput
from segue.model.event import ToolResult


class Function:
    """One of them. Its signature says what it is given, its docstring what it is for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self._function = function
        hints = get_type_hints(function)
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise InvalidInput(f"the tool {self.name!r} must name what it is given")
            kind = hints.get(parameter.name, Any)
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((parameter.name, kind, *default))
        self._input = msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)

    def definition(self) -> dict[str, Any]:
        """The tool, as an agent's record has it."""
        try:
            _, parts = msgspec.json.schema_components([self._input], ref_template="#/$defs/{name}")
        except TypeError as error:
            raise InvalidInput(f"the tool {self.name!r}: {error}") from None
        schema = parts.pop(self.name)
        return {
            "type": "custom",
            "name": self.name,
            "description": inspect.getdoc(self._function) or "",
            "input_schema": {**schema, "$defs": parts} if parts else schema,
        }

    async def call(self, call_id: str, given: Any) -> ToolResult:
        """What comes of a call; whatever goes wrong is the model's to hear of."""
        try:
            read = msgspec.convert(given, self._input)
            arguments = {name: getattr(read, name) for name in self._input.__struct_fields__}
            if inspect.iscoroutinefunction(self._function):
                found = await self._function(**arguments)
            else:
                found = await asyncio.to_thread(self._function, **arguments)
            text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            return ToolResult(call_id=call_id, status="failed", content=as_content(why))
        return ToolResult(call_id=call_id, status="completed", content=as_content(text))


def functions(given: Iterable[Callable[..., Any]]) -> dict[str, Function]:
    """A program's tools by their names."""
    found: dict[str, Function] = {}
    for function in given:
        tool = Function(function)
        if tool.name in found:
            raise InvalidInput(f"two tools are named {tool.name!r}")
        found[tool.name] = tool
    return found
