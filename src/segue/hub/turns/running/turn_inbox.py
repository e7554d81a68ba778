"""Deliver the answers, results and cancels in a session's inbox to its running turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from segue.agents.base import Answer
from segue.hub.history.follow import Name
from segue.hub.turns.inbox import Result, cancel_of, sent_before, sent_events
from segue.hub.turns.recovery import accepted
from segue.hub.turns.turn_events import status_with_pending
from segue.model import codec
from segue.model.errors import NotFound
from segue.model.event import (
    AnyBody,
    Draft,
    Drafts,
    Event,
    Option,
    StatusChanged,
    ToolCall,
)
from segue.model.session import Session
from segue.store.base import InboxItem, Store

from .session_threads import SessionThreads, interrupted_events


class InboxTurn(Protocol):
    """The turn that an inbox is delivered to."""

    @property
    def turn_id(self) -> str: ...
    @property
    def local(self) -> bool: ...
    @property
    def threads(self) -> SessionThreads: ...

    async def change(
        self, decide: Callable[[Session], Drafts], consume: Sequence[int] = ()
    ) -> tuple[Session, list[Event]]: ...


class TurnInbox:
    """The inbox of one turn, and the futures that its agent waits for.

    An agent that resumes does not wait: what clients send is stored for it.
    """

    def __init__(self, store: Store, name: Name, turn: InboxTurn, *, resumes: bool) -> None:
        self._store = store
        self._name = name
        self._turn = turn
        self._resumes = resumes
        self._asks: dict[str, tuple[Sequence[Option], asyncio.Future[Answer]]] = {}
        self._results: dict[str, asyncio.Future[list[Event]]] = {}
        self._local_calls: set[str] = set()  # custom tools whose results only the local user sends
        self._answered = asyncio.Event()  # replaced after each answer and result

    def note_call(self, call: ToolCall) -> None:
        """Note a tool call whose result a client may send."""
        if call.local:
            self._local_calls.add(call.call_id)

    def expect_answer(self, ask_id: str, options: Sequence[Option]) -> asyncio.Future[Answer]:
        """Return the future answer to a permission request."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asks[ask_id] = (options, future)
        return future

    def expect_result(self, call_id: str) -> asyncio.Future[list[Event]]:
        """Return the future result of a tool call that a client runs."""
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        self._results[call_id] = future
        return future

    def withdraw_requests(self) -> None:
        """Withdraw the open permission requests, also those that child processes wait for."""
        for _, future in self._asks.values():
            if not future.done():
                future.set_result(Answer())
        self._asks.clear()

    def next_answer(self) -> Coroutine[Any, Any, object]:
        """Wait until an answer or a result is stored after this call."""
        return self._answered.wait()

    def _note_answer(self) -> None:
        self._answered.set()
        self._answered = asyncio.Event()

    async def handle_items(self) -> InboxItem | None:
        """Act on answers, tool results and cancels; return the cancel of the turn, if there is one.

        What was sent before that cancel is stored, but the agent does not act on it any more. The
        cancel stays until the turn has ended. Prompts wait for their own turns.
        """
        items = await self._store.inbox(*self._name)
        cancel = cancel_of(items, self._turn.turn_id)
        if cancel is not None:
            if sent := sent_before(items, cancel):
                numbers = [item.number for item in sent]
                await self._turn.change(lambda session: accepted(session, sent)[0], numbers)
            return cancel
        for item in items:
            if item.kind == "answer":
                await self._deliver_answer(item)
            elif item.kind == "result":
                await self._deliver_result(item)
            elif item.kind == "cancel" and item.body.get("thread"):
                await self._cancel_thread(item)
        return None

    async def _cancel_thread(self, item: InboxItem) -> None:
        if self._turn.threads.interrupt(item):
            await self._store.drop_inbox(*self._name, [item.number])
            return
        await self._turn.change(lambda session: interrupted_events(session, item), [item.number])
        self._note_answer()

    async def _deliver_answer(self, item: InboxItem) -> None:
        ask_id, chosen = item.body.get("ask_id", ""), item.body.get("option")
        refused = self._turn.local and not item.body.get("local")
        if refused or ask_id not in (await self._stored()).open_asks:
            await self._store.drop_inbox(*self._name, [item.number])
            return

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [*sent_events(session, item), *self._status_without(session, ask_id)]

        await self._turn.change(decide, [item.number])
        self._note_answer()
        options, future = self._asks.pop(ask_id, ((), None))
        if future is not None and not future.done():  # else the agent waits for it no more
            option = next((option for option in options if option.id == chosen), None)
            note, new_input = item.body.get("note"), item.body.get("input")
            extra = item.body.get("extra") or {}
            future.set_result(Answer(option=option, note=note, input=new_input, extra=extra))

    def _status_without(self, session: Session, request: str) -> list[StatusChanged]:
        """Return the status after an answer; a stored turn only changes it when it runs again."""
        if self._resumes:
            return []
        return [status_with_pending(session, tuple(id for id in session.pending if id != request))]

    async def _deliver_result(self, item: InboxItem) -> None:
        submitted: Result = codec.convert(item.body, Result)
        call_id = submitted.result.call_id
        future = self._results.get(call_id)
        refused = call_id in self._local_calls and not submitted.local
        if refused or call_id not in (await self._stored()).open_calls:
            await self._store.drop_inbox(*self._name, [item.number])
            return
        if not self._resumes and (future is None or future.done()):
            return  # the agent will wait for the result in a moment

        def decide(session: Session) -> list[AnyBody | Draft]:
            return [*sent_events(session, item), *self._status_without(session, call_id)]

        _, events = await self._turn.change(decide, [item.number])
        self._note_answer()
        if future is not None:
            del self._results[call_id]
            future.set_result([e for e in events if not isinstance(e.body, StatusChanged)])

    async def _stored(self) -> Session:
        """Return the session as it is stored: a client may know of an event before its runner."""
        session = await self._store.get(*self._name)
        if session is None:
            raise NotFound(f"no session {self._name[1]}", session=self._name[1])
        return session
