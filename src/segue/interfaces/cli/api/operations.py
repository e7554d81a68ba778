"""Derive the REST API commands from the OpenAPI document.

`openapi.json` is generated; CONTRIBUTING.md has the command that writes it, and a test fails when
it differs from what the server publishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import msgspec

from . import help

FlagType = Literal["text", "integer", "boolean", "structured", "file"]
Location = Literal["path", "query", "body"]
ResponseType = Literal["object", "pages", "stream", "file"]

_COLLECTION_VERBS = {"get": "list", "post": "create"}
_ITEM_VERBS = {"get": "retrieve", "post": "update", "delete": "delete"}
# Last segments of a path that are an action, not a collection.
_ACTION_VERBS = {
    "archive": "archive",
    "stream": "stream",
    "content": "download",
    "rotate_secret": "rotate-secret",
    "test": "test",
    "resend": "resend",
}
_RENAMED_VERBS = {("sessions events", "create"): "send"}


class Flag(NamedTuple):
    """A flag, and the part of the request that its value becomes."""

    name: str
    wire_name: str
    location: Location
    type: FlagType
    is_repeatable: bool
    help: str


class Operation(NamedTuple):
    """One request of the API, as a command."""

    group: str  # "sessions events"
    name: str  # "list"
    method: str
    path: str
    flags: tuple[Flag, ...]
    response: ResponseType

    @property
    def help(self) -> help.CommandHelp:
        command = f"{self.group} {self.name}"
        default = help.CommandHelp(f"{self.method} {self.path}", f"segue {command}")
        return help.COMMANDS.get(command, default)


def load_operations() -> list[Operation]:
    """Return the operations of the document that is part of the package."""
    data = files(__package__).joinpath("openapi.json").read_bytes()
    return list(parse_operations(msgspec.json.decode(data)))


def parse_operations(document: dict[str, Any]) -> Iterator[Operation]:
    """Yield the operations of a document that belong to a group with a command."""
    for path, methods in document["paths"].items():
        for method, definition in methods.items():
            command = command_of(method, path)
            if command is not None:
                yield _parse_operation(*command, method, path, definition)


def command_of(method: str, path: str) -> tuple[str, str] | None:
    """Return the group and name of the command for a route; None if it has no command."""
    segments = path.removeprefix("/v1/").split("/")
    names = [segment for segment in segments if not segment.startswith("{")]
    is_item = segments[-1].startswith("{")
    group = " ".join(names)
    if group in help.GROUPS:
        verb = (_ITEM_VERBS if is_item else _COLLECTION_VERBS).get(method)
    else:
        group = " ".join(names[:-1])
        verb = _ACTION_VERBS.get(names[-1])
    if verb is None or group not in help.GROUPS:
        return None
    return group, _RENAMED_VERBS.get((group, verb), verb)


def _parse_operation(
    group: str, name: str, method: str, path: str, definition: dict[str, Any]
) -> Operation:
    command = f"{group} {name}"
    parameters = [
        _parse_flag(command, parameter["name"], parameter["in"], parameter["schema"])
        for parameter in definition.get("parameters", ())
        if parameter["in"] in ("path", "query")
    ]
    body = next(iter(definition.get("requestBody", {}).get("content", {}).values()), None)
    properties = {} if body is None else body["schema"]["properties"]
    parameters += [
        _parse_flag(command, property_name, "body", schema)
        for property_name, schema in properties.items()
    ]
    in_path = [flag for flag in parameters if flag.location == "path"]
    others = sorted(flag for flag in parameters if flag.location != "path")
    response = _response_type(name, definition["responses"]["200"]["content"])
    return Operation(group, name, method.upper(), path, (*in_path, *others), response)


def _parse_flag(command: str, wire_name: str, location: Location, schema: dict[str, Any]) -> Flag:
    is_repeatable = schema.get("type") == "array"
    name = _flag_name(wire_name, is_repeatable=is_repeatable)
    flag_type = _flag_type(schema["items"] if is_repeatable else schema)
    if f"{command} {name}" in help.STRUCTURED_FLAGS:
        flag_type = "structured"
    if location == "path":
        text = help.PATH_PARAMETERS.get(wire_name, "May be given without the flag.")
    else:
        text = help.FLAGS.get(f"{command} {name}") or help.FLAGS.get(name, "")
    return Flag(name, wire_name, location, flag_type, is_repeatable, text)


def _flag_name(wire_name: str, *, is_repeatable: bool) -> str:
    """Return the flag of a parameter: `created_at[gte]` is --created-at-gte, `tools` is --tool."""
    name = wire_name.removesuffix("[]").replace("[", "-").replace("]", "").replace("_", "-")
    if is_repeatable:
        return name.removesuffix("es") if name.endswith("uses") else name.removesuffix("s")
    return name


def _flag_type(schema: dict[str, Any]) -> FlagType:
    if schema.get("contentMediaType") == "application/octet-stream":
        return "file"
    types: dict[str | None, FlagType] = {
        "string": "text",
        "integer": "integer",
        "boolean": "boolean",
    }
    return types.get(schema.get("type"), "structured")


def _response_type(name: str, content: dict[str, Any]) -> ResponseType:
    if "text/event-stream" in content:
        return "stream"
    if "*/*" in content:
        return "file"
    return "pages" if name == "list" else "object"
