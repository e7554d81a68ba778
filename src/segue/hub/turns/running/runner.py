"""Run one turn: the agent as a task, and the answers and cancels that reach it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from itertools import takewhile
from typing import Any, get_args

from msgspec.structs import replace

from segue.agents.base import (
    Agent,
    Answer,
    Keyring,
    PermissionRequest,
    ReadsDirectorySettings,
    SessionPort,
    StreamKind,
    SupportsResume,
    Tools,
    Turn,
)
from segue.agents.base.client import ClientPort
from segue.hub.history.follow import Name
from segue.hub.sessions.directories import OUTPUTS
from segue.hub.turns.attribution import TurnRequests
from segue.hub.turns.budgets import budget_message
from segue.hub.turns.deps import TurnDeps
from segue.hub.turns.end_turn import end_turn_events
from segue.hub.turns.inbox import Prompt, begun_turn, close_requests, resume
from segue.hub.turns.opened import StoreSessionPort
from segue.hub.turns.recovery import accepted
from segue.hub.turns.turn_events import (
    can_continue,
    check_values,
    failed_event,
    first_events,
    marked_by_key,
    marked_local,
    permission_asked,
    status_with_pending,
    with_body,
)
from segue.model import codec, ids
from segue.model.errors import InvalidInput, LeaseLost, NotFound, SegueError
from segue.model.event import (
    AnyBody,
    DeltaKind,
    Draft,
    Drafts,
    Event,
    Failed,
    Interrupted,
    Option,
    OutcomeDefined,
    StatusChanged,
    ToolCall,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, finished_messages

from .delta_writer import DeltaWriter
from .session_threads import SessionThreads
from .turn_inbox import TurnInbox
from .turn_reader import TurnReader

log = logging.getLogger("segue.turns")

# How long an agent may take to clean up after a cancel before its turn ends without it.
GRACE_SECONDS = 0.7
# How long a cancelled turn waits until its files are collected; the next turn waits for the rest.
COLLECT_SECONDS = 0.2
# The permission mode in which every request is allowed.
ALLOW_ALL_MODE = "bypassPermissions"


class TurnRunner:
    """Run one turn: store its events, and deliver answers and cancels to its agent."""

    def __init__(
        self, deps: TurnDeps, lease: Lease, wake: asyncio.Event, agent: Agent, tools: Tools
    ) -> None:
        self._store = deps.store
        self._live = deps.live
        self._services = deps.services
        self._lease = lease
        self._name: Name = (lease.workspace, lease.session)
        self._wake = wake
        self._agent = agent
        self._tools = tools
        self.client: ClientPort | None = None  # of the client that started this turn
        self._session: Session | None = None
        self._local = False
        self._mode: str | None = None  # the permission mode of this turn only
        self._items: list[InboxItem] = []  # the prompts of this turn
        self._roots: tuple[str, ...] | None = None  # of the client that started this turn
        self._first_seq = 0
        self._requests = TurnRequests()
        self._calls: dict[str, ToolCall] = {}
        self._deltas = DeltaWriter(deps.store, deps.live, lease)
        self.reader = TurnReader(deps.store, self._name)
        self.agent_task: asyncio.Task[StopReason] | None = None
        self._cancelled = False
        self._cancel: InboxItem | None = None  # that of a client, in the inbox
        self._interruption: str | None = None
        self._abandoned = False
        self._ended = False
        self._resumes = isinstance(agent, SupportsResume)
        self.threads = SessionThreads(self, deps.store)
        self._inbox = TurnInbox(deps.store, self._name, self, resumes=self._resumes)

    @property
    def is_waiting(self) -> bool:
        """True if the agent waits for nothing but clients, as far as the engine knows."""
        return self._session is not None and bool(self._session.pending)

    def cancel(self, why: str | None = None) -> None:
        """Cancel the turn; with `why`, end it as interrupted for this reason instead."""
        self._cancelled = True
        self._interruption = why
        self._wake.set()

    def abandon(self) -> None:
        """Stop at once and write nothing, because the lease is lost."""
        self._abandoned = True
        self._wake.set()

    # Called by the engine.

    async def run(self, item: InboxItem) -> None:
        """Run the turn of a prompt until it ends.

        Raises Conflict if the prompt was withdrawn or the session has terminated.
        """
        turn_id, prompt = item.id, codec.convert(item.body, Prompt)
        session, events = await self.change(
            lambda current: first_events(current, turn_id, prompt),
            begin=[begun_turn(item, resumable=self._resumes)],
        )
        self._start_from([item], session)
        self._first_seq = next((e.seq for e in events if e.id == turn_id), session.last_seq)
        if not prompt.replay_to_late_stream:
            await self._store.ack(*self._name, self._first_seq)
        outcome = await self.reader.open_outcome(self.session) if prompt.resumes else prompt.outcome
        await self._run_until_it_waits(self._turn(outcome), resumed=False)

    async def resume(self, items: Sequence[InboxItem], session: Session) -> None:
        """Store the answers in the inbox, and continue a stored turn if it can run again."""
        self._start_from(items, session)
        turn_id = items[0].id
        self._first_seq = await self._store.locate(*self._name, turn_id) or session.last_seq
        for call in await self.reader.calls(self._first_seq):
            self._note_call(call)
        turn = self._turn(await self.reader.open_outcome(self.session))
        if await self._runs_again():
            await self._run_until_it_waits(turn, resumed=True)
        elif self._cancel is not None:
            await self._finish(turn, "cancelled")

    async def _runs_again(self) -> bool:
        """Store the answers to a turn that waits for clients; return whether it runs again."""
        await self._read_inbox()
        if self._cancelled or self._abandoned or not can_continue(self.session):
            return False
        # Also if it is running still: what came before this event has been read by the agent.
        await self.append([StatusChanged(status="running", turn=self._items[0].id)])
        return True

    def _start_from(self, items: Sequence[InboxItem], session: Session) -> None:
        prompts = [codec.convert(item.body, Prompt) for item in items]
        self._items, self._session = list(items), session
        self._local = all(prompt.local for prompt in prompts)
        self._mode, self._roots = prompts[0].mode, prompts[0].roots

    def _turn(self, outcome: OutcomeDefined | None) -> Turn:
        prompt: Prompt = codec.convert(self._items[0].body, Prompt)
        system = () if prompt.system is None else prompt.system.content
        turn = Turn(self, prompt.content, self._items[0].id, self._tools, outcome, system)
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
                    if self._cancel is None and self.session.pending:
                        return  # it stays stored, also if this process stops now
                    reason = "cancelled"
                    break
                turn, resumed = self._turn(turn.outcome), True
        finally:
            self._ended = True  # an agent that outlives its turn writes nothing more
            self._inbox.withdraw_requests()
            self._deltas.close()
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

        await self.change(decide)
        self._live.finish_messages(self._name)

    async def _finish(self, turn: Turn, reason: StopReason | Exception) -> None:
        """Collect the turn's files and end the turn. A cancel does not wait long for the files."""
        collecting = asyncio.get_running_loop().create_task(self._collect_files())
        try:
            timeout = COLLECT_SECONDS if reason == "cancelled" else None
            done, _ = await asyncio.wait([collecting], timeout=timeout)
            await self._end(turn, reason, collecting.result() if done else [])
            if not done and (failures := await collecting):
                await self.change(lambda _: failures)
                self._live.finish_messages(self._name)
        finally:
            collecting.cancel()

    async def _collect_files(self) -> list[Failed]:
        """Collect the files that the turn made in the session's directory.

        Returns the failures: the turn ends in any case.
        """
        session = self.session
        has_files = session.resources or os.path.isdir(os.path.join(session.cwd, OUTPUTS))
        try:
            if has_files or not self._local:
                await self._services.workdirs.measure(session)
            if has_files:
                return await self._services.workdirs.collect(session, local=self._local)
        except Exception as error:
            prefix = "the files of the turn could not be collected: "
            return [failed_event(error, prefix=prefix, code="unknown")]
        return []

    async def _run_agent(self, turn: Turn, *, resumed: bool) -> StopReason:
        """Prepare the session's directory and run the agent.

        Raises NotPermitted if files of an API key could configure the local user's program.
        """
        if self.session.at_budget and not resumed:
            return "budget_reached"
        if missing := await self._services.workdirs.make_missing(self.session):
            await turn.emit(missing)
        if not self._local:
            await self._services.workdirs.allow_key(self.session)
        elif isinstance(self._agent, ReadsDirectorySettings):
            program = self._agent.directory_settings
            await self._services.workdirs.check_settings_are_own(self.session, program)
        if self.session.resources:
            failures = await self._services.workdirs.prepare(self.session, local=self._local)
            if failures:
                await turn.emit(*failures)
        if resumed:
            assert isinstance(self._agent, SupportsResume)
            reason = await self._agent.resume(turn)
        else:
            reason = await self._agent.run(turn)
        if reason not in get_args(StopReason):
            names = ", ".join(get_args(StopReason))
            raise InvalidInput(f"the agent returned {reason!r}; `run` returns one of {names}")
        return reason

    async def _supervise(self, turn: Turn) -> StopReason | Exception:
        """Wait for the agent, and act on the inbox meanwhile."""
        assert self.agent_task is not None
        task: asyncio.Task[Any] = self.agent_task
        while True:
            self._wake.clear()
            if not self._abandoned:
                await self._read_inbox()
            if self._cancelled or self._abandoned:
                return await self._stop(task)
            woken = asyncio.ensure_future(self._wake.wait())
            try:
                await asyncio.wait([task, woken], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self._stop(task)
                raise
            finally:
                woken.cancel()
            if task.done():
                break
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
                log.error("the agent of session %s failed", self.session.id, exc_info=error)
            return error

    async def _stop(self, task: asyncio.Task[Any]) -> StopReason:
        if not task.done():
            task.cancel()
            self._inbox.withdraw_requests()
            await asyncio.wait([task], timeout=GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn about it
        return "cancelled"

    async def _read_inbox(self) -> None:
        if (cancel := await self._inbox.handle_items()) is not None:
            self._cancelled, self._cancel = True, cancel

    async def _end(
        self, turn: Turn, reason: StopReason | Exception, failures: Sequence[Failed]
    ) -> None:
        unstored = turn.take_unstored()
        tail: list[AnyBody | Draft] = [*unstored, *self._requests.failed(unstored), *failures]
        stop: StopReason = "error" if isinstance(reason, Exception) else reason
        why = "the turn ended before this did"
        if isinstance(reason, Exception):
            failure = failed_event(reason)
            tail.append(failure)
            why = failure.remote_message or failure.message  # all callers can read tool results
        elif stop == "cancelled" and self._interruption is not None:
            stop, why = "error", self._interruption
            tail.append(Interrupted(reason=why))
        elif stop == "cancelled":
            why = "the turn was cancelled"
            id = None if self._cancel is None else self._cancel.id
            tail.append(Draft(id=id, body=Interrupted()))
        elif stop == "budget_reached":
            why = budget_message(self.session)

        sent, added = await close_requests(self._store, self.session)

        def decide(session: Session) -> list[AnyBody | Draft]:
            answers, session = accepted(session, sent)
            return [*answers, *tail, *end_turn_events(session, why, stop)]

        consumed = [*self._items, *sent, *added, *([] if self._cancel is None else [self._cancel])]
        session, _ = await self.change(decide, consume=[item.number for item in consumed])
        self._live.finish_messages(self._name)
        if stop == "budget_reached" and not session.at_budget:
            # The budget was raised a moment ago.
            await resume(self._store, self._name)

    # Called by the Turn.

    @property
    def session(self) -> Session:
        assert self._session is not None  # a Turn has begun
        session = self._with_own_settings(self._session)
        if self._roots is not None and self._roots != session.roots:
            session = replace(session, roots=self._roots)
        return session if self._mode is None else replace(session, mode=self._mode)

    def _with_own_settings(self, session: Session) -> Session:
        """Return the session without what API keys have set, if the turn is the local user's."""
        return session.for_local_turn() if self._local else session

    @property
    def local(self) -> bool:
        return self._local

    def keyring(self, *, private: bool) -> Keyring:
        credentials = self._services.credentials
        return credentials.keyring(self.session, private=private, local=self._local)

    async def outputs(self) -> str | None:
        return await self._services.workdirs.outputs_directory(self.session)

    def mounts(self) -> tuple[str, ...]:
        return self._services.workdirs.mount_paths(self.session)

    def private_directories(self) -> tuple[str, ...]:
        return self._services.workdirs.private_directories

    async def read_only_directories(self) -> tuple[str, ...]:
        return await self._services.workdirs.read_only_directories(self.session)

    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]:
        if not drafts:
            return []
        check_values(drafts)
        if messages := self._requests.message_ids(drafts):
            self._check()
            await self._deltas.drop(messages)
        return await self.append_decided(lambda _: drafts)

    async def append_decided(self, decide: Callable[[Session], Drafts]) -> list[Event]:
        """Store the events that are decided on the current row."""
        self._check()
        mark = marked_local if self._local else marked_by_key
        _, events = await self._change_open_turn(
            lambda session: [with_body(draft, mark) for draft in decide(session)]
        )
        for event in events:
            if isinstance(event.body, ToolCall):
                self._note_call(event.body)
        self._live.finish_messages(self._name, finished_messages(events))
        return events

    async def begin_request(self, model: str | None) -> str:
        self._check()
        await self.append(self._requests.failed())
        request = self._requests.begin(model)
        await self._deltas.publish_request(request)
        return request.id

    def _note_call(self, call: ToolCall) -> None:
        self._calls[call.call_id] = call
        self._inbox.note_call(call)

    async def change(
        self,
        decide: Callable[[Session], Drafts],
        consume: Sequence[int] = (),
        begin: Sequence[InboxItem] = (),
    ) -> tuple[Session, list[Event]]:
        """Append events of this turn under its lease."""
        turn_id = self._items[0].id if self._items else begin[0].id

        def drafts(session: Session) -> list[Draft]:
            return self._requests.attribute(decide(session), turn_id)

        session, events = await self._store.change(
            *self._name, drafts, lease=self._lease, consume=consume, begin=begin
        )
        self._requests.add(events)
        # The agent and the inbox change the session at the same time.
        if self._session is None or session.last_seq >= self._session.last_seq:
            self._session = session
        return session, events

    async def _change_open_turn(
        self, decide: Callable[[Session], Drafts]
    ) -> tuple[Session, list[Event]]:
        """Append events, unless the turn has ended.

        The store may still run a change whose caller was cancelled, after the end of the turn.
        """

        def decide_on_open_turn(session: Session) -> Drafts:
            if session.turn != self.turn_id:
                raise self._turn_ended()
            return decide(session)

        return await self.change(decide_on_open_turn)

    def _turn_ended(self) -> LeaseLost:
        return LeaseLost("this turn has ended", session=self._lease.session)

    def _check(self) -> None:
        if self._ended or self._abandoned:
            raise self._turn_ended()

    async def history(self, *, since_compaction: bool) -> list[Event]:
        return await self.reader.history(self._first_seq, since_compaction=since_compaction)

    async def events(self) -> list[Event]:
        return await self.reader.events_from(self._first_seq)

    async def request_permission(self, request: PermissionRequest) -> Answer:
        self._check()
        if (allow := await self.allowed_by_mode(request.options)) is not None:
            return allow
        ask_id = ids.new_id()
        future = self._inbox.expect_answer(ask_id, request.options)
        asked = self.asked(request, ask_id)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [asked, status_with_pending(session, (*session.pending, ask_id))]

        await self._change_open_turn(decide)
        return await future

    async def allowed_by_mode(self, options: Sequence[Option]) -> Answer | None:
        """Return the answer that the session's mode gives; it may have changed since the start."""
        current = await self._store.get(*self._name)
        mode = None if current is None else self._with_own_settings(current).mode
        if (self._mode or mode) != ALLOW_ALL_MODE:
            return None
        # Nothing is stored: the tool call shows what was done.
        allow = next((option for option in options if option.kind.startswith("allow")), None)
        return None if allow is None else Answer(option=allow)

    async def ask(self, requests: Sequence[PermissionRequest]) -> list[Answer | None]:
        self._check()
        answers = [await self.allowed_by_mode(request.options) for request in requests]
        pairs = zip(requests, answers, strict=True)
        await self.append([self.asked(asked, ids.new_id()) for asked, a in pairs if a is None])
        return answers

    def asked(self, request: PermissionRequest, id: str) -> Draft:
        call = self._calls.get(request.call_id or "")
        return Draft(id=id, body=permission_asked(request, id, call, local=self._local))

    async def result(self, call_id: str) -> list[Event]:
        self._check()
        future = self._inbox.expect_result(call_id)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [status_with_pending(session, (*session.pending, call_id))]

        await self._change_open_turn(decide)
        self._wake.set()  # the result may be in the inbox already
        return await future

    async def take_new_prompts(self) -> list[Event]:
        self._check()
        items = [item for item in await self._store.inbox(*self._name) if item.kind == "prompt"]
        items = list(takewhile(self._joins, items))
        if not items:
            return []
        prompts = [codec.convert(item.body, Prompt) for item in items]
        pairs = zip(items, prompts, strict=True)
        drafts = [draft for item, prompt in pairs for draft in prompt.drafts(item.id)]
        _, events = await self.change(
            lambda _: drafts,
            begin=[begun_turn(item, resumable=self._resumes) for item in items],
        )
        self._items += items
        if self._local and not all(prompt.local for prompt in prompts):
            self._local = False
            await self._services.workdirs.allow_key(self.session)
        return events

    def _joins(self, item: InboxItem) -> bool:
        """Return whether a prompt can join this turn: if the same client sent it here.

        An outcome is a turn of its own, and the prompts after it wait for it.
        """
        first = self._items[0]
        same_client = item.body.get("opened") == first.body.get("opened")
        return item.holder == first.holder and same_client and not item.body.get("outcome")

    def publish_delta(self, message: str, kind: StreamKind, offset: int, text: str) -> None:
        self._check()
        self._deltas.publish(message, kind, offset, text)

    # Called by threads.

    @property
    def thread(self) -> str | None:
        return None

    @property
    def turn_id(self) -> str:
        return self._items[0].id

    def next_answer(self) -> Coroutine[Any, Any, object]:
        return self._inbox.next_answer()

    def publish_thread_delta(
        self, thread: str, message: str, kind: DeltaKind, offset: int, text: str
    ) -> None:
        """Show a delta of a thread in this process; other processes get the stored message."""
        self._check()
        self._live.add_delta(self._name, message, kind, offset, text, thread)

    def publish(self, payload: Any) -> None:
        self._check()
        self._deltas.publish_update(payload, self._items[0].id, self.session.last_seq)

    @property
    def session_port(self) -> SessionPort:
        return StoreSessionPort(self._store, self._live, self._name)
