"""Pair events with their outcomes: tool calls with results, permission requests with answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from segue.model.event import Event, PermissionAnswered, PermissionAsked, ToolCall, ToolResult
from segue.model.principal import Principal
from segue.model.session import Session

from .reader import EventReader

# From the type of an opening event to the type of its outcome.
OUTCOME_TYPES = {"tool_call": "tool_result", "permission_asked": "permission_answered"}
OPENING_TYPES = {outcome: opening for opening, outcome in OUTCOME_TYPES.items()}
# How many events of the other type are read to find the other half of a pair.
MAX_PAIR_DISTANCE = 100


class Pairs(NamedTuple):
    """The other halves of some events, by `pair_key`.

    `outcomes` complete some of these events. `openings` are earlier events that some of these
    events complete.
    """

    outcomes: Mapping[str, Event]
    openings: Mapping[str, Event]


def pair_key(event: Event) -> str | None:
    """Return the key that an event shares with its other half; None if it has none."""
    match event.body:
        case ToolCall() | ToolResult():
            return call_key(event.body.call_id)
        case PermissionAsked() | PermissionAnswered():
            return f"ask {event.body.ask_id}"
    return None


def call_key(call_id: str | None) -> str:
    """Return the key of a tool call."""
    return f"call {call_id}"


def find_openings(events: Iterable[Event]) -> dict[str, Event]:
    """Return the tool calls and permission requests among some events, by key."""
    return {str(pair_key(event)): event for event in events if event.type in OUTCOME_TYPES}


def find_outcomes(events: Iterable[Event]) -> dict[str, Event]:
    """Return the tool results and answers among some events, by key."""
    return {str(pair_key(event)): event for event in events if event.type in OPENING_TYPES}


def pair_events(events: Iterable[Event]) -> Pairs:
    """Pair events with each other."""
    return Pairs(find_outcomes(events), {})


async def read_pairs(
    reader: EventReader,
    principal: Principal,
    session: Session,
    events: Iterable[Event],
    *,
    after: int,
    before: int,
) -> Pairs:
    """Pair the events with `after < seq < before` with each other and with events around them."""
    outcomes = find_outcomes(events)
    openings: dict[str, Event] = {}
    requested = {_call_of_request(event) for event in events} - {None}
    for opening_type, outcome_type in OUTCOME_TYPES.items():
        opened = {pair_key(event) for event in events if event.type == opening_type}
        completed = {pair_key(event) for event in events if event.type == outcome_type}
        if opening_type == "tool_call":
            completed |= requested
        if opened - outcomes.keys() and before <= session.last_seq:
            later = await reader.events(
                principal,
                session.id,
                after=before - 1,
                types=(outcome_type,),
                limit=MAX_PAIR_DISTANCE,
            )
            for event in later:
                outcomes.setdefault(str(pair_key(event)), event)
        if completed - opened and after > 0:
            earlier = await _read_openings(reader, principal, session.id, opening_type, after + 1)
            openings |= earlier
    return Pairs(outcomes, openings)


def _call_of_request(event: Event) -> str | None:
    """Return the key of the call that a permission request is about."""
    body = event.body
    if isinstance(body, PermissionAsked) and body.call_id is not None:
        return call_key(body.call_id)
    return None


class PairTracker:
    """Pair the events of one session as they arrive one by one."""

    def __init__(self, reader: EventReader, principal: Principal, session_id: str) -> None:
        self._reader = reader
        self._principal = principal
        self._session_id = session_id
        self._openings: dict[str, Event] = {}

    async def find_opening(self, event: Event) -> Event | None:
        """Return the event that this one completes; None if it completes none.

        An event that may be completed later is remembered.
        """
        key = pair_key(event)
        if key is None:
            return None
        if event.type in OUTCOME_TYPES:
            self._openings[key] = event
            return None
        if opening := self._openings.pop(key, None):
            return opening
        opening_type = OPENING_TYPES[event.type]
        earlier = await _read_openings(
            self._reader, self._principal, self._session_id, opening_type, event.seq
        )
        return earlier.get(key)

    async def find_call(self, event: Event) -> dict[str, Event]:
        """Return the call that a permission request is about, by its key."""
        key = _call_of_request(event)
        if key is None:
            return {}
        if key not in self._openings:
            self._openings |= await _read_openings(
                self._reader, self._principal, self._session_id, "tool_call", event.seq
            )
        return {key: self._openings[key]} if key in self._openings else {}


async def _read_openings(
    reader: EventReader, principal: Principal, session_id: str, type: str, before: int
) -> dict[str, Event]:
    return find_openings(
        await reader.events(
            principal,
            session_id,
            before=before,
            types=(type,),
            limit=MAX_PAIR_DISTANCE,
            backward=True,
        )
    )
