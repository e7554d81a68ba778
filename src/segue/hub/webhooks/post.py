"""Send POST requests to webhooks, with connections that are used again.

A general client costs more CPU per request than everything else about a delivery. Redirects are
not followed. Each connection goes to an address that was checked, see `egress.addresses`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

import httptools

from segue.agents.egress.addresses import PrivateAddress, resolve

REQUEST_SECONDS = 15.0
IDLE_SECONDS = 20.0  # servers close idle connections, many of them after 60 seconds
MAX_IDLE_CONNECTIONS = 128  # to one server
MAX_RESPONSE_BYTES = 65_536  # with headers; what is longer ends the connection


class PostFailed(Exception):
    """A request got no answer; the message says why."""


class _Server(NamedTuple):
    scheme: str
    host: str
    port: int


class _Idle(NamedTuple):
    connection: _Connection
    since: float


class PostClient:
    """Send requests. Unless `private` is set, only to servers on the public internet."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._idle: dict[_Server, list[_Idle]] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Return the status of the answer to a request. Raises PostFailed if there is none."""
        parts = urlsplit(url)
        request = _encode(parts, headers, body)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._send(_server(parts), request)
        except TimeoutError:
            raise PostFailed(f"no answer within {REQUEST_SECONDS:.0f} seconds") from None
        except PrivateAddress as error:
            raise PostFailed(
                f"{error}, and this server delivers to public addresses only"
            ) from None
        except ssl.SSLError as error:
            raise PostFailed(f"TLS: {error.reason or error}") from None
        except OSError as error:
            raise PostFailed(error.strerror or str(error) or type(error).__name__) from None

    async def close(self) -> None:
        """Close the connections that are not in use."""
        for idle in self._idle.values():
            for connection, _ in idle:
                connection.close()
        self._idle.clear()

    async def _send(self, server: _Server, request: bytes) -> int:
        reused = self._take(server)
        if reused is not None:
            with suppress(_Closed):  # just before the request arrived; it was not processed
                return await self._exchange(server, reused, request)
        return await self._exchange(server, await self._connect(server), request)

    async def _exchange(self, server: _Server, connection: _Connection, request: bytes) -> int:
        try:
            status = await connection.exchange(request)
        except BaseException:
            connection.close()
            raise
        idle = self._idle.setdefault(server, [])
        if connection.is_reusable and len(idle) < MAX_IDLE_CONNECTIONS:
            idle.append(_Idle(connection, asyncio.get_running_loop().time()))
        else:
            connection.close()
        return status

    def _take(self, server: _Server) -> _Connection | None:
        idle = self._idle.get(server, [])
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while idle:
            connection, since = idle.pop()
            if since > oldest and connection.is_reusable:
                return connection
            connection.close()
        self._idle.pop(server, None)
        return None

    async def _connect(self, server: _Server) -> _Connection:
        addresses = await resolve(server.host, server.port, private=self._private)
        for address in addresses[:-1]:
            with suppress(OSError):
                return await _open(server, address)
        return await _open(server, addresses[-1])


class _Closed(OSError):
    """The connection ended without an answer."""


class _Connection(asyncio.Protocol):
    """A connection that sends one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[int] | None = None
        self._received_bytes = 0
        self._has_headers = False
        self.is_reusable = False

    async def exchange(self, request: bytes) -> int:
        """Return the status of the answer to a request. Raises OSError if there is none."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._received_bytes = 0
        self._has_headers = False
        self.is_reusable = False
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # The protocol of the connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such base class

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._answer is None or self._answer.done():
            self.close()  # an answer to nothing
            return
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(OSError(f"the answer is not HTTP: {error}"))
        except httptools.HttpParserUpgrade:
            self._fail(OSError("the server switched to another protocol"))
        if self._received_bytes > MAX_RESPONSE_BYTES:
            self._cut(f"the answer has more than {MAX_RESPONSE_BYTES:,} bytes of headers")

    def connection_lost(self, error: Exception | None) -> None:
        self._cut("the server closed the connection without an answer")

    # Callbacks of the parser.

    def on_headers_complete(self) -> None:
        # A status below 200 only announces that the answer follows.
        self._has_headers = self._status() >= 200

    def on_message_complete(self) -> None:
        if self._has_headers:
            assert self._parser is not None
            self._finish(reusable=self._parser.should_keep_alive())

    def _status(self) -> int:
        assert self._parser is not None
        status: int = self._parser.get_status_code()
        return status

    def _finish(self, *, reusable: bool) -> None:
        if self._answer is not None and not self._answer.done():
            self.is_reusable = reusable
            self._answer.set_result(self._status())

    def _cut(self, reason: str) -> None:
        """End the connection. The status counts although the rest of the answer is missing."""
        if self._has_headers:
            self._finish(reusable=False)
        self._fail(_Closed(reason))

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()


async def _open(server: _Server, address: str) -> _Connection:
    """Return a connection to an address of a server."""
    is_tls = server.scheme == "https"
    _, connection = await asyncio.get_running_loop().create_connection(
        _Connection,
        address,
        server.port,
        ssl=_tls_context() if is_tls else None,
        server_hostname=server.host if is_tls else None,
    )
    return connection


def _server(parts: SplitResult) -> _Server:
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return _Server(parts.scheme, parts.hostname, port)


def _encode(parts: SplitResult, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


@cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
