"""Opening and closing sessions: new, load, resume, fork, close."""

from __future__ import annotations

import logging
import os
from typing import Any

from msgspec import UNSET

from segue.acp import v1, v2, wire
from segue.acp.rpc import INVALID_PARAMS, RpcError
from segue.agents.base import OwnsSessions
from segue.hub.sessions import directories
from segue.interfaces.acp.attached_session import Opened, View
from segue.interfaces.acp.base import Base, any_id
from segue.interfaces.acp.mcp_servers import Connected, connect, read_servers
from segue.interfaces.acp.versions import options
from segue.interfaces.acp.versions.encode_v1 import View1
from segue.interfaces.acp.versions.encode_v2 import View2
from segue.model.errors import Conflict, ReadOnly
from segue.model.event import ConfigChanged
from segue.model.session import Session

log = logging.getLogger("segue.acp")


class Opening(Base):
    """The methods after which a session is open on this connection, and the one that closes it."""

    async def session_new(self, request: wire.SetupRequest) -> Any:
        roots, servers = self._setup(request)
        await self._tidy()
        async with await self._connect(servers, request.cwd) as connected:
            session = await self._made(request.cwd, roots, connected)
            await self._begin(self._follower(session), session, connected, new=True)
        return self._described(session, session.id)

    async def _made(self, cwd: str, roots: tuple[str, ...], connected: Connected) -> Session:
        made_with: dict[str, Any] = {
            "cwd": cwd,
            "roots": roots,
            "origin": "acp",
            "agent": await self._agent_ref(),
        }
        agent = None if self._program is None else self._program.agent
        if not isinstance(agent, OwnsSessions):
            return await self._hub.editor.create(self._principal, **made_with)
        begun = await agent.start_session(cwd, roots, connected.tools)
        made_with["native_id"] = begun.native_id
        try:
            session = await self._hub.editor.create(self._principal, id=begun.id, **made_with)
        except Conflict:
            # It counts its sessions, from the beginning in every process, or has them in our store.
            session = await self._hub.editor.create(self._principal, **made_with)
        change = ConfigChanged(options=begun.bind(session.id))
        return await self._hub.editor.configure(self._principal, session.id, change)

    async def session_fork(self, request: wire.SetupRequest) -> Any:
        roots, servers = self._setup(request)
        parent = await self._listed(request.session_id)
        await self._hub.sync.import_if_listed_only(self._principal, parent.id)
        async with await self._connect(servers, request.cwd, parent) as connected:
            # Here, whoever keeps its parent: the client forks a session to go on with it.
            fork = await self._hub.editor.fork(
                self._principal, parent.id, cwd=request.cwd, origin="acp", in_store=True
            )
            if fork.roots != roots:
                change = ConfigChanged(roots=roots)
                fork = await self._hub.editor.configure(self._principal, fork.id, change)
            await self._begin(self._follower(fork), fork, connected, new=True)
        return self._described(fork, fork.id)

    async def session_load(self, request: wire.SetupRequest) -> Any:
        session = await self._existing(request, replay=True)
        # The earlier draft of version 2, the only one that had it, answered with null.
        return None if self._version == 2 else self._described(session)

    async def session_resume(self, request: wire.SetupRequest) -> Any:
        start = request.replay_from if self._version == 2 else None
        if start is not None and not (isinstance(start, dict) and start.get("type") == "start"):
            raise RpcError(INVALID_PARAMS, "replayFrom must be of type 'start'")
        return self._described(await self._existing(request, replay=start is not None))

    async def _existing(self, request: wire.SetupRequest, *, replay: bool) -> Session:
        """Open a session that exists; one that is open here is closed first, as by the client."""
        roots, servers = self._setup(request)
        session = await self._listed(request.session_id)
        if directories.real(request.cwd) != session.directory:
            raise RpcError(INVALID_PARAMS, f"cwd is not this session's, which is {session.cwd}")
        async with self._alone(session.id):
            await self._shut(session.id)
            session = await self._hub.sync.import_if_listed_only(self._principal, session.id)
            session = await self._rooted(session, roots)
            opened = self._follower(session, request.session_id)
            if replay:
                await opened.replay()
            if replay or self._version == 2:
                await opened.ready()
            async with await self._connect(servers, session.cwd, session) as connected:
                await self._begin(opened, session, connected)
        return session

    async def _connect(
        self, servers: list[wire.McpServer], cwd: str, session: Session | None = None
    ) -> Connected:
        """The client's servers, for a session that exists or a new one."""
        agent = None if self._program is None else self._program.agent
        theirs = isinstance(agent, OwnsSessions)
        if servers and session is not None:
            theirs = await self._hub.agents.connects_mcp(session, agent)
        return await connect(servers, cwd, local=self._principal.local, here=not theirs)

    async def _rooted(self, session: Session, roots: tuple[str, ...]) -> Session:
        """The session as it is now, with these roots and no others."""
        if session.roots == roots:
            return await self._hub.sessions.get(self._principal, session.id)
        try:
            change = ConfigChanged(roots=roots)
            return await self._hub.editor.configure(self._principal, session.id, change)
        except ReadOnly:
            return session  # a source's own: nothing of ours runs in it

    def _setup(self, request: wire.SetupRequest) -> tuple[tuple[str, ...], list[wire.McpServer]]:
        """Roots and servers, checked before anything is made or changed."""
        if not os.path.isabs(request.cwd):
            raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {request.cwd!r}")
        given = request.additional_directories or []
        if given and not self._offers.has("additionalDirectories"):
            raise RpcError(INVALID_PARAMS, "additionalDirectories are not supported")
        for path in given:
            if not os.path.isabs(path):
                why = f"additionalDirectories must be absolute paths, not {path!r}"
                raise RpcError(INVALID_PARAMS, why)
        roots = tuple(dict.fromkeys(given))
        return roots, read_servers(request.mcp_servers, self._version)

    def _follower(self, session: Session, name: str | None = None) -> Opened:
        view: View = View1(self._client) if self._version == 1 else View2()
        return Opened(
            self._hub, self._principal, self._connection, session, view, self._version, name
        )

    async def _begin(
        self, opened: Opened, session: Session, connected: Connected, *, new: bool = False
    ) -> None:
        """From here on the session is open: its prompts run here, and its client hears of it."""
        await self._report(opened, session, connected)
        try:
            opened.hold = await self._hub.turns.lease(
                self._principal,
                session.id,
                agent=None if self._program is None else self._program.agent,
                tools=connected.tools,
            )
        except ReadOnly:
            log.info("session %s can be read, and not continued", session.id)
        opened.tools = connected.keep()
        opened.start(new=new)
        self._opened[session.id] = opened

    async def _report(self, opened: Opened, session: Session, connected: Connected) -> None:
        """What went wrong without keeping the session from being opened."""
        for name, why in connected.failures.items():
            log.warning("MCP server %s: %s", name, why)
            await opened.notice(f"The MCP server {name} could not be connected", why)
        for root in session.roots:
            if not os.path.isdir(root):
                log.warning("session %s: %s is not there", session.id, root)
                await opened.notice("An additional directory is not there", root)

    def _described(self, session: Session, id: str | None = None) -> Any:
        named = UNSET if id is None else id
        if self._version == 1:
            return v1.SetupResponse(
                session_id=named,
                modes=options.mode_state(session),
                config_options=self._configured(session),
            )
        return v2.SetupResponse(
            session_id=named,
            config_options=self._configured(session),
            available_commands=options.commands_v2(session) or UNSET,
        )

    async def session_close(self, request: wire.SessionRequest) -> wire.Empty:
        id = any_id(request.session_id)
        async with self._alone(id):
            was_open = id in self._opened
            await self._shut(id)
            if was_open and not self._offers.remembers:
                await self._hub.editor.purge(self._principal, id)
        return wire.Empty()
