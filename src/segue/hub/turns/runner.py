"""One turn at work: the agent as a task, and what reaches it from outside."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from segue.agents.base import Agent, Answer, Keyring, StreamKind, Tools, Turn, streamed_draft
from segue.hub.history.follow import LiveUpdates, Name
from segue.hub.sessions.directories import OUTPUTS
from segue.hub.sessions.titles import title_from_prompt
from segue.hub.turns.end_turn import end_turn_events
from segue.model import codec, ids
from segue.model.errors import Conflict, LeaseLost, NotFound, SegueError
from segue.model.event import (
    AnyBody,
    Compacted,
    Delta,
    Draft,
    Event,
    Failed,
    InfoChanged,
    Interrupted,
    ModelAsked,
    ModelCalled,
    Option,
    OutcomeDefined,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    Usage,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, Store

from .budgets import reached
from .inbox import RESUME, Prompt, Result

if TYPE_CHECKING:
    from segue.hub.resources.credentials import Credentials
    from segue.hub.workdir.prepare import WorkDirectories

FLUSH_SECONDS = 0.05
# How long an agent may take to clean up after a cancel before its turn ends without it.
GRACE_SECONDS = 0.7
# How long a cancelled turn waits for what it made to be kept; the next turn waits for all of it.
LEAVE_SECONDS = 0.2
# How many events are read at once.
PAGE = 500
# The mode in which whatever an agent asks for is allowed.
UNASKED = "bypassPermissions"


def partials(deltas: Iterable[Delta]) -> list[Draft]:
    """Messages that were cut off, from the pieces that had arrived."""
    found: dict[str, tuple[str, str]] = {}
    for delta in deltas:
        kind, text = found.get(delta.message, (delta.kind, ""))
        if delta.offset == len(text):
            found[delta.message] = (kind, text + delta.text)
    return [
        streamed_draft(id, "thought" if kind == "thought" else "message", text, partial=True)
        for id, (kind, text) in found.items()
    ]


def unanswered(request: str | None) -> list[AnyBody]:
    """The end of a request to a model that will not come, if there was one under way."""
    return [] if request is None else [ModelCalled(usage=Usage(), asked=request, is_error=True)]


BuildAgent = Callable[[Session, dict[str, Any], Lease], Awaitable[Agent]]


class TurnServices(Protocol):
    """What a turn finds around it, imported by the turn that needs it."""

    @property
    def workdirs(self) -> WorkDirectories: ...
    @property
    def credentials(self) -> Credentials: ...


class TurnDeps(NamedTuple):
    """What all turns of a process work with."""

    store: Store
    live: LiveUpdates
    build_agent: BuildAgent
    services: TurnServices


class Running:
    """The port of one Turn: stores its events, and brings it answers and cancels."""

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
        self._mode: str | None = None  # of this turn alone
        self._first = 0
        self._asks: dict[str, tuple[Sequence[Option], asyncio.Future[Answer]]] = {}
        self._results: dict[str, asyncio.Future[list[Event]]] = {}
        self._request: str | None = None  # to a model, begun and not ended
        self._unflushed: list[Delta] = []
        self._flushing = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None
        self._task: asyncio.Task[StopReason] | None = None
        self._cancelled = False
        self._cancel_id: str | None = None
        self._cut_off: str | None = None
        self._abandoned = False
        self._over = False

    def cancel(self, why: str | None = None) -> None:
        """End the turn: as somebody wished or, with `why`, because it is cut off."""
        self._cancelled = True
        self._cut_off = why
        self._wake.set()

    def abandon(self) -> None:
        """The lease is lost: stop at once and write nothing."""
        self._abandoned = True
        self._wake.set()

    # The engine's side.

    async def run(self, number: int, turn_id: str, body: dict[str, Any]) -> None:
        prompt: Prompt = codec.convert(body, Prompt)
        session, events = await self._store.change(
            *self._name,
            lambda current: _begin(current, turn_id, prompt),
            lease=self._lease,
            consume=[number],
        )
        self._session, self._local, self._mode = session, prompt.local, prompt.mode
        self._first = next((e.seq for e in events if e.id == turn_id), session.last_seq)
        if not prompt.replay_to_late_stream:
            await self._store.ack(*self._name, self._first)
        system = () if prompt.system is None else prompt.system.content
        outcome = await self._unsettled() if prompt.resumes else prompt.outcome
        turn = Turn(self, prompt.content, turn_id, self._tools, outcome, system)
        self._task = asyncio.get_running_loop().create_task(self._answer_in_room(turn))
        try:
            reason = await self._supervise(turn)
        finally:
            self._over = True  # an agent that outlives its turn writes nothing more
            self._withdraw()
            if self._flusher is not None:
                self._flusher.cancel()
        if not self._abandoned:
            await self._end_and_leave(turn, reason)

    async def _unsettled(self) -> OutcomeDefined | None:
        """The outcome that is still to be reached, if there is one."""
        wanted = [each.outcome_id for each in self.session.outcomes if each.completed_at is None]
        if not wanted:
            return None
        kinds = ("outcome_defined",)
        for event in await self._store.events(*self._name, types=kinds, limit=PAGE, backward=True):
            if isinstance(event.body, OutcomeDefined) and event.body.outcome_id in wanted:
                return event.body
        return None

    async def _end_and_leave(self, turn: Turn, reason: StopReason | Exception) -> None:
        """End the turn with what it made kept. A cancel does not wait long for that."""
        leaving = asyncio.get_running_loop().create_task(self._leave())
        try:
            timeout = LEAVE_SECONDS if reason == "cancelled" else None
            done, _ = await asyncio.wait([leaving], timeout=timeout)
            await self._end(turn, reason, leaving.result() if done else [])
            if not done and (wrong := await leaving):
                await self._store.change(*self._name, lambda _: wrong, lease=self._lease)
                self._live.finish_messages(self._name)
        finally:
            leaving.cancel()

    async def _leave(self) -> list[Failed]:
        """Have what the turn made in the session's directory kept; most make nothing there.

        What goes wrong is told: a turn ends, whatever is found there.
        """
        session = self.session
        try:
            if session.resources or os.path.isdir(os.path.join(session.cwd, OUTPUTS)):
                return await self._services.workdirs.collect(session)
        except Exception as error:
            return [Failed(message=f"what the turn made could not be kept: {_describe(error)}")]
        return []

    async def _answer_in_room(self, turn: Turn) -> StopReason:
        """The agent's answer, once the session's directory is as it should be."""
        if self.session.at_budget:
            return "budget_reached"
        if self.session.resources and (
            wrong := await self._services.workdirs.prepare(self.session)
        ):
            await turn.emit(*wrong)
        return await self._agent.run(turn)

    async def _supervise(self, turn: Turn) -> StopReason | Exception:
        """Wait for the agent, handing on what comes in meanwhile."""
        assert self._task is not None
        task: asyncio.Task[Any] = self._task
        while True:
            self._wake.clear()
            if not self._abandoned:
                await self._hear()
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
            await turn.finish()  # while its last message may still be written
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
            self._withdraw()
            await asyncio.wait([task], timeout=GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # heard, so that nobody warns that it was not
        return "cancelled"

    def _withdraw(self) -> None:
        """Let go of those who wait for an answer beside the agent, as a child's requests do."""
        for _, future in self._asks.values():
            if not future.done():
                future.set_result(Answer())
        self._asks.clear()

    async def _hear(self) -> None:
        """Act on the inbox: cancels and answers now, prompts when their turn comes."""
        items = await self._store.inbox(*self._name)
        cancel = next((item for item in reversed(items) if item.kind == "cancel"), None)
        if cancel is not None:
            # A cancel takes with it the prompts that were waiting when it was sent.
            dropped = [item.number for item in items if item.number <= cancel.number]
            await self._store.drop_inbox(*self._name, dropped)
            self._cancelled, self._cancel_id = True, cancel.id
            return
        for item in items:
            if item.kind == "answer":
                await self._answer(item)
            elif item.kind == "result":
                await self._result(item)

    async def _answer(self, item: InboxItem) -> None:
        ask_id, chosen = item.body.get("ask_id", ""), item.body.get("option")
        options, future = self._asks.get(ask_id, ((), None))
        option = next((option for option in options if option.id == chosen), None)
        if future is None or future.done() or (chosen is not None and option is None):
            await self._store.drop_inbox(*self._name, [item.number])
            return
        note, given = item.body.get("note"), item.body.get("input")

        def decide(session: Session) -> list[AnyBody | Draft]:
            left = tuple(pending for pending in session.pending if pending != ask_id)
            body = PermissionAnswered(ask_id=ask_id, option=chosen, note=note, input=given)
            return [Draft(id=item.id, body=body), _waiting(session, left)]

        self._session, _ = await self._store.change(
            *self._name, decide, lease=self._lease, consume=[item.number]
        )
        del self._asks[ask_id]
        future.set_result(Answer(option=option, note=note, input=given))

    async def _result(self, item: InboxItem) -> None:
        given: Result = codec.convert(item.body, Result)
        call_id = given.result.call_id
        future = self._results.get(call_id)
        if future is None or future.done():
            if call_id not in self.session.open_calls:
                await self._store.drop_inbox(*self._name, [item.number])
            return  # the agent has called, and is about to wait for it

        def decide(session: Session) -> list[AnyBody | Draft]:
            left = tuple(pending for pending in session.pending if pending != call_id)
            return [*given.drafts(item.id), _waiting(session, left)]

        self._session, events = await self._store.change(
            *self._name, decide, lease=self._lease, consume=[item.number]
        )
        del self._results[call_id]
        future.set_result([e for e in events if not isinstance(e.body, StatusChanged)])

    async def _end(
        self, turn: Turn, reason: StopReason | Exception, wrong: Sequence[Failed]
    ) -> None:
        cut = turn.take_unstored()
        if any(isinstance(draft.body, ModelCalled) for draft in cut):
            self._request = None
        tail: list[AnyBody | Draft] = [*cut, *unanswered(self._request), *wrong]
        stop: StopReason = "error" if isinstance(reason, Exception) else reason
        why = "the turn ended before this did"
        if isinstance(reason, Exception):
            why = _describe(reason)
            tail.append(Failed(message=why, code=type(reason).__name__))
        elif stop == "cancelled" and self._cut_off is not None:
            stop, why = "error", self._cut_off
            tail.append(Interrupted(reason=why))
        elif stop == "cancelled":
            why = "the turn was cancelled"
            tail.append(Draft(id=self._cancel_id, body=Interrupted()))
        elif stop == "budget_reached":
            why = reached(self.session)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [*tail, *end_turn_events(session, why, stop)]

        session, _ = await self._store.change(*self._name, decide, lease=self._lease)
        self._live.finish_messages(self._name)
        if stop == "budget_reached" and not session.at_budget:  # it was changed just before
            await resume(self._store, self._name)

    # The Turn's side.

    @property
    def session(self) -> Session:
        assert self._session is not None  # a Turn has begun
        if self._mode is None:
            return self._session
        return msgspec.structs.replace(self._session, mode=self._mode)

    @property
    def local(self) -> bool:
        return self._local

    def keyring(self, *, private: bool) -> Keyring:
        return self._services.credentials.keyring(self.session, private=private)

    async def outputs(self) -> str | None:
        return await self._services.workdirs.outputs_directory(self.session)

    def mounts(self) -> tuple[str, ...]:
        return self._services.workdirs.mount_paths(self.session)

    async def append(self, drafts: Sequence[AnyBody | Draft]) -> list[Event]:
        if not drafts:
            return []
        self._check()
        if messages := {draft.id for draft in drafts if isinstance(draft, Draft)}:
            await self._overtake(messages)
        session, events = await self._store.change(*self._name, lambda _: drafts, lease=self._lease)
        self._session = session
        for event in events:
            if isinstance(event.body, ModelAsked):
                self._request = event.id
            elif isinstance(event.body, ModelCalled):
                self._request = None
        self._live.finish_messages(self._name, [event.id for event in events])
        return events

    def _check(self) -> None:
        if self._over or self._abandoned:
            raise LeaseLost("this turn has ended", session=self._lease.session)

    async def history(self, *, whole: bool) -> list[Event]:
        pages: list[list[Event]] = []  # the last one first
        while True:
            before = pages[-1][0].seq if pages else self._first
            page = await self._store.events(*self._name, before=before, limit=PAGE, backward=True)
            start = None if whole else _compaction(page)
            pages.append(page[start:])
            if start is not None or len(page) < PAGE:
                return [
                    each for page in reversed(pages) for each in page if not each.body.is_off_branch
                ]

    async def request_permission(
        self, title: str, options: Sequence[Option], call_id: str | None
    ) -> Answer:
        self._check()
        current = await self._store.get(*self._name)  # the mode may have changed since we began
        if current is not None and (self._mode or current.mode) == UNASKED:
            # Nothing is stored of it: the tool call shows what was done.
            allow = next((option for option in options if option.kind.startswith("allow")), None)
            if allow is not None:
                return Answer(option=allow)
        ask_id = ids.new_id()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asks[ask_id] = (options, future)
        asked = PermissionAsked(ask_id=ask_id, title=title, options=tuple(options), call_id=call_id)

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [Draft(id=ask_id, body=asked), _waiting(session, (*session.pending, ask_id))]

        await self._store.change(*self._name, decide, lease=self._lease)
        return await future

    async def result(self, call_id: str) -> list[Event]:
        self._check()
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._results[call_id] = future

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [_waiting(session, (*session.pending, call_id))]

        self._session, _ = await self._store.change(*self._name, decide, lease=self._lease)
        self._wake.set()  # it may be there already
        return await future

    async def more(self) -> list[Event]:
        self._check()
        items = [item for item in await self._store.inbox(*self._name) if item.kind == "prompt"]
        # An outcome is a turn of its own, and what was asked after it waits for it.
        items = list(takewhile(lambda item: not item.body.get("outcome"), items))
        if not items:
            return []
        prompts = [codec.convert(item.body, Prompt) for item in items]
        pairs = zip(items, prompts, strict=True)
        drafts = [draft for item, prompt in pairs for draft in prompt.drafts(item.id)]
        self._session, events = await self._store.change(
            *self._name,
            lambda _: drafts,
            lease=self._lease,
            consume=[item.number for item in items],
        )
        self._local = self._local and all(prompt.local for prompt in prompts)
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
        """Show other processes what is being written, a few times a second."""
        await asyncio.sleep(FLUSH_SECONDS)
        while self._unflushed:
            deltas, self._unflushed = self._unflushed, []
            try:
                async with self._flushing:
                    await self._store.put_deltas(self._lease, _joined(deltas))
            except SegueError:
                return  # what is live only may be missed; the message itself will be stored
            await asyncio.sleep(FLUSH_SECONDS)

    async def _overtake(self, messages: set[str | None]) -> None:
        """See to it that no piece of these messages is shown after the messages themselves."""
        self._unflushed = [delta for delta in self._unflushed if delta.message not in messages]
        async with self._flushing:
            return


