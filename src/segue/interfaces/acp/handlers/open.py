"""Handle the methods that open and close sessions: new, fork, load, resume, close."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.acp import wire
from segue.acp.methods import MCP_OVER_ACP, SYSTEM_PROMPT
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.agents.base import AgentSession, ConnectedTools, OwnsSessions
from segue.agents.base.declaration import COMPLETE, OFFERED
from segue.agents.base.external import HasExtensions
from segue.hub import Hub
from segue.hub.sessions import directories
from segue.interfaces.acp.attached_sessions import AttachedSessions
from segue.interfaces.acp.capabilities import AgentProfile
from segue.interfaces.acp.errors import invalid_params, session_not_found
from segue.interfaces.acp.mcp_servers import parse_servers
from segue.interfaces.acp.meta import NAMESPACE
from segue.interfaces.acp.position import requested_position
from segue.interfaces.acp.served_agent import ServedAgent
from segue.interfaces.acp.versions.policy import VersionPolicy
from segue.model import codec, ids
from segue.model.errors import Conflict, ReadOnly, SegueError, StoreReadOnly
from segue.model.event import AgentRef, ConfigChanged
from segue.model.principal import Principal
from segue.model.session import Session

from .attach import SessionAttacher
from .session_access import SessionAccess, canonical_id
from .system_prompts import SystemPrompts

log = logging.getLogger("segue.acp")

AGENT_OPEN_SECONDS = 10.0  # how long the opening of a session waits for its agent
# Why only the local user may set these fields.
_LOCAL_ONLY = {
    "additionalDirectories": "only the local user may add directories of the server's machine",
    "mcpServers": "only the local user may add MCP servers; an API key sets those of its agents",
}


class _ForkOptions(msgspec.Struct, frozen=True, rename="camel"):
    """The options of `session/fork` in segue's `_meta`."""

    resume_in: str | None = None


