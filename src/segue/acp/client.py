"""The client's side: the sessions of another ACP agent, in whichever version it speaks.

It asks for version 2 and takes 1, checks that a capability was advertised before it uses it, and
is patient with agents that are careless: rows that make no sense are left out, a cursor that comes
again ends the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from . import v1, v2
from .process import AgentProcess
from .rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Connection,
    Reader,
    RpcError,
    Writer,
)
from .wire import SessionInfo

Update = Callable[[str, dict[str, Any]], Awaitable[None]]
Permission = Callable[[dict[str, Any]], Awaitable[str | None]]
Request = Callable[[str, dict[str, Any]], Awaitable[Any]]
Notice = Callable[[str, dict[str, Any]], Awaitable[None]]

_NAME = {"name": "segue", "version": "1"}
# Methods without a marker of their own.
_UNMARKED = ("new", "prompt", "set_title", "unarchive", "set_mode", "set_config_option")


class Unsupported(Exception):
    """The agent does not offer that; nothing was sent to it."""


class Listed(NamedTuple):
    """A page of another agent's sessions."""

    sessions: list[SessionInfo]
    next: str | None


async def _ignore(session: str, update: dict[str, Any]) -> None:
    return


async def _refuse(request: dict[str, Any]) -> str | None:
    return None


async def _unknown(method: str, params: dict[str, Any]) -> Any:
    raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}")


