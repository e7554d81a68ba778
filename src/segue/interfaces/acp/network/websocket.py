"""One WebSocket of a client: it reads messages, and writes those of the client's connection."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive, Send

from segue.acp.rpc import INVALID_REQUEST, PARSE_ERROR, Disconnected, RpcError, encode_message
from segue.http.body import decode_json_message
from segue.http.websocket import INTERNAL_FAILURE, NORMAL, POLICY_VIOLATION, ClientSocket
from segue.model.errors import SegueError

from .connection import NetworkConnection
from .registry import ConnectionRegistry
from .stream import StreamBusy, UnknownCursor

log = logging.getLogger("segue.acp")

FIRST_MESSAGE_SECONDS = 15.0
RESUME = "stream/resume"
RESUME_FAILED = "stream/resume_failed"


# Passes a link, with its first message, to another process; False if no process has it.
Relay = Callable[[dict[str, Any], Receive, Send], Awaitable[bool]]


class WebSocketLink:
    """A link between a client and its connection, which may outlive it.

    The first message is `initialize`, or `stream/resume` with the id of an earlier connection and
    the cursor of the last message that the client received.
    """

    def __init__(
        self,
        connections: ConnectionRegistry,
        connection: NetworkConnection,
        socket: ClientSocket,
        relay: Relay | None = None,
    ) -> None:
        """Create a link of a connection.

        `relay` passes the link to another process that has the connection which the client resumes.
        """
        self._relay = relay
        self._connections = connections
        self._connection = connection
        self._socket = socket

    async def serve(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Accept the WebSocket, and serve it until one side closes it."""
        try:
            await self._socket.accept(headers)
            code = await self._serve()
            if code is not None:
                await self._socket.close(code)
        except (OSError, Disconnected):  # the client is gone
            return
        except Exception:
            log.exception("a WebSocket failed")
            with suppress(OSError):
                await self._socket.close(INTERNAL_FAILURE)
        finally:
            self._connection.used_at = time.monotonic()
            if not self._connection.resumable:
                self._connections.close(self._connection)

    async def _serve(self) -> int | None:
        """Serve the link, and return the code to close it with; None if the client closed it."""
        first = await self._first_message()
        if first is None:
            return POLICY_VIOLATION
        cursor = None
        if first.get("method") == RESUME:
            connection, cursor = self._find(first.get("params"))
            if connection is None and self._relay is not None:
                self._connections.close(self._connection)
                if await self._relay(first, self._socket.receive, self._socket.send):
                    return None
            if connection is None:
                return NORMAL if await self._refuse_resume("unknown connection") else None
            self._connections.close(self._connection)
            self._connection = connection
        try:
            token = self._connection.main_stream.attach(cursor)
        except (StreamBusy, UnknownCursor) as error:
            busy = isinstance(error, StreamBusy)
            reason = "the connection has another link" if busy else "unknown cursor"
            return NORMAL if await self._refuse_resume(reason) else None
        tasks = [
            asyncio.ensure_future(self._write(token)),
            asyncio.ensure_future(self._read(first)),
            asyncio.ensure_future(self._socket.wait_for_end()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            self._connection.main_stream.detach(token)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _first_message(self) -> dict[str, Any] | None:
        """Return the first valid message, or None if it is late. Others are refused."""
        try:
            async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
                while (data := await self._next_text()) is not None:
                    try:
                        message = await _decode(data)
                    except RpcError as error:
                        await self._refuse(error)
                        continue
                    if isinstance(message, dict):
                        return message
                    await self._refuse(RpcError(INVALID_REQUEST, "not a JSON-RPC 2.0 message"))
        except TimeoutError:
            return None
        raise ConnectionResetError

    async def _refuse(self, error: RpcError) -> None:
        """Answer what is no message, before the connection has a reader."""
        reply = {"jsonrpc": "2.0", "id": None, "error": error.to_wire()}
        await self._socket.send_text(encode_message(reply))

    def _find(self, params: Any) -> tuple[NetworkConnection | None, str]:
        """Return the connection that a client resumes, and the last cursor that it received."""
        fields = params if isinstance(params, dict) else {}
        id, cursor = str(fields.get("connectionId")), str(fields.get("cursor"))
        connection = self._connections.find(id, self._connection.principal)
        if connection is None or connection.per_session or connection.closed:
            return None, cursor
        return connection, cursor

    async def _refuse_resume(self, reason: str) -> bool:
        message = {"jsonrpc": "2.0", "method": RESUME_FAILED, "params": {"reason": reason}}
        await self._socket.send_text(encode_message(message))
        return True

    async def _read(self, first: dict[str, Any]) -> None:
        """Handle the client's messages until it closes the link."""
        if first.get("method") == RESUME:
            await self._connection.server.send_states()
        else:
            await self._handle(first)
        while (data := await self._next_text()) is not None:
            try:
                await self._handle(await _decode(data))
            except RpcError as error:
                reply = {"jsonrpc": "2.0", "id": None, "error": error.to_wire()}
                await self._connection.send(reply, None)
            await self._connection.rpc.wait_for_peer()

    async def _handle(self, message: Any) -> None:
        if not isinstance(message, dict):
            await self._connection.rpc.receive(message)  # the dispatcher refuses it
            return
        if message.get("method") == "initialize":
            self._connection.negotiate(message.get("params"))
        await self._connection.receive(message)

    async def _next_text(self) -> str | None:
        """Return the next text frame, or None at the end; binary frames are ignored.

        A caller that has sent too many messages waits.
        """
        while True:
            event = await self._socket.receive()
            if event["type"] == "websocket.disconnect":
                return None
            text = event.get("text")
            if isinstance(text, str):
                await self._socket.wait_for_allowance()
                return text

    async def _write(self, token: object) -> int | None:
        """Send the connection's messages until the connection ends."""
        while messages := await self._connection.main_stream.read(token):
            await self._socket.send_texts([message.data for message in messages])
        return NORMAL


async def _decode(text: str) -> Any:
    """Return a message as a value. Raises RpcError if it is not JSON or too large."""
    try:
        return await decode_json_message(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise RpcError(PARSE_ERROR, "this message is not JSON") from None
    except SegueError as refusal:
        raise RpcError(INVALID_REQUEST, refusal.remote_message) from None
