"""Read one page of a session's events.

A stored event can be shown as several events, so a position in the list is a seq and a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from msgspec.structs import replace

from segue.interfaces.rest import paging
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import events as schemas
from segue.model import clock
from segue.model.event import Event, ToolCall, ToolCallChanged
from segue.model.session import Session
from segue.model.tools.changes import apply_change

from .event_encoder import EventEncoder, encode_open_request, encoder_from
from .event_types import DEPENDENT_KINDS, KINDS_BY_TYPE, STATE_KINDS

CHANGED_CALL = "tool_call_changed"
MAX_PAGE_SIZE = 1000
_BATCH_SIZE = 500


class EventPosition(NamedTuple):
    """The position of an event: the seq of the stored event, and the part of it that is shown."""

    seq: int
    part: int


class PositionedEvent(NamedTuple):
    position: EventPosition
    event: schemas.Event


class EventFilter(NamedTuple):
    """Which events a list has; an empty `types` means all."""

    types: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None

    def kinds_to_read(self) -> tuple[str, ...]:
        """Return the kinds of stored events to read; () for all.

        How an event is shown can depend on earlier events of other kinds.
        """
        kinds = {kind for name in self.types for kind in KINDS_BY_TYPE.get(name, ())}
        kinds |= {CHANGED_CALL} if "tool_call" in kinds else set()
        return tuple(sorted(kinds if kinds.isdisjoint(DEPENDENT_KINDS) else kinds | {*STATE_KINDS}))

    def includes_time(self, at: int) -> bool:
        """Return True if a time is in the span of time."""
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)

    def includes_type(self, event: schemas.Event) -> bool:
        """Return True if an event has one of the types."""
        return not self.types or schemas.type_of(event) in self.types


async def read_page(
    request: RestRequest,
    session: Session,
    event_filter: EventFilter,
    *,
    descending: bool = False,
    thread: str | None = None,
) -> schemas.EventPage:
    """Return the page of a thread's events that a request asks for with `limit` and `page`."""
    limit = request.params.limit(MAX_PAGE_SIZE, MAX_PAGE_SIZE)
    list_name = f"events:{session.id}" if thread is None else f"events:{session.id}:{thread}"
    start: EventPosition | None = None
    if token := request.params.text("page"):
        seq, part = await paging.decode_page(request, token, list_name, descending=descending)
        start = EventPosition(seq, int(part))
    if event_filter.types and not event_filter.kinds_to_read():
        return schemas.EventPage(data=[], next_page=None)
    reader = _PageReader(request, session, event_filter, thread, descending=descending)
    events = await reader.read(start, limit + 1)
    next_page = None
    if len(events) > limit:
        following = events[limit].position
        next_page = await paging.encode_page(
            request, list_name, following.seq, str(following.part), descending=descending
        )
    page = events[:limit]
    if any(ends_turn(event) for _, event in page):  # the client receives the turn's end
        last_seq = max(position.seq for position, _ in page)
        await request.context.stream_acks.record(request.principal, session.id, last_seq)
    return schemas.EventPage(data=[event for _, event in page], next_page=next_page)


def ends_turn(event: schemas.Event) -> bool:
    """Return True for the event that clients wait for after they have sent a message."""
    return isinstance(event, schemas.StatusIdle)


class _PageReader:
    """Reads stored events in batches, and encodes those that a filter includes."""

    def __init__(
        self,
        request: RestRequest,
        session: Session,
        event_filter: EventFilter,
        thread: str | None,
        *,
        descending: bool,
    ) -> None:
        self._request = request
        self._thread = thread
        self._session = session
        self._filter = event_filter
        self._descending = descending

    async def read(self, start: EventPosition | None, count: int) -> list[PositionedEvent]:
        """Return at least `count` events from a position on, or all if there are fewer."""
        events: list[PositionedEvent] = []
        next_seq = None if start is None else start.seq
        encoder: EventEncoder | None = None
        if self._descending and start is None:
            events += await self._read_open_request()
        while len(events) < count:
            batch = await self._read_batch(next_seq)
            if not batch:
                break
            if encoder is None or self._descending:
                encoder = await encoder_from(
                    self._request, self._session, batch[0].seq, self._thread
                )
            events += await self._encode_batch(encoder, batch, start)
            if len(batch) < _BATCH_SIZE or (self._descending and batch[0].seq <= 1):
                break
            next_seq = batch[0].seq - 1 if self._descending else batch[-1].seq + 1
        if not self._descending and len(events) < count:
            events += await self._read_open_request()
        return events

    async def _read_open_request(self) -> list[PositionedEvent]:
        """Return the start of a model request without a response, which is the newest event."""
        hub, principal = self._request.hub, self._request.principal
        if self._thread is not None:
            return []
        request = await hub.history.open_request(principal, self._session.id)
        if request is None or request.asked_at is None:
            return []
        start = encode_open_request(request)
        in_time = self._filter.includes_time(clock.from_rfc3339(request.asked_at))
        if start is None or not in_time or not self._filter.includes_type(start):
            return []
        return [PositionedEvent(EventPosition(self._session.last_seq + 1, 0), start)]

    async def _read_batch(self, next_seq: int | None) -> Sequence[Event]:
        """Return the next stored events, the oldest first; None as `next_seq` starts the list."""
        after, before = 0, None
        if next_seq is not None and self._descending:
            before = next_seq + 1
        elif next_seq is not None:
            after = max(0, next_seq - 1)
        return await self._request.hub.history.events(
            self._request.principal,
            self._session.id,
            after=after,
            before=before,
            types=self._filter.kinds_to_read(),
            limit=_BATCH_SIZE,
            backward=self._descending,
        )

    async def _encode_batch(
        self, encoder: EventEncoder, batch: Sequence[Event], start: EventPosition | None
    ) -> list[PositionedEvent]:
        events: list[PositionedEvent] = []
        changes = await self._read_changes(batch)
        for stored in batch:
            if isinstance(stored.body, ToolCall) and stored.body.call_id in changes:
                call = reduce(apply_change, changes[stored.body.call_id], stored.body)
                stored = replace(stored, body=call)
            in_time = self._filter.includes_time(stored.at)
            for part, event in enumerate(await encoder.encode(stored)):
                position = EventPosition(stored.seq, part)
                if in_time and self._filter.includes_type(event) and self._reached(position, start):
                    events.append(PositionedEvent(position, event))
        return events[::-1] if self._descending else events

    async def _read_changes(self, batch: Sequence[Event]) -> dict[str, list[ToolCallChanged]]:
        """Return the changes of the tool calls in a batch: a list has each call as it became."""
        later: Sequence[Event] = ()
        has_calls = any(isinstance(event.body, ToolCall) for event in batch)
        if has_calls and batch[-1].seq < self._session.last_seq:
            later = await self._request.hub.history.events(
                self._request.principal,
                self._session.id,
                after=batch[-1].seq,
                types=(CHANGED_CALL,),
                limit=_BATCH_SIZE,
            )
        changes: dict[str, list[ToolCallChanged]] = {}
        for event in (*batch, *later):
            if isinstance(event.body, ToolCallChanged):
                changes.setdefault(event.body.call_id, []).append(event.body)
        return changes

    def _reached(self, position: EventPosition, start: EventPosition | None) -> bool:
        if start is None:
            return True
        return position <= start if self._descending else position >= start
