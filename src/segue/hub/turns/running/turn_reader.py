"""Read the stored events that a turn needs."""

from __future__ import annotations

from segue.hub.history.follow import Name
from segue.hub.turns.turn_events import last_compaction
from segue.model.event import (
    Event,
    OutcomeDefined,
    ToolCall,
)
from segue.model.session import Session
from segue.store.base import Store

EVENTS_PER_READ = 500


class TurnReader:
    """The events of one session."""

    def __init__(self, store: Store, name: Name) -> None:
        self._store = store
        self._name = name

    async def history(self, before: int, *, since_compaction: bool) -> list[Event]:
        """Return the events before a seq, with `since_compaction` those since the last one."""
        pages: list[list[Event]] = []  # the newest page first
        while True:
            first = pages[-1][0].seq if pages else before
            page = await self._store.events(
                *self._name, before=first, limit=EVENTS_PER_READ, backward=True
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

    async def events_from(self, seq: int, before: int | None = None) -> list[Event]:
        """Return the events from a seq on, and before another one."""
        events: list[Event] = []
        after = seq - 1
        while True:
            page = await self._store.events(
                *self._name, after=after, before=before, limit=EVENTS_PER_READ
            )
            events += page
            if len(page) < EVENTS_PER_READ:
                return [event for event in events if not event.body.is_off_branch]
            after = page[-1].seq

    async def open_outcome(self, session: Session) -> OutcomeDefined | None:
        """Return the outcome that is not completed yet, if there is one."""
        open_ids = [
            outcome.outcome_id for outcome in session.outcomes if outcome.completed_at is None
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

    async def calls(self, seq: int) -> list[ToolCall]:
        """Return the tool calls since a seq."""
        bodies = [event.body for event in await self.events_from(seq)]
        return [body for body in bodies if isinstance(body, ToolCall)]
