"""Check the responses that tests receive against the OpenAPI document."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from segue.http.routing import RouteTree
from segue.interfaces.rest.openapi import encoded_document
from segue.interfaces.rest.routes import ROUTES

DOCUMENT = json.loads(encoded_document(ROUTES))
_routes = RouteTree(ROUTES)


def check_response(method: str, path: str, status: int, content_type: str, body: Any) -> None:
    """Assert that a response is documented. `body` is decoded JSON, or None for other types."""
    match = _routes.match(path)
    endpoint = match and match[0].get(method)
    if not endpoint:
        assert status in (403, 404, 405), (method, path, status)
        return
    responses = DOCUMENT["paths"][endpoint.path][method.lower()]["responses"]
    assert str(status) in responses, (method, path, status)
    content = responses[str(status)]["content"]
    assert content_type in content or "*/*" in content, (method, path, content_type)
    if body is not None and content_type in content:
        validate = _validator(endpoint.path, method, status, content_type)
        errors = [error.message for error in validate(body)]
        assert errors == [], (method, path, errors)


def check_frame(data: Any) -> None:
    """Assert that the data of a stream's frame is documented, unless it is an error."""
    if data["type"] == "error":
        return
    errors = [error.message for error in _frame_validator()(data)]
    assert errors == [], (data, errors)


@cache
def _frame_validator() -> Any:
    schema = {"$ref": "#/components/schemas/Streamed", "components": DOCUMENT["components"]}
    return Draft202012Validator(schema).iter_errors


@cache
def _validator(path: str, method: str, status: int, content_type: str) -> Any:
    responses = DOCUMENT["paths"][path][method.lower()]["responses"]
    schema = responses[str(status)]["content"][content_type]["schema"]
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]}).iter_errors
