"""Run the turns of one session while this process has its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from segue.agents.base import Agent, SupportsCheck, SupportsResume, Turn
from segue.agents.base.turn_hooks import HOOKS_KEY
from segue.hub.history.follow import Name
from segue.model.errors import Conflict, LeaseLost, NoAgent, NotFound
from segue.model.event import AnyBody, Draft
from segue.model.lifecycle import RUNNING_STATUSES, StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease

from .claims import ItemClaims
from .deps import TurnDeps
from .inbox import cancel_of, close_requests
from .opened import OpenSession
from .recovery import (
    CANCELLED,
    PROCESS_ENDED,
    closing_events,
    resumption,
    unstored_events,
)
from .running.runner import TurnRunner

log = logging.getLogger("segue.turns")

CLIENT_GONE = "this turn needs {} of a client that is gone"
AGENT_CHANGED = "the session's agent was changed, and the new one cannot resume this turn"


class Process(Protocol):
    """The part of the turn engine that knows the clients and agents of this process."""

    def await_agent(self, task: asyncio.Task[Any]) -> None: ...
    def opened(self, id: str | None) -> OpenSession | None: ...


class SessionDriver:
    """Run the turns of one session, until none is left for this process."""

    def __init__(self, deps: TurnDeps, lease: Lease, claims: ItemClaims, process: Process) -> None:
        self._deps = deps
        self._store = deps.store
        self._lease = lease
        self._name: Name = (lease.workspace, lease.session)
        self._claims = claims
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
        if not self._lost and not (self._stopping and await self._leaves_turn_open()):
            await self._store.release(self._lease)

    async def _leaves_turn_open(self) -> bool:
        """Return whether this process stops before it has ended the turn of a dead process."""
        session = await self._store.get(*self._name)
        return session is not None and session.status in RUNNING_STATUSES

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
            prompt = self._claims.next_prompt(items)
            await self._drop_stale(items, prompt)
            if prompt is None or not await self._begin_turn(session, prompt):
                return

    async def _has_ended(self, turn: str) -> bool:
        session = await self._store.get(*self._name)
        return session is None or session.turn != turn

    # Turns that are open when this process gets the lease.

    async def _continue_turn(self, session: Session, items: Sequence[InboxItem]) -> None:
        """Continue a turn that was stored while it waits for clients, or close it.

        A turn whose process died is closed, unless it can be resumed and has open requests or
        answers that the agent has not seen.
        """
        turns = [item for item in items if item.kind == "turn"]
        cancel = cancel_of(items, session.turn)
        if cancel is not None:
            await self._close_turn(CANCELLED, cancel)
            return
        body = turns[0].body if turns else {}
        if not body.get("resumable"):
            why = f"{PROCESS_ENDED}, and its agent cannot resume it"
            await self._close_turn(why if session.pending else PROCESS_ENDED)
            return
        if session.status != "idle":  # the process died while it ran this turn
            prepared = await self._prepare_resumption(session)
            if prepared is None:
                await self._close_turn(PROCESS_ENDED)
                return
            session = prepared
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
            left_by_client = needs is not None and self._claims.is_for_this_process(turns[0])
            if left_by_client or session.status != "idle":
                await self._close_turn(error.message)
            else:
                log.warning("session %s: %s", session.id, error)
                await self._leave_to_others(answers, error)
            return
        if not isinstance(agent, SupportsResume):
            await self._close_turn(AGENT_CHANGED)
            return
        runner = self._create_runner(agent, opened)
        if not self._stopping:  # else another process resumes it
            await self._run_with(runner, turns[0], runner.resume(turns, session))

    async def _leave_to_others(self, items: Sequence[InboxItem], error: NoAgent) -> None:
        """Let other processes act on answers to a turn that this process cannot resume."""
        for item in items:
            if await self._store.drop_inbox(*self._name, [item.number]):
                again = await self._store.put_inbox(*self._name, item.kind, item.id, item.body)
                self._claims.note_unable(again, error)

    async def _prepare_resumption(self, session: Session) -> Session | None:
        """Store that a turn whose process died waits or continues, and return the session.

        Returns None, and stores nothing, if the turn cannot be resumed.
        """
        decide = await resumption(self._store, session)
        unstored = await unstored_events(self._store, session)
        stored, events = await self._store.change(
            *self._name,
            lambda current: [*unstored, *drafts] if (drafts := decide(current)) else [],
            lease=self._lease,
        )
        return stored if events else None

    async def _close_turn(self, why: str, cancel: InboxItem | None = None) -> None:
        """Close an open turn that has no task, because of a cancel or with an error."""
        session = await self._store.get(*self._name)
        if session is None:
            return
        sent, added = await close_requests(self._store, session)
        items = await self._store.inbox(*self._name)
        unstored = await unstored_events(self._store, session)

        def decide(current: Session) -> list[AnyBody | Draft]:
            if current.turn is None:
                return []
            return [*unstored, *closing_events(current, why, cancel, sent)]

        turns = [item for item in items if item.kind == "turn"]
        consumed = [*turns, *sent, *added, *([] if cancel is None else [cancel])]
        numbers = [item.number for item in consumed]
        await self._store.change(*self._name, decide, lease=self._lease, consume=numbers)

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
            if needs is None and not self._claims.is_received_here(prompt):
                self._claims.note_unable(prompt, error)
                return False
            agent = _FailingAgent(error)
        runner = self._create_runner(agent, opened)
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

    def _create_runner(self, agent: Agent, opened: OpenSession | None) -> TurnRunner:
        return TurnRunner(self._deps, self._lease, self.wake, agent, opened)

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


class _FailingAgent:
    """End a turn that no agent can answer with the reason."""

    def __init__(self, error: NoAgent) -> None:
        self._error = error

    async def run(self, turn: Turn) -> StopReason:
        raise self._error
