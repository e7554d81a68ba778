"""Agent processes: one for each command, started on demand and ended when idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from segue.acp.client import AcpClient
from segue.acp.methods import (
    AUTH_STATUS_UPDATE,
    ELICITATION_COMPLETE,
    ELICITATION_CREATE,
    MCP_MESSAGE,
    READ_FILE,
    TERMINAL_OUTPUT,
    TERMINAL_RELEASE,
    WRITE_FILE,
    is_extension,
)
from segue.acp.process import AgentProcess
from segue.acp.refusal import RemoteRefusal
from segue.acp.remote import RemoteAgent, is_remote
from segue.acp.rpc import METHOD_NOT_FOUND, NOT_FOUND, Disconnected, RpcError
from segue.agents.base import SessionPort, Turn
from segue.model.errors import AgentFailed, AgentRefused
from segue.model.session import Session

from .agent_options import OFFERED, update_offered
from .client_requests import ClientProxy, SessionFiles, capabilities, identity
from .event_collector import EventCollector
from .tool_calls import MIN_UNIQUE_CHARACTERS
from .update_handler import UpdateHandler

log = logging.getLogger("segue.agents.acp")

START_SECONDS = 60.0
IDLE_SECONDS = 300.0  # an agent process without turns ends after this time
END_SECONDS = 2.0  # for a process to end by itself

_OFFERED_UPDATES = ("available_commands_update", "current_mode_update", "config_option_update")

Command = tuple[str, ...]
OnUpdate = Callable[[dict[str, Any], Any], Awaitable[None]]
OnPermission = Callable[[dict[str, Any]], Awaitable[str | dict[str, Any] | None]]
OnTerminalOutput = Callable[[str, str], None]
OnChildUpdate = Callable[[str, dict[str, Any], Any], None]
OnOffered = Callable[[dict[str, Any]], Awaitable[None]]


class BetweenTurns(NamedTuple):
    """The receiver of a session's updates between its turns."""

    handler: UpdateHandler
    collector: EventCollector


class SessionCallbacks(NamedTuple):
    """The callbacks for one session of a process. The optional ones exist during a turn."""

    on_update: OnUpdate
    on_permission: OnPermission
    files: SessionFiles | None = None
    on_output: OnTerminalOutput | None = None
    on_offered: OnOffered | None = None
    on_child_update: OnChildUpdate | None = None  # of the session of a subagent


