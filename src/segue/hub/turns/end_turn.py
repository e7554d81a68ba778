"""The events that end an open turn, and those that end a fork's history."""

from __future__ import annotations

from collections.abc import Iterable

from segue.agents.base import streamed_draft
from segue.hub.history.follow import UnfinishedMessage
from segue.model import clock
from segue.model.event import (
    AnyBody,
    Delta,
    Draft,
    InfoChanged,
    OutcomeEvaluated,
    PermissionAnswered,
    StatusChanged,
    ThreadChanged,
    ToolResult,
)
from segue.model.lifecycle import Status, StopReason
from segue.model.session import Session

CUT_OFF: tuple[StopReason, ...] = ("cancelled", "error", "budget_reached")


def end_turn_events(
    session: Session, why: str, stop_reason: StopReason = "cancelled"
) -> list[AnyBody]:
    """Return the events that end an open turn; none for a session without one.

    They withdraw permission requests, close tool calls and threads, and settle outcomes, with `why`
    as the reason. A reached budget does not settle outcomes, because the turn may be continued.
    """
    bodies: list[AnyBody] = []
    for thread in session.open_threads:
        bodies += end_thread_events(session, thread, why, stop_reason)
    bodies += _close_requests(session, None, why)
    cut = stop_reason in CUT_OFF
    bodies += [
        OutcomeEvaluated(
            outcome_id=outcome.outcome_id,
            iteration=outcome.iteration,
            result="interrupted" if cut else "failed",
            explanation=why if cut else "the agent ended its turn without an evaluation",
        )
        for outcome in session.outcomes
        if outcome.completed_at is None and stop_reason != "budget_reached"
    ]
    if session.status in ("running", "rescheduling") or session.turn is not None:
        bodies.append(
            StatusChanged(
                status="idle",
                stop_reason=stop_reason,
                turn=session.turn,
                message=why if cut else None,
            )
        )
    return bodies


def end_thread_events(
    session: Session, thread: str, why: str, stop_reason: StopReason
) -> list[AnyBody]:
    """Return the events that end what an open thread does; none for any other thread."""
    if thread not in session.open_threads:
        return []
    message = why if stop_reason in CUT_OFF else None
    ended = thread_changed(session, thread, "idle", stop_reason=stop_reason, message=message)
    return [*_close_requests(session, thread, why), ended]


def thread_changed(
    session: Session,
    thread: str,
    status: Status,
    *,
    stop_reason: StopReason | None = None,
    pending: tuple[str, ...] = (),
    message: str | None = None,
) -> ThreadChanged:
    """Return the change of an open thread's status, with the sums that the session's row has."""
    state = session.open_threads[thread]
    since = state.running_since
    running = 0 if since is None else max(0, clock.now() - since)
    return ThreadChanged(
        thread=thread,
        status=status,
        stop_reason=stop_reason,
        pending=pending,
        message=message,
        usage=state.usage,
        running_time=state.running_time + running,
    )


def _close_requests(session: Session, thread: str | None, why: str) -> list[AnyBody]:
    """Return the events that close the open requests and calls of a thread, or of the session."""
    thread_of = session.thread_of.get
    asks = [ask for ask in session.open_asks if thread_of(ask) == thread]
    calls = [call for call in session.open_calls if thread_of(call) == thread]
    return [
        *(PermissionAnswered(ask_id=ask, note=why, thread=thread) for ask in asks),
        *(
            ToolResult(
                call_id=call, status="cancelled", output=why, turn=session.turn, thread=thread
            )
            for call in calls
        ),
    ]


def partial_messages(deltas: Iterable[Delta]) -> list[Draft]:
    """Return the messages that were cut off, with the text that had arrived."""
    messages: dict[str, UnfinishedMessage] = {}
    for delta in deltas:
        if delta.kind == "request":
            continue
        message = messages.setdefault(delta.message, UnfinishedMessage(delta.kind))
        message.add(delta.offset, delta.text)
    return [
        streamed_draft(
            id, "thought" if message.kind == "thought" else "message", message.text(), partial=True
        )
        for id, message in messages.items()
    ]


def fork_tail_events(session: Session) -> list[AnyBody]:
    """Return the events that a fork adds to its copies: no open turn, and the active state."""
    bodies = end_turn_events(session, "the session was forked here")
    if session.stop_reason == "budget_reached":  # only the parent can continue that turn
        bodies.append(StatusChanged(status="idle", stop_reason="cancelled"))
    if session.archived_at is not None or session.deleted_at is not None:
        bodies.append(InfoChanged(archived=False, deleted=False))
    return bodies
