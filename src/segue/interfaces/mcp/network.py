"""The MCP server over streamable HTTP: `/mcp` on `segue serve`, with segue's API keys."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from segue.http.errors import MethodNotAllowed
from segue.http.hosts import HostCheck
from segue.http.keys import api_key
from segue.http.limits import RateLimiter, caller_of
from segue.http.logs import FIELDS
from segue.http.metrics import Metrics
from segue.hub import Hub
from segue.model.errors import SegueError, Unauthorized
from segue.model.principal import Principal

from .scope import require_package

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

log = logging.getLogger("segue.mcp")

PATH = "/mcp"
MAX_BODY_BYTES = 1_000_000
_PRINCIPAL = "segue.principal"  # in the scope of a request


class McpApp:
    """Serve MCP clients over HTTP, each request on its own, so that any worker can answer it.

    With `principal`, all requests are made by that principal and need no key. A caller gets the
    sessions of its workspace, masked, and can change nothing.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: HostCheck | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        metrics: Metrics | None = None,
        principal: Principal | None = None,
    ) -> None:
        self._hub = hub
        self._hosts = hosts or HostCheck()
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._metrics = metrics or Metrics()
        self._principal = principal
        self._starting: asyncio.Task[StreamableHTTPSessionManager] | None = None
        self._running: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def close(self) -> None:
        """End all requests."""
        self._closing.set()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        status = 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        headers: list[tuple[bytes, bytes]] = []
        try:
            principal = await self._authenticate(scope)
            headers += self._rate_limiter.count_request(caller_of(principal))
            if scope["method"] != "POST":
                # Answers come with their requests: a stream of its own would never send anything.
                raise MethodNotAllowed("use POST; this server has no stream and no sessions")
            manager = await self._manager()
            await manager.handle_request({**scope, _PRINCIPAL: principal}, receive, send_counted)
        except SegueError as error:
            headers += error.data.get("headers", ())
            error_body = {"code": error.rpc_code, "message": error.remote_message}
            response = JSONResponse(
                {"jsonrpc": "2.0", "id": None, "error": error_body}, error.http_status
            )
            await response(scope, receive, send_counted)
        finally:
            self._record(scope["method"], status, perf_counter() - started)

    def _record(self, method: str, status: int, seconds: float) -> None:
        """Count and log a request, without its key, body and query."""
        self._metrics.count_request(method, PATH, status, seconds)
        fields = {"method": method, "route": PATH, "status": status, "ms": round(seconds * 1e3, 3)}
        log.info("request answered", extra={FIELDS: fields})

    async def _authenticate(self, scope: Scope) -> Principal:
        """Return the principal of a request that this server may answer."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._hosts.check(headers)
        if self._principal is not None:
            return self._principal
        try:
            return await self._hub.keys.authenticate(api_key(headers))
        except Unauthorized:
            raise Unauthorized("Authentication failed") from None

    async def _manager(self) -> StreamableHTTPSessionManager:
        """Return the manager that answers requests; the first request creates it."""
        if self._starting is None:
            require_package()
            self._starting = asyncio.ensure_future(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> StreamableHTTPSessionManager:
        manager = await asyncio.to_thread(self._build)
        is_ready = asyncio.Event()
        self._running = asyncio.ensure_future(self._run(manager, is_ready))
        await is_ready.wait()
        return manager

    def _build(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from .scope import McpSettings
        from .server import McpServer

        server = McpServer(self._get_hub, _principal_of, McpSettings(scope="all"))
        return StreamableHTTPSessionManager(
            server.protocol,
            json_response=True,
            stateless=True,
            max_request_body_size=MAX_BODY_BYTES,
        )

    async def _get_hub(self) -> Hub:
        return self._hub

    async def _run(self, manager: StreamableHTTPSessionManager, is_ready: asyncio.Event) -> None:
        async with manager.run():
            is_ready.set()
            await self._closing.wait()


def _principal_of(context: Any) -> Principal:
    """Return the principal that the request of a call was authenticated as."""
    principal = context.request.scope[_PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal
