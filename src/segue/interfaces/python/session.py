"""A session of a program: send a prompt, stream the messages, send again.

    async with segue.create_session(model="anthropic:claude-sonnet-4-6") as session:
        await session.send("What does this project do?")
        async for message in session.stream():
            print(message)

Sessions are in the default store, where every other interface finds them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import Self

from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.access.config import check_model
from segue.hub.sessions import directories
from segue.hub.turns.inbox import SystemText
from segue.model import ids
from segue.model.content import Block, Content, as_content, plain_text
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.event import ConfigChanged, Delta, PermissionAsked, ToolCall
from segue.model.principal import LOCAL
from segue.model.session import Session

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
    Options,
    with_provider,
)
from .permission import PermissionDecision, request_permission, session_changes
from .settings import SessionSettings

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
        self._create_in = create_in
        self._expected_cwd = expected_cwd
        self._settings = SessionSettings.from_options(model, options)
        self._hooks_id: str | None = None
        self._tool_tasks: set[asyncio.Task[None]] = set()
        self._open_lock = asyncio.Lock()
        self._handle: HubHandle | None = None
        self._closed = False
        self._sent: deque[str] = deque()  # turns that were not streamed yet
        self._streamed_seq = 0  # the end of the last turn that was streamed
        self._init_message: SystemMessage | None = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, prompt: str | Block | Iterable[Block]) -> None:
        """Send a prompt. It is stored when this returns; `stream` yields the answer.

        Raises InvalidInput if a hook blocks it, Conflict if the session is closed.
        """
        if not isinstance(prompt, str | Block):
            prompt = list(prompt) if isinstance(prompt, Iterable) else [prompt]
            if not all(isinstance(block, Block) for block in prompt):
                raise InvalidInput(f"a prompt must be a string or content blocks, not {prompt!r}")
        handle = await self._open()
        hub, content = handle.hub, as_content(prompt)
        turn = await hub.turns.submit(
            LOCAL,
            self.session_id,
            content,
            system=await self._run_prompt_hooks(hub, content),
            overrides=self._settings.turn_overrides(self._hooks_id),
            mode=self._settings.mode,
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
                self._handle = await open_handle(self._settings.store)
                try:
                    await self._prepare(self._handle)
                except BaseException:
                    await self.close()
                    raise
            return self._handle

    async def _prepare(self, handle: HubHandle) -> None:
        """Register hooks, create or load the session, and connect its MCP servers."""
        hub, settings = handle.hub, self._settings
        if (turn_hooks := settings.turn_hooks()) is not None:
            self._hooks_id = hub.agent_registry.hooks.register(turn_hooks)
        if self._create_in is not None:
            await asyncio.to_thread(check_model, with_provider(settings.model))
            built_in = await hub.records.built_in_agent(LOCAL.workspace)
            agent = replace(built_in, overrides=settings.overrides)
            if settings.budget is not None:
                await hub.turns.check_budget(
                    LOCAL.workspace, agent, *settings.agents_of_models(agent)
                )
            session = await hub.editor.create(
                LOCAL,
                id=self.session_id,
                cwd=self._create_in,
                agent=agent,
                title=settings.title,
                roots=settings.roots,
                budget=settings.budget,
            )
        else:
            if settings.title is not None:
                raise InvalidInput("title is only for create_session; use rename_session")
            session = await self._load(hub)
            self._streamed_seq = session.last_seq
            if new_roots := [path for path in settings.roots if path not in session.roots]:
                change = ConfigChanged(roots=(*session.roots, *new_roots))
                session = await hub.editor.configure(LOCAL, self.session_id, change)
            if settings.budget is not None:
                session = await hub.turns.set_budget(LOCAL, self.session_id, settings.budget)
        failures = await handle.hold(session, settings.servers)
        self._init_message = SystemMessage(
            session_id=session.id,
            uuid=ids.new_id(),
            cwd=session.cwd,
            model=settings.model,
            permission_mode=settings.mode or session.mode or "default",
            mcp_servers=[
                {
                    "name": server.name,
                    "status": "failed" if server.name in failures else "connected",
                }
                for server in settings.servers
            ],
        )

    async def _load(self, hub: Hub) -> Session:
        """Return the existing session, ready for a prompt."""
        session = await hub.turns.prepare_for_prompt(
            LOCAL, self.session_id, overrides=self._settings.turn_overrides(self._hooks_id)
        )
        expected = self._expected_cwd
        if expected is not None and directories.real(expected) != session.directory:
            raise InvalidInput(
                f"cwd: session {session.id} works in {session.cwd}, not in {expected};"
                " leave cwd out to use its own directory"
            )
        return session

    async def _run_prompt_hooks(self, hub: Hub, content: Content) -> SystemText | None:
        """Return what hooks add to a prompt. Raises InvalidInput if a hook blocks it."""
        if self._settings.hooks is None:
            return None
        session = await hub.sessions.get(LOCAL, self.session_id)
        context = await self._settings.hooks.before_prompt(
            session, self._settings.mode or session.mode, plain_text(content)
        )
        return None if context is None else SystemText(id=ids.new_id(), content=as_content(context))

    async def _stream_turn(self, hub: Hub, first_seq: int) -> AsyncGenerator[Message, None]:
        summary = TurnSummary()
        if self._settings.structured is not None:
            self._settings.structured.answer = None
        follow = hub.history.follow(
            LOCAL, self.session_id, first_seq - 1, deltas=self._settings.include_deltas
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
                    yield result if self._settings.structured is None else self._with_answer(result)
                    return

    def _with_answer(self, result: ResultMessage) -> ResultMessage:
        """Return the result of a turn with its structured answer; without one, it is an error."""
        assert self._settings.structured is not None
        if self._settings.structured.answer is not None:
            return replace(result, structured_output=self._settings.structured.answer)
        if result.is_error:
            return result
        message = "the model gave no answer that fits the schema of output_format"
        return replace(
            result, subtype="error_max_structured_output_retries", is_error=True, errors=[message]
        )

    def _start_tool(self, hub: Hub, call: ToolCall) -> None:
        """Run a function of the program as a task; another client's tools are not run here."""
        if (tool := self._settings.tools.get(call.name)) is None:
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
            if self._settings.rules.allows(call):
                decision = PermissionDecision(allowed=True)
            else:
                decision = await request_permission(self._settings.can_use_tool, request, call)
            changes = session_changes(decision.updates, session, self._settings.mode)
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
