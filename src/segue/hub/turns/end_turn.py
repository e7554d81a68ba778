"""The events that end an open turn, and those that end a fork's history."""

from __future__ import annotations

from collections.abc import Iterable

from segue.agents.base import streamed_draft
from segue.hub.history.follow import UnfinishedMessage
from segue.model.event import (
    AnyBody,
    Delta,
    Draft,
    InfoChanged,
    OutcomeEvaluated,
    PermissionAnswered,
    StatusChanged,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.session import Session


def end_turn_events(
    session: Session, why: str, stop_reason: StopReason = "cancelled"
) -> list[AnyBody]:
    """Return the events that end an open turn; none for a session without one.

    They withdraw permission requests, close tool calls and settle outcomes, with `why` as the
    reason. A reached budget does not settle outcomes, because the turn may be continued.
    """
    bodies: list[AnyBody] = [PermissionAnswered(ask_id=ask, note=why) for ask in session.open_asks]
    bodies += [
        ToolResult(call_id=call, status="cancelled", output=why, turn=session.turn)
        for call in session.open_calls
    ]
    cut = stop_reason in ("cancelled", "error", "budget_reached")
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
