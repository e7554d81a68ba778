"""Check messages against the protocol's official JSON schemas."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from tests.clients import toolbox

# Responses and capabilities of an earlier draft of version 2, which the schema does not have.
DRAFT_ANSWERS = {(2, "session/load")}
DRAFT_FIELDS = {
    f"InitializeResponse.capabilities.session.{name}"
    for name in ("list", "load", "resume", "close")
} | {f"InitializeResponse.{name}.transport" for name in ("capabilities", "agentCapabilities")}

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_formats = FormatChecker(formats=())


@_formats.checks("date-time", raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@_formats.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or ":" in value


class Schema:
    """The schema of one version, with or without unstable parts."""

    def __init__(self, version: int, unstable: bool) -> None:
        text = toolbox.schema(version, unstable=unstable).read_text()
        self._defs: dict[str, Any] = json.loads(text)["$defs"]
        self._validators: dict[str, Draft202012Validator] = {}
        self._accepted: set[tuple[str, str]] = set()  # kinds and values, without their ids
        self._kinds = {
            (kind["x-method"], _suffix(name)): name
            for name, kind in self._defs.items()
            if "x-method" in kind
        }

    def kind(self, method: str, suffix: str) -> str | None:
        """Return the name of a method's Request, Response or Notification type."""
        return self._kinds.get((method, suffix))

    def check(self, kind: str, value: Any) -> None:
        """Raise an error unless the schema accepts a value. Equal values are validated once."""
        # No schema restricts what an id is made of.
        key = (kind, _ID.sub("id", json.dumps(value)))
        if key in self._accepted:
            return
        if kind not in self._validators:
            root = {"$ref": f"#/$defs/{kind}", "$defs": self._defs}
            self._validators[kind] = Draft202012Validator(root, format_checker=_formats)
        for error in self._validators[kind].iter_errors(value):
            raise AssertionError(f"{kind}{error.json_path[1:]}: {error.message} in {value!r}")
        self._accepted.add(key)

    def unknown_fields(self, kind: str, value: Any) -> set[str]:
        """Return the fields of a value that the schema does not have; it accepts them silently."""
        return set(self._unknown_fields([self._defs[kind]], value, kind))

    def _unknown_fields(self, schemas: list[Any], value: Any, where: str) -> Iterator[str]:
        parts = [part for schema in schemas for part in self._parts(schema, value)]
        if isinstance(value, list):
            items = [part["items"] for part in parts if "items" in part]
            for item in value:
                yield from self._unknown_fields(items, item, where)
        if not isinstance(value, dict):
            return
        named = [part["properties"] for part in parts if "properties" in part]
        if not named:
            return  # no restrictions
        for name, member in value.items():
            inner = [properties[name] for properties in named if name in properties]
            if not inner:
                yield f"{where}.{name}"
            elif name != "_meta":
                yield from self._unknown_fields(inner, member, f"{where}.{name}")

    def _parts(self, schema: Any, value: Any) -> Iterator[Any]:
        """Yield a schema and its parts; of alternatives, those that match the tag of the value."""
        if not isinstance(schema, dict):
            return
        yield schema
        if "$ref" in schema:
            yield from self._parts(self._defs[schema["$ref"].rpartition("/")[2]], value)
        for part in schema.get("allOf", ()):
            yield from self._parts(part, value)
        for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            if part.get("title") != "other" and _tagged(part, value):
                yield from self._parts(part, value)


def _suffix(name: str) -> str:
    return next(end for end in ("Request", "Response", "Notification") if name.endswith(end))


def _tagged(schema: Any, value: Any) -> bool:
    tags = {
        name: property_schema["const"]
        for name, property_schema in schema.get("properties", {}).items()
        if isinstance(property_schema, dict) and "const" in property_schema
    }
    return not tags or (
        isinstance(value, dict) and all(value.get(name) == tag for name, tag in tags.items())
    )


@cache
def schema(version: int, unstable: bool) -> Schema:
    return Schema(version, unstable)


def check(version: int, message: Any, answers: str | None) -> None:
    """Raise an error unless an agent of this version may send the message.

    `answers` is the method of the request that a response is to.
    """
    assert isinstance(message, dict) and message["jsonrpc"] == "2.0", message
    if "method" in message:
        asks = "id" in message
        assert set(message) == {"jsonrpc", "method", "params"} | ({"id"} if asks else set())
        assert not asks or isinstance(message["id"], int | str)
        suffix = "Request" if asks else "Notification"
        _check_as(version, message["method"], suffix, message["params"])
    elif "error" in message:
        assert set(message) == {"jsonrpc", "id", "error"}, message
        for unstable in (False, True):
            schema(version, unstable).check("Error", message["error"])
        assert set(message["error"]) <= {"code", "message", "data"}, message
    else:
        assert set(message) == {"jsonrpc", "id", "result"}, message
        assert answers is not None, f"an answer to nothing: {message}"
        if (version, answers) in DRAFT_ANSWERS:
            assert message["result"] is None
        else:
            _check_as(version, answers, "Response", message["result"])


def _check_as(version: int, method: str, suffix: str, value: Any) -> None:
    if method.startswith("_"):  # an extension, which only the agent and its client know
        return
    kind = schema(version, True).kind(method, suffix)
    assert kind is not None, f"version {version} has no {suffix.lower()} {method}"
    for unstable in (False, True):
        judge = schema(version, unstable)
        # Messages that only the unstable schema has are checked against that schema.
        if judge.kind(method, suffix) is not None:
            judge.check(kind, value)
    unknown = schema(version, True).unknown_fields(kind, value)
    assert unknown <= DRAFT_FIELDS, f"fields that the schema does not name: {unknown}"
