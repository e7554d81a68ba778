"""The door's description of itself: an OpenAPI 3.1 document, made from the routes and their types.

Bodies and answers are the structs that requests are read into and answers are made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_type_hints

import msgspec

from segue import __version__
from segue.model import codec
from segue.model.lifecycle import STATUSES

from .events.event_encoder import TYPES, UNMADE
from .handlers.resources import ResourceOut
from .request import Endpoint
from .schemas.agent import SessionAgent, ThreadAgent
from .schemas.events import Streamed
from .schemas.requests import Out

_REF = "#/components/schemas/{name}"
_MODULE = re.compile(r"segue\.doors\.rest\.(\w+?)\.([A-Za-z0-9]+)")
_TIME = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string"}


class ErrorDetail(Out, frozen=True):
    """`details` is there where an error has them."""

    type: str
    message: str
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Error(Out, frozen=True, tag_field="type", tag="error"):
    error: ErrorDetail
    request_id: str


class Binary(Out, frozen=True):
    """Stands for bytes."""


class Stream(Out, frozen=True):
    """Stands for server-sent events: each is named by its type and has a Streamed as its data."""


# Query parameters that mean the same everywhere; all others are text.
_PARAMETERS: dict[str, dict[str, Any]] = {
    "agent_version": {"type": "integer", "minimum": 0, "maximum": 1 << 31},
    "version": {"type": "integer", "minimum": 1, "maximum": 1 << 31},
    "depth": {"type": "integer", "minimum": 0, "maximum": 20},
    "include_archived": {"type": "boolean"},
    "has_error": {"type": "boolean"},
    "order": {"enum": ["asc", "desc"]},
    "view": {"enum": ["basic", "full"]},
    "operation": {"enum": ["created", "modified", "deleted"]},
    "trigger_type": {"enum": ["manual", "schedule"]},
    "status": {"enum": ["active", "paused"]},
    "statuses[]": {"type": "array", "items": {"enum": list(STATUSES)}},
    "types[]": {"type": "array", "items": {"enum": sorted({*sum(TYPES.values(), ()), *UNMADE})}},
    "event_deltas[]": {
        "type": "array",
        "items": {"enum": ["agent.message", "agent.thinking"]},
        "maxItems": 100,
    },
    "ids[]": {"type": "array", "items": _TEXT, "maxItems": 100},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    "block_ms": {"type": "integer", "minimum": 1, "maximum": 999},
    "reclaim_older_than_ms": {"type": "integer", "minimum": 0, "maximum": 1 << 31},
    "desired_ttl_seconds": {"type": "integer", "minimum": 1, "maximum": 1 << 31},
}
_BYTES = {"type": "string", "contentMediaType": "application/octet-stream"}
_SEVERAL = {"files[]": {"type": "array", "items": _BYTES, "minItems": 1}}
_LABEL = {"display_name": {"type": "string", "maxLength": 255}}
_EXPIRY = {"expires_in_seconds": {"type": "integer", "minimum": 3600, "maximum": 7_776_000}}
# The bodies that are forms.
_FORMS: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/files"): {"properties": {"file": _BYTES, **_EXPIRY}, "required": ["file"]},
    ("POST", "/v1/skills"): {"properties": {**_SEVERAL, **_LABEL}, "required": ["files[]"]},
    ("POST", "/v1/skills/{skill_id}/versions"): {
        "properties": _SEVERAL,
        "required": ["files[]"],
    },
}
_LONG = ("sessions", "files", "events", "resources", "threads", "deployment_runs", "models")
_ERRORS = {
    "400": "The request cannot be understood; the message says where.",
    "401": "No valid key.",
    "403": "The request came from a host or origin that is not served.",
    "404": "Nothing of that name in the workspace, or the beta header is missing.",
    "409": "It was changed meanwhile, or exists already.",
    "412": "The heartbeat that was expected is not the last one.",
    "413": "The body is too large.",
    "429": "Too many requests with this key; `retry-after` says when to come again.",
    "500": "An error on the server's side.",
    "503": "The store cannot be used at the moment.",
}


@cache
def encoded(routes: tuple[Endpoint, ...]) -> bytes:
    return codec.encode(document(routes))


def document(routes: Iterable[Endpoint]) -> dict[str, Any]:
    routes = tuple(routes)
    given = [
        kind for route in routes for kind in (route.request_type, response_type(route)) if kind
    ]
    wanted = [*given, Error, SessionAgent, ThreadAgent, ResourceOut, Streamed]
    refs, components = msgspec.json.schema_components(wanted, ref_template=_REF)
    by_type = {id(kind): _tidy(ref) for kind, ref in zip(wanted, refs, strict=True)}
    schemas = {_named(name): _tidy(schema) for name, schema in components.items()}
    schemas["Streamed"] = by_type[id(Streamed)]
    # What these hold is made beforehand, as bytes or plain values.
    schemas["SessionOut"]["properties"] |= {
        "agent": by_type[id(SessionAgent)],
        "resources": {"type": "array", "items": by_type[id(ResourceOut)]},
        "status": {"enum": list(STATUSES)},
    }
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "segue",
            "version": __version__,
            "description": "Sessions of agents: what the official clients call, and a little more.",
        },
        "security": [{"key": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def response_type(route: Endpoint) -> Any:
    """The type of a route's answers: as said there, or as its handler says."""
    return route.response_type or get_type_hints(route.handle)["return"]


