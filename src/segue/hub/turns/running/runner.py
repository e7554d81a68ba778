"""Run one turn: its agent as a task, until the turn ends or waits for clients."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Any, get_args

from segue.agents.base import (
    Agent,
    NoTools,
    ReadsDirectorySettings,
    SupportsResume,
    Tools,
    Turn,
)
from segue.hub.sessions.directories import OUTPUTS
from segue.hub.turns.budgets import budget_message
from segue.hub.turns.deps import TurnDeps
from segue.hub.turns.end_turn import end_turn_events
from segue.hub.turns.inbox import Prompt, begun_turn, close_requests, resume
from segue.hub.turns.opened import OpenSession
from segue.hub.turns.recovery import accepted
from segue.hub.turns.turn_events import (
    can_continue,
    failed_event,
    first_events,
    status_with_pending,
)
from segue.model import codec
from segue.model.errors import InvalidInput, LeaseLost, NotFound, SegueError
from segue.model.event import (
    AnyBody,
    Draft,
    Failed,
    Interrupted,
    OutcomeDefined,
    StatusChanged,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease

from .turn_port import SessionTurnPort

log = logging.getLogger("segue.turns")

# How long an agent may take to clean up after a cancel before its turn ends without it.
GRACE_SECONDS = 0.7
# How long a cancelled turn waits until its files are collected; the next turn waits for the rest.
COLLECT_SECONDS = 0.2


class TurnRunner:
    """Runs the agent of one turn, cancels it when asked to, and ends the turn."""

    def __init__(
        self,
        deps: TurnDeps,
        lease: Lease,
        wake: asyncio.Event,
        agent: Agent,
        opened: OpenSession | None,
    ) -> None:
        """Create the runner of a turn; `opened` is the open session that its prompt came through.

        A set `wake` makes it read the inbox.
        """
        self._store = deps.store
        self._workdirs = deps.services.workdirs
        self._wake = wake
        self._agent = agent
        self._tools: Tools = NoTools() if opened is None else opened.tools
        self._resumes = isinstance(agent, SupportsResume)
        client = None if opened is None else opened.client
        self._port = SessionTurnPort(deps, lease, wake, client, resumes=self._resumes)
        self._writer = self._port.writer
        self.agent_task: asyncio.Task[StopReason] | None = None
        self._cancelled = False
        self._cancel: InboxItem | None = None  # the cancel of a client, in the inbox
        self._interruption: str | None = None
        self._abandoned = False

    @property
    def is_waiting(self) -> bool:
        """True if the agent waits for nothing but clients, as far as the engine knows."""
        return self._writer.has_row and bool(self._writer.row.pending)

    def cancel(self, why: str | None = None) -> None:
        """Cancel the turn; with `why`, end it as interrupted for this reason instead."""
        self._cancelled = True
        self._interruption = why
        self._wake.set()

    def abandon(self) -> None:
        """Stop at once and write nothing, because the lease is lost."""
        self._abandoned = True
        self._writer.close()
        self._wake.set()

    # Called by the engine.

    async def run(self, item: InboxItem) -> None:
        """Run the turn of a prompt until it ends.

        Raises Conflict if the prompt was withdrawn or the session has terminated.
        """
        turn_id, prompt = item.id, codec.convert(item.body, Prompt)
        session, events = await self._writer.change(
            lambda current: first_events(current, turn_id, prompt),
            begin=[begun_turn(item, resumable=self._resumes)],
        )
        first_seq = next((e.seq for e in events if e.id == turn_id), session.last_seq)
        self._port.begin([item], session, first_seq)
        if not prompt.replay_to_late_stream:
            await self._store.ack(*self._writer.name, first_seq)
        outcome = await self._open_outcome() if prompt.resumes else prompt.outcome
        await self._run_until_it_waits(self._turn(outcome), resumed=False)

    async def resume(self, items: Sequence[InboxItem], session: Session) -> None:
        """Store the answers in the inbox, and continue a stored turn if it can run again."""
        first_seq = await self._store.locate(*self._writer.name, items[0].id)
        self._port.begin(items, session, first_seq or session.last_seq)
        await self._port.load_calls()
        turn = self._turn(await self._open_outcome())
        if await self._runs_again():
            await self._run_until_it_waits(turn, resumed=True)
        elif self._cancel is not None:
            await self._finish(turn, "cancelled")

    async def _runs_again(self) -> bool:
        """Store the answers to a turn that waits for clients; return whether it runs again."""
        await self._read_inbox()
        if self._cancelled or self._abandoned or not can_continue(self._port.session):
            return False
        # Also if it is running still: what came before this event has been read by the agent.
        await self._port.append([StatusChanged(status="running", turn=self._writer.turn_id)])
        return True

    async def _open_outcome(self) -> OutcomeDefined | None:
        return await self._port.reader.open_outcome(self._port.session)

    def _turn(self, outcome: OutcomeDefined | None) -> Turn:
        prompt: Prompt = codec.convert(self._writer.items[0].body, Prompt)
        system = () if prompt.system is None else prompt.system.content
        turn_id = self._writer.turn_id
        turn = Turn(self._port, prompt.content, turn_id, self._tools, outcome, system)
        turn.prompt_extra = prompt.extra
        return turn

    async def _run_until_it_waits(self, turn: Turn, *, resumed: bool) -> None:
        """Run the agent until the turn ends, or until it is stored because it waits for clients."""
        try:
            while True:
                work = self._run_agent(turn, resumed=resumed)
                self.agent_task = asyncio.get_running_loop().create_task(work)
                reason = await self._supervise(turn)
                if reason != "requires_action":
                    break
                await self._store_as_waiting(turn)
                if not await self._runs_again():
                    if self._cancel is None and self._port.session.pending:
                        return  # it stays stored, also if this process stops now
                    reason = "cancelled"
                    break
                turn, resumed = self._turn(turn.outcome), True
        finally:
            self._port.close()  # an agent that outlives its turn writes nothing more
        if not self._abandoned:
            await self._finish(turn, reason)

    async def _store_as_waiting(self, turn: Turn) -> None:
        """Store which requests the turn waits for, once each of its calls has ended or waits.

        If all were answered meanwhile, nothing is stored.
        """

        def decide(session: Session) -> list[AnyBody | Draft]:
            calls = [call for call in session.open_calls if call in turn.waiting_calls]
            pending = (*session.open_asks, *calls)
            return [status_with_pending(session, pending)] if pending else []

        await self._writer.change(decide)
        self._writer.finish_messages()

    async def _finish(self, turn: Turn, reason: StopReason | Exception) -> None:
        """Collect the turn's files and end the turn. A cancel does not wait long for the files."""
        collecting = asyncio.get_running_loop().create_task(self._collect_files())
        try:
            timeout = COLLECT_SECONDS if reason == "cancelled" else None
            done, _ = await asyncio.wait([collecting], timeout=timeout)
            await self._end(turn, reason, collecting.result() if done else [])
            if not done and (failures := await collecting):
                await self._writer.change(lambda _: failures)
                self._writer.finish_messages()
        finally:
            collecting.cancel()

    async def _collect_files(self) -> list[Failed]:
        """Collect the files that the turn made in the session's directory.

        Returns the failures: the turn ends in any case.
        """
        session = self._port.session
        has_files = session.resources or os.path.isdir(os.path.join(session.cwd, OUTPUTS))
        try:
            if has_files or not self._port.local:
                await self._workdirs.measure(session)
            if has_files:
                return await self._workdirs.collect(session, local=self._port.local)
        except Exception as error:
            prefix = "the files of the turn could not be collected: "
            return [failed_event(error, prefix=prefix, code="unknown")]
        return []

    async def _run_agent(self, turn: Turn, *, resumed: bool) -> StopReason:
        """Prepare the session's directory, run the agent and return why it stopped."""
        if self._port.session.at_budget and not resumed:
            return "budget_reached"
        await self._prepare_files(turn)
        if resumed:
            assert isinstance(self._agent, SupportsResume)
            reason = await self._agent.resume(turn)
        else:
            reason = await self._agent.run(turn)
        if reason not in get_args(StopReason):
            names = ", ".join(get_args(StopReason))
            raise InvalidInput(f"the agent returned {reason!r}; `run` returns one of {names}")
        return reason

    async def _prepare_files(self, turn: Turn) -> None:
        """Make and fill the session's directory.

        Raises NotPermitted if files of an API key could configure the local user's program.
        """
        local = self._port.local
        if missing := await self._workdirs.make_missing(self._port.session):
            await turn.emit(missing)
        session = self._port.session
        if not local:
            await self._workdirs.allow_key(session)
        elif isinstance(self._agent, ReadsDirectorySettings):
            await self._workdirs.check_settings_are_own(session, self._agent.directory_settings)
        if session.resources:
            failures = await self._workdirs.prepare(session, local=local)
            if failures:
                await turn.emit(*failures)

    async def _supervise(self, turn: Turn) -> StopReason | Exception:
        """Wait for the agent, and act on the inbox meanwhile."""
        assert self.agent_task is not None
        task: asyncio.Task[Any] = self.agent_task
        try:
            while not task.done():
                self._wake.clear()
                if not self._abandoned:
                    await self._read_inbox()
                if self._cancelled or self._abandoned:
                    return await self._stop(task)
                await self._wait_for_news(task)
        except BaseException:  # the store is unreachable, or this process stops
            await self._stop(task)
            raise
        try:
            reason: StopReason = task.result()
            await turn.finish()  # its last message can still be stored
            return reason
        except (LeaseLost, NotFound):
            self._abandoned = True
            raise
        except asyncio.CancelledError:
            return "cancelled"
        except Exception as error:
            if not isinstance(error, SegueError):  # clients get the message only
                log.error("the agent of session %s failed", self._port.session.id, exc_info=error)
            return error

    async def _wait_for_news(self, task: asyncio.Task[Any]) -> None:
        """Wait until the agent has stopped or something is to be done meanwhile."""
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait([task, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()

    async def _stop(self, task: asyncio.Task[Any]) -> StopReason:
        if not task.done():
            task.cancel()
            self._port.inbox.withdraw_requests()
            await asyncio.wait([task], timeout=GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn about it
        return "cancelled"

    async def _read_inbox(self) -> None:
        if (cancel := await self._port.inbox.handle_items()) is not None:
            self._cancelled, self._cancel = True, cancel

    async def _end(
        self, turn: Turn, reason: StopReason | Exception, failures: Sequence[Failed]
    ) -> None:
        """Store the agent's last events and the answers so far, and end the turn."""
        unstored = turn.take_unstored()
        failed_request = self._writer.requests.failed(unstored)
        stop, why, ending = self._ending(reason)
        sent, added = await close_requests(self._store, self._port.session)

        def decide(session: Session) -> list[AnyBody | Draft]:
            answers, session = accepted(session, sent)
            closed = end_turn_events(session, why, stop)
            return [*answers, *unstored, *failed_request, *failures, *ending, *closed]

        cancel = [] if self._cancel is None else [self._cancel]
        consumed = [item.number for item in (*self._writer.items, *sent, *added, *cancel)]
        session, _ = await self._writer.change(decide, consume=consumed)
        self._writer.finish_messages()
        if stop == "budget_reached" and not session.at_budget:
            # The budget was raised a moment ago.
            await resume(self._store, self._writer.name)

    def _ending(
        self, reason: StopReason | Exception
    ) -> tuple[StopReason, str, list[AnyBody | Draft]]:
        """Return the turn's stop reason, why its open calls are closed, and the events of that."""
        if isinstance(reason, Exception):
            failure = failed_event(reason)
            # All callers can read tool results.
            return "error", failure.remote_message or failure.message, [failure]
        if reason == "cancelled" and self._interruption is not None:
            return "error", self._interruption, [Interrupted(reason=self._interruption)]
        if reason == "cancelled":
            id = None if self._cancel is None else self._cancel.id
            return reason, "the turn was cancelled", [Draft(id=id, body=Interrupted())]
        if reason == "budget_reached":
            return reason, budget_message(self._port.session), []
        return reason, "the turn ended before this did", []
