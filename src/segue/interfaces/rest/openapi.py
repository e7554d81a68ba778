"""Generate the OpenAPI 3.1 document from the endpoints and their types.

Its schemas are the structs that requests are decoded into and responses are encoded from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_type_hints

import msgspec

from segue import __version__
from segue.model import codec
from segue.model.anthropic.agents import SessionAgent, ThreadAgent
from segue.model.lifecycle import STATUSES

from .events.event_types import KINDS_BY_TYPE, NEVER_SENT
from .handlers.resources import ResourceOut
from .request import API_VERSIONS, Endpoint
from .schemas.events import Streamed
from .schemas.requests import Out

_REF = "#/components/schemas/{name}"
# msgspec qualifies the names of types that several modules define.
_QUALIFIED_NAME = re.compile(r"segue\.interfaces\.rest\.(?:[a-z_]+\.)*([a-z_]+)\.([A-Za-z0-9]+)")
_TIME = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string"}


class ErrorDetail(Out, frozen=True):
    """`details` is set only for errors that have some."""

    type: str
    message: str
    details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Error(Out, frozen=True, tag_field="type", tag="error"):
    error: ErrorDetail
    request_id: str


class Binary(Out, frozen=True):
    """Marks a response of bytes."""


class Stream(Out, frozen=True):
    """Marks a response of server-sent events, each named by its type with a Streamed as data."""


# Query parameters that are not plain text.
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
    "types[]": {
        "type": "array",
        "items": {"enum": sorted({*KINDS_BY_TYPE, *NEVER_SENT})},
    },
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
_FILES = {"files[]": {"type": "array", "items": _BYTES, "minItems": 1}}
_DISPLAY_NAME = {"display_name": {"type": "string", "maxLength": 255}}
_EXPIRY = {"expires_in_seconds": {"type": "integer", "minimum": 3600, "maximum": 7_776_000}}
# Request bodies that are multipart forms.
FORMS: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/files"): {"properties": {"file": _BYTES, **_EXPIRY}, "required": ["file"]},
    ("POST", "/v1/skills"): {"properties": {**_FILES, **_DISPLAY_NAME}, "required": ["files[]"]},
    ("POST", "/v1/skills/{skill_id}/versions"): {
        "properties": _FILES,
        "required": ["files[]"],
    },
}
# Lists whose pages may have 1000 items instead of 100.
_LONG_LISTS = ("sessions", "files", "events", "resources", "threads", "deployment_runs", "models")
_ERROR_DESCRIPTIONS = {
    "400": "The request is not valid; the message names the field.",
    "401": "The API key is missing or not valid.",
    "403": "The request names a host or origin that is not served.",
    "404": "It does not exist in the workspace, or the beta header is missing.",
    "409": "It was changed by another request, or exists already.",
    "412": "The expected heartbeat is not the last one.",
    "413": "The request body is too large.",
    "429": "Too many requests with this key; retry after `retry-after` seconds.",
    "500": "The server failed.",
    "503": "The store is not available at the moment.",
}


@cache
def encoded_document(routes: tuple[Endpoint, ...]) -> bytes:
    """Return the document as JSON."""
    return codec.encode(document(routes))


def document(routes: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of the endpoints."""
    routes = tuple(routes)
    used = [kind for route in routes for kind in (route.request_type, response_type(route)) if kind]
    types = [*used, Error, SessionAgent, ThreadAgent, ResourceOut, Streamed]
    refs, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_by_type = {id(kind): _clean_schema(ref) for kind, ref in zip(types, refs, strict=True)}
    schemas = {_schema_name(name): _clean_schema(schema) for name, schema in components.items()}
    schemas["Streamed"] = schema_by_type[id(Streamed)]
    # These fields are encoded in advance, so their types in the struct do not describe them.
    schemas["SessionOut"]["properties"] |= {
        "agent": schema_by_type[id(SessionAgent)],
        "resources": {"type": "array", "items": schema_by_type[id(ResourceOut)]},
        "status": {"enum": list(STATUSES)},
    }
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "segue",
            "version": __version__,
            "description": "Sessions of AI agents, for the official `anthropic` clients.",
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
    """Return the type of an endpoint's response."""
    return route.response_type or get_type_hints(route.handler)["return"]