class RunningAgent:
    """A running agent process, or an agent elsewhere, and its ACP connection.

    The process has its own session ids, called native ids here.
    """

    def __init__(
        self, process: AgentProcess | RemoteAgent, client_proxy: ClientProxy | None
    ) -> None:
        self._process = process
        self._client_proxy = client_proxy
        self.client = AcpClient(
            process.stream,
            process.stream,
            on_update=self._on_update,
            on_permission=self._on_permission,
            on_request=self._on_request,
            on_notification=self._on_notification,
            capabilities=capabilities(client_proxy),
            **identity(client_proxy),
        )
        self._serving = asyncio.ensure_future(self.client.serve())
        self._callbacks: dict[str, SessionCallbacks] = {}  # by native id
        self._forms: dict[asyncio.Task[Any], str] = {}  # open forms, with their native id
        self.open_sessions: set[str] = set()  # native ids
        self.native_ids: dict[str, str] = {}  # by segue's session id
        self.offered: dict[str, dict[str, Any]] = {}  # options and commands, by native id
        self.setup_params: dict[str, dict[str, Any]] = {}  # of open sessions, by native id
        self.setup_meta: dict[str, Any] = {}  # `_meta` of the responses that opened sessions
        self.known_seqs: dict[str, int] = {}  # the last event that a session knows, by native id
        self.prompts: dict[str, asyncio.Task[Any]] = {}  # running ones, by native id
        self._ports: dict[str, tuple[Session, SessionPort]] = {}  # by segue's session id
        self._between_turns: dict[str, BetweenTurns] = {}  # by native id
        self._parents: dict[str, str] = {}  # of sessions of subagents, by native id
        self._storing: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(
        cls, command: Command, cwd: str, client_proxy: ClientProxy | None
    ) -> RunningAgent:
        """Start a process and initialize the connection. Raises AgentFailed if that fails."""
        try:
            agent = cls(await _start(command, cwd), client_proxy)
        except RemoteRefusal as error:
            raise _refused(command, error) from error
        except OSError as error:
            reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
            action = "reached" if is_remote(command[0]) else "started"
            raise AgentFailed(f"{command[0]} could not be {action}: {reason}") from error
        try:
            async with asyncio.timeout(START_SECONDS):
                await agent.client.initialize()
        except RemoteRefusal as error:
            await agent.end()
            raise _refused(command, error) from error
        except (RpcError, Disconnected, TimeoutError) as error:
            reason = await agent.failure_reason(error)
            await agent.end()
            raise AgentFailed(f"{command[0]} is not a working ACP agent: {reason}") from error
        except BaseException:
            await agent.end()
            raise
        return agent

    @property
    def disconnected(self) -> bool:
        """True if the connection has ended."""
        return self._serving.done()

    async def failure_reason(self, error: Exception) -> str:
        """Return the reason for a connection error, for users."""
        if isinstance(error, Disconnected):
            return await self._process.exit_reason()
        if isinstance(error, TimeoutError):
            return f"it did not answer within {START_SECONDS:.0f} s"
        return error.message if isinstance(error, RpcError) else str(error)

    def track_prompt(self, native_id: str, prompt: asyncio.Task[Any]) -> None:
        """Remember a prompt until it ends, which may be after its turn was cancelled."""

        def forget(task: asyncio.Task[Any]) -> None:
            if self.prompts.get(native_id) is task:
                del self.prompts[native_id]
                self.remove_callbacks(native_id)
            if not task.cancelled():
                task.exception()  # asyncio warns about exceptions that are never retrieved

        self.prompts[native_id] = prompt
        prompt.add_done_callback(forget)

    def set_callbacks(self, native_id: str, callbacks: SessionCallbacks) -> None:
        """Set the callbacks for a session."""
        self._callbacks[native_id] = callbacks

    def remove_callbacks(self, native_id: str) -> None:
        """Remove the callbacks for a session."""
        self._callbacks.pop(native_id, None)

    def add_session(self, native_id: str, session_id: str | None = None) -> None:
        """Record that the process has a session open, and the segue session that it belongs to."""
        self.open_sessions.add(native_id)
        if session_id is not None:
            self.native_ids[session_id] = native_id
        result = self.client.setup_results.pop(native_id, {})
        if (meta := meta_of(result)) is not None:
            self.setup_meta[native_id] = meta
        self.update_offered(native_id, result)

    def forget_session(self, native_id: str) -> None:
        """Forget a session that the process does not have open any more."""
        self.open_sessions.discard(native_id)
        self.setup_params.pop(native_id, None)
        self.setup_meta.pop(native_id, None)
        self.known_seqs.pop(native_id, None)
        self._between_turns.pop(native_id, None)
        self._ports.pop(self._session_id(native_id) or "", None)
        self.native_ids = {id: n for id, n in self.native_ids.items() if n != native_id}

    def update_offered(self, native_id: str, update: dict[str, Any]) -> dict[str, Any]:
        """Apply an update to the options and commands of a session, and return them."""
        offered = update_offered(self.offered.get(native_id, {}), update)
        self.offered[native_id] = offered
        return offered

    async def _on_update(self, native_id: str, update: dict[str, Any]) -> None:
        child = update.get("sessionId")
        if update.get("sessionUpdate") == "subagent_update" and isinstance(child, str):
            self._parents[child] = self._parents.get(native_id, native_id)
        if (parent := self._parents.get(native_id)) is not None:
            self._on_child_update(parent, native_id, update)
            return
        is_offer = update.get("sessionUpdate") in _OFFERED_UPDATES
        if is_offer:
            self.update_offered(native_id, update)
        if callbacks := self._callbacks.get(native_id):
            await callbacks.on_update(update, self.client.update_meta)
            if is_offer and callbacks.on_offered is not None:
                await callbacks.on_offered(self.offered[native_id])
        elif between := self._receiver_between_turns(native_id):
            await between.handler.on_update(update, self.client.update_meta)
            if is_offer:
                await between.handler.store_offered(self.offered[native_id])

    def _on_child_update(self, parent: str, child: str, update: dict[str, Any]) -> None:
        """Forward an update of the session of a subagent, which segue does not store."""
        if callbacks := self._callbacks.get(parent):
            if callbacks.on_child_update is not None:
                callbacks.on_child_update(child, update, self.client.update_meta)
        elif between := self._receiver_between_turns(parent):
            between.handler.forward_child(child, update, self.client.update_meta)

    # Between turns.

    def connect(self, session: Session, port: SessionPort) -> None:
        """Use a port for the updates of a session that arrive between its turns."""
        self._ports[session.id] = (session, port)
        native_id = self.native_ids.get(session.id)
        offered = self.offered.get(native_id or "", {})
        if native_id is not None and offered != session.options.get(OFFERED, {}):
            # They arrived before the session was connected.
            task = asyncio.get_running_loop().create_task(self._store_offered(native_id))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)

    async def _store_offered(self, native_id: str) -> None:
        if between := self._receiver_between_turns(native_id):
            await between.handler.store_offered(self.offered[native_id])

    def _receiver_between_turns(self, native_id: str) -> BetweenTurns | None:
        """Return the receiver of a session's updates between turns, if the session is open."""
        if native_id not in self._between_turns:
            connected = self._ports.get(self._session_id(native_id) or "")
            if connected is None:
                return None
            collector = EventCollector(*connected)
            handler = UpdateHandler(collector, version=self.client.version)
            self._between_turns[native_id] = BetweenTurns(handler, collector)
        return self._between_turns[native_id]

    def end_turn(self, native_id: str, turn: Turn, handler: UpdateHandler) -> None:
        """Let the handler of a turn that is over receive the updates until the next turn."""
        self.connect(turn.session, turn.session_port)
        collector = EventCollector(turn.session, turn.session_port, turn=turn.id)
        handler.continue_with(collector)
        self._between_turns[native_id] = BetweenTurns(handler, collector)

    async def begin_turn(self, native_id: str) -> None:
        """Store what has arrived since the last turn."""
        if between := self._between_turns.pop(native_id, None):
            await between.handler.finish()
            await between.collector.close()

    async def _on_permission(self, request: dict[str, Any]) -> str | dict[str, Any] | None:
        native_id = str(request.get("sessionId"))
        callbacks = self._callbacks.get(self._parents.get(native_id, native_id))
        return None if callbacks is None else await callbacks.on_permission(request)

    def _session_id(self, native_id: str) -> str | None:
        """Return segue's id of a session, or None if the session is not segue's."""
        return next((id for id, native in self.native_ids.items() if native == native_id), None)

    async def _on_request(self, method: str, params: dict[str, Any]) -> Any:
        """Answer a request of the process for a file, a terminal or a form, or an extension."""
        is_passed = is_extension(method) or method == MCP_MESSAGE
        if is_passed and self._client_proxy is not None:
            return await self._client_proxy.extension(method, self._with_client_id(params))
        native_id = str(params.get("sessionId"))
        callbacks = self._callbacks.get(native_id)
        is_file_request = method in (READ_FILE, WRITE_FILE)
        client_proxy = self._client_proxy
        session_id = self._session_id(native_id) or ""
        if is_file_request and client_proxy is not None and not client_proxy.has(session_id):
            client_proxy = None  # another client has started this turn
        if client_proxy is not None and method in client_proxy.methods:
            return await self._forward(client_proxy, method, native_id, params)
        if not is_file_request:
            raise RpcError(METHOD_NOT_FOUND, f"method not found: {method}")
        if callbacks is None or callbacks.files is None:
            raise RpcError(NOT_FOUND, f"session {native_id} has no turn", {"sessionId": native_id})
        return await callbacks.files.answer(method, params)

    async def _forward(
        self, client_proxy: ClientProxy, method: str, native_id: str, params: dict[str, Any]
    ) -> Any:
        """Forward a request to segue's client, with segue's session id."""
        if method == ELICITATION_CREATE and params.get("sessionId") is None:
            return {
                "action": "cancel"
            }  # the form belongs to a request that the client did not send
        session_id = self._session_id(native_id)
        if session_id is None:
            raise RpcError(NOT_FOUND, f"no session {native_id}", {"sessionId": native_id})
        forwarded = {name: value for name, value in params.items() if name != "sessionId"}
        if method == ELICITATION_CREATE:
            form = client_proxy.request(session_id, ELICITATION_CREATE, _form_params(forwarded))
            return await self._wait_for_form(native_id, form)
        terminal = str(params.get("terminalId"))
        if method == TERMINAL_RELEASE:  # read the output while the terminal still exists
            with suppress(RpcError):
                output = await client_proxy.request(session_id, TERMINAL_OUTPUT, forwarded)
                self._report_output(native_id, terminal, output)
        answer = await client_proxy.request(session_id, method, forwarded)
        if method == TERMINAL_OUTPUT:
            self._report_output(native_id, terminal, answer)
        return answer

    async def _wait_for_form(self, native_id: str, form: Coroutine[Any, Any, Any]) -> Any:
        """Return the answer to a form, or a cancellation if its turn was cancelled."""
        task = asyncio.get_running_loop().create_task(form)
        self._forms[task] = native_id
        task.add_done_callback(self._forms.pop)
        try:
            return await task
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) and current.cancelling():
                raise
            return {"action": "cancel"}

    def cancel_forms(self, native_id: str) -> None:
        """Cancel the open forms of a session whose turn was cancelled."""
        for task, form_native_id in self._forms.items():
            if form_native_id == native_id:
                task.cancel()

    def _report_output(self, native_id: str, terminal: str, answer: Any) -> None:
        callbacks = self._callbacks.get(native_id)
        output = answer.get("output") if isinstance(answer, dict) else None
        if callbacks is None or callbacks.on_output is None or not isinstance(output, str):
            return
        callbacks.on_output(terminal, output)

    def _with_client_id(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return parameters with segue's session id instead of the native one."""
        native_id = params.get("sessionId")
        session_id = self._session_id(native_id) if isinstance(native_id, str) else None
        return params if session_id is None else {**params, "sessionId": session_id}

    def with_native_id(self, params: Any) -> Any:
        """Return parameters with the native session id instead of segue's."""
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        native_id = self.native_ids.get(session_id) if isinstance(session_id, str) else None
        return params if native_id is None else {**params, "sessionId": native_id}

    async def _on_notification(self, method: str, params: dict[str, Any]) -> None:
        is_passed = is_extension(method) or method == AUTH_STATUS_UPDATE
        if is_passed and self._client_proxy is not None:
            await self._client_proxy.notify(method, self._with_client_id(params))
        elif (
            method == ELICITATION_COMPLETE
            and self._client_proxy is not None
            and ELICITATION_CREATE in self._client_proxy.methods
        ):
            await self._client_proxy.notify(method, params)

    async def end(self) -> None:
        """End the process."""
        # A process that still works on a cancelled prompt gets no time to end by itself.
        await self._process.end(0.0 if self.prompts else END_SECONDS)
        await self._serving
        await asyncio.gather(*self.prompts.values(), return_exceptions=True)


def meta_of(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `_meta` of a result, if it is valid."""
    meta = result.get("_meta")
    return meta if isinstance(meta, dict) else None


def _refused(command: Command, refusal: RemoteRefusal) -> AgentFailed:
    """Return the error of a refusal; another attempt may succeed after one of a failing server."""
    kind = AgentRefused if refusal.status < 500 else AgentFailed
    return kind(f"{command[0]} refused the connection: {refusal.strerror}")


async def _start(command: Command, cwd: str) -> AgentProcess | RemoteAgent:
    """Start a process, or connect to the agent at a URL. Raises OSError if that fails."""
    if is_remote(command[0]):
        return await RemoteAgent.connect(command[0])
    return await AgentProcess.start(command, cwd=cwd)


def _form_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a form for every protocol version.

    A short id of a tool call is left out, because segue's client knows the call by another id.
    """
    schema = params.get("requestedSchema")
    if isinstance(schema, dict):
        params["requestedSchema"] = {"type": "object", "properties": {}, **schema}
    call_id = params.get("toolCallId")
    if isinstance(call_id, str) and len(call_id) < MIN_UNIQUE_CHARACTERS:
        return {name: value for name, value in params.items() if name != "toolCallId"}
    return params


class AgentPool:
    """The agent processes of this segue process, one for each command."""

    def __init__(self, client_proxy: ClientProxy | None = None) -> None:
        self._client_proxy = client_proxy
        self._agents: dict[Command, RunningAgent] = {}
        self._start_locks: dict[Command, asyncio.Lock] = {}
        self._user_counts: dict[Command, int] = {}
        self._idle_timers: dict[Command, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def acquire(self, command: Command, cwd: str) -> RunningAgent:
        """Return the process of a command, started if necessary. The caller must release it."""
        self._user_counts[command] = self._user_counts.get(command, 0) + 1
        if timer := self._idle_timers.pop(command, None):
            timer.cancel()
        try:
            return await self._ensure_started(command, cwd)
        except BaseException:
            self.release(command)
            raise

    async def _ensure_started(self, command: Command, cwd: str) -> RunningAgent:
        async with self._start_locks.setdefault(command, asyncio.Lock()):
            agent = self._agents.get(command)
            if agent is None or agent.disconnected:
                if agent is not None:
                    await agent.end()
                agent = await RunningAgent.start(command, cwd, self._client_proxy)
                self._agents[command] = agent
            return agent

    def release(self, command: Command) -> None:
        """Release a process after `acquire`; the last release starts its idle timer."""
        self._user_counts[command] -= 1
        if not self._user_counts[command]:
            loop = asyncio.get_running_loop()
            self._idle_timers[command] = loop.call_later(IDLE_SECONDS, self._end_idle, command)

    def is_unused(self, command: Command) -> bool:
        """Return True if no caller has acquired the process."""
        return not self._user_counts.get(command)

    def peek(self, command: Command) -> RunningAgent | None:
        """Return the process of a command without starting it."""
        return self._agents.get(command)

    async def discard(self, command: Command, agent: RunningAgent) -> None:
        """End a process; the next turn starts a new one."""
        if self._agents.get(command) is agent:
            del self._agents[command]
        await agent.end()

    def _end_idle(self, command: Command) -> None:
        self._idle_timers.pop(command, None)
        if agent := self._agents.get(command):
            task = asyncio.get_running_loop().create_task(self.discard(command, agent))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all processes."""
        for timer in self._idle_timers.values():
            timer.cancel()
        self._idle_timers.clear()
        agents = list(self._agents.values())
        self._agents.clear()
        await asyncio.gather(*(agent.end() for agent in agents), *self._ending)
