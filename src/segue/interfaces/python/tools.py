"""Let the model call functions of the program as tools."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

import msgspec

from segue.model.content import as_content
from segue.model.errors import InvalidInput
from segue.model.event import ToolResult


class FunctionTool:
    """A function as a tool: its signature defines the input, its docstring is the description."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = getattr(function, "__name__", "")
        if not self.name.isidentifier():
            raise InvalidInput(f"tools: {function!r} has no name; define it with def")
        self._function = function
        hints = get_type_hints(function)
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise InvalidInput(
                    f"tool {self.name!r} has the parameter {str(parameter)!r};"
                    " name each parameter instead"
                )
            parameter_type = hints.get(parameter.name, Any)
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((parameter.name, parameter_type, *default))
        self._input_type = msgspec.defstruct(
            self.name, fields, kw_only=True, forbid_unknown_fields=True
        )

    def definition(self) -> dict[str, Any]:
        """Return the tool as an agent's record defines it. Raises InvalidInput for bad types."""
        try:
            _, definitions = msgspec.json.schema_components(
                [self._input_type], ref_template="#/$defs/{name}"
            )
        except TypeError as error:
            raise InvalidInput(f"tool {self.name!r}: {error}") from None
        schema = definitions.pop(self.name)
        return {
            "type": "custom",
            "name": self.name,
            "description": inspect.getdoc(self._function) or "",
            "input_schema": {**schema, "$defs": definitions} if definitions else schema,
        }

    async def call(self, call_id: str, tool_input: Any) -> ToolResult:
        """Call the function. An exception becomes a failed result for the model."""
        try:
            struct = msgspec.convert(tool_input, self._input_type)
            arguments = {name: getattr(struct, name) for name in self._input_type.__struct_fields__}
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**arguments)
            else:
                value = await asyncio.to_thread(self._function, **arguments)
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            return ToolResult(call_id=call_id, status="failed", content=as_content(message))
        return ToolResult(call_id=call_id, status="completed", content=as_content(text))


def function_tools(functions: Iterable[Callable[..., Any]]) -> dict[str, FunctionTool]:
    """Return functions as tools, by name. Raises InvalidInput if two have the same name."""
    tools: dict[str, FunctionTool] = {}
    for function in functions:
        tool = FunctionTool(function)
        if tool.name in tools:
            raise InvalidInput(f"two tools are named {tool.name!r}; rename one function")
        tools[tool.name] = tool
    return tools