def _operation(route: Endpoint, schema_by_type: dict[int, Any]) -> dict[str, Any]:
    resource = _resource_name(route)
    operation: dict[str, Any] = {
        "operationId": f"{resource}.{route.handler.__name__.strip('_')}",
        "tags": [resource],
        "parameters": [*_path_parameters(route), *_header_parameters(route), *_query(route)],
        "responses": {
            "200": {"description": "Done.", "content": _response(route, schema_by_type)},
            **_error_responses(),
        },
    }
    if route.request_type is not None:
        content = {"application/json": {"schema": schema_by_type[id(route.request_type)]}}
        operation["requestBody"] = {"required": True, "content": content}
    elif form := FORMS.get((route.method, route.path)):
        content = {"multipart/form-data": {"schema": {"type": "object", **form}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _resource_name(route: Endpoint) -> str:
    """Return the name of a handler's module."""
    return route.handler.__module__.rpartition(".")[2]


def _response(route: Endpoint, schema_by_type: dict[int, Any]) -> dict[str, Any]:
    kind = response_type(route)
    if kind is Binary:
        return {"*/*": {"schema": {}}}
    if kind is Stream:
        # OpenAPI 3.1 cannot describe the items of a stream; OpenAPI 3.2 has itemSchema for it.
        streamed = {"$ref": _REF.format(name="Streamed")}
        return {"text/event-stream": {"schema": _TEXT, "x-itemSchema": streamed}}
    return {"application/json": {"schema": schema_by_type[id(kind)]}}


def _error_responses() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {
        status: {"description": description, "content": content}
        for status, description in _ERROR_DESCRIPTIONS.items()
    }


def _path_parameters(route: Endpoint) -> Iterator[dict[str, Any]]:
    for name in route.path_names:
        schema = {"type": "string", "minLength": 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _header_parameters(route: Endpoint) -> Iterator[dict[str, Any]]:
    versions = {"enum": [version.decode() for version in API_VERSIONS]}
    yield {"name": "anthropic-version", "in": "header", "required": True, "schema": versions}
    if route.betas:
        betas = {"enum": sorted(route.betas)}
        yield {"name": "anthropic-beta", "in": "header", "required": True, "schema": betas}


def _query(route: Endpoint) -> Iterator[dict[str, Any]]:
    last_segment = route.path.rsplit("/", 1)[-1]
    is_long_list = last_segment in _LONG_LISTS or route.path.startswith("/v1/skills")
    for name in route.query:
        schema = _PARAMETERS.get(name, _TEXT)
        if name == "limit" and is_long_list:
            schema = {**schema, "maximum": 1000}
        if name.startswith("created_at["):
            schema = _TIME
        yield {"name": name, "in": "query", "required": False, "schema": schema}


def _schema_name(name: str) -> str:
    """Return a type's name, after its module's if several modules have a type of this name."""

    def join(match: re.Match[str]) -> str:
        return "".join(part.capitalize() for part in match[1].split("_")) + match[2]

    return _QUALIFIED_NAME.sub(join, name).replace("_", "")


def _rename_ref(ref: str) -> str:
    return _REF.format(name=_schema_name(ref.rsplit("/", 1)[-1]))


def _clean_schema(schema: Any) -> Any:
    """Return a schema with our names in its references and JSON Schema's syntax in patterns."""
    if isinstance(schema, list):
        return [_clean_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {name: _clean_schema(part) for name, part in schema.items()}
    if "mapping" in cleaned:  # from a tag to a reference
        cleaned["mapping"] = {tag: _rename_ref(ref) for tag, ref in cleaned["mapping"].items()}
    if isinstance(ref := cleaned.get("$ref"), str):
        cleaned["$ref"] = _rename_ref(ref)
    if isinstance(pattern := cleaned.get("pattern"), str):
        cleaned["pattern"] = pattern.replace(r"\Z", "$")
    return cleaned
