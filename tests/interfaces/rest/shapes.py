"""Find what the official client's types have and the OpenAPI document lacks."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from tests.interfaces.rest.response_check import DOCUMENT

_WRAPPERS = (Annotated, Required, NotRequired)


def beyond(kind: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """Yield each field, object type or value that a type of the client has and a schema lacks."""
    while get_origin(kind) in _WRAPPERS:
        kind = get_args(kind)[0]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for each in inner:
            yield from beyond(each, schema, where)
    elif is_typeddict(kind):
        yield from _beyond_object(kind, schema, where)
    elif origin is Literal:
        allowed = [value for each in choices(schema) for value in each.get("enum", inner)]
        yield from (f"{where}={value}" for value in inner if value not in allowed)
    elif inner:
        for each in choices(schema):
            if "items" in each:
                yield from beyond(inner[0], each["items"], where)


def _beyond_object(kind: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    hints = get_type_hints(kind, include_extras=True)
    tag = _tag(hints.pop("type", None))
    objects = [each for each in choices(schema) if "properties" in each]
    tagged = [each for each in objects if tag in each["properties"].get("type", {}).get("enum", ())]
    found = tagged or [each for each in objects if "enum" not in each["properties"].get("type", {})]
    if any(each.get("type") == "object" and "properties" not in each for each in choices(schema)):
        return  # any object is valid
    if not found:
        yield f"{where}:{tag}"
    for name, hint in hints.items() if found else ():
        fields = [each["properties"][name] for each in found if name in each["properties"]]
        if fields:
            yield from beyond(hint, fields[0], f"{where}.{name}")
        else:
            yield f"{where}.{name}"


def _tag(hint: Any) -> Any:
    while get_origin(hint) in _WRAPPERS:
        hint = get_args(hint)[0]
    return get_args(hint)[0] if get_origin(hint) is Literal else None


def choices(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the alternatives of a schema, with references resolved."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    several = schema.get("anyOf") or schema.get("oneOf")
    if several is None:
        yield schema
    for each in several or ():
        yield from choices(each)
