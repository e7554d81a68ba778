"""An ACP client: use the sessions of another agent over protocol version 1 or 2.

The client asks for version 2 and accepts 1. It uses only capabilities that the agent advertised.
It tolerates faulty agents: malformed rows of a list are skipped, and a repeated cursor ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from segue import __version__
from segue.model import codec

from . import v1, v2
from .process import AgentProcess
from .rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Connection,
    LineSender,
    Reader,
    RpcError,
    Writer,
)
from .wire import SessionInfo

OnUpdate = Callable[[str, dict[str, Any]], Awaitable[None]]
OnPermission = Callable[[dict[str, Any]], Awaitable[str | dict[str, Any] | None]]
OnRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]
OnNotification = Callable[[str, dict[str, Any]], Awaitable[None]]

_CLIENT_INFO = {"name": "segue", "version": __version__}
_LOGIN_METHODS = {v1.VERSION: "authenticate", v2.VERSION: "auth/login"}
# Methods that have no capability of the same name.
_WITHOUT_CAPABILITY = (
    "new",
    "prompt",
    "set_title",
    "unarchive",
    "set_mode",
    "set_config_option",
)
# Capabilities that every version 2 agent with sessions has.
_BASELINE_V2 = ("list", "resume", "close")


class UnsupportedCapability(Exception):
    """The agent does not advertise a capability; no request was sent."""


class SessionPage(NamedTuple):
    """One page of another agent's sessions."""

    sessions: list[SessionInfo]
    next_cursor: str | None


async def _ignore(name: str, params: dict[str, Any]) -> None:
    return


async def _refuse_permission(request: dict[str, Any]) -> str | None:
    return None


async def _refuse_request(method: str, params: dict[str, Any]) -> Any:
    raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}")


