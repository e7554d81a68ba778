"""Run the turns of one session while this process has its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol

from segue.agents.base import Agent, NoTools, SupportsCheck, Turn
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.hub.history.follow import Name
from segue.model.content import as_content
from segue.model.errors import Conflict, LeaseLost, NoAgent, NotFound
from segue.model.event import (
    RUN_BY_OTHERS,
    AnyBody,
    Draft,
    Interrupted,
    PermissionAsked,
    ToolCall,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease

from .attribution import attribute, open_request
from .deps import TurnDeps
from .end_turn import end_turn_events, failed_request, partial_messages
from .opened import OpenSession
from .runner import TurnRunner
from .turn_events import status_with_pending

log = logging.getLogger("segue.turns")

PROCESS_ENDED = "the process that ran this turn ended before it did"
CLIENT_GONE = "this turn needs {} of a client that is gone"
OUTCOME_UNKNOWN = (
    "the process that ran this tool ended before it did; the outcome is unknown, and the tool was"
    " not run again"
)
MAX_OPEN_CALLS = 500


class ProcessItems(Protocol):
    """The part of the turn engine that knows what this process is to act on."""

    def next_prompt(self, items: Iterable[InboxItem]) -> InboxItem | None: ...
    def is_received_here(self, item: InboxItem) -> bool: ...
    def is_for_this_process(self, item: InboxItem) -> bool: ...
    def note_unable(self, item: InboxItem) -> None: ...
    def await_agent(self, task: asyncio.Task[Any]) -> None: ...
    def opened(self, id: str | None) -> OpenSession | None: ...


class SessionDriver:
    """Run the turns of one session, until none is left for this process."""

    def __init__(self, deps: TurnDeps, lease: Lease, process: ProcessItems) -> None:
        self._deps = deps
        self._store = deps.store
        self._lease = lease
        self._name: Name = (lease.workspace, lease.session)
        self._process = process
        self._runner: TurnRunner | None = None
        self._stopping = False
        self._lost = False
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.opened: str | None = None  # the open session whose turn runs
        self.turn_ended = asyncio.Event()

    @property
    def busy(self) -> bool:
        return self._runner is not None

    @property
    def is_waiting(self) -> bool:
        """True if a turn runs that waits for clients alone."""
        return self._runner is not None and self._runner.is_waiting

    def retire(self) -> asyncio.Task[None]:
        """Begin no further turn; return the task, which ends with the running turn."""
        assert self.task is not None  # set right after the driver is created
        self._stopping = True
        self.wake.set()
        return self.task

    async def stop(self, why: str | None = None) -> None:
        """Cancel the running turn and end; with `why`, the turn counts as interrupted."""
        task = self.retire()
        if self._runner is not None:
            self._runner.cancel(why)
        await asyncio.wait([task])

    def lose_lease(self) -> None:
        """Stop at once and write nothing, because the lease is lost."""
        if not self._lost:
            log.info("session %s: the lease was lost", self._lease.session)
        self._lost = self._stopping = True
        self.wake.set()
        if self._runner is not None:
            self._runner.abandon()

    async def run(self) -> None:
        """Run until this process has nothing more to do in the session; release the lease."""
        try:
            await self._run_prompts()
        except (LeaseLost, NotFound):
            self.lose_lease()
        finally:
            self._deps.live.finish_messages(self._name)
        # Not after an error: recovery finds an open turn by its lease.
        if not self._lost:
            await self._store.release(self._lease)

    async def _run_prompts(self) -> None:
        while not self._stopping:
            self.wake.clear()
            session = await self._store.get(*self._name)
            if session is None:
                raise NotFound(f"no session {self._lease.session}", session=self._lease.session)
            items = await self._store.inbox(*self._name)
            if session.turn is not None:
                await self._continue_turn(session, items)
                if not await self._has_ended(session.turn):
                    return  # it waits for clients
                continue
            prompt = self._process.next_prompt(items)
            await self._drop_stale(items, prompt)
            if prompt is None or not await self._begin_turn(session, prompt):
                return

    async def _has_ended(self, turn: str) -> bool:
        session = await self._store.get(*self._name)
        return session is None or session.turn != turn

    # Turns that are open when this process gets the lease.

    async def _continue_turn(self, session: Session, items: Sequence[InboxItem]) -> None:
        """Continue a turn that was stored while it waits for clients, or close it.

        A turn whose process died is closed, unless it can be resumed and has open requests.
        """
        turns = [item for item in items if item.kind == "turn"]
        cancel = next((item for item in items if _cancels(item, session.turn)), None)
        if cancel is not None:
            await self._close_turn(turns, "the turn was cancelled", cancel)
            return
        body = turns[0].body if turns else {}
        if not body.get("resumable"):
            why = f"{PROCESS_ENDED}, and its agent cannot resume it"
            await self._close_turn(turns, why if session.pending else PROCESS_ENDED)
            return
        if session.status != "idle":  # the process died while it ran this turn
            session = await self._store_as_waiting(session)
            if not session.pending:
                await self._close_turn(turns, PROCESS_ENDED)
                return
        await self._resume_turn(session, turns, items)

    async def _resume_turn(
        self, session: Session, turns: Sequence[InboxItem], items: Sequence[InboxItem]
    ) -> None:
        opened = self._process.opened(turns[0].body.get("opened"))
        needs = turns[0].body.get("needs")
        answers = [item for item in items if item.kind in ("answer", "result")]
        try:
            local = all(item.body.get("local") for item in turns)
            agent = await self._build_agent(session, turns[0], opened, local=local)
            if isinstance(agent, SupportsCheck):
                await agent.check()
        except NoAgent as error:
            if needs is not None and self._process.is_for_this_process(turns[0]):
                await self._close_turn(turns, error.message)
            else:
                log.warning("session %s: %s", session.id, error)
                await self._leave_to_others(answers)
            return
        tools = NoTools() if opened is None else opened.tools
        runner = TurnRunner(self._deps, self._lease, self.wake, agent, tools)
        await self._run_with(runner, turns[0], runner.resume(turns, session))

    async def _leave_to_others(self, items: Sequence[InboxItem]) -> None:
        """Let other processes act on answers to a turn that this process cannot resume."""
        for item in items:
            if await self._store.drop_inbox(*self._name, [item.number]):
                again = await self._store.put_inbox(*self._name, item.kind, item.id, item.body)
                self._process.note_unable(again)

    async def _store_as_waiting(self, session: Session) -> Session:
        """Store a turn whose process died as waiting, and return the session.

        Tools that may have begun are not run again: their results say that the outcome is unknown.
        Without open requests, nothing is stored.
        """
        calls = await self._open_calls(session)
        asked = await self._open_asks(session)
        waiting = {
            call.call_id
            for call in calls
            if call.call_id not in asked.values() and _is_run_by_clients(call)
        }

        def decide(current: Session) -> list[AnyBody | Draft]:
            pending = (*asked, *(id for id in current.open_calls if id in waiting))
            if not pending or current.turn != session.turn:
                return []
            begun = [
                ToolResult(
                    call_id=id,
                    status="failed",
                    content=as_content(OUTCOME_UNKNOWN),
                    turn=session.turn,
                )
                for id in current.open_calls
                if id not in waiting and id not in asked.values()
            ]
            return [*begun, status_with_pending(current, pending)]

        unstored = await self._unstored(session)
        stored, events = await self._store.change(
            *self._name,
            lambda current: [*unstored, *drafts] if (drafts := decide(current)) else [],
            lease=self._lease,
        )
        return stored if events else session

    async def _open_calls(self, session: Session) -> list[ToolCall]:
        events = await self._store.events(
            *self._name, types=("tool_call",), limit=MAX_OPEN_CALLS, backward=True
        )
        bodies = [event.body for event in events if isinstance(event.body, ToolCall)]
        return [body for body in bodies if body.call_id in session.open_calls]

    async def _open_asks(self, session: Session) -> dict[str, str | None]:
        """Return the open permission requests, and the calls that they are about."""
        events = await self._store.events(
            *self._name, types=("permission_asked",), limit=MAX_OPEN_CALLS, backward=True
        )
        bodies = [event.body for event in events if isinstance(event.body, PermissionAsked)]
        return {body.ask_id: body.call_id for body in bodies if body.ask_id in session.open_asks}

    async def _unstored(self, session: Session) -> list[AnyBody | Draft]:
        """Return the messages and the model request that the process which died had not ended."""
        partial = partial_messages(await self._store.deltas(*self._name))
        spans = ("model_asked", "model_called")
        last = await self._store.events(*self._name, types=spans, limit=1, backward=True)
        request = open_request(last[0]) if last else None
        return [
            *(attribute(draft, session.turn, request) for draft in partial),
            *failed_request(request),
        ]

    async def _close_turn(
        self, turns: Sequence[InboxItem], why: str, cancel: InboxItem | None = None
    ) -> None:
        """Close an open turn that has no task, because of a cancel or with an error."""
        session = await self._store.get(*self._name)
        unstored = [] if session is None else await self._unstored(session)
        interrupted = Interrupted() if cancel is not None else Interrupted(reason=why)
        end = Draft(id=None if cancel is None else cancel.id, body=interrupted)
        reason: StopReason = "error" if cancel is None else "cancelled"

        def decide(current: Session) -> list[AnyBody | Draft]:
            if current.turn is None:
                return []
            return [*unstored, end, *end_turn_events(current, why, reason)]

        consumed = [item.number for item in [*turns, *([cancel] if cancel is not None else [])]]
        await self._store.change(*self._name, decide, lease=self._lease, consume=consumed)

    async def _drop_stale(self, items: Sequence[InboxItem], prompt: InboxItem | None) -> None:
        """Drop the cancels and answers before the next prompt, which have no turn."""
        stale = [
            item.number
            for item in items
            if item.kind not in ("prompt", "turn")
            and (prompt is None or item.number < prompt.number)
        ]
        if stale:
            await self._store.drop_inbox(*self._name, stale)

    async def _begin_turn(self, session: Session, prompt: InboxItem) -> bool:
        """Run one turn; return False if this process cannot build the session's agent."""
        opened = self._process.opened(prompt.body.get("opened"))
        agent: Agent
        try:
            local = bool(prompt.body.get("local"))
            agent = await self._build_agent(session, prompt, opened, local=local)
        except NoAgent as error:
            log.warning("session %s: %s", session.id, error)
            needs = prompt.body.get("needs")
            if needs is None and not self._process.is_received_here(prompt):
                self._process.note_unable(prompt)
                return False
            agent = _FailingAgent(error)
        tools = NoTools() if opened is None else opened.tools
        runner = TurnRunner(self._deps, self._lease, self.wake, agent, tools)
        if not self._stopping:  # stop() may be called while the agent is built
            await self._run_with(runner, prompt, runner.run(prompt))
        return True

    async def _build_agent(
        self, session: Session, item: InboxItem, opened: OpenSession | None, *, local: bool
    ) -> Agent:
        """Return the agent of a prompt or turn. Raises NoAgent if this process cannot build it."""
        overrides, needs = item.body.get("overrides", {}), item.body.get("needs")
        if opened is None and needs is not None and HOOKS_KEY not in overrides:
            raise NoAgent(CLIENT_GONE.format(needs))
        if opened is not None and opened.agent is not None:
            return opened.agent
        return await self._deps.build_agent(session, overrides, self._lease, local=local)

    async def _run_with(
        self, runner: TurnRunner, item: InboxItem, work: Coroutine[Any, Any, None]
    ) -> None:
        """Run a turn, or what is left of it, so that it can be cancelled meanwhile."""
        self._runner, self.opened = runner, item.body.get("opened")
        self.turn_ended.clear()
        try:
            await work
        except LeaseLost:
            raise
        except Conflict as error:
            # The prompt was withdrawn, or the session has terminated.
            log.info("session %s: %s", self._lease.session, error)
            await self._store.drop_inbox(*self._name, [item.number])
        finally:
            self._runner = self.opened = None
            if runner.agent_task is not None and not runner.agent_task.done():
                self._process.await_agent(runner.agent_task)
            self.turn_ended.set()


def _cancels(item: InboxItem, turn: str | None) -> bool:
    """Return whether an item cancels a turn."""
    return item.kind == "cancel" and item.body.get("turn") in (None, turn)


def _is_run_by_clients(call: ToolCall) -> bool:
    """Return whether a client or a worker runs a tool call, so that no process has begun it."""
    return call.custom or bool(call.extra.get(RUN_BY_OTHERS))


class _FailingAgent:
    """End a turn that no agent can answer with the reason."""

    def __init__(self, error: NoAgent) -> None:
        self._error = error

    async def run(self, turn: Turn) -> StopReason:
        raise self._error
