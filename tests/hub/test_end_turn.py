import pytest
from hypothesis import given

from segue.hub.turns.end_turn import end_turn_events, fork_tail_events
from segue.model import projection
from segue.model.event import AnyBody, Event, InfoChanged, StatusChanged, ToolResult
from segue.model.lifecycle import StopReason
from segue.model.session import Session
from tests.model.histories import histories, row


def after(session: Session, bodies: list[AnyBody]) -> Session:
    for body in bodies:
        event = Event(seq=session.last_seq + 1, id="", at=session.updated_at, body=body)
        session = projection.apply(session, event)
    return session


@given(histories())
def test_a_history_cut_anywhere_is_brought_to_rest(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    closed = after(session, end_turn_events(session, "cut"))
    assert closed.status == ("terminated" if session.status == "terminated" else "idle")
    assert (closed.turn, closed.open_calls, closed.open_asks) == (None, (), ())
    assert end_turn_events(closed, "again") == []


@given(histories())
def test_a_fork_is_at_rest_on_no_shelf(events: list[Event]) -> None:
    session = projection.project("w", "i", events)
    child = after(session, fork_tail_events(session))
    assert child.state == "active"
    assert fork_tail_events(child) == []


@pytest.mark.parametrize("reason", ["error", "cancelled"])
def test_a_turn_is_closed_for_a_reason(reason: StopReason) -> None:
    session = row((1, StatusChanged(status="running", turn="t")))
    (closed,) = end_turn_events(session, "why", stop_reason=reason)
    assert isinstance(closed, StatusChanged)
    assert (closed.stop_reason, closed.turn, closed.message) == (reason, "t", "why")


def test_nothing_is_added_to_a_session_at_rest() -> None:
    assert end_turn_events(row((1, InfoChanged(archived=True))), "why") == []
    assert [type(body) for body in fork_tail_events(row((1, InfoChanged(archived=True))))] == [
        InfoChanged
    ]
    assert end_turn_events(row((1, ToolResult(call_id="unheard"))), "why") == []
