"""Start, resume and end the threads of a turn."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence, Set
from typing import Any

from segue.agents.base import NewThread, ThreadPort
from segue.hub.history.threads import read_threads
from segue.hub.turns.end_turn import end_thread_events, thread_changed
from segue.hub.turns.turn_events import thread_can_continue
from segue.model.content import Content
from segue.model.errors import Conflict
from segue.model.event import (
    AnyBody,
    Draft,
    Drafts,
    Event,
    Interrupted,
    ThreadChanged,
    ThreadMessage,
    ThreadStarted,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session, Thread
from segue.store.base import InboxItem, Store

from .thread_port import ThreadHost, ThreadTurnPort

INTERRUPTED = "the thread was interrupted"
MAX_THREADS = 500  # in one session


class SessionThreads:
    """The threads of one turn of a session."""

    def __init__(self, host: ThreadHost, store: Store) -> None:
        self._host = host
        self._store = store
        self._running: dict[str, ThreadTurnPort] = {}

    async def all(self) -> Sequence[Thread]:
        return await read_threads(self._store, self._host.session)

    async def start(self, new: NewThread, call_id: str, prompt: Content) -> ThreadPort:
        def decide(session: Session) -> Drafts:
            if session.threads >= MAX_THREADS:
                raise Conflict(f"the session has started {MAX_THREADS} threads, the most it may")
            id = str(session.threads + 1)
            started = ThreadStarted(
                id=id,
                name=new.name,
                title=new.title,
                call_id=call_id,
                agent=new.agent,
                definition=new.definition,
            )
            running = ThreadChanged(thread=id, status="running", call_id=call_id)
            return [started, running, ThreadMessage(thread=id, content=prompt, call_id=call_id)]

        events = await self._host.append_decided(decide)
        return self._port(events, call_id, events[0].seq)

    async def prompt(self, thread: Thread, call_id: str, prompt: Content) -> ThreadPort:
        running = ThreadChanged(
            thread=thread.id,
            status="running",
            call_id=call_id,
            usage=thread.usage,
            running_time=thread.running_time,
        )
        message = ThreadMessage(thread=thread.id, content=prompt, call_id=call_id)
        events = await self._host.append_decided(lambda _: [running, message])
        return self._port(events, call_id, thread.seq or 0)

    async def resume(self, thread: Thread) -> ThreadPort | None:
        def decide(session: Session) -> Drafts:
            is_open = thread.id in session.open_threads
            can_run = is_open and thread_can_continue(session, thread.id)
            return [thread_changed(session, thread.id, "running")] if can_run else []

        if not await self._host.append_decided(decide):
            return None
        call_id = self._host.session.open_threads[thread.id].call_id
        messages = await self._store.events(
            self._host.session.workspace,
            self._host.session.id,
            after=thread.seq or 0,
            types=("thread_message",),
            backward=True,
        )
        return self._port(messages, call_id, thread.seq or 0)

    def _port(self, events: Sequence[Event], call_id: str, first_seq: int) -> ThreadTurnPort:
        message = next(event for event in reversed(events) if _hands_over(event, call_id))
        thread = message.body.thread or ""
        port = ThreadTurnPort(self._host, thread, call_id, message, first_seq)
        self._running[port.thread] = port
        return port

    async def wait(self, port: ThreadPort, calls: Set[str]) -> None:
        id = port.thread or ""

        def decide(session: Session) -> Drafts:
            asks = [ask for ask in session.open_asks if session.thread_of.get(ask) == id]
            pending = (*asks, *(call for call in session.open_calls if call in calls))
            reason: StopReason = "requires_action"
            return [thread_changed(session, id, "idle", stop_reason=reason, pending=pending)]

        self._running.pop(id, None)
        await self._host.append_decided(decide)

    async def end(
        self, port: ThreadPort, drafts: Sequence[Draft], reason: StopReason, reply: Content
    ) -> None:
        assert isinstance(port, ThreadTurnPort)
        self._running.pop(port.thread, None)

        def decide(session: Session) -> Drafts:
            last: list[AnyBody | Draft] = list(self._last(port, drafts, session))
            if reply:
                parent = session.open_threads[port.thread].parent
                last.append(
                    ThreadMessage(
                        thread=parent,
                        sender=port.thread,
                        content=reply,
                        call_id=port.call_id,
                        reply=True,
                    )
                )
            why = INTERRUPTED if port.is_interrupted else "the thread ended before this did"
            return [*last, *end_thread_events(session, port.thread, why, reason)]

        await self._host.append_decided(decide)

    def unstored(self, port: ThreadPort, drafts: Sequence[Draft]) -> list[Draft]:
        assert isinstance(port, ThreadTurnPort)
        self._running.pop(port.thread, None)
        return self._last(port, drafts, self._host.session)

    def _last(self, port: ThreadTurnPort, drafts: Sequence[Draft], session: Session) -> list[Draft]:
        last = port.attribute([*drafts, *port.failed_request(drafts)], session)
        if port.cancel_id is not None:
            last.append(Draft(id=port.cancel_id, body=Interrupted(thread=port.thread)))
        return last

    def next_answer(self) -> Coroutine[Any, Any, object]:
        return self._host.next_answer()

    def interrupt(self, item: InboxItem) -> bool:
        """Interrupt the thread that a client's cancel names; return False if it does not run."""
        port = self._running.get(str(item.body.get("thread")))
        if port is None:
            return False
        port.interrupt(item.id)
        return True


def interrupted_events(session: Session, item: InboxItem) -> Drafts:
    """Return the events of a client's cancel of a thread that waits; none if it does not."""
    thread = str(item.body.get("thread"))
    if thread not in session.open_threads:
        return []
    closed = end_thread_events(session, thread, INTERRUPTED, "cancelled")
    return [Draft(id=item.id, body=Interrupted(thread=thread)), *closed]


def _hands_over(event: Event, call_id: str) -> bool:
    body = event.body
    return isinstance(body, ThreadMessage) and body.call_id == call_id and not body.reply
