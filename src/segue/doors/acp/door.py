"""The ACP door: one connection's requests as calls of the hub.

Each method of the protocol is one method here, named by it; which exist in a version, and with
what parameters, is the version's own table. What is open on a connection is the one thing kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from ... import __version__
from ...acp import v1, v2, wire
from ...acp.rpc import (
    AUTH_REQUIRED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    UNSUPPORTED_VERSION,
    Connection,
    RpcError,
)
from ...agents.base import Agent
from ...hub import Hub
from ...hub.places import real
from ...model import clock, ids
from ...model.errors import InvalidInput, NotFound, SegueError
from ...model.event import ConfigChanged
from ...model.principal import Principal
from ...model.query import Query
from ...model.session import Session
from . import options
from .capabilities import Offers, initialized_v1, initialized_v2
from .content import read_prompt
from .meta import NAMESPACE, session_meta
from .opened import Opened, View, stop_reason
from .servers import read_servers
from .view1 import View1
from .view2 import View2

if TYPE_CHECKING:
    from ...agents.mcp import McpServers

log = logging.getLogger("segue.acp")

PAGE = 50
_WITHOUT_LOGIN = ("initialize", "authenticate", "auth/login", "logout", "auth/logout")


class Door:
    """Answers one client."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        *,
        agent: Agent | None = None,
        offers: Offers | None = None,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._agent = agent
        self._offers = offers or Offers()
        self._version = 0
        self._client = v1.ClientCapabilities()
        self._logged_out = False
        self._opened: dict[str, Opened] = {}
        self._servers: dict[str, McpServers] = {}
        self._busy = False
        self.connection: Connection

    async def close(self) -> None:
        """The client is gone: cancel what it began, let its sessions go."""
        for id in list(self._opened):
            await self._shut(id)

    # Dispatch.

    async def request(self, method: str, params: Any) -> Any:
        if self._version == 0 and method != "initialize":
            raise RpcError(INVALID_REQUEST, "initialize first")
        if method == "initialize":
            return await self._initialize(params)
        table = v1.REQUESTS if self._version == 1 else v2.REQUESTS
        kind = table.get(method)
        answer: Callable[[Any], Awaitable[Any]] | None = getattr(self, _handler(method), None)
        if kind is None or answer is None or not self._offers.method(method):
            raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}", {"method": method})
        if self._logged_out and method not in _WITHOUT_LOGIN:
            raise RpcError(AUTH_REQUIRED, "authentication required")
        try:
            return await answer(_convert(params, kind))
        except SegueError as error:
            raise _refusal(error) from error

    async def notification(self, method: str, params: Any) -> None:
        if self._version and method == "session/cancel":
            wanted: wire.SessionRequest = _convert(params, wire.SessionRequest)
            if opened := self._opened.get(_id(wanted.session_id)):
                await self._hub.cancel(self._principal, opened.id)
                await opened.check_waiting()

    # The connection.

    async def _initialize(self, params: Any) -> Any:
        requested = params.get("protocolVersion") if isinstance(params, dict) else None
        if isinstance(requested, bool) or not isinstance(requested, int):
            raise RpcError(INVALID_PARAMS, "protocolVersion must be an integer")
        if requested < 1:
            supported = {"requested": max(requested, 0), "supported": [v1.VERSION, v2.VERSION]}
            raise RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", supported)
        if self._busy:
            raise RpcError(INVALID_REQUEST, "this connection is initialized already")
        if requested == v1.VERSION:
            asked = _convert(params, v1.InitializeRequest)
            self._client = asked.client_capabilities
            self._version = v1.VERSION
            return initialized_v1(self._offers, self._client, __version__)
        try:
            asked2 = msgspec.convert(params, v2.InitializeRequest)
            terminal = asked2.capabilities.auth is not None
            terminal = terminal and asked2.capabilities.auth.terminal is not None  # type: ignore[union-attr]  # just checked
        except msgspec.ValidationError as error:
            # A client of a later version may say things in ways we do not know; of ours it may not.
            if requested == v2.VERSION:
                raise RpcError(INVALID_PARAMS, str(error)) from None
            terminal = False
        self._version = v2.VERSION
        return initialized_v2(self._offers, terminal, __version__)

    async def _authenticate(self, request: wire.AuthRequest) -> wire.Empty:
        if request.method_id not in self._offers.auth_methods:
            raise RpcError(INVALID_PARAMS, f"no authentication method {request.method_id!r}")
        self._logged_out = False
        return wire.Empty()

    _auth_login = _authenticate

    async def _logout(self, _: wire.Empty) -> wire.Empty:
        for id in list(self._opened):
            await self._shut(id)
        self._logged_out = True
        return wire.Empty()

    _auth_logout = _logout

    # Opening sessions.

    async def _session_new(self, request: wire.SetupRequest) -> Any:
        roots, servers = self._setup(request)
        session = await self._hub.create(
            self._principal, cwd=request.cwd, roots=roots, origin="acp"
        )
        await self._open(session, servers, replay=False, fresh=True)
        return self._described(session, session.id)

    async def _session_load(self, request: wire.SetupRequest) -> Any:
        session = await self._existing(request, replay=True)
        # The earlier draft of version 2 answered with null.
        return None if self._version == 2 else self._described(session)

    async def _session_resume(self, request: wire.SetupRequest) -> Any:
        start = request.replay_from
        if start is not None and (self._version == 1 or start.get("type") != "start"):
            raise RpcError(INVALID_PARAMS, "replayFrom must be of type 'start'")
        return self._described(await self._existing(request, replay=start is not None))

    async def _session_fork(self, request: wire.SetupRequest) -> Any:
        roots, servers = self._setup(request)
        fork = await self._hub.fork(
            self._principal, _known(request.session_id), cwd=request.cwd, origin="acp"
        )
        if fork.roots != roots:
            fork = await self._hub.configure(self._principal, fork.id, ConfigChanged(roots=roots))
        await self._open(fork, servers, replay=False, fresh=True)
        return self._described(fork, fork.id)

    async def _existing(self, request: wire.SetupRequest, *, replay: bool) -> Session:
        roots, servers = self._setup(request)
        session = await self._hub.get(self._principal, _known(request.session_id))
        if session.shelf == "trash":
            raise _unknown(request.session_id)
        if real(request.cwd) != session.directory:
            raise RpcError(INVALID_PARAMS, f"cwd is not this session's, which is {session.cwd}")
        if session.source == "segue" and session.roots != roots:
            session = await self._hub.configure(
                self._principal, session.id, ConfigChanged(roots=roots)
            )
        await self._shut(session.id)
        return await self._open(session, servers, replay=replay, fresh=False)

    def _setup(self, request: wire.SetupRequest) -> tuple[tuple[str, ...], list[wire.McpServer]]:
        """Roots and servers, checked before anything is made."""
        if not os.path.isabs(request.cwd):
            raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {request.cwd!r}")
        found: list[str] = []
        for path in request.additional_directories or ():
            if not os.path.isabs(path):
                why = f"additionalDirectories must be absolute paths, not {path!r}"
                raise RpcError(INVALID_PARAMS, why)
            if path not in found:
                found.append(path)
        return tuple(found), read_servers(request.mcp_servers, self._version)

    async def _open(
        self, session: Session, servers: list[wire.McpServer], *, replay: bool, fresh: bool
    ) -> Session:
        self._busy = True
        view: View = View1(self._client) if self._version == 1 else View2()
        opened = Opened(self._hub, self._principal, self.connection, session, view, self._version)
        if replay:
            await opened.replay()
        if not fresh and (replay or self._version == 2):
            await opened.ready()
        tools = await self._connect(opened, servers)
        if session.source == "segue":
            await self._hub.hold(self._principal, session.id, agent=self._agent, tools=tools)
        self._opened[session.id] = opened
        opened.start()
        return session

    async def _connect(self, opened: Opened, servers: list[wire.McpServer]) -> McpServers | None:
        """The client's MCP servers for this session; those that fail are told, and not fatal."""
        if not servers:
            return None
        from ...agents.mcp import McpServers

        tools, failures = await McpServers.connect(servers, opened.cwd)
        self._servers[opened.id] = tools
        for name, why in failures.items():
            log.warning("MCP server %s: %s", name, why)
            await opened.notice("warning", f"The MCP server {name} could not be connected", why)
        return tools

    def _described(self, session: Session, id: str | None = None) -> Any:
        named = UNSET if id is None else id
        if self._version == 1:
            return v1.SetupResponse(
                session_id=named,
                modes=options.mode_state(session),
                config_options=options.config_v1(session),
            )
        return v2.SetupResponse(session_id=named, config_options=options.config_v2(session))

    # Working with an open session.

    async def _session_prompt(self, request: wire.PromptRequest) -> Any:
        opened = self._open_one(request.session_id)
        content = read_prompt(request.prompt)
        turn_id = ids.new_id()
        future = await opened.prompt(turn_id)
        try:
            await self._hub.prompt(self._principal, opened.id, content, turn_id=turn_id)
            outcome = await future
        except BaseException:
            opened.forget(turn_id)
            if future.cancelled():
                await self._give_up(opened.id, turn_id)
            raise
        if self._version == 2:
            return v2.PromptResponse(message_id=outcome)
        return v1.PromptResponse(stop_reason=stop_reason(outcome))

    async def _give_up(self, id: str, turn_id: str) -> None:
        """The client took its prompt back. One that has begun ends with it, in version 1."""
        waiting = await self._hub.withdraw(self._principal, id, turn_id)
        if not waiting and self._version == 1:
            await self._hub.cancel(self._principal, id)

    async def _session_set_mode(self, request: wire.SetModeRequest) -> wire.Empty:
        await self._set_mode(self._open_one(request.session_id), request.mode_id)
        return wire.Empty()

    async def _session_set_config_option(self, request: wire.SetConfigRequest) -> Any:
        opened = self._open_one(request.session_id)
        if request.config_id != options.MODE_OPTION:
            raise RpcError(INVALID_PARAMS, f"no configuration option {request.config_id!r}")
        if not isinstance(request.value, str) or request.type not in (None, "id"):
            raise RpcError(INVALID_PARAMS, "the value of this option is one of its ids")
        session = await self._set_mode(opened, request.value)
        if self._version == 1:
            return v1.SetConfigResponse(config_options=options.config_v1(session))
        return v2.SetConfigResponse(config_options=options.config_v2(session))

    async def _set_mode(self, opened: Opened, mode: str) -> Session:
        if mode not in options.MODES:
            known = ", ".join(options.MODES)
            raise RpcError(INVALID_PARAMS, f"no mode {mode!r}; there are {known}")
        change = ConfigChanged(mode=mode)
        session = await self._hub.configure(self._principal, opened.id, change)
        await opened.caught_up()
        return session

    async def _session_close(self, request: wire.SessionRequest) -> wire.Empty:
        await self._shut(_id(request.session_id))
        return wire.Empty()

    async def _shut(self, id: str) -> None:
        opened = self._opened.get(id)
        if opened is None:
            return
        if opened.busy:
            await self._hub.cancel(self._principal, id)
        await self._hub.turns.let_go((self._principal.workspace, id))
        if tools := self._servers.pop(id, None):
            await tools.close()
        await opened.check_waiting()
        await opened.caught_up()
        self._opened.pop(id, None)
        await opened.stop()

    def _open_one(self, spelt: str) -> Opened:
        opened = self._opened.get(_id(spelt))
        if opened is None:
            raise _unknown(spelt)
        return opened

    # Any session.

    async def _session_list(self, request: wire.ListRequest) -> wire.ListSessionsResponse:
        page = await self._hub.list(self._principal, _query(request), request.cursor)
        return wire.ListSessionsResponse(
            sessions=[self._row(session) for session in page.sessions],
            next_cursor=UNSET if page.next is None else page.next,
        )

    def _row(self, session: Session) -> wire.SessionInfo:
        return wire.SessionInfo(
            session_id=session.id,
            cwd=session.cwd,
            title=session.title,
            updated_at=clock.to_rfc3339(session.active_at),
            additional_directories=list(session.roots) if session.roots else UNSET,
            archived=session.archived_at is not None,
            meta=session_meta(session),
        )

    async def _session_delete(self, request: wire.SessionRequest) -> wire.Empty:
        id = _id(request.session_id)
        await self._shut(id)
        try:
            await self._hub.trash(self._principal, id)
        except NotFound:
            log.info("session %s was deleted already", id)
        return wire.Empty()

    async def _session_set_title(self, request: wire.SetTitleRequest) -> wire.SetTitleResponse:
        id = _known(request.session_id)
        session = await self._hub.set_title(self._principal, id, request.title)
        if opened := self._opened.get(id):
            await opened.caught_up()
        return wire.SetTitleResponse(title=session.title or "")

    async def _session_archive(self, request: wire.SessionRequest) -> wire.Empty:
        id = _known(request.session_id)
        await self._hub.get(self._principal, id)
        await self._shut(id)
        await self._hub.archive(self._principal, id)
        return wire.Empty()

    async def _session_unarchive(self, request: wire.SessionRequest) -> wire.Empty:
        await self._hub.unarchive(self._principal, _known(request.session_id))
        return wire.Empty()

    async def _session_status(self, request: wire.SessionRequest) -> Any:
        session = await self._hub.get(self._principal, _known(request.session_id))
        if session.shelf == "trash":
            raise _unknown(request.session_id)
        is_open = session.id in self._opened
        if self._version == 1:
            return v1.StatusResponse(status="open" if is_open else "saved")
        state = {"state": View2().state(session).state}
        return v2.StatusResponse(status="open" if is_open else "saved", state=state)


