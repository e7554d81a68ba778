"""Check that a session is idle."""

from collections import Counter

from segue.model.event import (
    Event,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    ToolResult,
)
from segue.model.session import Session
from tests.faults import audit


def assert_idle(session: Session, events: list[Event]) -> None:
    """Check that a session is idle and every call, permission request and turn has its end."""
    audit.whole(session, events)
    assert session.status == "idle" and session.turn is None, session
    assert not session.open_calls and not session.open_asks and not session.pending, session
    bodies = [event.body for event in events]
    calls = Counter(body.call_id for body in bodies if isinstance(body, ToolCall))
    results = Counter(body.call_id for body in bodies if isinstance(body, ToolResult))
    assert calls == results and set(calls.values()) <= {1}, (calls, results)
    requests = Counter(body.ask_id for body in bodies if isinstance(body, PermissionAsked))
    answered = Counter(body.ask_id for body in bodies if isinstance(body, PermissionAnswered))
    assert requests == answered and set(requests.values()) <= {1}, (requests, answered)
    begun = [body.turn for body in bodies if isinstance(body, StatusChanged) and begins(body)]
    ended = [body for body in bodies if isinstance(body, StatusChanged) and ends(body)]
    assert len(set(begun)) == len(ended), "a turn ended twice, or not at all"


def begins(body: StatusChanged) -> bool:
    return body.status == "running"


def ends(body: StatusChanged) -> bool:
    return body.status == "idle" and body.stop_reason != "requires_action"
