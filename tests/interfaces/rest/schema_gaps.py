"""Find what the official client's types have and the OpenAPI document lacks."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from tests.interfaces.rest.response_check import DOCUMENT

_WRAPPERS = (Annotated, Required, NotRequired)


def missing_from_schema(kind: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
    """Yield each field, object type or value that a type of the client has and a schema lacks."""
    while get_origin(kind) in _WRAPPERS:
        kind = get_args(kind)[0]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for choice in inner:
            yield from missing_from_schema(choice, schema, where)
    elif is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        yield from _missing_from_object(hints, schema, where)
    elif isinstance(kind, type) and hasattr(kind, "model_fields"):  # in a response
        fields = {name: field.annotation for name, field in kind.model_fields.items()}
        # One gap of a type is found in many responses, so it is named after the type.
        # Generations of the client differ in the suffix.
        owner = kind.__name__.partition("[")[0].removeprefix("Beta").removeprefix("ManagedAgents")
        owner = owner.removesuffix("Object")
        for gap in _missing_from_object(fields, schema, ""):
            if gap.startswith(":"):  # the whole object
                yield owner
            else:
                yield f"{owner}{gap}" if gap.startswith(".") else gap
    elif origin is Literal:
        allowed = [value for choice in choices(schema) for value in choice.get("enum", inner)]
        yield from (f"{where}={value}" for value in inner if value not in allowed)
    elif inner:
        for choice in choices(schema):
            if "items" in choice:
                yield from missing_from_schema(inner[0], choice["items"], where)


def _missing_from_object(
    hints: dict[str, Any], schema: dict[str, Any], where: str
) -> Iterator[str]:
    tag = _tag(hints.pop("type", None))
    objects = [choice for choice in choices(schema) if "properties" in choice]
    tagged = [
        choice for choice in objects if tag in choice["properties"].get("type", {}).get("enum", ())
    ]
    candidates = tagged or [
        choice for choice in objects if "enum" not in choice["properties"].get("type", {})
    ]
    if any(
        choice.get("type") == "object" and "properties" not in choice for choice in choices(schema)
    ):
        return  # any object is valid
    if not candidates:
        yield f"{where}:{tag}"
    for name, hint in hints.items() if candidates else ():
        fields = [
            choice["properties"][name] for choice in candidates if name in choice["properties"]
        ]
        if fields:
            yield from missing_from_schema(hint, fields[0], f"{where}.{name}")
        else:
            yield f"{where}.{name}"


def _tag(hint: Any) -> Any:
    while get_origin(hint) in (*_WRAPPERS, Union):  # a union with None
        hint = get_args(hint)[0]
    return get_args(hint)[0] if get_origin(hint) is Literal else None


def choices(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the alternatives of a schema, with references resolved."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    several = schema.get("anyOf") or schema.get("oneOf")
    if several is None:
        yield schema
    for choice in several or ():
        yield from choices(choice)
