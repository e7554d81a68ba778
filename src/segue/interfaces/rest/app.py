"""The door as an ASGI application: the gates, in the order that clients know, then a handler.

An unknown address is 404 to anybody; then comes who asks (401), then the beta header (404), then
the API version (400), then the query parameters (400). A rate limit counts whoever has a key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import lru_cache
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from segue.http.errors import NotAllowed, Refused
from segue.http.limits import Limits
from segue.http.logs import FIELDS
from segue.http.metrics import Metrics, Series
from segue.hub import Hub
from segue.model import codec
from segue.model.errors import InvalidInput, NotFound, SegueError, Unauthorized
from segue.model.principal import Principal

from . import errors
from .events.stream_ack import StreamAcks
from .handlers.agents import Agents
from .params import Params
from .request import Endpoint, RestRequest
from .routes import OPEN, ROUTES, Routes
from .schemas.session import SessionEncoder

log = logging.getLogger("segue.rest")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
VERSIONS = (b"2023-06-01", b"2026-10-21")


class SharedMetrics(Protocol):
    """The counts of several processes that serve as one."""

    def share(self, own: Series) -> None: ...
    def total(self, own: Series) -> Series: ...


class RestApp:
    """Answers requests on a hub.

    `hosts` are the names that requests may be addressed to, `rate_limit` how many requests a
    minute each key may send. `principal` is who asks, where that is known without a key.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: Iterable[str] = (),
        *,
        rate_limit: int = 0,
        shared_metrics: SharedMetrics | None = None,
        principal: Principal | None = None,
    ) -> None:
        self.hub = hub
        self.agents = Agents(hub)
        self.session_encoder = SessionEncoder()
        self.stream_acks = StreamAcks(hub)
        self.metrics = Metrics()
        self.closing = asyncio.Event()
        self.hosts = frozenset(name.lower() for name in (*LOOPBACK, *hosts))
        self._limits = Limits(rate_limit) if rate_limit else None
        self._routes = Routes(ROUTES)
        self._shared_metrics = shared_metrics
        self._asking = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"this application speaks HTTP, not {scope['type']}")
        started = perf_counter()
        request = RestRequest(self, scope, receive)
        status = 200
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        except SegueError as error:
            status, answer = error.http_status, errors.envelope(error, request.request_id)
            request.response_headers += errors.hints(error)
            if status >= 500:
                log.warning(error.message, extra=_told(request))
        except Exception:
            log.exception("a request failed", extra=_told(request))
            failure = SegueError("an error on our side; the server's log has the details")
            status, answer = 500, errors.envelope(failure, request.request_id)
        if isinstance(answer, Response):
            status = answer.status_code
            answer.raw_headers += request.response_headers
        self._note(request, status, perf_counter() - started)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        body = codec.encode(answer)
        length = (b"content-length", b"%d" % len(body))
        headers = [(b"content-type", b"application/json"), length, *request.response_headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def background_request(self, principal: Principal) -> RestRequest:
        """A request that nobody sent, for what is done in a workspace by itself."""

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        request = RestRequest(self, {"type": "http", "method": "POST", "headers": []}, nothing)
        request.principal = principal
        return request

    def series(self) -> Series:
        """What has been counted so far, by all who serve together."""
        own = self.own_series()
        return own if self._shared_metrics is None else self._shared_metrics.total(own)

    def own_series(self) -> Series:
        return self.metrics.series(self.hub.turns.running, self.hub.store.vitals())

    def _note(self, request: RestRequest, status: int, seconds: float) -> None:
        route = "none" if request.endpoint is None else request.endpoint.path
        self.metrics.answered(request.scope["method"], route, status, seconds)
        if log.isEnabledFor(logging.INFO):
            told = _told(request)
            told[FIELDS] |= {"status": status, "ms": round(seconds * 1e3, 3)}
            log.info("answered", extra=told)

    async def _answer(self, request: RestRequest) -> Any:
        """What the handler says, once the request has passed the gates."""
        scope = request.scope
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._check_origin(headers)
        path, method = scope["path"], scope["method"]
        if path in OPEN and method in ("GET", "HEAD"):
            return await OPEN[path](self)
        found = self._routes.find(path)
        if found is None:
            raise NotFound("Not found")
        methods, values = found
        endpoint = methods.get(method)
        if endpoint is None:
            raise NotAllowed("Method Not Allowed")
        request.endpoint = endpoint
        request.key = _presented(headers)
        request.principal = await self._principal(request.key)
        if self._limits is not None:
            request.response_headers += self._limits.take(request.principal.key_id or "")
        _check_headers(scope, headers, endpoint)
        request.params = Params(_pairs(scope["query_string"].decode("latin-1")), endpoint.query)
        request.path_params = dict(zip(endpoint.names, values, strict=True))
        return await endpoint.handle(request)

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """A page in a browser must not reach us under a name of its own choosing."""
        host = _host("//" + headers.get(b"host", b"").decode("latin-1"))
        if host not in self.hosts:
            raise Refused(f"host {host!r} is not served here; see segue serve --allow-host")
        origin = headers.get(b"origin")
        if origin is not None and _host(origin.decode("latin-1")) not in self.hosts:
            raise Refused(f"origin {origin.decode('latin-1')!r} is not served here")

    async def _principal(self, key: str) -> Principal:
        if self._asking is not None:
            return self._asking
        try:
            return await self.hub.keys.authenticate(key)
        except Unauthorized:
            raise Unauthorized("Authentication failed") from None


def _presented(headers: dict[bytes, bytes]) -> str:
    """The key that a request shows, in either way."""
    secret = headers.get(b"x-api-key")
    if secret is None:
        scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
        secret = rest.strip() if scheme.lower() == b"bearer" else b""
    return secret.decode("latin-1")


def _told(request: RestRequest) -> dict[str, dict[str, object]]:
    """What a log line says of a request, and all that it may say."""
    route = None if request.endpoint is None else request.endpoint.path
    return {
        FIELDS: {
            "request_id": request.request_id,
            "method": request.scope["method"],
            "route": route,
            "workspace": request.workspace or None,
        }
    }


def _check_headers(scope: Scope, headers: dict[bytes, bytes], endpoint: Endpoint) -> None:
    if endpoint.betas:
        given = [value for name, value in scope["headers"] if name == b"anthropic-beta"]
        names = b",".join(given).decode("latin-1").split(",")
        if endpoint.betas.isdisjoint(name.strip() for name in names):
            wanted = " or ".join(sorted(endpoint.betas))
            raise NotFound(f"not found without the header anthropic-beta: {wanted}")
    version = headers.get(b"anthropic-version")
    if version is None:
        raise InvalidInput("anthropic-version: header is required")
    if version not in VERSIONS:
        told = b", ".join(VERSIONS).decode()
        raise InvalidInput(f"anthropic-version: must be one of {told}")


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError:
        raise InvalidInput("the query string cannot be read") from None


@lru_cache(256)
def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
