"""The door as an ASGI application: the gates, in the order that clients know, then a handler.

An unknown address is 404 to anybody; then comes who asks (401), then the beta header (404), then
the API version (400), then the query parameters (400).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...hub import Hub
from ...model import codec, ids
from ...model.errors import InvalidInput, NotFound, SegueError, Unauthorized
from ...model.principal import Principal
from . import errors
from .agents import Agents
from .call import Call, Endpoint
from .params import Params
from .routes import OPEN, ROUTES, Routes
from .shown import Shown

log = logging.getLogger("segue.rest")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
VERSIONS = ("2023-06-01", "2026-10-21")


class Door:
    """Answers requests on a hub. `hosts` are the names that requests may be addressed to."""

    def __init__(self, hub: Hub, hosts: Iterable[str] = ()) -> None:
        self.hub = hub
        self.agents = Agents(hub)
        self.shown = Shown()
        self.closing = asyncio.Event()
        self._hosts = frozenset(name.lower() for name in (*LOOPBACK, *hosts))
        self._routes = Routes(ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application speaks HTTP, not {scope['type']}")
        request = Request(scope, receive)
        request_id = ids.spell("req", ids.new_id())
        try:
            response = await self._answer(request, request_id)
        except ClientDisconnect:
            return
        except SegueError as error:
            if error.http_status >= 500:
                log.warning("%s %s: %s", request.method, request.url.path, error.message)
            response = errors.response(error, request_id)
        except Exception:
            log.exception("%s %s failed (%s)", request.method, request.url.path, request_id)
            failure = SegueError("an error on our side; the server's log has the details")
            response = errors.response(failure, request_id)
        response.headers["request-id"] = request_id
        await response(scope, receive, send)

    async def _answer(self, request: Request, request_id: str) -> Response:
        self._check_origin(request)
        path = request.scope["path"]
        if path in OPEN and request.method in ("GET", "HEAD"):
            return await OPEN[path](self.hub)
        found = self._routes.find(path)
        if found is None:
            raise NotFound("Not found")
        methods, values = found
        endpoint = methods.get(request.method)
        if endpoint is None:
            raise errors.NotAllowed("Method Not Allowed")
        principal = await self._principal(request)
        _check_headers(request, endpoint)
        query = request.scope["query_string"].decode("latin-1")
        params = Params(_pairs(query), endpoint.query)
        names = [part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")]
        path_values = dict(zip(names, values, strict=True))
        call = Call(self, request, principal, path_values, params, request_id)
        return _response(await endpoint.handle(call))

    def _check_origin(self, request: Request) -> None:
        """A page in a browser must not reach us under a name of its own choosing."""
        host = _host(f"//{request.headers.get('host', '')}")
        if host not in self._hosts:
            raise errors.Refused(f"host {host!r} is not served here; see segue serve --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and _host(origin) not in self._hosts:
            raise errors.Refused(f"origin {origin!r} is not served here")

    async def _principal(self, request: Request) -> Principal:
        secret = request.headers.get("x-api-key")
        if secret is None:
            scheme, _, rest = request.headers.get("authorization", "").partition(" ")
            secret = rest.strip() if scheme.lower() == "bearer" else ""
        try:
            return await self.hub.keys.authenticate(secret)
        except Unauthorized:
            raise Unauthorized("Authentication failed") from None


def _check_headers(request: Request, endpoint: Endpoint) -> None:
    if endpoint.betas:
        given = ",".join(request.headers.getlist("anthropic-beta")).split(",")
        if endpoint.betas.isdisjoint(name.strip() for name in given):
            raise NotFound("not found")
    version = request.headers.get("anthropic-version")
    if version is None:
        raise InvalidInput("anthropic-version: header is required")
    if version not in VERSIONS:
        raise InvalidInput(f"anthropic-version: must be one of {', '.join(VERSIONS)}")


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise InvalidInput("the query string cannot be read") from None


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _response(answer: Any) -> Response:
    if isinstance(answer, Response):
        return answer
    return Response(codec.encode(answer), media_type="application/json")
