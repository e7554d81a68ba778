"""Answer HTTP requests in this process, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LOCAL_URL = "http://localhost"


class _ResponseBody(httpx2.AsyncByteStream):
    """A response's body, chunk by chunk as the application sends it."""

    def __init__(self, call: asyncio.Task[None], chunks: asyncio.Queue[bytes | None]) -> None:
        self._call = call
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
        await self._call

    async def aclose(self) -> None:
        self._call.cancel()
        with suppress(asyncio.CancelledError):
            await self._call


class LocalTransport(httpx2.AsyncBaseTransport):
    """Sends an HTTP client's requests to an ASGI application; event streams work too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request_body = await request.aread()
        started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]]
        started = asyncio.get_running_loop().create_future()
        chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        messages = [{"type": "http.request", "body": request_body, "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()  # this client disconnects by cancelling the call

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                if not started.done():  # the request may be cancelled already
                    started.set_result((message["status"], list(message["headers"])))
                return
            if chunk := message.get("body"):
                chunks.put_nowait(chunk)
            if not message.get("more_body"):
                chunks.put_nowait(None)

        # The application answers every failure, so a response always starts.
        call = asyncio.ensure_future(self._call_app(request, receive, send))
        body = _ResponseBody(call, chunks)
        try:
            status, headers = await started
        except asyncio.CancelledError:
            await body.aclose()
            raise
        return httpx2.Response(status, headers=headers, stream=body)

    async def _call_app(self, request: httpx2.Request, receive: Any, send: Any) -> None:
        await self._app(_scope(request), receive, send)


def _scope(request: httpx2.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": None,
        "server": ("localhost", 80),
        "root_path": "",
    }
