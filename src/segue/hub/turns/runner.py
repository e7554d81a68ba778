"""Run one turn: the agent as a task, and the answers and cancels that reach it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from segue.agents.base import (
    Agent,
    Answer,
    Keyring,
    ReadsDirectorySettings,
    StreamKind,
    Tools,
    Turn,
)
from segue.hub.history.follow import LiveUpdates, Name
from segue.hub.sessions.directories import OUTPUTS
from segue.hub.turns.end_turn import end_turn_events, failed_request
from segue.model import codec, ids
from segue.model.errors import LeaseLost, NotFound, SegueError
from segue.model.event import (
    AnyBody,
    Delta,
    Draft,
    Drafts,
    Event,
    Failed,
    Interrupted,
    ModelAsked,
    ModelCalled,
    Option,
    OutcomeDefined,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.model.tools.titles import request_title_of
from segue.store.base import InboxItem, Lease, Store

from .attribution import OpenRequest, attribute, open_request
from .budgets import budget_message
from .inbox import RESUME, Prompt, Result
from .turn_events import (
    failed_event,
    first_events,
    join_deltas,
    last_compaction,
    marked_by_key,
    marked_local,
    status_with_pending,
    with_body,
)

if TYPE_CHECKING:
    from segue.agents.registry import AgentRegistry
    from segue.hub.resources.credentials import Credentials
    from segue.hub.workdir.prepare import WorkDirectories

FLUSH_SECONDS = 0.05
# How long an agent may take to clean up after a cancel before its turn ends without it.
GRACE_SECONDS = 0.7
# How long a cancelled turn waits until its files are collected; the next turn waits for the rest.
COLLECT_SECONDS = 0.2
EVENTS_PER_READ = 500
# The permission mode in which every request is allowed.
ALLOW_ALL_MODE = "bypassPermissions"


class BuildAgent(Protocol):
    """Build the agent of a turn; `local` says that the local user starts it."""

    def __call__(
        self, session: Session, overrides: dict[str, Any], lease: Lease, *, local: bool
    ) -> Awaitable[Agent]: ...


class TurnServices(Protocol):
    """The services that a turn uses, each built by the first turn that needs it."""

    @property
    def workdirs(self) -> WorkDirectories: ...
    @property
    def credentials(self) -> Credentials: ...
    @property
    def agent_registry(self) -> AgentRegistry: ...


class TurnDeps(NamedTuple):
    """What all turns of a process use."""

    store: Store
    live: LiveUpdates
    build_agent: BuildAgent
    services: TurnServices


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
        self._session: Session | None = None
        self._local = False
        self._mode: str | None = None  # the permission mode of this turn only
        self._turn_id: str | None = None
        self._first_seq = 0
        self._asks: dict[str, tuple[Sequence[Option], asyncio.Future[Answer]]] = {}
        self._results: dict[str, asyncio.Future[list[Event]]] = {}
        self._local_calls: set[str] = set()  # custom tools whose results only the local user sends
        self._request: OpenRequest | None = None  # the model request that is running
        self._calls: dict[str, ToolCall] = {}
        self._unflushed: list[Delta] = []
        self._flushing = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None
        self.agent_task: asyncio.Task[StopReason] | None = None
        self._cancelled = False
        self._cancel_id: str | None = None
        self._interruption: str | None = None
        self._abandoned = False
        self._ended = False

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

    async def run(self, number: int, turn_id: str, body: dict[str, Any]) -> None:
        """Run the turn of an inbox item until it ends.

        Raises Conflict if the item was withdrawn or the session has terminated.
        """
        prompt: Prompt = codec.convert(body, Prompt)
        self._turn_id = turn_id
        session, events = await self._change(
            lambda current: first_events(current, turn_id, prompt), consume=[number]
        )
        self._session, self._local, self._mode = session, prompt.local, prompt.mode
        self._first_seq = next((e.seq for e in events if e.id == turn_id), session.last_seq)
        if not prompt.replay_to_late_stream:
            await self._store.ack(*self._name, self._first_seq)
        system = () if prompt.system is None else prompt.system.content
        outcome = await self._open_outcome() if prompt.resumes else prompt.outcome
        turn = Turn(self, prompt.content, turn_id, self._tools, outcome, system)
        self.agent_task = asyncio.get_running_loop().create_task(self._run_agent(turn))
        try:
            reason = await self._supervise(turn)
        finally:
            self._ended = True  # an agent that outlives its turn writes nothing more
            self._withdraw_requests()
            if self._flusher is not None:
                self._flusher.cancel()
        if not self._abandoned:
            await self._finish(turn, reason)

    async def _open_outcome(self) -> OutcomeDefined | None:
        """Return the outcome that is not completed yet, if there is one."""
        open_ids = [
            outcome.outcome_id for outcome in self.session.outcomes if outcome.completed_at is None
        ]
        if not open_ids:
            return None
        types = ("outcome_defined",)
        for event in await self._store.events(
            *self._name, types=types, limit=EVENTS_PER_READ, backward=True
        ):
            if isinstance(event.body, OutcomeDefined) and event.body.outcome_id in open_ids:
                return event.body
        return None

    async def _finish(self, turn: Turn, reason: StopReason | Exception) -> None:
        """Collect the turn's files and end the turn. A cancel does not wait long for the files."""
        collecting = asyncio.get_running_loop().create_task(self._collect_files())
        try:
            timeout = COLLECT_SECONDS if reason == "cancelled" else None
            done, _ = await asyncio.wait([collecting], timeout=timeout)
            await self._end(turn, reason, collecting.result() if done else [])
            if not done and (failures := await collecting):
                await self._change(lambda _: failures)
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

    async def _run_agent(self, turn: Turn) -> StopReason:
        """Prepare the session's directory and run the agent.

        Raises NotPermitted if files of an API key could configure the local user's program.
        """
        if self.session.at_budget:
            return "budget_reached"
        if not self._local:
            await self._services.workdirs.allow_key(self.session)
        elif isinstance(self._agent, ReadsDirectorySettings):
            program = self._agent.directory_settings
            await self._services.workdirs.check_no_key_wrote(self.session, program)
        if self.session.resources:
            failures = await self._services.workdirs.prepare(self.session, local=self._local)
            if failures:
                await turn.emit(*failures)
        return await self._agent.run(turn)

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
            return error

    async def _stop(self, task: asyncio.Task[Any]) -> StopReason:
        if not task.done():
            task.cancel()
            self._withdraw_requests()
            await asyncio.wait([task], timeout=GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn about it
        return "cancelled"

    def _withdraw_requests(self) -> None:
        """Withdraw the open permission requests, also those that child processes wait for."""
        for _, future in self._asks.values():
            if not future.done():
                future.set_result(Answer())
        self._asks.clear()

    async def _read_inbox(self) -> None:
        """Act on cancels, answers and tool results. Prompts wait for their own turns."""
        items = await self._store.inbox(*self._name)
        cancel = next((item for item in reversed(items) if item.kind == "cancel"), None)
        if cancel is not None:
            # A cancel also drops the prompts that were queued when it was sent.
            dropped = [item.number for item in items if item.number <= cancel.number]
            await self._store.drop_inbox(*self._name, dropped)
            self._cancelled, self._cancel_id = True, cancel.id
            return
        for item in items:
            if item.kind == "answer":
                await self._deliver_answer(item)
            elif item.kind == "result":
                await self._deliver_result(item)

    async def _deliver_answer(self, item: InboxItem) -> None:
        ask_id, chosen = item.body.get("ask_id", ""), item.body.get("option")
        options, future = self._asks.get(ask_id, ((), None))
        option = next((option for option in options if option.id == chosen), None)
        refused = self._local and not item.body.get("local")
        if future is None or future.done() or refused or (chosen is not None and option is None):
            await self._store.drop_inbox(*self._name, [item.number])
            return
        note, new_input = item.body.get("note"), item.body.get("input")

        def decide(session: Session) -> list[AnyBody | Draft]:
            pending = tuple(id for id in session.pending if id != ask_id)
            body = PermissionAnswered(ask_id=ask_id, option=chosen, note=note, input=new_input)
            return [Draft(id=item.id, body=body), status_with_pending(session, pending)]

        self._session, _ = await self._change(decide, consume=[item.number])
        del self._asks[ask_id]
        future.set_result(Answer(option=option, note=note, input=new_input))

    async def _deliver_result(self, item: InboxItem) -> None:
        submitted: Result = codec.convert(item.body, Result)
        call_id = submitted.result.call_id
        future = self._results.get(call_id)
        if call_id in self._local_calls and not submitted.local:
            await self._store.drop_inbox(*self._name, [item.number])
            return
        if future is None or future.done():
            if call_id not in self.session.open_calls:
                await self._store.drop_inbox(*self._name, [item.number])
            return  # the agent will wait for the result in a moment

        def decide(session: Session) -> list[AnyBody | Draft]:
            pending = tuple(id for id in session.pending if id != call_id)
            return [*submitted.drafts(item.id), status_with_pending(session, pending)]

        self._session, events = await self._change(decide, consume=[item.number])
        del self._results[call_id]
        future.set_result([e for e in events if not isinstance(e.body, StatusChanged)])

    async def _end(
        self, turn: Turn, reason: StopReason | Exception, failures: Sequence[Failed]
    ) -> None:
        unstored = turn.take_unstored()
        has_ended = any(isinstance(draft.body, ModelCalled) for draft in unstored)
        request_end = [] if has_ended else failed_request(self._request)
        tail: list[AnyBody | Draft] = [*unstored, *request_end, *failures]
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
            tail.append(Draft(id=self._cancel_id, body=Interrupted()))
        elif stop == "budget_reached":
            why = budget_message(self.session)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [*tail, *end_turn_events(session, why, stop)]

        session, _ = await self._change(decide)
        self._live.finish_messages(self._name)
        if stop == "budget_reached" and not session.at_budget:
            # The budget was raised a moment ago.
            await resume(self._store, self._name)

    # Called by the Turn.

    @property
    def session(self) -> Session:
        assert self._session is not None  # a Turn has begun
        session = self._with_own_settings(self._session)
        return session if self._mode is None else replace(session, mode=self._mode)

    def _with_own_settings(self, session: Session) -> Session:
        """Return the session without what API keys have set, if the turn is the local user's."""
        return session.for_local_turn() if self._local else session

    @property
    def local(self) -> bool:
        return self._local

    def keyring(self, *, private: bool) -> Keyring:
        return self._services.credentials.keyring(self.session, private=private)

    async def outputs(self) -> str | None:
        return await self._services.workdirs.outputs_directory(self.session)

    def mounts(self) -> tuple[str, ...]:
        return self._services.workdirs.mount_paths(self.session)

    def private_directories(self) -> tuple[str, ...]:
        return self._services.workdirs.private_directories

    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]:
        if not drafts:
            return []
        self._check()
        if messages := {draft.id for draft in drafts if isinstance(draft, Draft)}:
            await self._drop_deltas(messages)
        mark = marked_local if self._local else marked_by_key
        drafts = [with_body(draft, mark) for draft in drafts]
        self._session, events = await self._change(lambda _: drafts)
        for event in events:
            if isinstance(event.body, ModelAsked | ModelCalled):
                self._request = open_request(event)
            elif isinstance(event.body, ToolCall):
                self._calls[event.body.call_id] = event.body
                if event.body.local:
                    self._local_calls.add(event.body.call_id)
        self._live.finish_messages(self._name, [event.id for event in events])
        return events

    async def _change(
        self, decide: Callable[[Session], Drafts], consume: Sequence[int] = ()
    ) -> tuple[Session, list[Event]]:
        """Append events of this turn under its lease."""

        def drafts(session: Session) -> list[AnyBody | Draft]:
            request = self._request
            return [attribute(draft, self._turn_id, request) for draft in decide(session)]

        return await self._store.change(*self._name, drafts, lease=self._lease, consume=consume)

    def _check(self) -> None:
        if self._ended or self._abandoned:
            raise LeaseLost("this turn has ended", session=self._lease.session)

    async def history(self, *, since_compaction: bool) -> list[Event]:
        pages: list[list[Event]] = []  # the newest page first
        while True:
            before = pages[-1][0].seq if pages else self._first_seq
            page = await self._store.events(
                *self._name, before=before, limit=EVENTS_PER_READ, backward=True
            )
            start = last_compaction(page) if since_compaction else None
            pages.append(page[start:])
            if start is not None or len(page) < EVENTS_PER_READ:
                return [
                    event
                    for page in reversed(pages)
                    for event in page
                    if not event.body.is_off_branch
                ]

    async def request_permission(
        self, title: str, options: Sequence[Option], call_id: str | None
    ) -> Answer:
        self._check()
        # The mode may have changed since the turn began.
        current = await self._store.get(*self._name)
        mode = None if current is None else self._with_own_settings(current).mode
        if (self._mode or mode) == ALLOW_ALL_MODE:
            # Nothing is stored: the tool call shows what was done.
            allow = next((option for option in options if option.kind.startswith("allow")), None)
            if allow is not None:
                return Answer(option=allow)
        call = self._calls.get(call_id or "")
        own_title = None if call is not None and request_title_of(call) == title else title
        ask_id = ids.new_id()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asks[ask_id] = (options, future)
        request = PermissionAsked(
            ask_id=ask_id,
            title=own_title,
            options=tuple(options),
            call_id=call_id,
            local=self._local,
        )

        def decide(session: Session) -> list[AnyBody | Draft]:
            pending = (*session.pending, ask_id)
            return [Draft(id=ask_id, body=request), status_with_pending(session, pending)]

        await self._change(decide)
        return await future

    async def result(self, call_id: str) -> list[Event]:
        self._check()
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._results[call_id] = future

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [status_with_pending(session, (*session.pending, call_id))]

        self._session, _ = await self._change(decide)
        self._wake.set()  # the result may be in the inbox already
        return await future

    async def take_new_prompts(self) -> list[Event]:
        self._check()
        items = [item for item in await self._store.inbox(*self._name) if item.kind == "prompt"]
        # An outcome is a turn of its own, and the prompts after it wait for it.
        items = list(takewhile(lambda item: not item.body.get("outcome"), items))
        if not items:
            return []
        prompts = [codec.convert(item.body, Prompt) for item in items]
        pairs = zip(items, prompts, strict=True)
        drafts = [draft for item, prompt in pairs for draft in prompt.drafts(item.id)]
        self._session, events = await self._change(
            lambda _: drafts, consume=[item.number for item in items]
        )
        if self._local and not all(prompt.local for prompt in prompts):
            self._local = False
            await self._services.workdirs.allow_key(self.session)
        return events

    def publish_delta(self, message: str, kind: StreamKind, offset: int, text: str) -> None:
        self._check()
        self._live.add_delta(self._name, message, kind, text)
        self._unflushed.append(
            Delta(
                session=self._lease.session,
                message=message,
                kind=kind,
                offset=offset,
                text=text,
            )
        )
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Store the deltas for other processes, a few times a second."""
        await asyncio.sleep(FLUSH_SECONDS)
        while self._unflushed:
            deltas, self._unflushed = self._unflushed, []
            try:
                async with self._flushing:
                    await self._store.put_deltas(self._lease, join_deltas(deltas))
            except SegueError:
                return  # a lost delta does no harm: the message itself will be stored
            await asyncio.sleep(FLUSH_SECONDS)

    async def _drop_deltas(self, messages: set[str | None]) -> None:
        """Drop the deltas of messages that are about to be stored, so that none is shown later."""
        self._unflushed = [delta for delta in self._unflushed if delta.message not in messages]
        async with self._flushing:
            return


async def resume(store: Store, name: Name) -> None:
    """Queue a prompt that resumes the turn which a budget stopped, in any process."""
    await store.put_inbox(*name, "prompt", ids.new_id(), msgspec.to_builtins(RESUME))
