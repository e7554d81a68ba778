"""One client's connection: its ACP server, and the streams that its messages go to."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import Any

from segue.acp.methods import SYSTEM_PROMPT
from segue.acp.rpc import CANCEL_REQUEST, Connection, Disconnected
from segue.hub import Hub
from segue.interfaces.acp.capabilities import AgentProfile
from segue.interfaces.acp.server import AcpServer
from segue.model.principal import Principal

from .stream import KEPT_SECONDS, MAX_KEPT_MESSAGES, OutboundStream

# Responses to these methods go to the session's stream. A client cannot have a session's stream
# before it has the response to a method that opens the session.
_SESSION_METHODS = (
    "session/prompt",
    "session/close",
    "session/set_mode",
    "session/set_config_option",
)
_REPLAYING_METHODS = ("session/load", "session/resume")
MAX_SESSION_STREAMS = 1000

# A client over the network names no directories, programs or logins of the server's machine.
PROFILE = AgentProfile(
    without=frozenset({"additionalDirectories", SYSTEM_PROMPT}),
    auth=False,
    mcp=False,
    resumable={"retentionMessages": MAX_KEPT_MESSAGES, "retentionSeconds": KEPT_SECONDS},
)


class NetworkConnection:
    """A client, with one stream for everything or one for each session.

    It outlives the links over which the client reads: a turn is not cancelled, and no message is
    lost, when a link ends.
    """

    def __init__(self, hub: Hub, principal: Principal, *, prefix: str, per_session: bool) -> None:
        """Create a connection. `prefix` is the beginning of its id."""

        async def open_hub() -> Hub:
            return hub

        self.id = prefix + secrets.token_urlsafe(24)
        self.principal = principal
        self.per_session = per_session
        self.resumable = False  # the client resumes, so its messages have cursors
        self.used_at = time.monotonic()
        self.server = AcpServer(open_hub, principal, profile=PROFILE)
        self.server.connection = self.rpc = Connection(self, self.server)
        self.closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._main = OutboundStream(marks_messages=False)
        self._sessions: dict[str, OutboundStream] = {}
        self._request_routes: dict[Any, tuple[str, str]] = {}  # by id: method, session
        self._asked_sessions: dict[Any, str] = {}  # the sessions of our requests, by id

    @property
    def has_reader(self) -> bool:
        streams = (self._main, *self._sessions.values())
        return any(stream.has_reader for stream in streams)

    @property
    def main_stream(self) -> OutboundStream:
        """The stream of everything that belongs to no session."""
        return self._main

    def session_stream(self, session_id: str) -> OutboundStream | None:
        """Return the stream of a session; None if the client has too many."""
        stream = self._sessions.get(session_id)
        if stream is None and len(self._sessions) < MAX_SESSION_STREAMS:
            stream = OutboundStream(marks_messages=self.resumable, of_session=True)
            self._sessions[session_id] = stream
        return stream

    def negotiate(self, params: Any) -> None:
        """Read from the parameters of `initialize` whether the client wants cursors."""
        fields = params if isinstance(params, dict) else {}
        for name in ("capabilities", "clientCapabilities"):
            capabilities = fields.get(name)
            transport = capabilities.get("transport") if isinstance(capabilities, dict) else None
            if isinstance(transport, dict) and isinstance(transport.get("resumable"), dict):
                self.resumable = self._main.marks_messages = True

    # Messages from the client.

    async def receive(self, message: dict[str, Any], session_id: str | None = None) -> None:
        """Handle a message that belongs to `session_id`, if that is known."""
        self.used_at = time.monotonic()
        if "method" in message:
            if "id" in message and session_id is not None and is_request_id(message["id"]):
                route = (str(message["method"]), session_id)
                self._request_routes.setdefault(message["id"], route)
        else:
            self._asked_sessions.pop(_id_of(message), None)
        await self.rpc.receive(message)

    def asked_session(self, message: dict[str, Any]) -> str | None:
        """Return the session of the request that a response of the client answers."""
        return self._asked_sessions.get(_id_of(message))

    # Messages to the client.

    async def send(self, message: dict[str, Any], cursor: object | None) -> None:
        """Send a message on the stream that it belongs to."""
        if self.closed:
            raise Disconnected("the client has disconnected")
        if not self.per_session:
            await self._main.put(message, cursor)
        elif "method" in message:
            session_id = self._route_request(message)
            await self._stream_for(session_id).put(message, cursor)
        else:
            await self._send_response(message)

    def _route_request(self, message: dict[str, Any]) -> str | None:
        """Return the session of a request or notification, and remember it for the response."""
        if message["method"] == CANCEL_REQUEST:
            return self._asked_sessions.pop(message["params"]["requestId"], None)
        session_id = _session_of(message["params"])
        if session_id is not None and "id" in message:
            self._asked_sessions[message["id"]] = session_id
        return session_id

    async def _send_response(self, message: dict[str, Any]) -> None:
        method, session_id = self._request_routes.pop(_id_of(message), ("", ""))
        stream = self._sessions.get(session_id)
        if stream is not None and method in _REPLAYING_METHODS:
            # The response follows the history. Clients that resume read it on the same stream.
            if not (self.resumable and stream.has_reader):
                await stream.wait_written()
                stream = self._main
        elif stream is None or method not in _SESSION_METHODS:
            stream = self._main
        await stream.put(message, None)

    def _stream_for(self, session_id: str | None) -> OutboundStream:
        """Return the stream for messages of a session.

        Some clients open a session's stream only after the response to `session/load`. They
        receive the history on the connection's own stream.
        """
        if session_id is None:
            return self._main
        stream = self._sessions.get(session_id)
        if stream is not None:
            return stream
        opening = self._request_routes.values()
        if any((method, session_id) in opening for method in _REPLAYING_METHODS):
            return self._main
        return self.session_stream(session_id) or self._main

    def announce_state(self, session_id: str) -> None:
        """Send the state of a session to a client that has resumed, after what it missed."""
        task = asyncio.get_running_loop().create_task(self._send_states(session_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_states(self, session_id: str) -> None:
        with suppress(Disconnected):
            await self.server.send_states(session_id)

    async def wait_written(self) -> None:
        """Wait until the client has read enough of the connection's own stream."""
        await self._main.wait_writable()

    async def close(self) -> None:
        """End the connection. Turns of the client continue."""
        if self.closed:
            return
        self.closed = True
        for stream in (self._main, *self._sessions.values()):
            stream.close()
        await self.rpc.close()
        await asyncio.gather(*self._tasks)
        await self.server.close(cancel=False)


def _session_of(params: Any) -> str | None:
    """Return the session id in the parameters of one of our messages."""
    if isinstance(params, dict):
        session_id = params.get("sessionId")
    else:
        session_id = getattr(params, "session_id", None)
    return session_id if isinstance(session_id, str) else None


def _id_of(message: dict[str, Any]) -> Any:
    id = message.get("id")
    return id if is_request_id(id) else None


def is_request_id(value: Any) -> bool:
    """Return whether a value can be the id of a request."""
    return isinstance(value, str | int) and not isinstance(value, bool)
