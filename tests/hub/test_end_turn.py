"""End the turn of a session, and of a fork."""

import pytest
from hypothesis import given

from segue.hub.turns.end_turn import end_turn_events, fork_tail_events
from segue.model import projection
from segue.model.event import AnyBody, Event, InfoChanged, StatusChanged, ToolResult
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from tests.model.histories import histories, session_row


def apply_bodies(session: Session, bodies: list[AnyBody]) -> Session:
    for body in bodies:
        event = Event(seq=session.last_seq + 1, id="", at=session.updated_at, body=body)
        session = projection.apply(session, event)
    return session


@given(histories())
def test_ending_a_turn_makes_the_session_idle_at_any_point(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    ended = apply_bodies(session, end_turn_events(session, "cut"))
    assert ended.status == ("terminated" if session.status == "terminated" else "idle")
    assert (ended.turn, ended.open_calls, ended.open_asks) == (None, (), ())
    assert end_turn_events(ended, "again") == []


@given(histories())
def test_fork_is_active_and_has_no_open_turn(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    child = apply_bodies(session, fork_tail_events(session))
    assert child.state == "active"
    assert fork_tail_events(child) == []


@pytest.mark.parametrize("reason", ["error", "cancelled"])
def test_turn_ends_with_the_given_reason(reason: StopReason) -> None:
    session = session_row((1, StatusChanged(status="running", turn="t")))
    (ended,) = end_turn_events(session, "why", stop_reason=reason)
    assert isinstance(ended, StatusChanged)
    assert (ended.stop_reason, ended.turn, ended.message) == (reason, "t", "why")


def test_idle_session_gets_no_end_events() -> None:
    assert end_turn_events(session_row((1, InfoChanged(archived=True))), "why") == []
    assert [
        type(body) for body in fork_tail_events(session_row((1, InfoChanged(archived=True))))
    ] == [InfoChanged]
    assert end_turn_events(session_row((1, ToolResult(call_id="unknown"))), "why") == []