class AcpClient:
    """A connection to one agent. Call `initialize` first.

    `on_update` is called for every `session/update`, one at a time, and before the results that the
    agent sends after it; it must not wait for a result itself. `on_permission` returns the id of
    the chosen option, a complete response, or None. `on_request` and `on_notification` handle
    everything else. `capabilities` advertises what the agent may request, in version 1 and 2.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        *,
        on_update: OnUpdate = _ignore,
        on_permission: OnPermission = _refuse_permission,
        on_request: OnRequest = _refuse_request,
        on_notification: OnNotification = _ignore,
        capabilities: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
        version: int = v2.VERSION,
        info: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._reader = reader
        self._connection = Connection(LineSender(writer), self)
        self._on_update = on_update
        self._on_permission = on_permission
        self._on_request = on_request
        self._on_notification = on_notification
        self._client_capabilities = capabilities
        self._requested_version = version
        self._info = info or _CLIENT_INFO
        self._meta = meta
        self._update_lock = asyncio.Lock()
        self._closed = asyncio.Event()
        self.version = 0
        self.agent: dict[str, Any] = {}
        self.agent_meta: dict[str, Any] = {}  # the `_meta` of the agent's answer to `initialize`
        self.auth_methods: list[dict[str, Any]] = []
        self.update_meta: Any = None  # the `_meta` of the message that is being handled
        self.setup_results: dict[str, dict[str, Any]] = {}  # by session, from opening it
        self.next_meta: dict[tuple[str, str], Any] = {}  # of a cancel or close, with its session
        self._capabilities: dict[str, Any] = {}

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        command: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        **handlers: Any,
    ) -> AsyncIterator[AcpClient]:
        """Run an agent as a child process, initialize it, and end it with the block."""
        process = await AgentProcess.start(command, cwd=cwd, env=env)
        client = cls(process.stream, process.stream, **handlers)
        serving = asyncio.ensure_future(client.serve())
        try:
            await client.initialize()
            yield client
        finally:
            await process.end()
            await serving

    async def serve(self) -> None:
        """Handle the agent's messages until it closes the connection; run this as a task."""
        try:
            await self._connection.serve(self._reader)
        finally:
            self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until the agent has closed the connection."""
        await self._closed.wait()

    async def request(self, method: str, params: Any) -> Any:
        """Handle a request from the agent."""
        fields = params if isinstance(params, dict) else {}
        await self._wait_for_updates()
        if method != "session/request_permission":
            return await self._on_request(method, fields)
        option = await self._on_permission(fields)
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        if isinstance(option, dict):
            return option
        return {"outcome": {"outcome": "selected", "optionId": option}}

    async def notification(self, method: str, params: Any) -> None:
        """Handle a notification from the agent."""
        if method == "session/update" and isinstance(params, dict):
            session, update = params.get("sessionId"), params.get("update")
            if isinstance(session, str) and isinstance(update, dict):
                async with self._update_lock:
                    self.update_meta = params.get("_meta")
                    await self._on_update(session, update)
        elif isinstance(params, dict):
            await self._on_notification(method, params)

    async def _wait_for_updates(self) -> None:
        """Wait until all updates that came before have been handled."""
        async with self._update_lock:
            pass

    # Initialization.

    async def initialize(self) -> None:
        """Agree on a version and read the agent's capabilities. Raises RpcError if it refuses."""
        try:
            result = await self._request_initialize(self._requested_version)
        except RpcError as error:
            # Some agents refuse an unknown version instead of naming their own.
            refusals = (UNSUPPORTED_VERSION, INVALID_PARAMS, INVALID_REQUEST)
            if error.code not in refusals or self._requested_version == v1.VERSION:
                raise
            result = await self._request_initialize(v1.VERSION)
        if not isinstance(result, dict):
            raise RpcError(INVALID_REQUEST, "the agent's result of initialize is not an object")
        # Some agents answer "2" in the shape of version 1; the shape decides.
        is_v2 = result.get("protocolVersion") == v2.VERSION and "info" in result
        self.version = v2.VERSION if is_v2 else v1.VERSION
        self._capabilities = _dict(result.get("capabilities" if is_v2 else "agentCapabilities"))
        self.agent = _dict(result.get("info" if is_v2 else "agentInfo"))
        self.agent_meta = _dict(result.get("_meta"))
        methods = result.get("authMethods")
        self.auth_methods = [method for method in methods or () if isinstance(method, dict)]

    async def _request_initialize(self, version: int) -> Any:
        capabilities_v1, capabilities_v2 = self._client_capabilities
        session = _dict(capabilities_v1.get("session"))
        params: dict[str, Any] = {
            "protocolVersion": version,
            "info": self._info,
            "capabilities": {**capabilities_v2, "auth": {"terminal": {}}},
            "clientInfo": self._info,
            "clientCapabilities": {
                **capabilities_v1,
                "auth": {"terminal": True},
                # A compaction is stored, also if segue's own client does not support it.
                "session": {
                    **session,
                    "compaction": _dict(session.get("compaction")),
                    "configOptions": {"boolean": {}},
                },
            },
        }
        if self._meta is not None:
            params["_meta"] = self._meta
        return await self._connection.request("initialize", params)

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the agent advertised, in the form of its version."""
        return self._capabilities

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol, and return its result."""
        result = await self._connection.request(method, params)
        await self._wait_for_updates()
        return result

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification that is not part of the protocol."""
        await self._connection.notify(method, params)

    def supports(self, capability: str) -> bool:
        """Return True if the agent advertised it: list, load, resume, close, delete, fork …"""
        if self.version == v2.VERSION:
            session = self._capabilities.get("session")
            if not isinstance(session, dict):
                return False
            return capability in _BASELINE_V2 or session.get(capability) is not None
        if capability == "load":
            return self._capabilities.get("loadSession") is True
        return _dict(self._capabilities.get("sessionCapabilities")).get(capability) is not None

    def accepts_content(self, content: str) -> bool:
        """Return True if a prompt may contain it: image, audio, embeddedContext."""
        if self.version == v2.VERSION:
            prompt = _dict(_dict(self._capabilities.get("session")).get("prompt"))
            return prompt.get(content) is not None
        return _dict(self._capabilities.get("promptCapabilities")).get(content) is True

    async def log_in(self, method: str) -> None:
        """Log in with one of `auth_methods`."""
        await self._connection.request(_LOGIN_METHODS[self.version], {"methodId": method})

    async def log_out(self) -> None:
        """Log out; does nothing if the agent has no method for it."""
        if self.version == v2.VERSION:
            await self._connection.request("auth/logout", {})
        elif (self._capabilities.get("auth") or {}).get("logout") is not None:
            await self._connection.request("logout", {})

    # Sessions.

    async def list(
        self, *, cwd: str | None = None, cursor: str | None = None, archived: str | None = None
    ) -> SessionPage:
        """Return one page of the agent's sessions."""
        if archived is not None:
            self._require("archive")
        params = {"cwd": cwd, "cursor": cursor, "archived": archived}
        present = {name: value for name, value in params.items() if value is not None}
        result = await self._request("list", present)
        rows = result.get("sessions")
        next_cursor = result.get("nextCursor")
        return SessionPage(
            [session for row in rows or () if (session := _read_row(row)) is not None],
            next_cursor if isinstance(next_cursor, str) else None,
        )

    async def sessions(
        self, *, cwd: str | None = None, archived: str | None = None
    ) -> AsyncIterator[SessionInfo]:
        """Yield every session, page by page."""
        seen: set[str] = set()
        cursor: str | None = None
        while True:
            page = await self.list(cwd=cwd, cursor=cursor, archived=archived)
            for session in page.sessions:
                yield session
            cursor = page.next_cursor
            if cursor is None or cursor in seen:
                return
            seen.add(cursor)

    async def new(self, cwd: str, **fields: Any) -> str:
        """Create a session and return its id."""
        return self._opened(await self._request("new", {"cwd": cwd, "mcpServers": [], **fields}))

    async def load(self, id: str, cwd: str, **fields: Any) -> None:
        """Open a session with its history; all its updates are handled before this returns."""
        params = {"sessionId": id, "cwd": cwd, "mcpServers": [], **fields}
        if self.version == v2.VERSION and not self.supports("load"):
            params["replayFrom"] = {"type": "start"}
            self.setup_results[id] = await self._request("resume", params)
        else:
            self.setup_results[id] = await self._request("load", params)

    async def resume(self, id: str, cwd: str, **fields: Any) -> None:
        """Open a session without its history."""
        params = {"sessionId": id, "cwd": cwd, "mcpServers": [], **fields}
        self.setup_results[id] = await self._request("resume", params)

    async def fork(self, id: str, cwd: str, **fields: Any) -> str:
        """Fork a session and return the id of the copy."""
        params = {"sessionId": id, "cwd": cwd, "mcpServers": [], **fields}
        return self._opened(await self._request("fork", params))

    async def set_mode(self, id: str, mode: str, **fields: Any) -> dict[str, Any]:
        """Set the mode of a session; version 1 only, version 2 has an option instead."""
        return await self._request("set_mode", {"sessionId": id, "modeId": mode, **fields})

    async def set_option(
        self, id: str, option: str, value: str | bool, **fields: Any
    ) -> dict[str, Any]:
        """Set an option and return the agent's result, which has all options."""
        params = {"sessionId": id, "configId": option, "value": value, **fields}
        if isinstance(value, bool):
            params["type"] = "boolean"
        elif self.version == v2.VERSION:
            params["type"] = "id"
        return await self._request("set_config_option", params)

    def _opened(self, result: dict[str, Any]) -> str:
        """Remember the result of opening a session, and return the session's id."""
        id = result.get("sessionId")
        if not isinstance(id, str):
            raise RpcError(INVALID_REQUEST, "the agent opened a session without returning its id")
        self.setup_results[id] = result
        return id

    async def prompt(
        self, id: str, content: Sequence[dict[str, Any]], **fields: Any
    ) -> dict[str, Any]:
        """Send a prompt. Version 1 answers at the end of the turn, version 2 at its start."""
        return await self._request("prompt", {"sessionId": id, "prompt": list(content), **fields})

    async def cancel(self, id: str) -> None:
        """Ask the agent to cancel the turn of a session."""
        await self._connection.notify("session/cancel", self._with_meta("session/cancel", id))

    async def close(self, id: str) -> None:
        """Close a session."""
        await self._request("close", self._with_meta("session/close", id))

    def _with_meta(self, method: str, id: str) -> dict[str, Any]:
        meta = self.next_meta.pop((method, id), None)
        return {"sessionId": id} if meta is None else {"sessionId": id, "_meta": meta}

    async def delete(self, id: str) -> None:
        """Delete a session."""
        await self._request("delete", {"sessionId": id})

    async def set_title(self, id: str, title: str) -> str:
        """Rename a session and return the title that the agent stored."""
        self._require("title")
        result = await self._request("set_title", {"sessionId": id, "title": title})
        stored = result.get("title")
        return stored if isinstance(stored, str) else title

    async def archive(self, id: str) -> None:
        """Archive a session."""
        await self._request("archive", {"sessionId": id})

    async def unarchive(self, id: str) -> None:
        """Move a session out of the archive."""
        self._require("archive")
        await self._request("unarchive", {"sessionId": id})

    async def status(self, id: str) -> str:
        """Return `open` or `saved`; an unknown status counts as saved."""
        status = (await self._request("status", {"sessionId": id})).get("status")
        return "open" if status == "open" else "saved"

    async def _request(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Call a session method. Raises UnsupportedCapability if the agent does not have it."""
        if name not in _WITHOUT_CAPABILITY:
            self._require(name)
        result = await self._connection.request(f"session/{name}", params)
        await self._wait_for_updates()
        return _dict(result)

    def _require(self, capability: str) -> None:
        if not self.supports(capability):
            name = self.agent.get("name", "the agent")
            raise UnsupportedCapability(f"{name} does not support {capability}")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_row(row: Any) -> SessionInfo | None:
    """Return a row of a list, without malformed optional fields; None if a required one is."""
    if not isinstance(row, dict):
        return None
    for fields in (row, {name: row.get(name) for name in ("sessionId", "cwd")}):
        try:
            return codec.convert(fields, SessionInfo)
        except msgspec.ValidationError:
            continue
    return None
