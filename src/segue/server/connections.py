"""Limit the HTTP connections of one process: their number, their waiting times and their heads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.http11 import Request

from segue.http.asgi import SEND_BATCH
from segue.model import codec

MAX_HEAD_BYTES = 32 * 1024
MAX_PIPELINED_REQUESTS = 16
HEAD_SECONDS = 15.0
BODY_SECONDS = 30.0
WRITE_SECONDS = 60.0
DISCARD_SECONDS = 2.0
MAX_DISCARDED_BYTES = 1 << 20
FILES_PER_CONNECTION = 2
RESERVED_FILES = 256
MAX_CONNECTIONS = 4000


_websocket_log = logging.getLogger("segue.websocket")
_websocket_log.setLevel(logging.WARNING)


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of connections, which apply before a client is authenticated.

    `head_seconds` is the time for a request's head, from its first byte or from the start of the
    connection. `body_seconds` is the longest pause in a body that the server waits for, and
    `write_seconds` the longest time that a client may leave a response unread, also after the
    server has closed the connection.
    """

    max_connections: int
    head_bytes: int = MAX_HEAD_BYTES
    head_seconds: float = HEAD_SECONDS
    body_seconds: float = BODY_SECONDS
    write_seconds: float = WRITE_SECONDS


def raise_open_files_limit() -> None:
    """Raise this process's limit of open files as far as MAX_CONNECTIONS needs, if allowed.

    Many systems start a process with 256 or 1,024.
    """
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_PER_CONNECTION * MAX_CONNECTIONS + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def default_max_connections() -> int:
    """Return how many connections fit into this process's limit of open files."""
    try:
        import resource
    except ImportError:
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(16, min(MAX_CONNECTIONS, (soft - RESERVED_FILES) // FILES_PER_CONNECTION))


class Connections:
    """All connections of a process. Creates uvicorn's protocol objects.

    At the limit, a new connection replaces the one that has waited longest for a request, or else
    for the rest of one. If all connections have a complete request, the new one is refused.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: set[HttpConnection] = set()
        self._without_request: dict[HttpConnection, None] = {}  # the longest wait first
        self._with_part_of_request: dict[HttpConnection, None] = {}  # the longest wait first

    def create_protocol(self, **arguments: Any) -> HttpConnection:
        return HttpConnection(self, **arguments)

    def add(self, connection: HttpConnection) -> bool:
        """Count a new connection, and return False if it must be refused."""
        if len(self._open) >= self.limits.max_connections:
            replaceable = chain(self._without_request, self._with_part_of_request)
            replaced = next(replaceable, None)
            if replaced is None:
                return False
            self.remove(replaced)
            replaced.transport.abort()
        self._open.add(connection)
        self._without_request[connection] = None
        return True

    def remove(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._without_request.pop(connection, None)
        self._with_part_of_request.pop(connection, None)

    def request_began(self, connection: HttpConnection) -> None:
        self._without_request.pop(connection, None)
        if connection in self._open:
            self._with_part_of_request[connection] = None

    def request_ended(self, connection: HttpConnection) -> None:
        self._with_part_of_request.pop(connection, None)

    def response_ended(self, connection: HttpConnection) -> None:
        self._with_part_of_request.pop(connection, None)
        if connection in self._open:
            self._without_request[connection] = None


class HttpConnection(HttpToolsProtocol):
    """A connection of uvicorn with limits. Uvicorn has none before it calls the application."""

    def __init__(self, connections: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ws_protocol_class = self._create_websocket  # type: ignore[assignment]
        self._all_connections = connections
        self._limits = connections.limits
        self._head_bytes = 0  # of a head that is not complete yet
        self._bytes_since_body = 0  # chunk sizes, extensions of chunks and trailers
        self._reads_head = True
        self._received_at = 0.0
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._refusal: bytes | None = None  # the last response, after which nothing is read
        self._discarded_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._all_connections.add(self):
            self._read_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)
        else:
            message = "the server has no free connection; try again"
            self._refusal = _error_response(503, "overloaded_error", message)
            self.transport.write(self._refusal)
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        super().connection_lost(exc)

    def _release(self) -> None:
        self._all_connections.remove(self)
        self._cancel_read_timer()
        self._cancel_write_timer()

    def _create_websocket(self, **arguments: Any) -> WebSocketConnection:
        self._cancel_read_timer()
        return WebSocketConnection(self._limits, self._release, **arguments)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            self._discard(data)
            return
        self._received_at = self.loop.time()
        if self._reads_head:
            self._head_bytes += len(data)
        else:
            self._bytes_since_body += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._refusal is not None:
            return
        if self._reads_head and self._head_bytes > self._limits.head_bytes:
            self._refuse_head()
        elif self._bytes_since_body > self._limits.head_bytes:
            limit = self._limits.head_bytes
            message = f"a request may have at most {limit} bytes of trailers; send fewer"
            self._refuse(431, "invalid_request_error", message)
        elif self._read_timer is None and self._head_bytes:
            self._read_timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)
        elif self._read_timer is None and not self._reads_head:
            self._read_timer = self.loop.call_later(self._limits.body_seconds, self._body_is_late)

    def on_message_begin(self) -> None:
        self._reads_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reads_head:  # uvicorn would add trailers to the head, without a limit
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._reads_head, self._head_bytes = False, 0
        self._cancel_read_timer()
        head_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if head_bytes > self._limits.head_bytes:
            self._refuse_head()
        elif len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            message = (
                f"more than {MAX_PIPELINED_REQUESTS} requests wait for their responses on this"
                " connection; wait for responses before you send more"
            )
            self._refuse(400, "invalid_request_error", message)
        if self.transport.is_closing() or self._refusal is not None:
            raise ValueError("the connection sends too much")  # ends the parser
        self._all_connections.request_began(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_since_body = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reads_head, self._head_bytes, self._bytes_since_body = True, 0, 0
        self._cancel_read_timer()
        self._all_connections.request_ended(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.response_complete:
            self._all_connections.response_ended(self)
            if self._refusal is not None and not self.transport.is_closing():
                self._send_refusal(self._refusal)
        elif self._refusal is not None:
            self.flow.pause_reading()  # uvicorn has resumed it
        self._limit_closing()

    def eof_received(self) -> None:
        super().eof_received()
        if self.transport.get_write_buffer_size():  # the event loop closes the connection now
            self._start_write_timer()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._limit_closing()

    def shutdown(self) -> None:
        super().shutdown()
        self._limit_closing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        self._cancel_write_timer()
        super().resume_writing()
        self._limit_closing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read, unless it ended because of another refusal."""
        if not self.transport.is_closing() and self._refusal is None:
            message = "this is not a valid HTTP request; check its first line, headers and body"
            self._refuse(400, "invalid_request_error", message)

    def _head_is_late(self) -> None:
        self._read_timer = None
        if self._head_bytes:
            message = (
                "the first line and the headers of a request must arrive within"
                f" {self._limits.head_seconds:g} s; try again"
            )
            self._refuse(408, "timeout_error", message)
        else:
            self._close()

    def _body_is_late(self) -> None:
        """Close the connection if the client has paused; a pause of the server does not count."""
        waited = self.loop.time() - self._received_at
        remaining = self._limits.body_seconds - waited
        if self.flow.read_paused:
            remaining = self._limits.body_seconds
        if remaining > 0:
            self._read_timer = self.loop.call_later(remaining, self._body_is_late)
        else:
            self._read_timer = None
            self._close()

    def _refuse_head(self) -> None:
        message = (
            "the first line and the headers of a request may have at most"
            f" {self._limits.head_bytes} bytes; send fewer or shorter headers"
        )
        self._refuse(431, "invalid_request_error", message)

    def _refuse(self, status: int, kind: str, message: str) -> None:
        """Send an error response after the responses to earlier requests, then close.

        If a request is not complete, its response may not end: then close at once.
        """
        self._refusal = _error_response(status, kind, message)
        self._cancel_read_timer()
        if self.cycle is None or self.cycle.response_complete:
            self._send_refusal(self._refusal)
        elif self.cycle.more_body:
            self._close()
        else:
            self.flow.pause_reading()

    def _send_refusal(self, response: bytes) -> None:
        """Send the last response, and close when the client closes, or soon.

        If data of the client were unread at the close, the client's system would discard the
        response.
        """
        self._unset_keepalive_if_required()
        self.transport.write(response)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self.flow.resume_reading()
            self._read_timer = self.loop.call_later(DISCARD_SECONDS, self._close)
        else:
            self._close()

    def _discard(self, data: bytes) -> None:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > MAX_DISCARDED_BYTES:
            self._close()

    def _close(self) -> None:
        self.transport.close()
        self._limit_closing()

    def _limit_closing(self) -> None:
        """Limit the time in which the client must read the rest, if the connection is closing."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._start_write_timer()

    def _start_write_timer(self) -> None:
        if self._write_timer is None:
            seconds = self._limits.write_seconds
            self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def _cancel_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket of uvicorn that counts as a connection, with the limit for slow readers."""

    def __init__(
        self, limits: ConnectionLimits, release: Callable[[], None], **arguments: Any
    ) -> None:
        """Create the protocol of an upgraded connection. `release` is called when it has ended."""
        super().__init__(**arguments)
        # Uvicorn would log query strings, and the library messages.
        self.logger = self.conn.logger = _websocket_log
        self.conn.debug = False
        self._limits = limits
        self._release = release
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_write_timer()
        self._release()
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.handshake_initiated and not self.handshake_complete:
            self.scope["extensions"][SEND_BATCH] = {}

    async def send(self, message: ASGISendEvent) -> None:
        batch: list[bytes] | None = message.get(SEND_BATCH)  # type: ignore[assignment]
        if batch is None:
            await super().send(message)
            if message["type"] == "websocket.http.response.body" and self.close_sent:
                self.handshake_complete = True  # or uvicorn logs an error about each refusal
            return
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        try:
            for text in batch:
                self.conn.send_text(text)
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            seconds = self._limits.write_seconds
            self._write_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_write_timer()
        super().resume_writing()

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def _error_response(status: int, kind: str, message: str) -> bytes:
    """Return the last response of a connection, with an error of the API."""
    body = codec.encode({"type": "error", "error": {"type": kind, "message": message}})
    return (
        b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%b" % (status, len(body), body)
    )