class OpenHandlers:
    """Opens sessions on the client's connection, and closes them."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        attached: AttachedSessions,
        attacher: SessionAttacher,
        access: SessionAccess,
        policy: VersionPolicy,
        profile: AgentProfile,
        served_agent: ServedAgent | None,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._attached = attached
        self._attacher = attacher
        self._access = access
        self._policy = policy
        self._profile = profile
        self._served_agent = served_agent
        self._agent = None if served_agent is None else served_agent.agent
        self._declaration = None if served_agent is None else served_agent.declaration
        self._system_prompts = SystemPrompts(hub, principal, profile)

    async def new(self, request: wire.SetupRequest) -> Any:
        """Answer `session/new`."""
        roots, servers = self._check_setup(request)
        await self._system_prompts.check(request)
        await self._access.purge_expired()
        async with self._connect(servers, request.cwd) as mcp_servers:
            session, meta = await self._create(request, roots, mcp_servers)
            session = await self._system_prompts.store(request, session)
            session = await self._note_created(session)
            attached_session = self._attacher.prepare(session)
            await self._attacher.attach(attached_session, session, mcp_servers, created=True)
        response = self._setup_response(session, session_id=session.id)
        return response if meta is None else replace(response, meta=meta)

    async def fork(self, request: wire.SetupRequest) -> Any:
        """Answer `session/fork`.

        The fork is stored by segue, whichever tool owns its parent, so that it can be prompted.
        With a tool in segue's `_meta`, it is a session of that tool.
        """
        roots, servers = self._check_setup(request)
        await self._system_prompts.check(request)
        parent = await self._access.sync_and_get(request.session_id)
        await self._hub.sync.import_if_listed_only(self._principal, parent.id)
        tool = _requested_tool(request)
        if tool is not None:
            return await self._continue_in(tool, parent, request, roots, servers)
        async with self._connect(servers, request.cwd, parent) as mcp_servers:
            fork, meta = await self._fork(request, parent, roots, mcp_servers)
            fork = await self._system_prompts.store(request, await self._set_roots(fork, roots))
            fork = await self._note_created(fork)
            attached_session = self._attacher.prepare(fork)
            await self._attacher.attach(attached_session, fork, mcp_servers, created=True)
        response = self._setup_response(fork, session_id=fork.id)
        return response if meta is None else replace(response, meta=meta)

    async def _fork(
        self,
        request: wire.SetupRequest,
        parent: Session,
        roots: tuple[str, ...],
        mcp_servers: ConnectedTools | None,
    ) -> tuple[Session, Any]:
        """Fork a session, also in the served agent if that has its own sessions.

        Returns the fork, and the `_meta` of the agent's response.
        """
        cwd = self._own_cwd(request)
        settings: dict[str, Any] = {"cwd": cwd, "origin": "acp", "in_store": True}
        fork = self._hub.editor.fork
        if cwd is None or not isinstance(self._agent, OwnsSessions):
            return await fork(self._principal, parent.id, **settings), None
        fields = agent_fields(request)
        native = await self._agent.fork_session(parent, cwd, roots, mcp_servers, fields)
        try:
            new_id = await self._session_id(native, cwd)
            session = await fork(self._principal, parent.id, new_id=new_id, **settings)
        except Conflict:  # the agent gives the same ids to sessions of other processes
            session = await fork(self._principal, parent.id, **settings)
        return await self._bind(session, native), native.meta

    async def _session_id(self, native: AgentSession, cwd: str) -> str:
        """Return the id for a session of the agent: that of a source that reads its files.

        The list then has the session once.
        """
        if ids.parse(native.native_id) is not None:
            return native.id  # every source uses it
        directory = directories.real(cwd)
        imported_id = await self._hub.sync.find_new(self._principal, native.native_id, directory)
        return imported_id or native.id

    async def _bind(self, session: Session, native: AgentSession) -> Session:
        """Store which session of the agent belongs to a session, and return the session."""
        change = ConfigChanged(options=native.bind(session.id))
        return await self._hub.editor.configure(self._principal, session.id, change)

    async def _continue_in(
        self,
        tool: str,
        parent: Session,
        request: wire.SetupRequest,
        roots: tuple[str, ...],
        servers: list[wire.McpServer],
    ) -> Any:
        """Continue a session in a tool; the response's `_meta` has its command and the report."""
        if self._principal.local and directories.real(request.cwd) != parent.directory:
            raise RpcError(INVALID_PARAMS, f"cwd is not this session's, which is {parent.cwd}")
        async with self._connect(servers, request.cwd, parent) as mcp_servers:
            session, report, command = await self._hub.continuing.continue_in(
                self._principal, parent.id, tool, origin="acp"
            )
            session = await self._set_roots(session, roots)
            attached_session = self._attacher.prepare(session)
            await self._attacher.attach(attached_session, session, mcp_servers, created=True)
        resume = None
        if command is not None:
            resume = {
                "command": list(command.arguments),
                "environment": dict(command.environment),
                "cwd": session.cwd,
            }
        response = self._policy.setup_response(session, session_id=session.id)
        meta = {NAMESPACE: {"resume": resume, "report": msgspec.to_builtins(report)}}
        return msgspec.structs.replace(response, meta=meta)

    async def load(self, request: wire.SetupRequest) -> Any:
        """Answer `session/load`."""
        session, meta = await self._reopen(request, replay=True)
        response = self._with_directory(self._policy.load_response(session), session)
        return response if meta is None or response is None else replace(response, meta=meta)

    async def resume(self, request: wire.SetupRequest) -> Any:
        """Answer `session/resume`. An agent that cannot reopen sessions finds none to resume."""
        if not self._profile.has("resume"):
            raise session_not_found(request.session_id)
        replay = requested_position(request) is not None or self._policy.wants_replay(request)
        session, meta = await self._reopen(request, replay=replay)
        response = self._setup_response(session)
        return response if meta is None else replace(response, meta=meta)

    async def close(self, request: wire.SessionRequest) -> wire.Empty:
        """Answer `session/close`. An agent that keeps no sessions deletes the session."""
        session_id = canonical_id(request.session_id)
        async with self._attached.lock(session_id):
            was_attached = session_id in self._attached
            if request.meta is not None and isinstance(self._agent, HasExtensions):
                self._agent.note_meta(session_id, "session/close", request.meta)
            await self._attached.detach(session_id)
            if was_attached and not self._profile.persistent:
                await self._hub.editor.purge(self._principal, session_id)
        return wire.Empty()

    def _setup_response(self, session: Session, *, session_id: str | None = None) -> Any:
        response = self._policy.setup_response(session, session_id=session_id)
        return self._with_directory(response, session)

    def _with_directory(self, response: Any, session: Session) -> Any:
        """Return the response with the directory that the session has, which the client may not
        choose unless it is the local user's.
        """
        if self._principal.local or response is None:
            return response
        return replace(response, meta={NAMESPACE: {"cwd": session.cwd}})

    def _own_cwd(self, request: wire.SetupRequest) -> str | None:
        """Return the directory that the client chooses for a new session.

        Only the local user may choose one, because the agent's tools can read it. For an API key
        `cwd` is a path on the client's machine: a new session has a directory of its own, and a
        fork has its parent's.
        """
        return request.cwd if self._principal.local else None

    def _check_setup(
        self, request: wire.SetupRequest
    ) -> tuple[tuple[str, ...], list[wire.McpServer]]:
        """Return the additional directories and MCP servers of a request that opens a session.

        Raises RpcError if the request is invalid. Nothing has been created or changed then.
        """
        if not os.path.isabs(request.cwd):
            raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {request.cwd!r}")
        if not self._principal.local:
            fields = {
                "additionalDirectories": request.additional_directories,
                "mcpServers": request.mcp_servers,
            }
            for field, value in fields.items():
                if value:
                    raise RpcError(INVALID_PARAMS, f"{field}: {_LOCAL_ONLY[field]}")
        paths = request.additional_directories or []
        if paths and not self._profile.has("additionalDirectories"):
            raise RpcError(INVALID_PARAMS, "additionalDirectories are not supported")
        for index, path in enumerate(paths):
            if not os.path.isabs(path):
                message = f"additionalDirectories[{index}] must be an absolute path, not {path!r}"
                raise RpcError(INVALID_PARAMS, message)
        roots = tuple(dict.fromkeys(paths))
        over_acp = self._profile.optional(MCP_OVER_ACP) is not None
        servers = parse_servers(
            request.mcp_servers, self._policy.default_mcp_transport, over_acp=over_acp
        )
        return roots, servers

    @asynccontextmanager
    async def _connect(
        self, servers: list[wire.McpServer], cwd: str, session: Session | None = None
    ) -> AsyncIterator[ConnectedTools | None]:
        """Connect the MCP servers of a new session, or of an existing one.

        They are closed if the block fails; otherwise the attached session closes them.
        """
        mcp_servers = await self._hub.agents.connect_mcp(
            self._principal, servers, cwd, session, self._agent
        )
        try:
            yield mcp_servers
        except BaseException:
            if mcp_servers is not None:
                await mcp_servers.close()
            raise

    async def _create(
        self,
        request: wire.SetupRequest,
        roots: tuple[str, ...],
        mcp_servers: ConnectedTools | None,
    ) -> tuple[Session, Any]:
        """Create a session, also in the served agent if that has its own sessions.

        Returns the session, and the `_meta` of the agent's response.
        """
        cwd = self._own_cwd(request)
        settings: dict[str, Any] = {
            "cwd": cwd,
            "roots": roots,
            "origin": "acp",
            "agent": await self._agent_ref(),
        }
        if cwd is None or not isinstance(self._agent, OwnsSessions):
            return await self._hub.editor.create(self._principal, **settings), None
        native = await self._agent.start_session(cwd, roots, mcp_servers, agent_fields(request))
        settings["native_id"] = native.native_id
        try:
            id = await self._session_id(native, cwd)
            session = await self._hub.editor.create(self._principal, id=id, **settings)
        except Conflict:
            # The agent numbers the sessions of each process from 1, or stores them in our store.
            session = await self._hub.editor.create(self._principal, **settings)
        return await self._bind(session, native), native.meta

    async def _agent_ref(self) -> AgentRef | None:
        """Return the reference to the served agent that new sessions record."""
        if self._served_agent is None:
            return None
        name, spec = self._served_agent.name, self._served_agent.spec
        return await self._hub.records.program(self._principal.workspace, name, spec)

    async def _note_created(self, session: Session) -> Session:
        """Tell the agent about a new session, and return it with the options of the agent.

        If the agent refuses, the session is deleted.
        """
        session = await self._offer(session)
        try:
            await self._attacher.note_opened(session)
        except BaseException:
            await self._hub.editor.purge(self._principal, session.id)
            raise
        return session

    async def _offer(self, session: Session) -> Session:
        """Store the options and commands that the served agent declares, and return the session.

        Those of another program, whose session this is not, are removed.
        """
        current = session.options.get(OFFERED, {})
        agent = await self._agent_ref()
        if agent is not None and self._declaration is not None:
            offered = {**self._declaration.offered(current), "agent": agent.id}
        elif current.get(COMPLETE) and (
            session.agent is None or current.get("agent") != session.agent.id
        ):
            offered = {}
        else:
            return session
        if offered == current:
            return session
        try:
            change = ConfigChanged(options={OFFERED: offered})
            return await self._hub.editor.configure(self._principal, session.id, change)
        except (ReadOnly, StoreReadOnly):
            return session  # it cannot be prompted here, so its options have no effect

    async def _reopen(self, request: wire.SetupRequest, *, replay: bool) -> tuple[Session, Any]:
        """Open an existing session. A turn that runs in it is not disturbed.

        Returns the session, and the `_meta` of the response of an agent that has its own sessions.
        """
        roots, servers = self._check_setup(request)
        await self._system_prompts.check(request)
        after = requested_position(request) if replay else None
        session = await self._access.sync_and_get(request.session_id)
        if self._principal.local and directories.real(request.cwd) != session.directory:
            raise RpcError(INVALID_PARAMS, f"cwd is not this session's, which is {session.cwd}")
        async with self._attached.lock(session.id):
            earlier = self._attached.get(session.id)
            session = await self._hub.sync.import_if_listed_only(self._principal, session.id)
            session = await self._offer(await self._set_roots(session, roots))
            session = await self._system_prompts.store(request, session)
            if earlier is None:
                await self._attacher.note_opened(session)
            async with self._connect(servers, session.cwd, session) as mcp_servers:
                session, meta = await self._reopen_in_agent(session, mcp_servers, request)
                if earlier is not None and not replay:
                    await self._attacher.reopen(earlier, session, mcp_servers)
                    if self._policy.always_sends_state:
                        await earlier.send_opened()
                    return session, meta
                if earlier is not None:
                    await earlier.pause()
                    session = await self._hub.sessions.get(self._principal, session.id)
                attached_session = self._attacher.prepare(session, request.session_id)
                if earlier is not None:
                    attached_session.continue_from(earlier)
                if after is not None:
                    await attached_session.resume(after)
                    await attached_session.send_state()
                elif replay:
                    await attached_session.replay()
                if after is None and (replay or self._policy.always_sends_state):
                    await attached_session.send_opened()
                await self._attacher.attach(attached_session, session, mcp_servers)
        return session, meta

    async def _reopen_in_agent(
        self, session: Session, mcp_servers: ConnectedTools | None, request: wire.SetupRequest
    ) -> tuple[Session, Any]:
        """Open a session also in the served agent, if that has its own sessions.

        Returns the session with the options that the agent offers now, and the `_meta` of the
        agent's response. If the agent fails, the client can read the session all the same, and
        gets the error with its next prompt.
        """
        if not isinstance(self._agent, OwnsSessions) or session.turn is not None:
            return session, None
        try:
            async with asyncio.timeout(AGENT_OPEN_SECONDS):
                fields = agent_fields(request)
                reopened = await self._agent.reopen_session(session, mcp_servers, fields)
        except (SegueError, TimeoutError) as error:
            log.warning("session %s was not opened in its agent: %s", session.id, error)
            return session, None
        if reopened is None:
            return session, None
        if reopened.offered != session.options.get(OFFERED, {}):
            change = ConfigChanged(options={OFFERED: reopened.offered})
            session = await self._hub.editor.configure(self._principal, session.id, change)
        return session, reopened.meta

    async def _set_roots(self, session: Session, roots: tuple[str, ...]) -> Session:
        """Replace the additional directories of a session, and return the session.

        Only the local user's client may do that.
        """
        if session.roots == roots or not self._principal.local:
            return await self._hub.sessions.get(self._principal, session.id)
        try:
            change = ConfigChanged(roots=roots)
            return await self._hub.editor.configure(self._principal, session.id, change)
        except (ReadOnly, StoreReadOnly):
            return session  # it cannot be prompted here, so no agent needs the directories


def agent_fields(request: wire.SetupRequest) -> dict[str, Any]:
    """Return the fields of a request that are for an agent with sessions of its own."""
    fields = {} if request.meta is None else {"_meta": request.meta}
    if request.system_prompt is not None:
        fields[SYSTEM_PROMPT] = msgspec.to_builtins(request.system_prompt)
    return fields


def _requested_tool(request: wire.SetupRequest) -> str | None:
    """Return the tool in which a fork continues; raises RpcError if it is not a name."""
    try:
        options = codec.convert((request.meta or {}).get(NAMESPACE, {}), _ForkOptions)
    except msgspec.ValidationError as error:
        raise invalid_params(error, f"_meta.{NAMESPACE}") from None
    return options.resume_in
