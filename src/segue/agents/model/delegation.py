"""Delegate work to other agents: each delegation is a thread, which answers a tool call.

A call to one of these tools ends when its thread has ended its work. The calls of one response run
at the same time. If threads wait for clients and no other one runs, the turn waits as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from pydantic_ai.tools import ToolDefinition

from segue.agents.base import NewThread, ThreadPort, Turn
from segue.agents.base.spec import ADVISE, DEFINE, DELEGATE, MESSAGE
from segue.agents.tools import ToolError, failed_result
from segue.model.anthropic.agents import ADVISOR_NAME
from segue.model.content import as_content
from segue.model.errors import Conflict, LeaseLost, NotFound, without_locations
from segue.model.event import Draft, Failed, ToolCall, ToolResult
from segue.model.lifecycle import StopReason
from segue.model.session import Thread

from .settings import Member, Settings

MAX_PARALLEL_THREADS = 8  # of one turn; further ones wait for a free place
# Why a thread did not reach the end of its work.
_STOPPED = {
    "cancelled": "it was interrupted",
    "error": "it failed",
    "budget_reached": "the session has reached its budget",
    "refusal": "its model refused to continue",
    "max_tokens": "its answer reached the length limit",
    "max_turn_requests": "it reached its limit of model requests",
}


class ThreadAgent(Protocol):
    """The agent of a thread."""

    async def answer(self, turn: Turn, *, resumed: bool) -> tuple[StopReason, str]:
        """Answer a turn; return why it ended and the last text."""
        ...


class Delegations:
    """The delegation tools of one turn, and the threads that they run."""

    def __init__(
        self, turn: Turn, settings: Settings, build: Callable[[Mapping[str, Any]], ThreadAgent]
    ) -> None:
        """Create them; `build` returns the agent of a specification."""
        self._turn = turn
        self._settings = settings
        self._build = build
        self._members = {member.name: member for member in settings.roster}
        self._slots = asyncio.Semaphore(MAX_PARALLEL_THREADS)
        self._active = 0  # calls whose threads run, or wait for a place
        self._changed = asyncio.Event()  # replaced when a thread ends or begins to wait

    def definitions(self) -> list[ToolDefinition]:
        """Return the tools; none for a thread, because threads start no further threads."""
        if self._turn.thread is not None:
            return []
        settings = self._settings
        tools = []
        if settings.roster:
            tools.append(
                _tool(
                    DELEGATE,
                    _delegate_text(settings.roster),
                    {
                        "agent": {"type": "string", "enum": list(self._members)},
                        **_TITLE,
                        **_MESSAGE,
                    },
                )
            )
        if settings.inline_agents:
            tools.append(_tool(DEFINE, _DEFINE_TEXT, {**_NAME, **_SYSTEM, **_TITLE, **_MESSAGE}))
        if tools:
            tools.append(_tool(MESSAGE, _MESSAGE_TEXT, {"thread": {"type": "string"}, **_MESSAGE}))
        if settings.advisor is not None:
            tools.append(_tool(ADVISE, _ADVISE_TEXT, _MESSAGE))
        return tools

    async def run(self, call: ToolCall) -> ToolResult | None:
        """Run the thread of a call until it has ended its work; None if it waits for clients."""
        self._active += 1
        try:
            return await self._run(call)
        except (ToolError, Conflict) as error:
            return failed_result(str(error))
        finally:
            self._active -= 1
            self._notify()

    async def _run(self, call: ToolCall) -> ToolResult | None:
        threads = {thread.id: thread for thread in await self._turn.threads.all()}
        opened = self._turn.session.open_threads
        thread = next((threads[id] for id in opened if opened[id].call_id == call.call_id), None)
        if thread is None:
            if ended := next((t for t in threads.values() if t.last_call_id == call.call_id), None):
                return _result(ended.id, ended.stop_reason or "error", "")
            begin, agent = self._prepare(call, threads)
            async with self._slots:
                port = await begin()
                result = await self._work(port, agent, resumed=False)
            if result is not None:
                return result
            thread = next(t for t in await self._turn.threads.all() if t.id == port.thread)
        else:
            agent = self._agent_of(thread)
        return await self._continue(thread, agent)

    async def _continue(self, thread: Thread, agent: ThreadAgent) -> ToolResult | None:
        """Run a thread that waits as often as clients have answered it."""
        self._active -= 1
        try:
            while thread.id in self._turn.session.open_threads:
                self._notify()
                waiters = [
                    asyncio.ensure_future(self._turn.threads.next_answer()),
                    asyncio.ensure_future(self._changed.wait()),
                ]
                try:
                    async with self._slots:
                        port = await self._turn.threads.resume(thread)
                        if port is not None:
                            self._active += 1
                            try:
                                result = await self._work(port, agent, resumed=True)
                            finally:
                                self._active -= 1
                            if result is not None:
                                return result
                            continue
                    if self._active == 0:
                        return None
                    await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for waiter in waiters:
                        waiter.cancel()
            return _result(thread.id, "cancelled", "")
        finally:
            self._active += 1

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _work(
        self, port: ThreadPort, agent: ThreadAgent, *, resumed: bool
    ) -> ToolResult | None:
        """Let a thread work; return its result, or None if it waits for clients."""
        turn, threads = self._turn.in_thread(port), self._turn.threads
        task = asyncio.get_running_loop().create_task(agent.answer(turn, resumed=resumed))
        port.on_interrupt(task.cancel)
        stop: StopReason
        drafts: list[Draft] = []
        text = ""
        try:
            stop, text = await task
            await turn.finish()
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not port.is_interrupted or (current is not None and current.cancelling()):
                self._turn.emit_at_end(*threads.unstored(port, turn.take_unstored()))
                raise
            stop = "cancelled"
        except (LeaseLost, NotFound):
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            failed = Failed(message=message, remote_message=without_locations(message))
            stop, drafts = "error", [Draft(body=failed)]
        if stop == "requires_action":
            await threads.wait(port, turn.waiting_calls)
            self._turn.waiting_calls |= turn.waiting_calls
            return None
        drafts = [*turn.take_unstored(), *drafts]
        await threads.end(port, drafts, stop, as_content(text) if text else ())
        return _result(port.thread or "", stop, text)

    # Which agent a call is for.

    def _prepare(
        self, call: ToolCall, threads: Mapping[str, Thread]
    ) -> tuple[Callable[[], Awaitable[ThreadPort]], ThreadAgent]:
        """Return what starts or continues the thread of a call, and its agent.

        Raises ToolError if the call's arguments name none.
        """
        arguments = call.input if isinstance(call.input, dict) else {}
        prompt = as_content(_text(arguments, "message"))
        if call.name == MESSAGE:
            thread = threads.get(_text(arguments, "thread"))
            if thread is None or thread.archived_at is not None:
                raise ToolError(f"there is no thread {arguments['thread']!r} that takes messages")
            if thread.id in self._turn.session.open_threads:
                raise ToolError(f"thread {thread.id} is still working on another message")
            continued = thread
            agent = self._agent_of(thread)
            return lambda: self._turn.threads.prompt(continued, call.call_id, prompt), agent
        member = self._member(call.name, arguments)
        title = arguments.get("title")
        new = NewThread(
            name=member.name,
            title=title if isinstance(title, str) else None,
            agent=member.agent,
            definition=member.definition,
        )
        agent = self._build(member.spec)
        return lambda: self._turn.threads.start(new, call.call_id, prompt), agent

    def _member(self, tool: str, arguments: Mapping[str, Any]) -> Member:
        if tool == ADVISE and self._settings.advisor is not None:
            return self._settings.advisor
        if tool == DEFINE:
            definition = {
                "name": _text(arguments, "name"),
                "system": _text(arguments, "instructions"),
            }
            return self._inline(definition)
        member = self._members.get(_text(arguments, "agent"))
        if member is None:
            raise ToolError(f"there is no agent {arguments['agent']!r}")
        return member

    def _inline(self, definition: dict[str, Any]) -> Member:
        """Return an inline agent: this agent with another name and other instructions."""
        spec = {**self._settings.own_spec, **definition}
        return Member(name=definition["name"], spec=spec, definition=definition)

    def _agent_of(self, thread: Thread) -> ThreadAgent:
        """Return the agent of a thread that has started; raises ToolError if it is gone."""
        if thread.agent is not None:
            members = [member for member in self._settings.roster if member.agent == thread.agent]
        elif thread.kind == ADVISOR_NAME:
            members = [] if self._settings.advisor is None else [self._settings.advisor]
        elif (own := self._members.get(thread.kind or "")) is not None and own.agent is None:
            members = [own]
        else:
            members = [self._inline(thread.definition)]
        if not members:
            raise ToolError(f"the agent {thread.kind!r} of thread {thread.id} is not available")
        return self._build(members[0].spec)


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ToolError(f"{name}: expected a text")
    return value


def _result(thread: str, stop: StopReason, text: str) -> ToolResult:
    """Return the result of a delegation: the thread's id, for later messages, and its answer."""
    if stop == "end_turn":
        return ToolResult(call_id="", content=as_content(f"[thread {thread}]\n\n{text}"))
    note = f"[thread {thread} did not finish: {_STOPPED.get(stop, stop)}]"
    return failed_result(f"{note}\n\n{text}" if text else note)


