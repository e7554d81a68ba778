"""The sessions that an agent process has on its side: find, open, fork and close them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from segue.acp.client import AcpClient
from segue.acp.rpc import AUTH_REQUIRED, Disconnected, RpcError
from segue.acp.wire import AcpMcpServer, HttpMcpServer
from segue.agents.base import NO_FIELDS, Tools, Turn
from segue.model import ids
from segue.model.event import ConfigChanged, Response, ToolResult, UserMessage
from segue.model.session import OWN, Session

from .agent_options import OFFERED
from .processes import Command, RunningAgent, SessionCallbacks
from .tool_calls import DIALECT

log = logging.getLogger("segue.agents.acp")

OPTION = "acp"  # the session option that identifies the native session
HISTORY = "history"  # in that option: False if the native session lacks the conversation so far
CANCEL_SECONDS = 0.5  # for a process to end a cancelled turn, or to close a session


class NativeSession(NamedTuple):
    """A session of the process, and whether the process knows the conversation so far."""

    id: str
    has_history: bool


class NativeSessions:
    """Binds sessions of segue to native sessions of one command."""

    def __init__(self, command: Command) -> None:
        self._command = command

    def session_id_for(self, native_id: str) -> str:
        """Return segue's id for a native session."""
        return ids.parse(native_id) or ids.derived_id(OPTION, *self._command, native_id)

    def session_options(
        self, native_id: str, session_id: str, *, has_history: bool = True
    ) -> dict[str, Any]:
        """Return the session options that bind a segue session to a native one."""
        binding = {"session": native_id, "of": session_id, "command": [*self._command]}
        return {OPTION: binding if has_history else {**binding, HISTORY: False}}

    def native_id(self, session: Session) -> str | None:
        """Return the native session that a segue session is bound to, or None."""
        binding = self._binding(session)
        if binding is None or binding.get("of") != session.id:
            return None
        native_id = binding.get("session")
        return native_id if isinstance(native_id, str) else None

    def _parent_native_id(self, session: Session) -> str | None:
        """Return the native session that a fork has its history from, or None."""
        binding = self._binding(session)
        if binding is None or binding.get("of") == session.id:
            return None
        return binding.get("session")

    def _binding(self, session: Session) -> dict[str, Any] | None:
        binding = session.options.get(OPTION)
        if not isinstance(binding, dict) or binding.get("command") != [*self._command]:
            return None
        return binding

    async def close(self, agent: RunningAgent, native_id: str) -> None:
        """Close a native session, if the agent can."""
        agent.forget_session(native_id)
        if agent.client.supports("close"):
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    await agent.client.close(native_id)
            except (RpcError, Disconnected, TimeoutError) as error:
                log.info("the agent did not close session %s: %s", native_id, error)

    async def find(self, session: Session, agent: RunningAgent) -> str | None:
        """Return the native session that has the whole conversation of a session, or None.

        The session is bound to it, or is the agent's own, which a source has read from its files.
        """
        bound = self._binding(session)
        if bound is not None and bound.get("of") == session.id:
            return None if bound.get(HISTORY) is False else self.native_id(session)
        if session.turn is not None or session.stop_reason is not None:
            return None  # segue has run a turn in it, which the agent does not know
        return await self._find_in_files(session, agent)

    async def _find_in_files(self, session: Session, agent: RunningAgent) -> str | None:
        """Return the native id of a session that a source has read, if the agent may have it."""
        if session.source == OWN:
            return None
        native_id = session.native_id or session.id
        if not agent.client.supports("list"):
            return native_id  # a load of an unknown session fails, or replays no messages
        async for row in agent.client.sessions(cwd=session.cwd):
            if row.session_id == native_id:
                return native_id
        return None

    async def _find_unbound(self, turn: Turn, agent: RunningAgent) -> str | None:
        """Return the native session of a turn in a session that is bound to none."""
        if turn.session.source == OWN:
            return None
        prompts = [event.body for event in await turn.history()]
        if any(isinstance(p, UserMessage) and p.turn not in (None, turn.id) for p in prompts):
            return None  # the agent does not know the turns that segue has run in its copy
        return await self._find_in_files(turn.session, agent)

    async def open(self, turn: Turn, agent: RunningAgent) -> NativeSession:
        """Open the native session of a turn: the bound one, a fork of its parent, or a new one.

        A session that a source has read from the agent's own files continues there.
        """
        session = turn.session
        bound = self.native_id(session)
        native_id = bound or await self._find_unbound(turn, agent)
        earlier = agent.native_ids.get(session.id)
        if earlier is not None and earlier != native_id:
            await self.close(agent, earlier)  # another process has bound the session since
        missed = "none" if bound is None else await self._missed_turns(turn, agent, bound)
        if bound is not None and missed != "none":
            await self.close(agent, bound)
        if missed == "other":
            params = setup_params(session.roots, turn.tools, agent.client)
            new_id = await agent.client.new(turn.cwd, **params)
            native = NativeSession(new_id, has_history=False)
        elif native_id and await self.ensure_open(session, turn.tools, agent, native_id):
            native = NativeSession(native_id, has_history=self._has_history(session))
            if bound is not None and native.has_history:
                return native
        else:
            native = await self._fork_or_start(turn, agent)
        agent.add_session(native.id, session.id)
        agent.setup_params[native.id] = setup_params(session.roots, turn.tools, agent.client)
        await turn.emit(ConfigChanged(options=self.session_options(native.id, session.id)))
        return native

    def _has_history(self, session: Session) -> bool:
        """Return whether the native session that a session is bound to has its history."""
        return (self._binding(session) or {}).get(HISTORY) is not False

    async def fork(
        self,
        parent: Session,
        cwd: str,
        agent: RunningAgent,
        params: Mapping[str, Any],
    ) -> NativeSession:
        """Fork the native session of a session, or start one if that is impossible."""
        native_id = await self.find(parent, agent)
        if native_id is not None and agent.client.supports("fork"):
            try:
                fork = await agent.client.fork(native_id, cwd, **params)
                return NativeSession(fork, has_history=True)
            except RpcError as error:
                log.info("%s: fork of %s: %s", self._command[0], native_id, error.message)
        return NativeSession(await agent.client.new(cwd, **params), has_history=False)

    async def _missed_turns(
        self, turn: Turn, agent: RunningAgent, native_id: str
    ) -> Literal["none", "native", "other"]:
        """Return what was added to a session since this process opened or prompted it.

        Another process may have run turns in the same native session, so that opening it again is
        enough, or turns of which the native session knows nothing.
        """
        known = agent.known_seqs.get(native_id)
        bodies = [
            event.body for event in await turn.history() if known is not None and event.seq > known
        ]
        turns = {body.turn for body in bodies if isinstance(body, UserMessage)}
        answered = {
            body.turn
            for body in bodies
            if isinstance(body, Response | ToolResult) and DIALECT in body.extra
        }
        if not turns:
            return "none"
        return "native" if turns <= answered else "other"

    async def ensure_open(
        self,
        session: Session,
        tools: Tools | None,
        agent: RunningAgent,
        native_id: str,
        fields: Mapping[str, Any] = NO_FIELDS,
    ) -> bool:
        """Return True if the process has the native session open, after opening it if necessary.

        `fields` are further fields of the request that opens it.
        """
        params = setup_params(session.roots, tools, agent.client)
        if agent.native_ids.get(session.id) == native_id:
            if agent.setup_params.get(native_id, params) != params:
                # The client has opened the session again, with other MCP servers or directories.
                await self.close(agent, native_id)
            elif not fields:
                return True
            else:
                agent.open_sessions.discard(native_id)
        # A restarted process may have given the same id to another session.
        if native_id in agent.open_sessions:
            return False
        if not await self._reopen(session, agent, native_id, {**params, **fields}):
            return False
        # Some agents report their options only when a session is new.
        agent.offered.setdefault(native_id, session.options.get(OFFERED, {}))
        agent.add_session(native_id, session.id)
        agent.setup_params[native_id] = params
        agent.known_seqs[native_id] = session.last_seq
        return True

    async def _reopen(
        self, session: Session, agent: RunningAgent, native_id: str, params: Mapping[str, Any]
    ) -> bool:
        """Resume or load a native session. segue has its history, so replayed events are ignored.

        Returns False if the process does not have the session any more.
        """
        replayed_messages = 0

        async def count(update: dict[str, Any], meta: Any) -> None:
            nonlocal replayed_messages
            kind = str(update.get("sessionUpdate"))
            replayed_messages += kind.endswith(("message", "message_chunk"))

        async def refuse(request: dict[str, Any]) -> None:
            return None

        client = agent.client
        for method, call in (("resume", client.resume), ("load", client.load)):
            if not client.supports(method):
                continue
            agent.set_callbacks(native_id, SessionCallbacks(count, refuse))
            try:
                await call(native_id, session.cwd, **params)
            except RpcError as error:
                if error.code == AUTH_REQUIRED:
                    raise
                log.info("%s: %s of %s: %s", self._command[0], method, native_id, error.message)
                continue
            finally:
                agent.remove_callbacks(native_id)
            # Some agents accept a load of an unknown session, but then replay no messages.
            if method == "resume" or replayed_messages:
                return True
        return False

    async def _fork_or_start(self, turn: Turn, agent: RunningAgent) -> NativeSession:
        parent = self._parent_native_id(turn.session)
        params = setup_params(turn.session.roots, turn.tools, agent.client)
        if parent is not None and agent.client.supports("fork"):
            try:
                fork = await agent.client.fork(parent, turn.cwd, **params)
                return NativeSession(fork, has_history=True)
            except RpcError as error:
                log.info("%s: fork of %s: %s", self._command[0], parent, error.message)
        return NativeSession(await agent.client.new(turn.cwd, **params), has_history=False)


def setup_params(roots: Sequence[str], tools: Tools | None, client: AcpClient) -> dict[str, Any]:
    """Return the parameters for opening a session: further directories and MCP servers."""
    params: dict[str, Any] = {}
    if roots and client.supports("additionalDirectories"):
        params["additionalDirectories"] = [*roots]
    configs = getattr(tools, "configs", None)
    servers = []
    for config in configs() if configs is not None else ():
        server = msgspec.to_builtins(config)
        if isinstance(config, HttpMcpServer):
            servers.append({"headers": [], "type": "http", **server})
        elif isinstance(config, AcpMcpServer):
            servers.append({"type": "acp", **server})
        elif client.version == 2:
            servers.append({"args": [], "env": [], "type": "stdio", **server})
        else:
            servers.append({"args": [], "env": [], **server})
    params["mcpServers"] = servers
    return params
