"""Answer a turn by prompting an agent process, in the native session that belongs to it."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.acp.client import AcpClient, UnsupportedCapability
from segue.acp.content import write_blocks
from segue.acp.rpc import AUTH_REQUIRED, Disconnected, RpcError
from segue.acp.wire import LoginMethod, SessionInfo
from segue.agents.base import (
    NO_FIELDS,
    AgentSession,
    OfferedOptions,
    SessionPort,
    Tools,
    Turn,
)
from segue.agents.base.external import AgentDescription
from segue.model.content import Audio, Block, Content, Image, Resource, ResourceLink, Text
from segue.model.errors import AgentFailed, NoAgent, SegueError, Unauthorized, without_locations
from segue.model.event import ConfigChanged, Draft
from segue.model.lifecycle import StopReason
from segue.model.session import Session

from .agent_options import MODE, OFFERED, describe, parse_login
from .client_requests import ClientProxy, SessionFiles
from .event_collector import EventCollector, HistoryRecorder
from .history_prompt import history_prompt
from .native_sessions import (
    CANCEL_SECONDS,
    NativeSession,
    NativeSessions,
    setup_params,
)
from .processes import AgentPool, Command, RunningAgent, SessionCallbacks, meta_of
from .tool_calls import DIALECT
from .update_handler import UpdateHandler, meaningful_title, stop_reason

log = logging.getLogger("segue.agents.acp")

STUCK_SECONDS = 5.0  # for a cancelled turn to end before its process is replaced


class AcpAgents:
    """Builds agents from commands. Agents with the same command share a process."""

    def __init__(self, client_proxy: ClientProxy | None = None) -> None:
        """Create the builder; `client_proxy` answers requests of processes to their client."""
        self._pool = AgentPool(client_proxy)

    def build(self, spec: Mapping[str, Any]) -> AcpAgent:
        """Build the agent of a specification. Raises NoAgent if it has no command."""
        return AcpAgent(self._pool, parse_command(spec))

    async def close(self) -> None:
        """End all processes."""
        await self._pool.close()


def parse_command(spec: Mapping[str, Any]) -> Command:
    """Return the words of the specification's command. Raises NoAgent if there is none."""
    words = tuple(shlex.split(str(spec.get("command", ""))))
    if not words:
        raise NoAgent("an agent of kind 'acp' needs a command")
    return words


