"""JSON-RPC 2.0 over any transport, in both directions; it knows no method of ACP.

A `Connection` starts one task per request, in order, and answers each request exactly once. Sending
waits until the peer reads, so a slow peer slows down the code that sends updates. The connection
stops reading from a peer that does not read answers, or sends notifications faster than they are
handled; so no queue grows without limit. `$/cancel_request` from the peer cancels the task of its
request. Cancelling one of our own requests sends `$/cancel_request`.

A transport of lines is a Reader and a Writer, and `Connection.serve` reads it. Other transports are
a Sender, and pass each message that arrives to `Connection.receive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

log = logging.getLogger("segue.acp")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
AUTH_REQUIRED = -32000
NOT_FOUND = -32002
UNSUPPORTED_VERSION = -32022

CANCEL_REQUEST = "$/cancel_request"
FINAL_ANSWER_SECONDS = 1.0  # for open requests to be answered after the input has ended
MAX_PENDING_MESSAGES = 256  # being handled; with more, the connection reads no further message
MAX_OPEN_REQUESTS = 4096  # of the peer, being answered; further ones are refused

RequestId = str | int | None


class RpcError(Exception):
    """A JSON-RPC error: one to send to the peer, or one that the peer sent."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire

    @classmethod
    def from_wire(cls, wire: Any) -> RpcError:
        """Return the error that a peer sent, also if it is malformed."""
        if not isinstance(wire, dict):
            return cls(INTERNAL_ERROR, f"the peer sent a malformed error: {wire!r}")
        code = wire.get("code")
        message = wire.get("message")
        return cls(
            code if isinstance(code, int) else INTERNAL_ERROR,
            message if isinstance(message, str) else "unknown error",
            wire.get("data"),
        )


class Disconnected(Exception):
    """The peer has closed the connection."""


class LineTooLong(Exception):
    """A line exceeded the maximum length and was skipped."""


class Reader(Protocol):
    """Reads lines from the peer."""

    async def read_line(self) -> bytes:
        """Return the next line; empty at the end. Raises LineTooLong for a skipped line."""
        ...


class Writer(Protocol):
    """Writes bytes to the peer."""

    async def write(self, data: bytes) -> None:
        """Write, and wait until the peer has read enough. Raises Disconnected if it is gone."""
        ...


class Sender(Protocol):
    """Sends messages to the peer over a transport that is not a stream of lines."""

    async def send(self, message: dict[str, Any], cursor: object | None) -> None:
        """Send a message, and wait until the peer has read enough.

        `cursor` is the position of an update in its session. Raises Disconnected if the peer is
        gone.
        """
        ...

    async def wait_written(self) -> None:
        """Wait until the peer has read enough of what was sent."""
        ...


class Handler(Protocol):
    """Handles the peer's messages."""

    async def request(self, method: str, params: Any) -> Any:
        """Return the result of a request. Raises RpcError to refuse it."""
        ...

    async def notification(self, method: str, params: Any) -> None:
        """Handle a notification; nothing is sent back, not even an error."""
        ...


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode_message(message: dict[str, Any]) -> bytes:
    """Return a message as JSON. Lone surrogates become replacement characters."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:  # UTF-8 cannot encode lone surrogates
        return _encoder.encode(_without_surrogates(msgspec.to_builtins(message)))


class LineSender:
    """Sends each message as one line."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()

    async def send(self, message: dict[str, Any], cursor: object | None) -> None:
        data = encode_message(message)
        async with self._lock:
            await self._writer.write(data + b"\n")

    async def wait_written(self) -> None:
        async with self._lock:
            return


