"""The REST API as an ASGI application.

Requests are checked in the order that clients rely on: an unknown path is 404 even without a key,
then come the key (401), the beta header (404), the API version (400) and the query (400). The rate
limit counts requests with a valid key only.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from segue.http.errors import MethodNotAllowed
from segue.http.hosts import HostCheck
from segue.http.keys import api_key
from segue.http.limits import RateLimiter, caller_of
from segue.http.logs import FIELDS
from segue.http.metrics import Metrics, Series, SharedMetrics
from segue.http.routing import RouteTree
from segue.hub import Hub
from segue.model import codec
from segue.model.errors import (
    InvalidInput,
    NotFound,
    SegueError,
    StoreUnreachable,
    Unauthorized,
)
from segue.model.principal import Principal

from . import errors
from .context import RestContext
from .idempotency import HEADER, answer_once
from .params import Params
from .request import API_VERSIONS, Endpoint, RestRequest
from .routes import PUBLIC_ROUTES, ROUTES

log = logging.getLogger("segue.rest")

MAX_QUERY_FIELDS = 1000


class RestApp:
    """Answer REST requests on a hub.

    With `principal`, all requests are made by that principal and need no key.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: HostCheck | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        shared_metrics: SharedMetrics | None = None,
        principal: Principal | None = None,
        closing: asyncio.Event | None = None,
    ) -> None:
        self.hub = hub
        self.closing = closing or asyncio.Event()
        self._context = RestContext(hub, self.closing, shared_metrics)
        self._hosts = hosts or HostCheck()
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._routes = RouteTree(ROUTES)
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the REST API answers HTTP requests, not {scope['type']}")
        started = perf_counter()
        request = RestRequest(self._context, scope, receive)
        status = 200
        try:
            result = await self._dispatch(request)
        except ClientDisconnect:
            return
        except SegueError as error:
            status, result = error.http_status, _envelope(error, request)
            request.response_headers += errors.retry_headers(error)
            # The store logs an outage, and not each request that fails because of it.
            is_logged = status >= 500 or error.remote_message != error.message
            if is_logged and not isinstance(error, StoreUnreachable):
                log.warning(error.message, extra=_log_fields(request))
        except Exception:
            log.exception("a request failed", extra=_log_fields(request))
            failure = SegueError("the server failed; its log has the details")
            status, result = 500, _envelope(failure, request)
        if isinstance(result, Response):
            status = result.status_code
            result.raw_headers += request.response_headers
        self._record(request, status, perf_counter() - started)
        if isinstance(result, Response):
            await result(scope, receive, send)
            return
        large = request.has_large_body
        body = await asyncio.to_thread(codec.encode, result) if large else codec.encode(result)
        length = (b"content-length", b"%d" % len(body))
        headers = [(b"content-type", b"application/json"), length, *request.response_headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @property
    def metrics(self) -> Metrics:
        """Return the counters of this process."""
        return self._context.metrics

    def own_metrics(self) -> Series:
        """Return the metrics of this process."""
        return self._context.own_metrics()

    def _record(self, request: RestRequest, status: int, seconds: float) -> None:
        route = "none" if request.endpoint is None else request.endpoint.path
        self._context.metrics.count_request(request.scope["method"], route, status, seconds)
        if log.isEnabledFor(logging.INFO):
            extra = _log_fields(request)
            extra[FIELDS] |= {"status": status, "ms": round(seconds * 1e3, 3)}
            log.info("request answered", extra=extra)

    async def _dispatch(self, request: RestRequest) -> Any:
        """Check a request and return the result of its handler."""
        scope = request.scope
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._hosts.check(headers)
        path, method = scope["path"], scope["method"]
        if path in PUBLIC_ROUTES and method in ("GET", "HEAD"):
            return await PUBLIC_ROUTES[path](self._context)
        match = self._routes.match(path)
        if match is None:
            raise NotFound("Not found")
        endpoint = match.methods.get(method)
        if endpoint is None:
            raise MethodNotAllowed("Method Not Allowed")
        request.endpoint = endpoint
        request.key = api_key(headers)
        request.principal = await self._authenticate(request.key)
        request.response_headers += self._rate_limiter.count_request(caller_of(request.principal))
        _check_workspace(headers, request.workspace)
        _check_headers(scope, headers, endpoint)
        query = _parse_query(scope["query_string"].decode("latin-1"))
        request.params = Params(query, endpoint.query)
        request.path_params = dict(zip(endpoint.path_names, match.values, strict=True))
        key = headers.get(HEADER) if method == "POST" else None
        if key is None:
            return await _handle(request, endpoint)
        return await answer_once(request, key.decode("latin-1"), lambda: _handle(request, endpoint))

    async def _authenticate(self, key: str) -> Principal:
        if self._principal is not None:
            return self._principal
        try:
            return await self.hub.keys.authenticate(key)
        except Unauthorized:
            raise Unauthorized("Authentication failed") from None


async def _handle(request: RestRequest, endpoint: Endpoint) -> Any:
    async with request.reservations:
        return await endpoint.handler(request)


def _envelope(error: SegueError, request: RestRequest) -> dict[str, object]:
    return errors.envelope(error, request.request_id, local=request.principal.local)


def _log_fields(request: RestRequest) -> dict[str, dict[str, object]]:
    """Return what a log line may say about a request."""
    route = None if request.endpoint is None else request.endpoint.path
    return {
        FIELDS: {
            "request_id": request.request_id,
            "method": request.scope["method"],
            "route": route,
            "workspace": request.workspace or None,
        }
    }


def _check_workspace(headers: dict[bytes, bytes], workspace: str) -> None:
    """Raise InvalidInput if a request names another workspace than its key's."""
    named = headers.get(b"anthropic-workspace-id")
    if named is not None and named.decode("latin-1") != workspace:
        raise InvalidInput("anthropic-workspace-id: is not the workspace of this API key")


def _check_headers(scope: Scope, headers: dict[bytes, bytes], endpoint: Endpoint) -> None:
    if endpoint.betas:
        values = [value for name, value in scope["headers"] if name == b"anthropic-beta"]
        betas = b",".join(values).decode("latin-1").split(",")
        if endpoint.betas.isdisjoint(beta.strip() for beta in betas):
            required = " or ".join(sorted(endpoint.betas))
            raise NotFound(f"not found without the header anthropic-beta: {required}")
    version = headers.get(b"anthropic-version")
    if version is None:
        raise InvalidInput("anthropic-version: header is required")
    if version not in API_VERSIONS:
        supported = b", ".join(API_VERSIONS).decode()
        raise InvalidInput(f"anthropic-version: must be one of {supported}")


def _parse_query(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS
        )
    except ValueError:
        raise InvalidInput(
            "the query string is not valid: it must be UTF-8, percent-encoded, with at most"
            f" {MAX_QUERY_FIELDS} parameters"
        ) from None