async def resume(store: Store, name: Name) -> None:
    """Have what a budget cut short go on, in whatever process."""
    await store.put_inbox(*name, "prompt", ids.new_id(), msgspec.to_builtins(RESUME))


def _begin(session: Session, turn_id: str, prompt: Prompt) -> list[AnyBody | Draft]:
    running = StatusChanged(status="running", turn=turn_id)
    if prompt.resumes:
        if session.stop_reason != "budget_reached" or session.at_budget:
            raise Conflict("what the budget cut short went on already", session=session.id)
        return [Draft(id=turn_id, body=running)]
    bodies: list[AnyBody | Draft] = [running, *prompt.drafts(turn_id)]
    untitled = session.title is None and session.title_by is None
    if untitled and (title := title_from_prompt(prompt.content)):
        bodies.append(InfoChanged(title=title, by="auto"))
    if session.archived_at is not None:
        bodies.append(InfoChanged(archived=False))
    return bodies


def _compaction(events: Sequence[Event]) -> int | None:
    """Where the last one is before which the agent remembers nothing."""
    for place in range(len(events) - 1, -1, -1):
        body = events[place].body
        if isinstance(body, Compacted) and body.thread is None:
            return place
    return None


def _waiting(session: Session, pending: tuple[str, ...]) -> StatusChanged:
    if pending:
        return StatusChanged(
            status="idle", stop_reason="requires_action", turn=session.turn, pending=pending
        )
    return StatusChanged(status="running", turn=session.turn)


def _joined(deltas: Sequence[Delta]) -> list[Delta]:
    """Neighbouring pieces of one message as one piece."""
    found: list[Delta] = []
    for delta in deltas:
        if found and found[-1].message == delta.message:
            whole = found[-1].text + delta.text
            found[-1] = msgspec.structs.replace(found[-1], text=whole)
        else:
            found.append(delta)
    return found


def _describe(error: Exception) -> str:
    if isinstance(error, SegueError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