def _operation(route: Endpoint, by_type: dict[int, Any]) -> dict[str, Any]:
    module, name = route.handle.__module__.rsplit(".", 1)[-1], route.handle.__name__.strip("_")
    answer: dict[str, Any]
    kind = response_type(route)
    if kind is Binary:
        answer = {"*/*": {"schema": {}}}
    elif kind is Stream:
        # OpenAPI 3.1 has no word for the type of what is streamed; 3.2 has itemSchema.
        streamed = {"$ref": _REF.format(name="Streamed")}
        answer = {"text/event-stream": {"schema": _TEXT, "x-itemSchema": streamed}}
    else:
        answer = {"application/json": {"schema": by_type[id(kind)]}}
    operation: dict[str, Any] = {
        "operationId": f"{module}.{name}",
        "tags": [module],
        "parameters": [*_path(route), *_headers(route), *_query(route)],
        "responses": {"200": {"description": "Done.", "content": answer}, **_errors()},
    }
    if route.request_type is not None:
        body = {"application/json": {"schema": by_type[id(route.request_type)]}}
        operation["requestBody"] = {"required": True, "content": body}
    elif form := _FORMS.get((route.method, route.path)):
        body = {"multipart/form-data": {"schema": {"type": "object", **form}}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation


def _errors() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {status: {"description": words, "content": content} for status, words in _ERRORS.items()}


def _path(route: Endpoint) -> Iterator[dict[str, Any]]:
    for name in route.names:
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _headers(route: Endpoint) -> Iterator[dict[str, Any]]:
    versions = {"enum": ["2023-06-01", "2026-10-21"]}
    yield {"name": "anthropic-version", "in": "header", "required": True, "schema": versions}
    if route.betas:
        betas = {"enum": sorted(route.betas)}
        yield {"name": "anthropic-beta", "in": "header", "required": True, "schema": betas}


def _query(route: Endpoint) -> Iterator[dict[str, Any]]:
    for name in route.query:
        schema = _PARAMETERS.get(name, _TEXT)
        long = route.path.rsplit("/", 1)[-1] in _LONG or route.path.startswith("/v1/skills")
        if name == "limit" and long:
            schema = {**schema, "maximum": 1000}
        if name.startswith("created_at["):
            schema = _TIME
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _named(name: str) -> str:
    """Types of one name in several modules are told apart by their modules."""

    def joined(found: re.Match[str]) -> str:
        return "".join(part.capitalize() for part in found[1].split("_")) + found[2]

    return _MODULE.sub(joined, name).replace("_", "")


def _referred(ref: str) -> str:
    return _REF.format(name=_named(ref.rsplit("/", 1)[-1]))


def _tidy(schema: Any) -> Any:
    """References by our names, times as times, patterns as JSON Schema has them."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidied = {name: _tidy(part) for name, part in schema.items()}
    if "mapping" in tidied:  # from a tag to a reference
        tidied["mapping"] = {tag: _referred(ref) for tag, ref in tidied["mapping"].items()}
    if isinstance(ref := tidied.get("$ref"), str):
        tidied["$ref"] = _referred(ref)
    if isinstance(pattern := tidied.get("pattern"), str):
        tidied["pattern"] = pattern.replace(r"\Z", "$")
    return tidied
