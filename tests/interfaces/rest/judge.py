"""Holds every answer that a test sees to what the door says of itself in its OpenAPI document."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from segue.http.routing import RouteTree
from segue.interfaces.rest.openapi import encoded_document
from segue.interfaces.rest.routes import ROUTES

DOCUMENT = json.loads(encoded_document(ROUTES))
_routes = RouteTree(ROUTES)


def judge(method: str, path: str, status: int, kind: str, answer: Any) -> None:
    """`answer` is decoded JSON, or None where the answer is no JSON."""
    found = _routes.match(path)
    endpoint = found and found[0].get(method)
    if not endpoint:
        assert status in (403, 404, 405), (method, path, status)
        return
    responses = DOCUMENT["paths"][endpoint.path][method.lower()]["responses"]
    assert str(status) in responses, (method, path, status)
    content = responses[str(status)]["content"]
    assert kind in content or "*/*" in content, (method, path, kind)
    if answer is not None and kind in content:
        wrong = [error.message for error in _validator(endpoint.path, method, status, kind)(answer)]
        assert wrong == [], (method, path, wrong)


def judge_frame(data: Any) -> None:
    """What a frame of a stream has as its data; an error's envelope is none of the types."""
    if data["type"] == "error":
        return
    wrong = [error.message for error in _streamed()(data)]
    assert wrong == [], (data, wrong)


@cache
def _streamed() -> Any:
    whole = {"$ref": "#/components/schemas/Streamed", "components": DOCUMENT["components"]}
    return Draft202012Validator(whole).iter_errors


@cache
def _validator(path: str, method: str, status: int, kind: str) -> Any:
    responses = DOCUMENT["paths"][path][method.lower()]["responses"]
    schema = responses[str(status)]["content"][kind]["schema"]
    whole = {**schema, "components": DOCUMENT["components"]}
    return Draft202012Validator(whole).iter_errors
