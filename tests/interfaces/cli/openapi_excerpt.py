"""The excerpt of the server's OpenAPI document that the REST API commands are generated from.

Run `python -m tests.interfaces.cli.openapi_excerpt` to write it after a route has changed.
"""

import json
from pathlib import Path
from typing import Any

from segue.interfaces.cli.api import operations
from segue.interfaces.rest.openapi import document
from segue.interfaces.rest.routes import ROUTES

PATH = Path(operations.__file__).with_name("openapi.json")
SHOWN_KEYS = ("type", "contentMediaType")


def excerpt() -> dict[str, Any]:
    """Return the routes that have commands, with the parts that the commands need."""
    full_document = document(ROUTES)
    schemas = full_document["components"]["schemas"]
    paths: dict[str, dict[str, Any]] = {}
    for path, methods in full_document["paths"].items():
        for method, definition in methods.items():
            if operations.command_of(method, path) is not None:
                paths.setdefault(path, {})[method] = _operation(definition, schemas)
    return {"openapi": full_document["openapi"], "paths": paths}


def encode(value: dict[str, Any]) -> str:
    """Return the text of the file: one line per route, for readable diffs."""
    routes = ",\n".join(
        f"{json.dumps(path)}:{json.dumps(methods, separators=(',', ':'))}"
        for path, methods in value["paths"].items()
    )
    return f'{{"openapi":{json.dumps(value["openapi"])},"paths":{{\n{routes}\n}}}}\n'


def _operation(definition: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {
            "name": parameter["name"],
            "in": parameter["in"],
            "schema": _simplify(parameter["schema"], schemas),
        }
        for parameter in definition["parameters"]
        if parameter["in"] in ("path", "query")
    ]
    media_types: dict[str, Any] = {
        media_type: {} for media_type in definition["responses"]["200"]["content"]
    }
    operation: dict[str, Any] = {
        "parameters": parameters,
        "responses": {"200": {"content": media_types}},
    }
    if "requestBody" in definition:
        content = {
            media_type: {"schema": _body(body["schema"], schemas)}
            for media_type, body in definition["requestBody"]["content"].items()
        }
        operation["requestBody"] = {"content": content}
    return operation


def _body(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    properties = _resolve(schema, schemas)["properties"]
    return {
        "type": "object",
        "properties": {name: _simplify(part, schemas) for name, part in properties.items()},
    }


def _simplify(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a schema's type, {} if it allows several; null is left out."""
    schema = _resolve(schema, schemas)
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option != {"type": "null"}]
        simplified = [_simplify(option, schemas) for option in options]
        return simplified[0] if all(option == simplified[0] for option in simplified) else {}
    if "enum" in schema:
        return {"type": "string"}
    if schema.get("type") == "array":
        return {"type": "array", "items": _simplify(schema["items"], schemas)}
    return {key: schema[key] for key in SHOWN_KEYS if key in schema}


def _resolve(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[-1]]
    return schema


if __name__ == "__main__":
    PATH.write_text(encode(excerpt()))
