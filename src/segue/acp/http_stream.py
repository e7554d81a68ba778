"""Messages to and from an agent elsewhere, over HTTP with server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import msgspec

from .refusal import RemoteRefusal, refusal_text
from .resumable import MAX_ATTEMPTS, offers_resuming, wait_before, with_resumable
from .rpc import INTERNAL_ERROR, Disconnected, RpcError
from .stdio import MAX_LINE_BYTES

CONNECTION_ID = "Acp-Connection-Id"
SESSION_ID = "Acp-Session-Id"
EVENT_STREAM = "text/event-stream"
CONNECT_SECONDS = 30.0
OPEN_SECONDS = 30.0  # for a session's stream
MAX_QUEUED_MESSAGES = 256
QUIET_SECONDS = 0.02  # without a byte of a history that the server has sent
_LOST_STATUSES = (401, 403, 404, 410)  # the server does not know this connection, or not any more
_LOST_STREAM = (httpx2.HTTPError, httpx2.StreamError)


class EventParser:
    """Splits bytes into server-sent events. `last_id` is the id of the last complete one."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.restart()

    def restart(self) -> None:
        """Drop the part of an event that a lost stream has left."""
        self._buffer = bytearray()
        self._data: list[bytes] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of the events that end in a chunk."""
        self._buffer += chunk
        if len(self._buffer) > MAX_LINE_BYTES:
            raise httpx2.ReadError(f"a message is at most {MAX_LINE_BYTES} bytes long")
        if b"\n" not in chunk:
            return
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            line = line.removesuffix(b"\r")
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                self.last_id = self._id or self.last_id
                if self._data:
                    yield b"\n".join(self._data)
                self._data = []
            elif name == b"data":
                self._data.append(value)
            elif name == b"id":
                self._id = value.decode("latin-1")


class _SessionStream:
    """The task that reads one session's stream, whether it is open, and how much it has read."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.chunks = 0
        self.is_delivering = False
        self.task: asyncio.Task[None] | None = None


