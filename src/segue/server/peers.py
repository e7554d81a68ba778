"""Pass ACP requests to the worker process that has their connection.

The workers of a server share one listening socket, so any of them may get a request. Each worker
also listens on a loopback port of its own, whose number is in a file for the others.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from segue.model.errors import Overloaded

from .sockets import listen

if TYPE_CHECKING:
    import socket

    import httpx2
    from websockets.asyncio.client import ClientConnection

SEPARATOR = "-"  # between the number of a worker and the rest of a connection's id
CONNECT_SECONDS = 5.0
# Headers that concern one link, and not the request or response.
_LINK_HEADERS = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade"})


class WorkerPeers:
    """The workers of a server, as one of them sees the others."""

    def __init__(self, directory: Path, number: int) -> None:
        """Create the view of worker `number`. The workers' port numbers are in `directory`."""
        self._directory = directory
        self._number = number
        self._port: int | None = None
        self._client: httpx2.AsyncClient | None = None

    @property
    def prefix(self) -> str:
        """The beginning of the ids of this worker's connections."""
        return f"{self._number}{SEPARATOR}"

    def listen(self) -> socket.socket:
        """Return this worker's own listening socket, and publish its port."""
        sock = listen("127.0.0.1", 0)
        self._port = sock.getsockname()[1]
        path = self._directory / str(self._number)
        draft = path.with_suffix(".new")
        draft.write_text(str(self._port))
        os.replace(draft, path)
        return sock

    def owner_port(self, connection_id: str) -> int | None:
        """Return the port of the worker that has a connection; None if it is this one or none."""
        number, separator, _ = connection_id.partition(SEPARATOR)
        if not separator or not (number.isascii() and number.isdigit()):
            return None
        if len(number) > 4 or int(number) == self._number:
            return None
        try:
            port = int((self._directory / str(int(number))).read_text())
        except FileNotFoundError:
            return None
        # This worker may have got the port of one that has ended.
        return None if port == self._port else port

    async def forward(self, port: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a request to another worker, and its response to the client."""
        import httpx2

        if self._client is None:
            timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
            limits = httpx2.Limits(max_connections=None)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        request = self._client.build_request(
            scope["method"],
            f"http://127.0.0.1:{port}{scope['path']}",
            headers=_without_link_headers(scope["headers"]),
            content=_body(Request(scope, receive)) if scope["method"] == "POST" else None,
        )
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.TransportError as error:
            raise Overloaded("the worker of this connection does not answer; try again") from error
        streamed = StreamingResponse(
            response.aiter_raw(), response.status_code, background=BackgroundTask(response.aclose)
        )
        streamed.raw_headers = _without_link_headers(response.headers.raw)
        try:
            await streamed(scope, receive, send)
        finally:
            await response.aclose()

    async def relay(
        self, port: int, scope: Scope, first: str, receive: Receive, send: Send
    ) -> bool:
        """Pass an accepted WebSocket with its first message to another worker.

        Returns False if that worker does not accept it. Its end is the end of both links.
        """
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in _without_link_headers(scope["headers"])
            if not name.startswith(b"sec-websocket-") and name not in (b"host", b"origin")
        ]
        try:
            socket = await connect(
                f"ws://127.0.0.1:{port}{scope['path']}",
                additional_headers=headers,
                max_size=None,  # this worker has checked the client's frames
                compression=None,
                open_timeout=CONNECT_SECONDS,
                proxy=None,
            )
        except (OSError, WebSocketException):
            return False
        async with socket:
            await socket.send(first)
            tasks = [
                asyncio.ensure_future(_relay_to_worker(socket, receive)),
                asyncio.ensure_future(_relay_to_client(socket, send)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return True

    async def close(self) -> None:
        """Close the connections to the other workers."""
        if self._client is not None:
            await self._client.aclose()


async def _relay_to_worker(socket: ClientConnection, receive: Receive) -> None:
    """Send the client's frames to another worker until the client ends the link."""
    while (event := await receive())["type"] != "websocket.disconnect":
        frame = event.get("text")
        await socket.send(event.get("bytes") or b"" if frame is None else frame)


async def _relay_to_client(socket: ClientConnection, send: Send) -> None:
    """Send another worker's frames to the client until that worker ends the link."""
    async for frame in socket:
        kind = "text" if isinstance(frame, str) else "bytes"
        await send({"type": "websocket.send", kind: frame})
    await send({"type": "websocket.close", "code": socket.close_code or 1011})


async def _body(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        yield chunk


def _without_link_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in _LINK_HEADERS]
