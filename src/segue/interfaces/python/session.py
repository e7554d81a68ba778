"""A session of a program: send a prompt, stream the messages, send again.

    async with segue.create_session(model="anthropic:claude-sonnet-4-6") as session:
        await session.send("What does this project do?")
        async for message in session.stream():
            print(message)

Sessions are in the default store, where every other interface finds them.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Any, Self

from msgspec.structs import replace

from segue.agents.base.spec import DEMO, FUNCTIONS, SUBAGENTS
from segue.agents.base.turn_hooks import HOOKS_KEY, TurnHooks
from segue.hub import Hub
from segue.hub.access.config import check_model
from segue.hub.sessions import directories
from segue.hub.turns.inbox import SystemText
from segue.model import ids
from segue.model.content import Block, Content, as_content, plain_text
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.event import AgentRef, ConfigChanged, Delta, PermissionAsked, ToolCall
from segue.model.principal import LOCAL
from segue.model.session import Session

from .command_rules import CommandRules
from .hooks import ProgramHooks, check_matchers
from .hub_handle import HubHandle, open_handle
from .messages import (
    Message,
    ResultMessage,
    SystemMessage,
    TurnSummary,
    message_from_delta,
    message_from_event,
    turn_end,
)
from .options import (
    DONT_ASK,
    Options,
    agent_overrides,
    check_options,
    read_mcp_server,
    with_provider,
    without_absent,
)
from .permission import PermissionDecision, request_permission, session_changes
from .structured import INSTRUCTION, StructuredOutput
from .subagents import subagents
from .tools import FunctionTool, function_tools

CLOSED = "Cannot send to closed session"


class SDKSession:
    """One session, new or resumed. Closing it ends a turn that still runs."""

    def __init__(
        self,
        session_id: str,
        model: str,
        options: Options,
        *,
        create_in: str | None = None,
        expected_cwd: str | None = None,
    ) -> None:
        """Prepare a session; it is opened on first use.

        With `create_in` it is created in that directory. Without, it must exist and, if
        `expected_cwd` is set, work there. Raises InvalidInput for a bad model or option.
        """
        self.session_id = session_id
        self._model = model
        self._create_in = create_in
        self._expected_cwd = expected_cwd
        options = without_absent(options)
        check_options(model, options)
        self._tools: dict[str, FunctionTool | StructuredOutput] = {
            **function_tools(options.get("tools") or ())
        }
        self._subagents = subagents(options, [tool.definition() for tool in self._tools.values()])
        output_format = options.get("output_format")
        self._structured = None if output_format is None else StructuredOutput(output_format)
        if self._structured is not None:
            self._tools[self._structured.name] = self._structured
        self._tool_tasks: set[asyncio.Task[None]] = set()
        self._overrides = agent_overrides(model, options)
        if self._structured is not None:
            texts = (self._overrides.get("append_system"), INSTRUCTION)
            self._overrides["append_system"] = "\n\n".join(text for text in texts if text)
        mode = options.get("permission_mode")
        self._mode = "default" if mode == DONT_ASK else mode
        self._title = options.get("title")
        self._roots = tuple(os.path.abspath(path) for path in options.get("add_dirs") or ())
        budget = options.get("max_budget_usd")
        self._budget = None if budget is None else round(budget * 1_000_000)
        self._rules = CommandRules(
            options.get("allowed_tools") or (), options.get("disallowed_tools") or ()
        )
        env = dict(options.get("env") or {})
        self._servers = [
            read_mcp_server(name, config, env)
            for name, config in (options.get("mcp_servers") or {}).items()
        ]
        if self._rules.forbids_some and model == DEMO:
            raise InvalidInput(
                "disallowed_tools: rules do not work with the model demo; choose another"
            )
        self._hooks = self._program_hooks(options)
        self._turn_hooks = TurnHooks(self._hooks, env)
        self._hooks_id: str | None = None
        self._can_use_tool = None if mode == DONT_ASK else options.get("can_use_tool")
        self._include_deltas = options.get("include_partial_messages", False)
        self._store = options.get("store")
        self._open_lock = asyncio.Lock()
        self._handle: HubHandle | None = None
        self._closed = False
        self._sent: deque[str] = deque()  # turns that were not streamed yet
        self._streamed_seq = 0  # the end of the last turn that was streamed
        self._init_message: SystemMessage | None = None

    def _program_hooks(self, options: Options) -> ProgramHooks | None:
        """Return the program's hooks, and the hook that forbids commands; None without any."""
        hooks = dict(options.get("hooks") or {})
        check_matchers(hooks)
        if self._rules.forbids_some:
            forbid = {"matcher": "Bash", "hooks": [self._forbid]}
            hooks["PreToolUse"] = [forbid, *hooks.get("PreToolUse", ())]
        return ProgramHooks(hooks) if hooks else None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, prompt: str | Block | Iterable[Block]) -> None:
        """Send a prompt. It is stored when this returns; `stream` yields the answer.

        Raises InvalidInput if a hook blocks it, Conflict if the session is closed.
        """
        handle = await self._open()
        hub, content = handle.hub, as_content(prompt)
        turn = await hub.turns.submit(
            LOCAL,
            self.session_id,
            content,
            system=await self._run_prompt_hooks(hub, content),
            overrides=self._turn_overrides(),
            mode=self._mode,
            opened=handle.opened,
        )
        self._sent.append(turn)

    async def stream(self) -> AsyncGenerator[Message, None]:
        """Yield the messages of the turn that answers the oldest prompt; `result` is the last.

        Call it again for the next prompt. Without a prompt it yields nothing.
        """
        hub = (await self._open()).hub
        while self._sent:
            turn = self._sent.popleft()
            if self._init_message is not None:
                yield replace(self._init_message, uuid=ids.new_id())
            first_seq = await hub.turns.wait_started(LOCAL, self.session_id, turn)
            if first_seq is None or first_seq <= self._streamed_seq:
                continue  # withdrawn, or answered in a turn that was streamed already
            async with aclosing(self._stream_turn(hub, first_seq)) as messages:
                async for message in messages:
                    yield message
            return

    async def close(self) -> None:
        """End a turn that still runs and release everything. A second call does nothing."""
        self._closed = True
        for task in self._tool_tasks:
            task.cancel()
        handle, self._handle = self._handle, None
        if handle is None:
            return
        await handle.close()
        if self._hooks_id is not None:
            handle.hub.agent_registry.hooks.unregister(self._hooks_id)

    async def _open(self) -> HubHandle:
        if self._closed:
            raise Conflict(CLOSED)
        async with self._open_lock:
            if self._handle is None:
                self._handle = await open_handle(self._store)
                try:
                    await self._prepare(self._handle)
                except BaseException:
                    await self.close()
                    raise
            return self._handle

    async def _prepare(self, handle: HubHandle) -> None:
        """Register hooks, create or load the session, and connect its MCP servers."""
        hub = handle.hub
        if self._turn_hooks != TurnHooks():
            self._hooks_id = hub.agent_registry.hooks.register(self._turn_hooks)
        if self._create_in is not None:
            await asyncio.to_thread(check_model, with_provider(self._model))
            built_in = await hub.records.built_in_agent(LOCAL.workspace)
            agent = replace(built_in, overrides=self._overrides)
            if self._budget is not None:
                await hub.turns.check_budget(LOCAL.workspace, agent, *self._agents_of_models(agent))
            session = await hub.editor.create(
                LOCAL,
                id=self.session_id,
                cwd=self._create_in,
                agent=agent,
                title=self._title,
                roots=self._roots,
                budget=self._budget,
            )
        else:
            if self._title is not None:
                raise InvalidInput("title is only for create_session; use rename_session")
            session = await self._load(hub)
            self._streamed_seq = session.last_seq
            if new_roots := [path for path in self._roots if path not in session.roots]:
                change = ConfigChanged(roots=(*session.roots, *new_roots))
                session = await hub.editor.configure(LOCAL, self.session_id, change)
            if self._budget is not None:
                session = await hub.turns.set_budget(LOCAL, self.session_id, self._budget)
        failures = await handle.hold(session, self._servers)
        self._init_message = SystemMessage(
            session_id=session.id,
            uuid=ids.new_id(),
            cwd=session.cwd,
            model=self._model,
            permission_mode=self._mode or session.mode or "default",
            mcp_servers=[
                {
                    "name": server.name,
                    "status": "failed" if server.name in failures else "connected",
                }
                for server in self._servers
            ],
        )

    def _agents_of_models(self, agent: AgentRef) -> list[AgentRef]:
        """Return the session's agent with each model that one of its subagents has."""
        models = [subagent["settings"].get("model") for subagent in self._subagents]
        overrides = self._overrides
        return [
            replace(agent, overrides={**overrides, "model": m}) for m in models if m is not None
        ]

    async def _load(self, hub: Hub) -> Session:
        """Return the existing session, ready for a prompt."""
        session = await hub.turns.prepare_for_prompt(
            LOCAL, self.session_id, overrides=self._turn_overrides()
        )
        expected = self._expected_cwd
        if expected is not None and directories.real(expected) != session.directory:
            raise InvalidInput(
                f"cwd: session {session.id} works in {session.cwd}, not in {expected};"
                " leave cwd out to use its own directory"
            )
        return session

    def _turn_overrides(self) -> dict[str, Any]:
        """Return the settings of this program's own turns, which the session does not store."""
        # The model of this program answers, not the session's agent.
        own: dict[str, Any] = {"kind": DEMO if self._model == DEMO else "default"}
        if self._tools:
            own[FUNCTIONS] = [tool.definition() for tool in self._tools.values()]
        if self._hooks_id is not None:
            own[HOOKS_KEY] = self._hooks_id
        if self._subagents:
            own[SUBAGENTS] = self._subagents
        return {**self._overrides, **own}

    async def _forbid(self, hook_input: Any, *_: Any) -> dict[str, Any]:
        """Deny a command that a rule of `disallowed_tools` forbids; a hook before every use."""
        rule = self._rules.forbidding(hook_input["tool_name"], hook_input["tool_input"])
        if rule is None:
            return {}
        denied = {"permissionDecision": "deny", "permissionDecisionReason": f"{rule} forbids it"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}}

    async def _run_prompt_hooks(self, hub: Hub, content: Content) -> SystemText | None:
        """Return what hooks add to a prompt. Raises InvalidInput if a hook blocks it."""
        if self._hooks is None:
            return None
        session = await hub.sessions.get(LOCAL, self.session_id)
        context = await self._hooks.before_prompt(
            session, self._mode or session.mode, plain_text(content)
        )
        return None if context is None else SystemText(id=ids.new_id(), content=as_content(context))

    async def _stream_turn(self, hub: Hub, first_seq: int) -> AsyncGenerator[Message, None]:
        summary = TurnSummary()
        if self._structured is not None:
            self._structured.answer = None
        follow = hub.history.follow(
            LOCAL, self.session_id, first_seq - 1, deltas=self._include_deltas
        )
        async with aclosing(follow) as items:
            async for item in items:
                if isinstance(item, Delta):
                    if item.thread is None:
                        yield message_from_delta(item)
                    continue
                summary.add(item)
                if isinstance(item.body, ToolCall) and item.body.custom:
                    self._start_tool(hub, item.body)
                if isinstance(item.body, PermissionAsked):
                    await self._answer(hub, item.body, summary)
                is_shown = item.body.thread is None
                if is_shown and (message := message_from_event(self.session_id, item)) is not None:
                    yield message
                if (reason := turn_end(item)) is not None:
                    self._streamed_seq = item.seq
                    result = summary.result(self.session_id, item, reason)
                    yield result if self._structured is None else self._with_answer(result)
                    return

    def _with_answer(self, result: ResultMessage) -> ResultMessage:
        """Return the result of a turn with its structured answer; without one, it is an error."""
        assert self._structured is not None
        if self._structured.answer is not None:
            return replace(result, structured_output=self._structured.answer)
        if result.is_error:
            return result
        message = "the model gave no answer that fits the schema of output_format"
        return replace(
            result, subtype="error_max_structured_output_retries", is_error=True, errors=[message]
        )

    def _start_tool(self, hub: Hub, call: ToolCall) -> None:
        """Run a function of the program as a task; another client's tools are not run here."""
        if (tool := self._tools.get(call.name)) is None:
            return

        async def run() -> None:
            result = await tool.call(call.call_id, call.input)
            # The turn was cancelled, or another client has sent a result.
            with suppress(NotFound, InvalidInput):
                await hub.turns.submit_tool_result(LOCAL, self.session_id, result)

        task = asyncio.create_task(run())
        self._tool_tasks.add(task)
        task.add_done_callback(self._tool_tasks.discard)

    async def _answer(self, hub: Hub, request: PermissionAsked, summary: TurnSummary) -> None:
        """Ask the program about a permission request, and apply its answer."""
        session = await hub.sessions.get(LOCAL, self.session_id)
        if request.ask_id not in session.open_asks:
            return  # another client has answered it
        call = summary.tool_call(request.call_id)
        try:
            if self._rules.allows(call):
                decision = PermissionDecision(allowed=True)
            else:
                decision = await request_permission(self._can_use_tool, request, call)
            changes = session_changes(decision.updates, session, self._mode)
        except BaseException:
            refusal = PermissionDecision(allowed=False, note="can_use_tool failed")
            await self._reply(hub, request, refusal)
            raise
        for change in changes:
            await hub.editor.configure(LOCAL, self.session_id, change)
        await self._reply(hub, request, decision)
        if not decision.allowed:
            summary.deny(request.call_id)
        if decision.interrupt:
            await hub.turns.cancel(LOCAL, self.session_id)

    async def _reply(
        self, hub: Hub, request: PermissionAsked, decision: PermissionDecision
    ) -> None:
        kind = "allow_once" if decision.allowed else "reject_once"
        option = next((option.id for option in request.options if option.kind == kind), None)
        with suppress(NotFound):  # the turn was cancelled, or another client has answered
            await hub.turns.answer(
                LOCAL, self.session_id, request.ask_id, option, decision.note, input=decision.input
            )
