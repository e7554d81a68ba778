"""The statuses of a session and the transitions between them.

An `idle` session waits for a prompt, or for an answer that its open turn needs. `running` has an
active turn. `rescheduling` has a turn that waits to call its model again. `terminated` is final.
TRANSITIONS lists all allowed steps. Archive and trash are independent of the status.
"""

from __future__ import annotations

from typing import Literal

from .errors import IllegalTransition

Status = Literal["idle", "running", "rescheduling", "terminated"]
STATUSES: tuple[Status, ...] = ("idle", "running", "rescheduling", "terminated")
RUNNING_STATUSES: tuple[Status, ...] = ("running", "rescheduling")  # a process runs a turn

# How a turn ended. `requires_action` does not end a turn: an idle session waits for an answer.
# `budget_reached` interrupts a turn; it is continued as a new turn when the budget is raised.
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