class AcpClient:
    """One connection to an agent. `initialize` comes first.

    `on_update` hears every `session/update`, one after the other and before whatever the agent
    answers later; it must not wait for an answer itself. `on_permission` chooses an option's id,
    or None. `on_request` and `on_notice` have whatever else the agent asks and tells; what it may
    ask is said in `capabilities`, of version 1 and of version 2.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        *,
        on_update: Update = _ignore,
        on_permission: Permission = _refuse,
        on_request: Request = _unknown,
        on_notice: Notice = _ignore,
        capabilities: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    ) -> None:
        self._connection = Connection(reader, writer, self)
        self._on_update = on_update
        self._on_permission = on_permission
        self._on_request = on_request
        self._on_notice = on_notice
        self._own = capabilities
        self._telling = asyncio.Lock()
        self._over = asyncio.Event()
        self.version = 0
        self.agent: dict[str, Any] = {}
        self.auth_methods: list[dict[str, Any]] = []
        self.setups: dict[str, dict[str, Any]] = {}  # what was said of a session at its opening
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
        """Run an agent as a child, greet it, and end it when the block does."""
        process = await AgentProcess.start(command, cwd=cwd, env=env)
        client = cls(process.lines, process.lines, **handlers)
        serving = asyncio.ensure_future(client.serve())
        try:
            await client.initialize()
            yield client
        finally:
            await process.end()
            await serving

    async def serve(self) -> None:
        """Hear the agent until it goes away; to be run beside everything else."""
        try:
            await self._connection.serve()
        finally:
            self._over.set()

    async def wait_gone(self) -> None:
        """Until the agent has gone away."""
        await self._over.wait()

    async def request(self, method: str, params: Any) -> Any:
        """What the agent asks of us."""
        given = params if isinstance(params, dict) else {}
        async with self._telling:  # what was told before has been heard then
            pass
        if method != "session/request_permission":
            return await self._on_request(method, given)
        chosen = await self._on_permission(given)
        if chosen is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": chosen}}

    async def notification(self, method: str, params: Any) -> None:
        """What the agent tells us."""
        if method == "session/update" and isinstance(params, dict):
            session, update = params.get("sessionId"), params.get("update")
            if isinstance(session, str) and isinstance(update, dict):
                async with self._telling:
                    await self._on_update(session, update)
        elif isinstance(params, dict):
            await self._on_notice(method, params)

    # Getting to know each other.

    async def initialize(self) -> None:
        try:
            result = await self._greet(v2.VERSION)
        except RpcError as error:
            # Some refuse a version that they do not know, and should have named their own.
            if error.code not in (UNSUPPORTED_VERSION, INVALID_PARAMS, INVALID_REQUEST):
                raise
            result = await self._greet(v1.VERSION)
        if not isinstance(result, dict):
            raise RpcError(INVALID_REQUEST, "the agent's answer to initialize is none")
        # Some say 2 and mean 1; the shape of the answer is what counts.
        modern = result.get("protocolVersion") == v2.VERSION and "info" in result
        self.version = v2.VERSION if modern else v1.VERSION
        found = result.get("capabilities" if modern else "agentCapabilities")
        named = result.get("info" if modern else "agentInfo")
        self._capabilities = found if isinstance(found, dict) else {}
        self.agent = named if isinstance(named, dict) else {}
        methods = result.get("authMethods")
        self.auth_methods = [each for each in methods or () if isinstance(each, dict)]

    async def _greet(self, version: int) -> Any:
        return await self._connection.request(
            "initialize",
            {
                "protocolVersion": version,
                "info": _NAME,
                "capabilities": {"auth": {"terminal": {}}, **self._own[1]},
                "clientInfo": _NAME,
                "clientCapabilities": {
                    "auth": {"terminal": True},
                    "session": {"configOptions": {"boolean": {}}},
                    **self._own[0],
                },
            },
        )

    def offers(self, capability: str) -> bool:
        """Whether the agent advertised it: list, load, resume, close, delete, fork, title …"""
        if self.version == v2.VERSION:
            session = self._capabilities.get("session")
            if not isinstance(session, dict):
                return False
            # These three come with sessions; `load` is of an earlier draft.
            return capability in ("list", "resume", "close") or session.get(capability) is not None
        if capability == "load":
            return self._capabilities.get("loadSession") is True
        session = self._capabilities.get("sessionCapabilities")
        return isinstance(session, dict) and session.get(capability) is not None

    def takes(self, content: str) -> bool:
        """Whether a prompt may have such content: image, audio, embeddedContext."""
        if self.version == v2.VERSION:
            session = self._capabilities.get("session")
            found = session.get("prompt") if isinstance(session, dict) else None
            return isinstance(found, dict) and found.get(content) is not None
        found = self._capabilities.get("promptCapabilities")
        return isinstance(found, dict) and found.get(content) is True

    async def log_in(self, method: str) -> None:
        name = "auth/login" if self.version == v2.VERSION else "authenticate"
        await self._connection.request(name, {"methodId": method})

    async def log_out(self) -> None:
        """Nothing, where the agent has no way to."""
        if self.version == v2.VERSION:
            await self._connection.request("auth/logout", {})
        elif (self._capabilities.get("auth") or {}).get("logout") is not None:
            await self._connection.request("logout", {})

    # Sessions.

    async def list(
        self, *, cwd: str | None = None, cursor: str | None = None, archived: str | None = None
    ) -> Listed:
        """One page of the agent's sessions."""
        params = {"cwd": cwd, "cursor": cursor}
        if archived is not None:
            self._needs("archive")
            params["archived"] = archived
        given = {name: value for name, value in params.items() if value is not None}
        result = await self._ask("list", given)
        rows = result.get("sessions")
        following = result.get("nextCursor")
        return Listed(
            [row for each in rows or () if (row := _row(each)) is not None],
            following if isinstance(following, str) else None,
        )

    async def sessions(
        self, *, cwd: str | None = None, archived: str | None = None
    ) -> AsyncIterator[SessionInfo]:
        """Every session, page after page."""
        seen: set[str] = set()
        cursor: str | None = None
        while True:
            page = await self.list(cwd=cwd, cursor=cursor, archived=archived)
            for row in page.sessions:
                yield row
            cursor = page.next
            if cursor is None or cursor in seen:
                return
            seen.add(cursor)

    async def new(self, cwd: str, **more: Any) -> str:
        result = await self._ask("new", {"cwd": cwd, "mcpServers": [], **more})
        return self._made(result)

    async def load(self, id: str, cwd: str, **more: Any) -> None:
        """Open a session with its history, every update of which comes before this returns."""
        params = {"sessionId": id, "cwd": cwd, "mcpServers": [], **more}
        if self.version == v2.VERSION and not self.offers("load"):
            start = {"replayFrom": {"type": "start"}}
            self.setups[id] = await self._ask("resume", {**params, **start})
        else:
            self.setups[id] = await self._ask("load", params)

    async def resume(self, id: str, cwd: str, **more: Any) -> None:
        """Open a session without its history."""
        params = {"sessionId": id, "cwd": cwd, "mcpServers": [], **more}
        self.setups[id] = await self._ask("resume", params)

    async def fork(self, id: str, cwd: str, **more: Any) -> str:
        params = {"sessionId": id, "cwd": cwd, "mcpServers": [], **more}
        return self._made(await self._ask("fork", params))

    async def set_mode(self, id: str, mode: str) -> None:
        """Of version 1; what version 2 calls an option."""
        await self._ask("set_mode", {"sessionId": id, "modeId": mode})

    async def set_option(self, id: str, option: str, value: str | bool) -> dict[str, Any]:
        """Choose a value of an option; what the agent answers has all of them."""
        params: dict[str, Any] = {"sessionId": id, "configId": option, "value": value}
        if isinstance(value, bool):
            params["type"] = "boolean"
        elif self.version == v2.VERSION:
            params["type"] = "id"
        return await self._ask("set_config_option", params)

    def _made(self, result: dict[str, Any]) -> str:
        id = _session_id(result)
        self.setups[id] = result
        return id

    async def prompt(self, id: str, content: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Ask. Version 1 answers at the turn's end, version 2 at its beginning."""
        return await self._ask("prompt", {"sessionId": id, "prompt": list(content)})

    async def cancel(self, id: str) -> None:
        await self._connection.notify("session/cancel", {"sessionId": id})

    async def close(self, id: str) -> None:
        await self._ask("close", {"sessionId": id})

    async def delete(self, id: str) -> None:
        await self._ask("delete", {"sessionId": id})

    async def set_title(self, id: str, title: str) -> str:
        """The title as the agent stored it."""
        self._needs("title")
        result = await self._ask("set_title", {"sessionId": id, "title": title})
        stored = result.get("title")
        return stored if isinstance(stored, str) else title

    async def archive(self, id: str) -> None:
        await self._ask("archive", {"sessionId": id})

    async def unarchive(self, id: str) -> None:
        self._needs("archive")
        await self._ask("unarchive", {"sessionId": id})

    async def status(self, id: str) -> str:
        """`open` or `saved`; what is not known counts as saved."""
        found = (await self._ask("status", {"sessionId": id})).get("status")
        return "open" if found == "open" else "saved"

    async def _ask(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        if name not in _UNMARKED:
            self._needs(name)
        result = await self._connection.request(f"session/{name}", params)
        async with self._telling:  # what was told before has been heard then
            pass
        return result if isinstance(result, dict) else {}

    def _needs(self, capability: str) -> None:
        if not self.offers(capability):
            raise Unsupported(f"{self.agent.get('name', 'the agent')} does not offer {capability}")


def _row(given: Any) -> SessionInfo | None:
    """A row of a list, as far as it makes sense; None without the fields that it must have."""
    if not isinstance(given, dict):
        return None
    for fields in (given, {name: given.get(name) for name in ("sessionId", "cwd")}):
        try:
            return msgspec.convert(fields, SessionInfo)
        except msgspec.ValidationError:
            continue
    return None


def _session_id(result: dict[str, Any]) -> str:
    id = result.get("sessionId")
    if not isinstance(id, str):
        raise RpcError(INVALID_REQUEST, "the agent made a session and did not say which")
    return id
