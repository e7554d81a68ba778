"""The ASGI application of `/acp`: POST, GET with server-sent events, DELETE, WebSocket."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from time import perf_counter
from typing import Any, Protocol

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from segue.acp.rpc import INVALID_REQUEST, PARSE_ERROR, RpcError, encode_message
from segue.http.body import decode_json_message, read_body
from segue.http.errors import MethodNotAllowed
from segue.http.hosts import HostCheck
from segue.http.keys import KeyAccess, api_key
from segue.http.limits import RateLimiter, caller_of
from segue.http.logs import FIELDS
from segue.http.metrics import Metrics
from segue.http.sse import EventStreamResponse
from segue.http.websocket import ClientSocket
from segue.hub import Hub
from segue.model import ids
from segue.model.errors import SegueError, Unauthorized
from segue.model.principal import Principal

from .connection import NetworkConnection, is_request_id
from .registry import ConnectionRegistry
from .stream import OutboundStream, StreamBusy, UnknownCursor
from .websocket import Relay, WebSocketLink

log = logging.getLogger("segue.acp")

PATH = "/acp"
CONNECTION_ID = "acp-connection-id"
SESSION_ID = "acp-session-id"
EVENT_STREAM = "text/event-stream"
_KEEP_ALIVE = b": \n\n"

Headers = list[tuple[bytes, bytes]]


class HttpRefusal(Exception):
    """A request that is answered with an HTTP status and a JSON-RPC error."""

    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.error = RpcError(code, message)


class Peers(Protocol):
    """The other processes that get requests for the same address."""

    @property
    def prefix(self) -> str:
        """The beginning of the ids of this process's connections."""
        ...

    def owner_port(self, connection_id: str) -> int | None:
        """Return the port of another process that has a connection, or None."""
        ...

    async def forward(self, port: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a request to another process, and its response to the client."""
        ...

    async def relay(
        self, port: int, scope: Scope, first: str, receive: Receive, send: Send
    ) -> bool:
        """Pass an accepted WebSocket with its first message to another process.

        Returns False if that process does not accept it.
        """
        ...


class AcpApp:
    """Serve ACP clients over HTTP and WebSocket, on one hub.

    With `principal`, all requests are made by that principal and need no key. Setting `closing`
    ends all streams. `peers` are the other processes that serve the same address.
    """

    def __init__(
        self,
        hub: Hub,
        hosts: HostCheck | None = None,
        *,
        rate_limiter: RateLimiter | None = None,
        metrics: Metrics | None = None,
        principal: Principal | None = None,
        closing: asyncio.Event | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._hub = hub
        self._peers = peers
        self._hosts = hosts or HostCheck()
        self._rate_limiter = rate_limiter or RateLimiter(0)
        self._metrics = metrics or Metrics()
        self._principal = principal
        self._closing = closing or asyncio.Event()
        self.connections = ConnectionRegistry(hub, prefix="" if peers is None else peers.prefix)

    async def close(self) -> None:
        """Close all connections. Turns of their clients continue."""
        await self.connections.close_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        is_websocket = scope["type"] == "websocket"
        headers: Headers = []
        try:
            if is_websocket:
                await self._serve_websocket(scope, receive, send, headers)
                return
            if self._peers is not None and (port := self._owner_port(self._peers, scope)):
                await self._peers.forward(port, scope, receive, send)
                return
            response = await self._answer(scope, receive, headers)
        except ClientDisconnect:
            return
        except HttpRefusal as refusal:
            response = _error_response(refusal.status, refusal.error)
        except SegueError as error:
            response = _error_response(
                error.http_status, RpcError(error.rpc_code, error.remote_message)
            )
            headers += error.data.get("headers", ())
            if error.http_status >= 500:
                log.warning(error.message)
        except Exception:
            log.exception("a request failed")
            response = _error_response(500, RpcError(-32603, "internal error"))
        response.raw_headers += headers
        method = "GET" if is_websocket else scope["method"]
        self._record(method, response.status_code, perf_counter() - started)
        await response(scope, receive, send)  # also refuses a WebSocket before it is accepted

    def _record(self, method: str, status: int, seconds: float) -> None:
        """Count and log a request, without its key, body and query."""
        self._metrics.count_request(method, PATH, status, seconds)
        fields = {"method": method, "route": PATH, "status": status, "ms": round(seconds * 1e3, 3)}
        log.info("request answered", extra={FIELDS: fields})

    # HTTP.

    def _owner_port(self, peers: Peers, scope: Scope) -> int | None:
        """Return the port of the other process that has the connection of a request."""
        for name, value in scope["headers"]:
            if name == CONNECTION_ID.encode():
                return peers.owner_port(value.decode("latin-1"))
        return None

    async def _answer(self, scope: Scope, receive: Receive, headers: Headers) -> Response:
        request = Request(scope, receive)
        key, principal = await self._authenticate(scope)
        headers += self._rate_limiter.count_request(caller_of(principal))
        match scope["method"]:
            case "POST":
                return await self._post(request, principal)
            case "GET":
                return await self._get(request, principal, key)
            case "DELETE":
                self.connections.close(self._connection(request, principal))
                return Response(status_code=202)
        headers.append((b"allow", b"POST, GET, DELETE"))
        raise MethodNotAllowed("use POST, GET or DELETE")

    async def _authenticate(self, scope: Scope) -> tuple[str, Principal]:
        """Return the key and the principal of a request that this server may answer."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._hosts.check(headers)
        if self._principal is not None:
            return "", self._principal
        key = api_key(headers)
        try:
            return key, await self._hub.keys.authenticate(key)
        except Unauthorized:
            raise Unauthorized("Authentication failed") from None

    def _connection(self, request: Request, principal: Principal) -> NetworkConnection:
        id = request.headers.get(CONNECTION_ID)
        if not id:
            raise HttpRefusal(400, "the header Acp-Connection-Id is missing")
        connection = self.connections.find(id, principal)
        if connection is None or not connection.per_session:
            raise HttpRefusal(404, "unknown Acp-Connection-Id; initialize a new connection")
        return connection

    async def _post(self, request: Request, principal: Principal) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HttpRefusal(415, "the content type must be application/json")
        message = await decode_message(await read_body(request.stream(), drain=True))
        if isinstance(message, list):
            raise HttpRefusal(501, "batches are not part of this protocol")
        if not isinstance(message, dict):
            raise HttpRefusal(400, "not a JSON-RPC 2.0 message")
        if message.get("method") == "initialize" and "id" in message:
            if message.get("jsonrpc") != "2.0":
                raise HttpRefusal(400, "not a JSON-RPC 2.0 message")
            if not is_request_id(message["id"]):
                raise HttpRefusal(400, "a request id is a string or an integer")
            return await self._initialize(request, principal, message)
        connection = self._connection(request, principal)
        session_id = _check_session(request, connection, message)
        await connection.receive(message, session_id)
        return Response(status_code=202)

    async def _initialize(
        self, request: Request, principal: Principal, message: dict[str, Any]
    ) -> Response:
        if CONNECTION_ID in request.headers:
            raise HttpRefusal(400, "this connection is initialized already")
        connection = self.connections.create(principal, per_session=True)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = await connection.server.request("initialize", message.get("params"))
        except BaseException as error:
            self.connections.close(connection)
            if not isinstance(error, RpcError):
                raise
            reply["error"] = error.to_wire()
            return _json_response(400, reply)
        connection.negotiate(message.get("params"))
        response = _json_response(200, reply)
        response.headers[CONNECTION_ID] = connection.id
        return response

    async def _get(self, request: Request, principal: Principal, key: str) -> Response:
        if EVENT_STREAM not in request.headers.get("accept", "").lower():
            raise HttpRefusal(406, f"the header Accept must include {EVENT_STREAM}")
        connection = self._connection(request, principal)
        session_id = request.headers.get(SESSION_ID)
        if session_id is None:
            stream: OutboundStream | None = connection.main_stream
        else:
            # A client may open the stream before it loads the session. If there is no such
            # session, the load fails, and the client's other sessions continue.
            if ids.parse(session_id, "sesn") is None:
                raise HttpRefusal(404, "no session can have this id")
            stream = connection.session_stream(session_id)
        if stream is None:
            raise HttpRefusal(429, "this connection has too many sessions; close some")
        cursor = request.headers.get("last-event-id")
        on_end = await self._open_stream(principal)
        try:
            token = stream.attach(cursor)
        except StreamBusy:
            on_end()
            raise HttpRefusal(409, "this stream has a reader already") from None
        except UnknownCursor:
            on_end()
            raise HttpRefusal(
                409,
                "the messages after this Last-Event-ID are not kept any more; resume the session"
                " with this cursor",
            ) from None
        if cursor is not None and session_id is not None:
            connection.announce_state(session_id)

        def end() -> None:
            stream.detach(token)
            connection.used_at = time.monotonic()
            on_end()

        return EventStreamResponse(
            _frames(stream, token),
            closing=self._closing,
            greeting=_KEEP_ALIVE,
            heartbeat=_KEEP_ALIVE,
            access=self._key_access(principal, key),
            on_end=end,
        )

    async def _open_stream(self, principal: Principal) -> Callable[[], None]:
        """Count a stream of the caller until the returned function is called."""
        close_quota = await self._hub.quotas.open_stream(principal)
        self._metrics.open_streams += 1

        def close() -> None:
            self._metrics.open_streams -= 1
            close_quota()

        return close

    def _key_access(self, principal: Principal, key: str) -> KeyAccess | None:
        if principal.key_id is None:
            return None
        return KeyAccess(lambda: self._hub.keys.authenticate(key))

    # WebSocket.

    async def _serve_websocket(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers
    ) -> None:
        key, principal = await self._authenticate(scope)
        caller = caller_of(principal)
        headers += self._rate_limiter.count_request(caller)
        on_end = await self._open_stream(principal)
        try:
            connection = self.connections.create(principal, per_session=False)
            socket = ClientSocket(
                scope,
                receive,
                send,
                closing=self._closing,
                count_message=lambda: self._rate_limiter.count_request(caller),
                access=self._key_access(principal, key),
            )
            link = WebSocketLink(self.connections, connection, socket, self._relay(scope))
            self._record("GET", 101, 0.0)
            await link.serve([(CONNECTION_ID.encode(), connection.id.encode()), *headers])
        finally:
            on_end()

    def _relay(self, scope: Scope) -> Relay | None:
        """Return a function that passes a WebSocket to the process that has its connection."""
        peers = self._peers
        if peers is None:
            return None

        async def relay(first: dict[str, Any], receive: Receive, send: Send) -> bool:
            params = first.get("params")
            id = params.get("connectionId") if isinstance(params, dict) else None
            port = peers.owner_port(str(id))
            if port is None:
                return False
            return await peers.relay(port, scope, encode_message(first).decode(), receive, send)

        return relay


async def decode_message(data: bytes) -> Any:
    """Return a message as a value. Raises HttpRefusal if it is not JSON."""
    try:
        return await decode_json_message(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise HttpRefusal(400, "the request body is not JSON", PARSE_ERROR) from None


def _check_session(
    request: Request, connection: NetworkConnection, message: dict[str, Any]
) -> str | None:
    """Return the session that a message belongs to.

    Some clients send the session's header with some methods only, so it may be missing. Raises
    HttpRefusal if it names another session than the message.
    """
    named = request.headers.get(SESSION_ID)
    params = message.get("params")
    if "method" in message:
        session_id = params.get("sessionId") if isinstance(params, dict) else None
    else:
        session_id = connection.asked_session(message)
    if not isinstance(session_id, str):
        return named
    if named not in (None, session_id):
        raise HttpRefusal(400, "Acp-Session-Id is not the session of the message")
    return session_id


async def _frames(stream: OutboundStream, token: object) -> AsyncGenerator[bytes]:
    while messages := await stream.read(token):
        yield b"".join(
            b"id: %b\ndata: %b\n\n" % (message.cursor.encode(), message.data)
            for message in messages
        )


def _error_response(status: int, error: RpcError) -> Response:
    return _json_response(status, {"jsonrpc": "2.0", "id": None, "error": error.to_wire()})


def _json_response(status: int, message: dict[str, Any]) -> Response:
    return Response(encode_message(message), status, media_type="application/json")
