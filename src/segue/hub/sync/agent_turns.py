"""Leave out what a tool has recorded of turns that segue has stored itself.

An ACP agent may answer in the tool's own session. Then both segue and the tool's files have the
turn, under different ids, so a pull would add it a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from segue.model import clock
from segue.model.event import AnyBody, ConfigChanged, Draft, InfoChanged
from segue.model.session import Session
from segue.sources.base import ReadEvents

EARLY = clock.SECOND  # before the prompt is stored, in which the tool may record it
LATE = clock.SECOND  # after the last message, in which the tool may record the end of the turn
_TURN_EVENTS = ("user_message", "agent_message", "agent_thought", "tool_call", "tool_result")


class Period(NamedTuple):
    """The time in which an agent answered a turn."""

    start: int
    end: int


def answers_in_files(session: Session) -> bool:
    """Return whether an agent answers in the session that the tool itself has."""
    binding = session.options.get("acp")
    if not isinstance(binding, dict) or binding.get("of") != session.id:
        return False
    return binding.get("session") == (session.native_id or session.id)


async def turn_periods(read_events: ReadEvents) -> list[Period]:
    """Return when segue's turns in a session began and ended."""
    periods: dict[str, Period] = {}
    async for event in read_events(_TURN_EVENTS):
        turn = getattr(event.body, "turn", None)
        if isinstance(turn, str):
            start = periods.get(turn, Period(event.at, 0)).start
            periods[turn] = Period(start, event.at)
    return [Period(start - EARLY, end + LATE) for start, end in periods.values()]


def without_turns(
    drafts: Iterable[AnyBody | Draft], periods: Sequence[Period]
) -> list[AnyBody | Draft]:
    """Return the drafts that are not messages of these periods. Titles and settings are kept."""
    kept: list[AnyBody | Draft] = []
    at: int | None = None
    for draft in drafts:
        body = draft.body if isinstance(draft, Draft) else draft
        at = (draft.at if isinstance(draft, Draft) else None) or at
        is_covered = at is not None and any(start <= at <= end for start, end in periods)
        if isinstance(body, InfoChanged | ConfigChanged) or not is_covered:
            kept.append(draft)
    return kept