def _handler(method: str) -> str:
    return "_" + method.replace("/", "_")


def _convert(params: Any, kind: type[Any]) -> Any:
    try:
        return msgspec.convert({} if params is None else params, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


def _id(spelt: str) -> str:
    """A session's id in any spelling; what is none names nothing, and stays as it is."""
    return ids.parse(spelt, "sesn") or spelt


def _known(spelt: str) -> str:
    id = ids.parse(spelt, "sesn")
    if id is None:
        raise _unknown(spelt)
    return id


def _unknown(spelt: str) -> RpcError:
    return RpcError(NOT_FOUND, f"session not found: {spelt}", {"sessionId": spelt})


def _refusal(error: SegueError) -> RpcError:
    data = {"sessionId": error.data["session"]} if "session" in error.data else None
    return RpcError(error.rpc_code, error.message, data)


def _query(request: wire.ListRequest) -> Query:
    """The filters of a list: the protocol's own, the proposal's, and ours under `_meta`."""
    own = (request.meta or {}).get(NAMESPACE, {})
    if not isinstance(own, dict):
        raise RpcError(INVALID_PARAMS, f"_meta.{NAMESPACE} must be an object")
    if request.cwd is not None and not os.path.isabs(request.cwd):
        raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {request.cwd!r}")
    created = request.created_after or own.get("createdAfter")
    limit = own.get("limit", PAGE)
    try:
        filters = msgspec.convert(
            {
                "cwd": request.cwd,
                "worktrees": own.get("includeWorktrees", False),
                "tag": own.get("tag"),
                "text": request.search or own.get("search"),
                "archived": request.archived or "exclude",
                "created_gt": None if created is None else clock.from_rfc3339(created),
            },
            Query,
        )
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
            raise InvalidInput("limit must be from 1 to 1000")
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise RpcError(INVALID_PARAMS, f"session/list: {error}") from None
    return msgspec.structs.replace(filters, limit=limit)
