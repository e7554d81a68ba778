"""Bringing a session to rest wherever its history was cut."""

from __future__ import annotations

from segue.model.event import (
    AnyBody,
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
    """The events that end an open turn: questions withdrawn, calls closed, outcomes settled.

    `why` is told of whatever had to be cut short. Nothing for a session that is at rest. An outcome
    that a budget cut short is not settled by that: it may go on.
    """
    bodies: list[AnyBody] = [PermissionAnswered(ask_id=ask, note=why) for ask in session.open_asks]
    bodies += [
        ToolResult(call_id=call, status="cancelled", output=why) for call in session.open_calls
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


def fork_tail_events(session: Session) -> list[AnyBody]:
    """What a fork adds after the events that it took over: at rest, and on no state."""
    bodies = end_turn_events(session, "the session was forked here")
    if session.stop_reason == "budget_reached":  # what that cut short goes on in the parent alone
        bodies.append(StatusChanged(status="idle", stop_reason="cancelled"))
    if session.archived_at is not None or session.deleted_at is not None:
        bodies.append(InfoChanged(archived=False, deleted=False))
    return bodies
