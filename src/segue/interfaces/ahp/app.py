"""The ASGI application of `/ahp`: one WebSocket for each client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn
from urllib.parse import parse_qs

import msgspec
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from segue.acp.rpc import INVALID_REQUEST, PARSE_ERROR, RpcError, encode_message
from segue.http.body import decode_json_message
from segue.http.hosts import HostCheck
from segue.http.keys import KeyAccess, api_key
from segue.http.limits import RateLimiter, caller_of
from segue.http.websocket import NORMAL, TRY_AGAIN_LATER, ClientSocket
from segue.hub import Hub
from segue.model.errors import SegueError, Unauthorized
from segue.model.principal import Principal

from .client import Client
from .client import Send as SendMessage
from .handlers.actions import ClientActions
from .handlers.requests import Requests
from .protocol import UNSUPPORTED_VERSION
from .subscriptions.forms import AgentForms, Forms

log = logging.getLogger("segue.ahp")

PATH = "/ahp"
TOKEN_PARAMETER = "tkn"
DESKTOP_ORIGIN = b"vscode-file://vscode-app"  # of the desktop application's windows
# Of a client that does not read; then its connection is closed. One message may be larger.
MAX_UNREAD_MESSAGES, MAX_UNREAD_BYTES = 10_000, 64 << 20
MAX_WAITING_MESSAGES = 1000  # of a client, while an earlier one is handled
_REFUSED = object()
_END = object()  # after the last message of a client


class AhpApp:
    """Serve clients of the Agent Host Protocol on one hub. Setting `closing` ends connections.

    The token of a connection is an API key, or that of a login of the local user.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: HostCheck | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        closing: asyncio.Event | None = None,
    ) -> None:
        self._hub = hub
        self._hosts = hosts or HostCheck()
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._closing = closing or asyncio.Event()
        self._forms = Forms()
        if hub.agent_registry.client_proxy is None:
            hub.agent_registry.client_proxy = AgentForms(self._forms)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] != "websocket":
                response: Response = JSONResponse({"error": "connect with a WebSocket"}, 426)
            else:
                await self._serve(scope, receive, send)
                return
        except SegueError as error:
            response = JSONResponse({"error": error.remote_message}, error.http_status)
        await response(scope, receive, send)  # also refuses a WebSocket before it is accepted

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._hosts.check(headers, origins=(DESKTOP_ORIGIN,))
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        token = query.get(TOKEN_PARAMETER, [""])[0] or api_key(headers)
        principal = await self._authenticate(token)
        caller = caller_of(principal)
        self._rate_limiter.count_request(caller)
        close_stream = await self._hub.quotas.open_stream(principal)
        try:
            socket = ClientSocket(
                scope,
                receive,
                send,
                closing=self._closing,
                count_message=lambda: self._rate_limiter.count_request(caller),
                access=KeyAccess(lambda: self._authenticate(token)),
            )
            link = _Link(self._hub, principal, self._forms, socket)
            with self._forms.connected():
                await link.serve()
        finally:
            close_stream()

    async def _authenticate(self, token: str) -> Principal:
        """Return the principal of a token. Raises Unauthorized if it is not valid."""
        authenticate: Callable[[str], Awaitable[Principal]] = self._hub.keys.authenticate
        if "~" in token:
            authenticate = self._hub.logins.authenticate
        try:
            return await authenticate(token)
        except Unauthorized:
            raise Unauthorized(
                "Authentication failed; `segue vscode` prints a valid connection token"
            ) from None


