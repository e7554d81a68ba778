"""The life of a session, as one table.

A session is always in one of four states. `idle` waits for a prompt, or for the answer that its
open turn asked for; `running` has a turn at work; `rescheduling` has a turn that waits to try its
model again; `terminated` has ended for good. What may follow what is this table and nothing else;
archive and trash are marks beside the state, not states.
"""

from __future__ import annotations

from typing import Literal

from .errors import IllegalTransition

Status = Literal["idle", "running", "rescheduling", "terminated"]
STATUSES: tuple[Status, ...] = ("idle", "running", "rescheduling", "terminated")

# How a turn ended. `requires_action` ends no turn: it says what an idle session waits for.
# `budget_reached` ends one in the middle: it goes on as a new turn when the budget is changed.
StopReason = Literal[
    "end_turn",
    "max_tokens",
    "max_turn_requests",
    "refusal",
    "cancelled",
    "error",
    "requires_action",
    "budget_reached",
]

TRANSITIONS: dict[Status, frozenset[Status]] = {
    "idle": frozenset({"idle", "running", "terminated"}),
    "running": frozenset({"idle", "running", "rescheduling", "terminated"}),
    "rescheduling": frozenset({"idle", "running", "rescheduling", "terminated"}),
    "terminated": frozenset({"terminated"}),
}


def check_transition(before: Status, after: Status) -> None:
    """Raise IllegalTransition unless `after` may follow `before`."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"a session that is {before} cannot become {after}")