_TITLE = {"title": {"type": "string", "description": "What the thread does, in a few words."}}
_NAME = {"name": {"type": "string", "description": "A short name for the new agent."}}
_SYSTEM = {"instructions": {"type": "string", "description": "The new agent's system prompt."}}
_MESSAGE = {"message": {"type": "string", "description": "All that the other agent must know."}}
_PARALLEL = "Calls in one response run at the same time."
_DEFINE_TEXT = (
    "Define an agent for one task, with your tools and its own instructions, and start a thread in"
    f" which it works. Returns the thread's id and the agent's answer. {_PARALLEL}"
)
_MESSAGE_TEXT = (
    "Send another message to a thread, which remembers its earlier ones. Returns its answer."
)
_ADVISE_TEXT = (
    "Ask an advisor, a stronger model without tools, about a plan, a decision or a problem. It sees"
    " only your message. Returns its advice."
)


def _delegate_text(roster: tuple[Member, ...]) -> str:
    lines = [f"- {member.name}: {member.description or 'no description'}" for member in roster]
    return "\n".join(
        [
            "Start a thread in which another agent works on a task. It shares your files and sees"
            " only your message. Returns the thread's id and the agent's answer."
            f" {_PARALLEL} The agents:",
            *lines,
        ]
    )


def _tool(name: str, description: str, properties: dict[str, Any]) -> ToolDefinition:
    schema = {
        "type": "object",
        "properties": properties,
        "required": [field for field in properties if field != "title"],
        "additionalProperties": False,
    }
    return ToolDefinition(name=name, description=description, parameters_json_schema=schema)