class _Link:
    """Pass messages between a WebSocket and its connection, until one side ends."""

    def __init__(self, hub: Hub, principal: Principal, forms: Forms, socket: ClientSocket) -> None:
        self._socket = socket
        self._incoming: asyncio.Queue[Any] = asyncio.Queue(MAX_WAITING_MESSAGES)
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_UNREAD_MESSAGES)
        self._unread_bytes = 0
        self._overflow = asyncio.Event()
        self._is_gone = False  # the client cannot be sent anything any more
        self._connection = _Connection(hub, principal, self._queue, forms)

    async def serve(self) -> None:
        await self._socket.accept()
        tasks = [
            asyncio.ensure_future(self._read()),
            asyncio.ensure_future(self._work()),
            asyncio.ensure_future(self._write()),
            asyncio.ensure_future(self._socket.wait_for_end()),
            asyncio.ensure_future(self._wait_for_overflow()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code = next(iter(done)).result()
            if code is not None:
                await self._socket.close(code)
        except OSError:
            return  # the client is gone
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._connection.close()

    async def _queue(self, message: dict[str, Any]) -> None:
        """Queue a message for the client. A client that does not read is disconnected."""
        self._put(encode_message(message))

    def _put(self, data: bytes | None) -> None:
        if self._is_gone:
            return
        if self._outgoing.full() or self._unread_bytes > MAX_UNREAD_BYTES:
            self._overflow.set()
            return
        self._unread_bytes += len(data or b"")
        self._outgoing.put_nowait(data)

    async def _write(self) -> int:
        """Send the messages of the queue; None in it ends the link."""
        while True:
            batch = [await self._outgoing.get()]
            while not self._outgoing.empty():
                batch.append(self._outgoing.get_nowait())
            texts = [data for data in batch if data is not None]
            try:
                await self._socket.send_texts(texts)
            except OSError:
                self._is_gone = True
                return await _never()  # its last messages are handled
            if len(texts) < len(batch):
                return NORMAL
            self._unread_bytes -= sum(map(len, texts))

    async def _read(self) -> None:
        while (event := await self._socket.receive())["type"] != "websocket.disconnect":
            await self._socket.wait_for_allowance()
            message = await self._decode(event.get("text"))
            if isinstance(message, dict) and message.get("method") == "ping" and "id" in message:
                # At once: a client takes a connection without an answer for broken.
                await self._queue({"jsonrpc": "2.0", "id": message["id"], "result": None})
            elif message is not _REFUSED:
                await self._incoming.put(message)
        await self._incoming.put(_END)
        await _never()

    async def _work(self) -> None:
        """Handle the client's messages one after the other, also if it has disconnected."""
        while (message := await self._incoming.get()) is not _END:
            if not await self._connection.receive(message):
                self._put(None)
                await _never()  # until the answer is sent

    async def _decode(self, text: str | None) -> Any:
        """Return a message; _REFUSED, after an error to the client, if it is not JSON."""
        try:
            if text is None:
                raise UnicodeError("a binary frame")
            return await decode_json_message(text.encode("utf-8", "surrogatepass"))
        except (msgspec.DecodeError, UnicodeError, RecursionError, SegueError):
            error = RpcError(PARSE_ERROR, "this message is not JSON in a text frame")
            await self._queue({"jsonrpc": "2.0", "id": None, "error": error.to_wire()})
            return _REFUSED

    async def _wait_for_overflow(self) -> int:
        """Return the code to close the link with, once too much is waiting for the client."""
        await self._overflow.wait()
        return TRY_AGAIN_LATER


async def _never() -> NoReturn:
    """Wait until this task is cancelled."""
    await asyncio.Event().wait()
    raise AssertionError("nothing sets the event")


class _Connection:
    """One client, which sends requests and actions."""

    def __init__(self, hub: Hub, principal: Principal, send: SendMessage, forms: Forms) -> None:
        self._send = send
        self._client = Client(hub, principal, send, forms)
        self._requests = Requests(self._client)
        self._actions = ClientActions(self._client)

    async def receive(self, message: Any) -> bool:
        """Handle one message, and return whether the connection may continue.

        Requests are answered, also if they fail.
        """
        if not isinstance(message, dict):
            await self._refuse(None, "a message is one JSON object; batches are not supported")
            return True
        method, params = message.get("method"), message.get("params")
        id = message.get("id")
        params = params if isinstance(params, dict) else {}
        if not isinstance(method, str):
            if "result" not in message and "error" not in message:  # no answer to a request of ours
                await self._refuse(id, "the message has no method")
        elif "id" not in message:
            if method == "unsubscribe":
                await self._client.unsubscribe(str(params.get("channel")))
            elif method == "dispatchAction":
                await self._actions.dispatch(params)
        elif isinstance(id, bool) or not isinstance(id, str | int):
            await self._refuse(None, "the id of a request is a text or a whole number")
        else:
            return await self._answer(id, method, params)
        return True

    async def _answer(self, id: str | int, method: str, params: dict[str, Any]) -> bool:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": id}
        code = None
        try:
            answer["result"] = await self._requests.answer(method, params)
        except RpcError as error:
            answer["error"], code = error.to_wire(), error.code
        await self._send(answer)
        return code != UNSUPPORTED_VERSION

    async def _refuse(self, id: Any, reason: str) -> None:
        error = RpcError(INVALID_REQUEST, reason).to_wire()
        await self._send({"jsonrpc": "2.0", "id": id, "error": error})

    async def close(self) -> None:
        """Stop following. No turn is cancelled."""
        await self._client.close()