class AcpAgent:
    """The agent of one command."""

    def __init__(self, pool: AgentPool, command: Command) -> None:
        self._pool = pool
        self._command = command
        self.native = NativeSessions(command)

    @property
    def directory_settings(self) -> str:
        """The name of the program, which may read settings in the working directory."""
        return self._command[0]

    async def run(self, turn: Turn) -> StopReason:
        """Answer the turn. Raises NoAgent for callers other than the local user."""
        if not turn.local:
            raise NoAgent(
                "this agent is a program with the local user's rights, so only that user can use it"
            )
        async with self._running_agent(turn.cwd) as agent:
            if not await self._is_stuck(turn, agent):
                return await self._answer(turn, agent)
            if len(agent.prompts) > 1:  # replacing the process would end other sessions' turns
                raise AgentFailed(
                    f"{self._command[0]} has not ended the cancelled turn; try again later"
                )
        await self._pool.discard(self._command, agent)
        async with self._running_agent(turn.cwd) as agent:
            return await self._answer(turn, agent)

    # Native sessions.

    def connect(self, session: Session, port: SessionPort) -> None:
        """Use a port for the updates of a session that arrive between its turns."""
        agent = self._pool.peek(self._command)
        if agent is not None and not agent.disconnected:
            agent.connect(session, port)

    async def list_sessions(self, cwd: str | None = None) -> list[SessionInfo]:
        """Return the native sessions, of one directory or all; none if the agent cannot list."""
        # Some agents list only the sessions of the directory in which they were started.
        async with self._running_agent(os.getcwd()) as agent:
            if not agent.client.supports("list"):
                return []
            rows = [row async for row in agent.client.sessions(cwd=cwd) if os.path.isabs(row.cwd)]
            return [replace(row, title=meaningful_title(row.title) or None) for row in rows]

    async def logins(self) -> list[LoginMethod]:
        """Return the login methods of the agent."""
        async with self._running_agent(os.getcwd()) as agent:
            methods = [parse_login(method) for method in agent.client.auth_methods]
            return [method for method in methods if method is not None]

    async def log_in(self, id: str) -> None:
        """Log in with one of the methods."""
        async with self._running_agent(os.getcwd()) as agent:
            await agent.client.log_in(id)

    async def log_out(self) -> None:
        """Log out."""
        async with self._running_agent(os.getcwd()) as agent:
            await agent.client.log_out()

    async def describe(self) -> AgentDescription:
        """Return the name and the capabilities of the agent."""
        async with self._running_agent(os.getcwd()) as agent:
            return describe(agent.client)

    async def extension(self, method: str, params: Any) -> Any:
        """Send a request that is not part of the protocol, and return the agent's result."""
        async with self._running_agent(os.getcwd()) as agent:
            return await agent.client.extension(method, agent.with_native_id(params))

    def note_meta(self, session: str, method: str, meta: Any) -> None:
        """Send this `_meta` with the next message of the method for a session."""
        agent = self._pool.peek(self._command)
        native_id = None if agent is None else agent.native_ids.get(session)
        if agent is not None and native_id is not None:
            agent.client.next_meta[method, native_id] = meta

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification that is not part of the protocol."""
        async with self._running_agent(os.getcwd()) as agent:
            await agent.client.notify(method, agent.with_native_id(params))

    async def start_session(
        self,
        cwd: str,
        roots: Sequence[str],
        tools: Tools | None,
        fields: Mapping[str, Any] = NO_FIELDS,
    ) -> AgentSession:
        """Start a native session for a new segue session."""
        async with self._running_agent(cwd) as agent:
            params = setup_params(roots, tools, agent.client)
            native_id = await agent.client.new(cwd, **params, **fields)
            agent.known_seqs[native_id] = 0
            return self._started(agent, NativeSession(native_id, has_history=True), params)

    async def fork_session(
        self,
        parent: Session,
        cwd: str,
        roots: Sequence[str],
        tools: Tools | None,
        fields: Mapping[str, Any] = NO_FIELDS,
    ) -> AgentSession:
        """Start a native session for a fork: a fork of the parent's, or an empty one."""
        async with self._running_agent(cwd) as agent:
            params = setup_params(roots, tools, agent.client)
            native = await self.native.fork(parent, cwd, agent, {**params, **fields})
            return self._started(agent, native, params)

    def _started(
        self, agent: RunningAgent, native: NativeSession, params: dict[str, Any]
    ) -> AgentSession:
        """Return a native session that was started with these parameters."""
        agent.add_session(native.id)
        result_meta = agent.setup_meta.pop(native.id, None)
        agent.setup_params[native.id] = params
        offered = agent.offered[native.id]

        def bind(session_id: str) -> dict[str, Any]:
            agent.native_ids[session_id] = native.id
            binding = self.native.session_options(
                native.id, session_id, has_history=native.has_history
            )
            return {**binding, OFFERED: offered}

        id = self.native.session_id_for(native.id)
        return AgentSession(id=id, native_id=native.id, bind=bind, meta=result_meta)

    async def reopen_session(
        self, session: Session, tools: Tools | None, fields: Mapping[str, Any] = NO_FIELDS
    ) -> OfferedOptions | None:
        """Open the native session of a session; None if the agent does not have it."""
        native_id = self.native.native_id(session)
        if native_id is None:
            return None
        async with self._running_agent(session.cwd) as agent:
            if not await self.native.ensure_open(session, tools, agent, native_id, fields):
                return None
            result_meta = agent.setup_meta.pop(native_id, None)
            return OfferedOptions(offered=agent.offered[native_id], meta=result_meta)

    async def set_option(
        self,
        session: Session,
        tools: Tools | None,
        option: str,
        value: str | bool,
        meta: Any = None,
    ) -> OfferedOptions:
        """Set an option of the agent, and return the options that it offers now."""
        native_id = self.native.native_id(session)
        async with self._running_agent(session.cwd) as agent:
            is_open = native_id is not None and await self.native.ensure_open(
                session, tools, agent, native_id
            )
            if native_id is None or not is_open:
                raise AgentFailed("this session is not open in its agent; prompt it first")
            options = agent.offered[native_id].get("options", ())
            fields = {} if meta is None else {"_meta": meta}
            if any(offer["id"] == option and offer.get("by") == MODE for offer in options):
                result = await agent.client.set_mode(native_id, str(value), **fields)
                offered = agent.update_offered(native_id, {"currentModeId": value})
            else:
                result = await agent.client.set_option(native_id, option, value, **fields)
                offered = agent.update_offered(native_id, result)
            return OfferedOptions(offered=offered, meta=meta_of(result))

    async def read_history(self, session: Session, native_id: str) -> list[Draft]:
        """Return the conversation of a native session; empty if the agent cannot replay it."""
        async with self._running_agent(session.cwd) as agent:
            client = agent.client
            if client.version == 1 and not client.supports("load"):
                return []
            recorder = HistoryRecorder()
            collector = EventCollector(session, recorder, flush_seconds=None)
            handler = UpdateHandler(collector, version=client.version, replaying=True)
            agent.set_callbacks(
                native_id, SessionCallbacks(handler.on_update, handler.on_permission)
            )
            try:
                await client.load(native_id, session.cwd, **setup_params((), None, client))
                await handler.finish()
            finally:
                agent.remove_callbacks(native_id)
            return recorder.drafts

    async def release(self, session: str) -> None:
        """Close the native session, and end the process if it has no other session."""
        agent = self._pool.peek(self._command)
        if agent is None or agent.disconnected:
            return
        native_id = agent.native_ids.pop(session, None)
        if native_id is not None:
            await self.native.close(agent, native_id)
        if not agent.open_sessions and self._pool.is_unused(self._command):
            await self._pool.discard(self._command, agent)

    @asynccontextmanager
    async def _running_agent(self, cwd: str) -> AsyncIterator[RunningAgent]:
        """Acquire the process, and translate its errors to segue's."""
        agent = await self._pool.acquire(self._command, cwd)
        try:
            yield agent
        except UnsupportedCapability as error:
            raise AgentFailed(str(error)) from error
        except Disconnected as error:
            reason = await agent.failure_reason(error)
            await self._pool.discard(self._command, agent)
            raise AgentFailed(f"{self._command[0]} ended unexpectedly: {reason}") from error
        except RpcError as error:
            raise self._translate(agent.client, error) from error
        finally:
            self._pool.release(self._command)

    def _translate(self, client: AcpClient, error: RpcError) -> SegueError:
        extra = {DIALECT: {"error": error.to_wire()}}
        if error.code != AUTH_REQUIRED:
            return AgentFailed(f"{self._command[0]}: {error.message}", extra=extra)
        names = [str(method.get("name")) for method in client.auth_methods if method.get("name")]
        methods = f" ({', '.join(names)})" if names else ""
        message = f"{self._command[0]} requires a login; log in with its own command{methods}"
        extra[DIALECT]["error"]["message"] = message
        return Unauthorized(message, remote_message=without_locations(message), extra=extra)

    # Turns.

    async def _answer(self, turn: Turn, agent: RunningAgent) -> StopReason:
        native = await self.native.open(turn, agent)
        await agent.begin_turn(native.id)
        await _store_offered(turn, agent, native.id)
        history = "" if native.has_history else history_prompt(await turn.history())
        version = agent.client.version
        handler = UpdateHandler(
            turn,
            version=version,
            keep_title=bool(history) and turn.session.title is not None,
        )
        files = SessionFiles(turn, handler.allowed_paths)
        agent.set_callbacks(
            native.id,
            SessionCallbacks(
                handler.on_update,
                handler.on_permission,
                files,
                handler.on_terminal_output,
                handler.store_offered,
                handler.forward_child,
            ),
        )
        turn.publish({"version": version})  # from here on, clients can follow the agent itself
        try:
            blocks = _prompt_blocks(turn.prompt, agent.client)
            if history:
                blocks.append({"type": "text", "text": history})
            meta = turn.prompt_extra.get(DIALECT, {})
            result = await self._send_prompt(agent, native.id, blocks, handler, meta)
            await handler.finish()
            await handler.store_usage(result.get("usage"))
            await _store_offered(turn, agent, native.id)
            turn.publish({"version": version, "result": result})
            reason: StopReason = stop_reason(result)
            agent.end_turn(native.id, turn, handler)
            return reason
        except BaseException:
            handler.close()
            raise
        finally:
            agent.known_seqs[native.id] = turn.session.last_seq
            files.close()

    async def _send_prompt(
        self,
        agent: RunningAgent,
        native_id: str,
        blocks: Sequence[Any],
        handler: UpdateHandler,
        meta: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Send a prompt and wait for its end. If this task is cancelled, cancel the prompt."""
        prompt = asyncio.ensure_future(_prompt(agent.client, native_id, blocks, handler, meta))
        agent.track_prompt(native_id, prompt)
        try:
            return await asyncio.shield(prompt)
        except asyncio.CancelledError:
            await agent.client.cancel(native_id)
            agent.cancel_forms(native_id)
            await asyncio.wait([prompt], timeout=CANCEL_SECONDS)
            raise

    async def _is_stuck(self, turn: Turn, agent: RunningAgent) -> bool:
        """Return True if the process still works on a cancelled turn of this session."""
        prompt = agent.prompts.get(agent.native_ids.get(turn.session.id, ""))
        if prompt is None or prompt.done():
            return False
        await asyncio.wait([prompt], timeout=STUCK_SECONDS)
        return not prompt.done()


async def _store_offered(turn: Turn, agent: RunningAgent, native_id: str) -> None:
    """Store the agent's options and commands in the session if they have changed."""
    offered = agent.offered.get(native_id, {})
    if offered != turn.session.options.get(OFFERED, {}):
        await turn.emit(ConfigChanged(options={OFFERED: offered}))


async def _prompt(
    client: AcpClient,
    native_id: str,
    blocks: Sequence[Any],
    handler: UpdateHandler,
    meta: Mapping[str, Any],
) -> dict[str, Any]:
    """Send a prompt and return the result of the turn.

    In version 1 it is the response to the prompt, in version 2 a later update.
    """
    response = await client.prompt(native_id, blocks, **meta)
    if client.version == 1:
        return response
    closed: asyncio.Future[Any] = asyncio.ensure_future(client.wait_closed())
    result: asyncio.Future[Any] = handler.result
    try:
        await asyncio.wait([result, closed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        closed.cancel()
    if not result.done():
        raise Disconnected("the agent closed the connection")
    return handler.result.result()


def _prompt_blocks(prompt: Content, client: AcpClient) -> list[Any]:
    """Return a prompt's blocks, with text or links for the content that the agent refuses."""
    blocks: list[Block] = []
    for block in prompt:
        match block:
            case Image() if not client.accepts_content("image"):
                blocks.append(Text(text=f"[an image of type {block.mime}]"))
            case Audio() if not client.accepts_content("audio"):
                blocks.append(Text(text=f"[a sound of type {block.mime}]"))
            case Resource() if not client.accepts_content("embeddedContext"):
                if block.text is not None:
                    blocks.append(Text(text=f"{block.uri}:\n\n{block.text}"))
                else:
                    blocks.append(ResourceLink(uri=block.uri, name=block.uri, mime=block.mime))
            case _:
                blocks.append(block)
    return [msgspec.to_builtins(block) for block in write_blocks(blocks)]
