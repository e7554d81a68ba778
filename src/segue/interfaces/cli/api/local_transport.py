"""The REST door without a server: requests of an HTTP client, answered in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx2

from segue.interfaces.rest.app import RestApp

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal

ADDRESS = "http://localhost"


class _Body(httpx2.AsyncByteStream):
    """An answer's body, as it comes."""

    def __init__(self, call: asyncio.Task[None], pieces: asyncio.Queue[bytes | None]) -> None:
        self._call = call
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece
        await self._call

    async def aclose(self) -> None:
        self._call.cancel()
        with suppress(asyncio.CancelledError):
            await self._call


class InProcess(httpx2.AsyncBaseTransport):
    """An HTTP client's way to the door; answers come piece by piece, so streams work too."""

    def __init__(self, hub: Hub, principal: Principal | None) -> None:
        """Requests are `principal`'s; without one, their keys say whose they are."""
        self._app = RestApp(hub, principal=principal)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        started: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]]
        started = asyncio.get_running_loop().create_future()
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        asked = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if asked:
                return asked.pop()
            await asyncio.Event().wait()  # the client stays for as long as it reads

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                if not started.done():  # whoever asked may not wait any more
                    started.set_result((message["status"], list(message["headers"])))
                return
            if piece := message.get("body"):
                pieces.put_nowait(piece)
            if not message.get("more_body"):
                pieces.put_nowait(None)

        call = asyncio.ensure_future(self._app(_scope(request), receive, send))
        # The door answers every failure; it does not end without having begun an answer.
        body_to_come = _Body(call, pieces)
        try:
            status, headers = await started
        except asyncio.CancelledError:
            await body_to_come.aclose()
            raise
        return httpx2.Response(status, headers=headers, stream=body_to_come)


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