class Connection:
    """A connection to one peer."""

    def __init__(self, sender: Sender, handler: Handler) -> None:
        self._sender = sender
        self._handler = handler
        self._next_id = 0
        self._sent: dict[RequestId, asyncio.Future[Any]] = {}  # our requests without an answer
        self._received: dict[RequestId, asyncio.Task[None]] = {}  # requests that can be cancelled
        self._tasks: set[asyncio.Task[None]] = set()
        self._notification_slots = asyncio.Semaphore(MAX_PENDING_MESSAGES)
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once the peer has closed the connection."""
        return self._closed

    # Messages to the peer.

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result. Raises the peer's RpcError, or Disconnected."""
        if self._closed:
            raise Disconnected("the peer has disconnected")
        self._next_id += 1
        id = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._sent[id] = future
        try:
            await self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            if not self._closed:
                await self.notify(CANCEL_REQUEST, {"requestId": id})
            raise
        finally:
            del self._sent[id]

    async def notify(
        self, method: str, params: Any = None, *, cursor: object | None = None
    ) -> None:
        """Send a notification, and return when it has been written.

        `cursor` is the position in a session from which a client can resume after this message;
        transports that can resume send it as a string.
        """
        await self._send({"jsonrpc": "2.0", "method": method, "params": params}, cursor)

    async def _send(self, message: dict[str, Any], cursor: object | None = None) -> None:
        await self._sender.send(message, cursor)

    # Messages from the peer.

    async def serve(self, reader: Reader) -> None:
        """Handle lines until the peer closes the connection; then cancel all open requests."""
        try:
            while True:
                await self.wait_for_peer()
                try:
                    line = await reader.read_line()
                except LineTooLong as error:
                    await self._refuse(None, INVALID_REQUEST, str(error))
                    continue
                if not line:
                    if self._tasks:  # the peer may still read answers
                        await asyncio.wait(self._tasks, timeout=FINAL_ANSWER_SECONDS)
                    return
                if line.strip():
                    await self._handle_line(line)
        except Disconnected:
            return
        finally:
            await self.close()

    async def wait_for_peer(self) -> None:
        """Wait until the peer has read more, if it does not read as much as it sends."""
        if len(self._tasks) > MAX_PENDING_MESSAGES:
            await self._sender.wait_written()

    async def close(self) -> None:
        """Cancel all open requests, in both directions. No message is handled any more."""
        self._closed = True
        for future in self._sent.values():
            if not future.done():
                future.set_exception(Disconnected("the peer has disconnected"))
                future.exception()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle_line(self, line: bytes) -> None:
        try:
            message = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = _decode_leniently(line)
            if message is None:
                await self._refuse(None, PARSE_ERROR, "this line is not JSON")
                return
        await self.receive(message)

    async def receive(self, message: Any) -> None:
        """Handle a message that the peer has sent, decoded from JSON."""
        if isinstance(message, list):
            await self._refuse(None, INVALID_REQUEST, "batches are not part of this protocol")
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            await self._refuse(_id_of(message), INVALID_REQUEST, "not a JSON-RPC 2.0 message")
            return
        method = message.get("method")
        if isinstance(method, str):
            if "id" in message:
                await self._start_request(message["id"], method, message.get("params"))
            else:
                await self._handle_notification(method, message.get("params"))
        elif "method" not in message and ("result" in message or "error" in message):
            self._resolve_request(message)
        else:
            await self._refuse(_id_of(message), INVALID_REQUEST, "neither request nor response")

    async def _start_request(self, id: Any, method: str, params: Any) -> None:
        if _as_id(id) is None:
            await self._refuse(None, INVALID_REQUEST, "a request id is a string or an integer")
        elif id in self._received:
            await self._refuse(id, INVALID_REQUEST, f"request {id!r} is still being answered")
        elif len(self._received) >= MAX_OPEN_REQUESTS:
            message = f"{MAX_OPEN_REQUESTS} requests are being answered; wait for their responses"
            await self._refuse(id, INVALID_REQUEST, message)
        else:
            self._received[id] = self._spawn(self._answer(id, method, params))
            # A request must start before the next message is handled.
            await asyncio.sleep(0)

    async def _answer(self, id: RequestId, method: str, params: Any) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        try:
            reply["result"] = await self._handler.request(method, params)
        except RpcError as error:
            reply["error"] = error.to_wire()
        except asyncio.CancelledError:
            if self._closed:
                raise
            reply["error"] = RpcError(REQUEST_CANCELLED, "the request was cancelled").to_wire()
        except Exception:
            log.exception("%s failed", method)
            reply["error"] = RpcError(INTERNAL_ERROR, "internal error").to_wire()
        finally:
            self._received.pop(id, None)
        try:
            await self._send(reply)
        except Disconnected:
            return

    async def _handle_notification(self, method: str, params: Any) -> None:
        if method == CANCEL_REQUEST:
            id = _as_id(params.get("requestId")) if isinstance(params, dict) else None
            if task := self._received.get(id):
                task.cancel()
            return
        await self._notification_slots.acquire()
        self._spawn(self._run_notification(method, params))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_notification(self, method: str, params: Any) -> None:
        try:
            await self._handler.notification(method, params)
        except RpcError as error:
            log.info("%s: %s", method, error.message)
        except Exception:
            log.exception("%s failed", method)
        finally:
            self._notification_slots.release()

    def _resolve_request(self, message: dict[str, Any]) -> None:
        future = self._sent.get(_id_of(message))
        if future is None or future.done():
            return  # the request was cancelled
        if "error" in message and message["error"] is not None:
            future.set_exception(RpcError.from_wire(message["error"]))
        else:
            future.set_result(message.get("result"))

    async def _refuse(self, id: RequestId, code: int, message: str) -> None:
        await self._send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})


def _id_of(message: Any) -> RequestId:
    return _as_id(message.get("id")) if isinstance(message, dict) else None


def _as_id(value: Any) -> RequestId:
    """Return a valid request id, or None."""
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _decode_leniently(line: bytes) -> Any:
    """Decode JSON with escaped lone surrogates, which msgspec rejects; None if it is not JSON."""
    if b"\\u" not in line:
        return None
    import json

    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value
