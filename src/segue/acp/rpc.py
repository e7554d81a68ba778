"""JSON-RPC over lines, in both directions at once, knowing nothing of ACP's methods.

A `Connection` reads messages, starts a task for each request in the order they come, and answers
each exactly once. Writing waits for the peer to read: whoever produces updates is slowed down by a
slow reader. A peer that asks without reading the answers, or that tells faster than it is heard, is
not read from any more; so nothing piles up here. `$/cancel_request` cancels the task of a request
that came in, and is sent when a request of ours is given up.
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
LAST_ANSWERS = 1.0  # seconds that what was asked before the end of the input is given
CROWD = 256  # messages being dealt with, above which the peer has to wait before it may send more

Id = str | int | None


class RpcError(Exception):
    """An error as JSON-RPC says it: ours to send, or one that the peer sent."""

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
        """What a peer sent as its error, however odd."""
        if not isinstance(wire, dict):
            return cls(INTERNAL_ERROR, f"the peer sent an error that is none: {wire!r}")
        code = wire.get("code")
        message = wire.get("message")
        return cls(
            code if isinstance(code, int) else INTERNAL_ERROR,
            message if isinstance(message, str) else "unknown error",
            wire.get("data"),
        )


class Disconnected(Exception):
    """The peer is gone; nothing can be asked of it any more."""


class LineTooLong(Exception):
    """A line that no message needs; it was skipped."""


class Reader(Protocol):
    async def read_line(self) -> bytes:
        """The next line; empty at the end. LineTooLong for one that was skipped."""
        ...


class Writer(Protocol):
    async def write(self, data: bytes) -> None:
        """Write, and wait until the peer keeps up. Disconnected when it is gone."""
        ...


class Handler(Protocol):
    """What answers the peer's messages."""

    async def request(self, method: str, params: Any) -> Any:
        """The result; RpcError to refuse."""
        ...

    async def notification(self, method: str, params: Any) -> None: ...


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class Connection:
    """One peer, at the other end of a Reader and a Writer."""

    def __init__(self, reader: Reader, writer: Writer, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._writing = asyncio.Lock()
        self._next_id = 0
        self._asked: dict[Id, asyncio.Future[Any]] = {}
        self._answering: dict[Id, asyncio.Task[None]] = {}  # those that may still be cancelled
        self._tasks: set[asyncio.Task[None]] = set()
        self._unheard = asyncio.Semaphore(CROWD)
        self._gone = False

    @property
    def gone(self) -> bool:
        """Whether the peer has gone away."""
        return self._gone

    # Towards the peer.

    async def request(self, method: str, params: Any = None) -> Any:
        """Ask the peer, and wait for its answer. Raises its RpcError, or Disconnected."""
        if self._gone:
            raise Disconnected("the peer is gone")
        self._next_id += 1
        id = self._next_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[id] = future
        try:
            await self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            return await future
        except asyncio.CancelledError:
            if not self._gone:
                await self.notify(CANCEL_REQUEST, {"requestId": id})
            raise
        finally:
            del self._asked[id]

    async def notify(self, method: str, params: Any = None) -> None:
        """Tell the peer something; returns when it has been written."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            data = _encoder.encode(message)
        except UnicodeEncodeError:
            # A lone surrogate has no UTF-8; the peer gets the replacement character for it.
            data = _encoder.encode(_without_surrogates(msgspec.to_builtins(message)))
        async with self._writing:
            await self._writer.write(data + b"\n")

    # From the peer.

    async def serve(self) -> None:
        """Until the peer goes away. Then every task is cancelled and every question given up."""
        try:
            while True:
                if len(self._tasks) > CROWD:
                    async with self._writing:  # until what is being written has been taken
                        pass
                try:
                    line = await self._reader.read_line()
                except LineTooLong as error:
                    await self._refuse(None, INVALID_REQUEST, str(error))
                    continue
                if not line:
                    if self._answering:  # it may have said its last and still be listening
                        await asyncio.wait(self._answering.values(), timeout=LAST_ANSWERS)
                    return
                if line.strip():
                    await self._take(line)
        except Disconnected:
            return
        finally:
            self._gone = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(Disconnected("the peer is gone"))
                    future.exception()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, line: bytes) -> None:
        try:
            message = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = _decode_leniently(line)
            if message is None:
                await self._refuse(None, PARSE_ERROR, "this line is not JSON")
                return
        if isinstance(message, list):
            await self._refuse(None, INVALID_REQUEST, "batches are not part of this protocol")
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            await self._refuse(_id_of(message), INVALID_REQUEST, "not a JSON-RPC 2.0 message")
            return
        method = message.get("method")
        if isinstance(method, str):
            if "id" in message:
                await self._start(message["id"], method, message.get("params"))
            else:
                await self._notice(method, message.get("params"))
        elif "method" not in message and ("result" in message or "error" in message):
            self._settle(message)
        else:
            await self._refuse(_id_of(message), INVALID_REQUEST, "neither request nor response")

    async def _start(self, id: Any, method: str, params: Any) -> None:
        if _as_id(id) is None:
            await self._refuse(None, INVALID_REQUEST, "a request id is a string or an integer")
        elif id in self._answering:
            await self._refuse(id, INVALID_REQUEST, f"request {id!r} is still being answered")
        else:
            self._answering[id] = self._spawn(self._answer(id, method, params))
            # In order: a request has begun before the next message is looked at.
            await asyncio.sleep(0)

    async def _answer(self, id: Id, method: str, params: Any) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        try:
            reply["result"] = await self._handler.request(method, params)
        except RpcError as error:
            reply["error"] = error.to_wire()
        except asyncio.CancelledError:
            if self._gone:
                raise
            reply["error"] = RpcError(REQUEST_CANCELLED, "the request was cancelled").to_wire()
        except Exception:
            log.exception("%s failed", method)
            reply["error"] = RpcError(INTERNAL_ERROR, "internal error").to_wire()
        finally:
            self._answering.pop(id, None)
        try:
            await self._send(reply)
        except Disconnected:
            return

    async def _notice(self, method: str, params: Any) -> None:
        if method == CANCEL_REQUEST:
            wanted = _as_id(params.get("requestId")) if isinstance(params, dict) else None
            if request := self._answering.get(wanted):
                request.cancel()
            return
        await self._unheard.acquire()
        self._spawn(self._hear(method, params))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _hear(self, method: str, params: Any) -> None:
        try:
            await self._handler.notification(method, params)
        except RpcError as error:
            log.info("%s: %s", method, error.message)  # nobody to answer
        except Exception:
            log.exception("%s failed", method)
        finally:
            self._unheard.release()

    def _settle(self, message: dict[str, Any]) -> None:
        future = self._asked.get(_id_of(message))
        if future is None or future.done():
            return  # an answer to what we gave up on
        if "error" in message and message["error"] is not None:
            future.set_exception(RpcError.from_wire(message["error"]))
        else:
            future.set_result(message.get("result"))

    async def _refuse(self, id: Id, code: int, why: str) -> None:
        await self._send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}})


def _id_of(message: Any) -> Id:
    return _as_id(message.get("id")) if isinstance(message, dict) else None


def _as_id(value: Any) -> Id:
    """What may name a request, or None."""
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _decode_leniently(line: bytes) -> Any:
    """JSON with lone surrogates, which the standard library takes; None if it is no JSON."""
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
