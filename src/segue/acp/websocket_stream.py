"""Messages to and from an agent elsewhere, over WebSocket."""

from __future__ import annotations

import asyncio
from http.cookies import CookieError, SimpleCookie
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from .refusal import RemoteRefusal
from .resumable import MAX_ATTEMPTS, cursor_of, offers_resuming, wait_before, with_resumable
from .rpc import Disconnected
from .stdio import MAX_LINE_BYTES

CONNECT_SECONDS = 30.0
CONNECTION_ID = "acp-connection-id"


class WebSocketStream:
    """A Reader and a Writer. It connects again, and resumes, if the server can resume."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._cookies: SimpleCookie = SimpleCookie()
        self._socket: ClientConnection | None = None
        self._connected = asyncio.Event()
        self._connection_id: str | None = None
        self._initialize_id: Any = None
        self._resumable = False
        self._cursor: str | None = None
        self._closed = False
        self.failure: str | None = None

    @classmethod
    async def connect(cls, url: str, headers: dict[str, str]) -> WebSocketStream:
        """Connect. Raises OSError if the server cannot be reached or refuses the client."""
        self = cls(url, headers)
        await self._open()
        return self

    async def _open(self) -> None:
        headers = dict(self._headers)
        if self._cookies:
            headers["Cookie"] = "; ".join(
                f"{name}={morsel.coded_value}" for name, morsel in self._cookies.items()
            )
        try:
            socket = await connect(
                self._url,
                additional_headers=headers,
                max_size=MAX_LINE_BYTES,
                compression=None,
                open_timeout=CONNECT_SECONDS,
                user_agent_header="segue",
            )
        except InvalidStatus as error:
            raise RemoteRefusal(error.response.status_code, self._url) from error
        except (InvalidHandshake, InvalidURI, TimeoutError) as error:
            raise OSError(0, str(error) or "the server does not answer", self._url) from error
        response = socket.response
        if response is not None:
            for cookie in response.headers.get_all("Set-Cookie"):
                try:
                    self._cookies.load(cookie)
                except CookieError:
                    continue  # a client may drop a cookie that it cannot read
            if self._connection_id is None:
                self._connection_id = response.headers.get(CONNECTION_ID)
        self._socket = socket
        self._connected.set()

    async def read_line(self) -> bytes:
        """Return the next message; empty at the end."""
        while self._socket is not None:
            try:
                frame = await self._socket.recv()
            except ConnectionClosed as error:
                if self._closed or not await self._resume(str(error)):
                    return b""
                continue
            if isinstance(frame, str):
                data = frame.encode("utf-8", "surrogatepass")
                self._track(data)
                return data
        return b""

    def _track(self, data: bytes) -> None:
        """Remember the cursor of a message, and whether the server can resume."""
        if not self._resumable and self._initialize_id is None:
            return
        try:
            message = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            return  # the connection refuses it
        if isinstance(message, dict) and message.get("id") == self._initialize_id is not None:
            self._initialize_id = None
            self._resumable = offers_resuming(message.get("result"))
        self._cursor = cursor_of(message) or self._cursor

    async def _resume(self, reason: str) -> bool:
        """Connect again after the link was lost, and return whether that succeeded."""
        self._connected.clear()
        self.failure = reason
        if self._resumable and self._cursor is not None:
            for attempt in range(MAX_ATTEMPTS):
                await wait_before(attempt)
                if self._closed:
                    break
                try:
                    await self._open()
                    await self._request_resume()
                    return True
                except (OSError, ConnectionClosed):
                    self._connected.clear()
        self._socket = None
        self._connected.set()  # writers learn that the connection has ended
        return False

    async def _request_resume(self) -> None:
        params = {"connectionId": self._connection_id, "cursor": self._cursor}
        message = {"jsonrpc": "2.0", "method": "stream/resume", "params": params}
        assert self._socket is not None
        await self._socket.send(msgspec.json.encode(message).decode())

    async def write(self, data: bytes) -> None:
        """Send a message. Raises Disconnected if the connection has ended."""
        if b'"initialize"' in data:
            message = msgspec.json.decode(data)
            if message.get("method") == "initialize":
                self._initialize_id = message.get("id")
                data = msgspec.json.encode(with_resumable(message))
        while True:
            await self._connected.wait()
            if self._socket is None or self._closed:
                raise Disconnected("the agent is gone")
            try:
                await self._socket.send(data.rstrip(b"\n").decode())
                return
            except ConnectionClosed:
                self._connected.clear()  # until the reader has resumed

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._connected.set()
        if self._socket is not None:
            await self._socket.close()
