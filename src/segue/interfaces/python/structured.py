"""Structured answers: a tool whose input is the answer, with the schema of `output_format`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from segue.model.content import as_content
from segue.model.errors import InvalidInput
from segue.model.event import ToolResult

NAME = "StructuredOutput"
INSTRUCTION = f"When you have the final answer, call the tool {NAME} with it, once, and then stop."
_DESCRIPTION = "Give the final answer in the form that the program expects."


class StructuredOutput:
    """The tool that takes a structured answer. `answer` is the last one that fits the schema."""

    name = NAME

    def __init__(self, output_format: Mapping[str, Any]) -> None:
        """Create the tool. Raises InvalidInput for another format than a JSON schema of objects."""
        schema = output_format.get("schema")
        is_known = output_format.get("type") == "json_schema" and len(output_format) == 2
        if not is_known or not isinstance(schema, Mapping):
            raise InvalidInput('output_format must be {"type": "json_schema", "schema": {…}}')
        if schema.get("type") != "object":
            raise InvalidInput('output_format: the schema must have the "type" "object"')
        try:
            import jsonschema

            jsonschema.Draft202012Validator.check_schema(schema)
        except ModuleNotFoundError:
            from segue.extras import install_command

            command = install_command("structured")
            raise InvalidInput(f"output_format needs a package; run: {command}") from None
        except jsonschema.SchemaError as error:
            raise InvalidInput(f"output_format: {error.message}") from None
        self._schema = dict(schema)
        self._validator = jsonschema.Draft202012Validator(self._schema)
        self.answer: Any = None

    def definition(self) -> dict[str, Any]:
        """Return the tool as an agent's record defines it."""
        return {
            "type": "custom",
            "name": NAME,
            "description": _DESCRIPTION,
            "input_schema": self._schema,
        }

    async def call(self, call_id: str, tool_input: Any) -> ToolResult:
        """Take an answer; the model learns what does not fit the schema."""
        error = next(iter(self._validator.iter_errors(tool_input)), None)
        if error is not None:
            message = f"the answer does not fit the schema at {error.json_path}: {error.message}"
            return ToolResult(call_id=call_id, status="failed", content=as_content(message))
        self.answer = tool_input
        return ToolResult(call_id=call_id, status="completed", content=as_content("received"))