class HttpStream:
    """A Reader and a Writer. It opens lost streams again if the server can resume them."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=4)
        self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, headers=headers)
        self._url = url
        self._connection_id: str | None = None
        self._resumable = False
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._main: asyncio.Task[None] | None = None
        self._sessions: dict[str, _SessionStream] = {}
        self._asked_sessions: dict[Any, str] = {}  # of the agent's requests, by id
        self._replayed: dict[Any, str] = {}  # sessions that are being opened, by request
        self._ended = asyncio.Event()
        self.failure: str | None = None

    # Messages from the agent.

    async def read_line(self) -> bytes:
        """Return the next message; empty at the end."""
        if not self._inbox.empty():
            return self._inbox.get_nowait()
        message = asyncio.ensure_future(self._inbox.get())
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait([message, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if message.done():
            return message.result()
        message.cancel()
        return b""

    def _end(self, reason: str | None) -> None:
        self.failure = self.failure or reason
        self._ended.set()

    async def _read_main(self) -> None:
        self._end(await self._read_stream({}, _SessionStream()))

    async def _read_session(self, session_id: str, stream: _SessionStream) -> None:
        try:
            reason = await self._read_stream({SESSION_ID: session_id}, stream)
            if self._resumable and stream.opened.is_set():
                self._end(reason)  # updates are missing
        finally:
            stream.opened.set()
            self._sessions.pop(session_id, None)

    async def _read_stream(self, headers: dict[str, str], stream: _SessionStream) -> str:
        """Read a stream until it ends for good, and return the reason."""
        parser = EventParser()
        attempt = 0
        while True:
            reason = "the server closed a stream"
            try:
                async for data in self._events(headers, parser, stream):
                    attempt = 0
                    await self._deliver(data, stream)
            except HttpFailure as error:
                return str(error)
            except _LOST_STREAM as error:
                reason = str(error) or type(error).__name__
            if not self._resumable or parser.last_id is None or attempt == MAX_ATTEMPTS:
                return reason
            await wait_before(attempt)
            attempt += 1

    async def _events(
        self, headers: dict[str, str], parser: EventParser, stream: _SessionStream
    ) -> AsyncIterator[bytes]:
        parser.restart()
        headers = {"Accept": EVENT_STREAM, CONNECTION_ID: self._connection_id or "", **headers}
        if parser.last_id is not None:
            headers["Last-Event-ID"] = parser.last_id
        async with self._client.stream("GET", self._url, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
                raise HttpFailure(response)
            stream.opened.set()
            async for chunk in response.aiter_bytes():
                stream.chunks += 1
                stream.is_delivering = True
                for data in parser.feed(chunk):
                    yield data
                stream.is_delivering = False

    async def _deliver(self, data: bytes, source: _SessionStream) -> None:
        try:
            message = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError):
            message = None  # the connection refuses it
        if isinstance(message, dict):
            await self._track(message, source)
        await self._inbox.put(data)

    async def _track(self, message: dict[str, Any], source: _SessionStream) -> None:
        """Open the stream of a new session, and remember the session of a request."""
        is_response = "method" not in message
        fields = message.get("result" if is_response else "params")
        session_id = fields.get("sessionId") if isinstance(fields, dict) else None
        if is_response:
            if isinstance(session_id, str):
                self._open_session(session_id)
            opened = self._replayed.pop(message.get("id"), None)
            if opened is not None and "result" in message:
                stream = self._open_session(opened)
                if stream is not source:
                    await self._wait_for_history(stream)
        elif isinstance(session_id, str) and "id" in message:
            self._asked_sessions[message["id"]] = session_id

    async def _wait_for_history(self, stream: _SessionStream) -> None:
        """Wait until a session's history was received: its stream is another connection.

        Some servers have no stream of a session before it is open.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(stream.opened.wait(), OPEN_SECONDS)
        chunks = -1
        while stream.is_delivering or stream.chunks != chunks:
            chunks = stream.chunks
            await asyncio.sleep(QUIET_SECONDS)

    def _open_session(self, session_id: str) -> _SessionStream:
        stream = self._sessions.get(session_id)
        if stream is None:
            stream = self._sessions[session_id] = _SessionStream()
            stream.task = asyncio.ensure_future(self._read_session(session_id, stream))
        return stream

    # Messages to the agent.

    async def write(self, data: bytes) -> None:
        """Send a message. Raises Disconnected if the connection has ended.

        Raises RemoteRefusal if the server refuses the first message.
        """
        if self._ended.is_set():
            raise Disconnected("the agent is gone")
        message = msgspec.json.decode(data)
        try:
            if self._connection_id is None:
                await self._initialize(message)
            else:
                await self._post(message)
        except HttpFailure as failure:
            is_first = self._connection_id is None
            reason = refusal_text(failure.status) if is_first else str(failure)
            if is_first and failure.status in _LOST_STATUSES:
                self._end(reason)
                raise RemoteRefusal(failure.status, self._url) from failure
            if failure.status in _LOST_STATUSES or "method" not in message or "id" not in message:
                self._end(reason)
                raise Disconnected(reason) from failure
            error = RpcError(INTERNAL_ERROR, reason).to_wire()
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            await self._inbox.put(msgspec.json.encode(reply))
        except httpx2.HTTPError as error:
            self._end(str(error) or type(error).__name__)
            raise Disconnected(str(error)) from error

    async def _initialize(self, message: dict[str, Any]) -> None:
        body = msgspec.json.encode(with_resumable(message))
        response = await self._client.post(
            self._url, content=body, headers={"Content-Type": "application/json"}
        )
        reply = _json_object(response)
        if response.status_code == 400 and "error" in reply:
            await self._inbox.put(response.content)  # the client may ask for another version
            return
        if response.status_code != 200 or CONNECTION_ID not in response.headers:
            raise HttpFailure(response)
        self._connection_id = response.headers[CONNECTION_ID]
        self._resumable = offers_resuming(reply.get("result"))
        self._main = asyncio.ensure_future(self._read_main())
        await self._inbox.put(response.content)

    async def _post(self, message: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json", CONNECTION_ID: self._connection_id or ""}
        params = message.get("params")
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        if "method" not in message:
            session_id = self._asked_sessions.pop(message.get("id"), None)
        if isinstance(session_id, str):
            headers[SESSION_ID] = session_id
            if message.get("method") in ("session/load", "session/resume"):
                self._replayed[message.get("id")] = session_id
            if "method" in message:
                stream = self._open_session(session_id)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stream.opened.wait(), OPEN_SECONDS)
        response = await self._client.post(
            self._url, content=msgspec.json.encode(message), headers=headers
        )
        if response.status_code not in (200, 202):
            raise HttpFailure(response)

    async def close(self) -> None:
        """Close the connection, and tell the server."""
        self._end(None)
        tasks = [stream.task for stream in self._sessions.values()]
        for task in (self._main, *tasks):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._connection_id is not None:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(1.0):
                    headers = {CONNECTION_ID: self._connection_id}
                    await self._client.delete(self._url, headers=headers)
        await self._client.aclose()


class HttpFailure(Exception):
    """The server refused a request."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        error = _json_object(response).get("error")
        message = error.get("message") if isinstance(error, dict) else None
        super().__init__(f"the server answered {self.status}: {message or response.text[:200]}")


def _json_object(response: httpx2.Response) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeError):
        return {}
    return value if isinstance(value, dict) else {}
