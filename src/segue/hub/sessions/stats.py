"""Sum up messages, tokens and cost of a workspace's sessions by day, model and project."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest

import msgspec

from segue.model import clock
from segue.model.event import Usage
from segue.model.session import Session

LONGEST_SESSIONS = 10


class UsageTotal(msgspec.Struct):
    """The sum over some sessions; `unpriced` counts those that used a model without a price."""

    sessions: int = 0
    messages: int = 0
    usage: Usage = Usage()
    unpriced: int = 0

    def add(self, session: Session) -> None:
        """Add one session."""
        self._add(session.usage, session.messages, priced=session.has_full_cost)

    def add_model(self, usage: Usage, messages: int = 0) -> None:
        """Add what one session used of a model."""
        self._add(usage, messages, priced=usage.is_priced)

    def _add(self, usage: Usage, messages: int, *, priced: bool) -> None:
        self.sessions += 1
        self.messages += messages
        self.usage += usage
        self.unpriced += not priced

    def merge(self, other: UsageTotal) -> None:
        """Add all sessions of another total."""
        self.sessions += other.sessions
        self.messages += other.messages
        self.usage += other.usage
        self.unpriced += other.unpriced


class UsageStats(msgspec.Struct):
    """Statistics of the sessions that were active between two days, counted from 1970.

    `days` has the messages of each day. Tokens and cost are those of whole sessions, because a
    session row does not record when a model was called. Usage of an unknown model is under "".
    """

    since: int
    until: int
    total: UsageTotal = msgspec.field(default_factory=UsageTotal)
    days: dict[int, int] = msgspec.field(default_factory=dict)
    models: dict[str, UsageTotal] = msgspec.field(default_factory=dict)
    projects: dict[str, UsageTotal] = msgspec.field(default_factory=dict)
    longest: list[Session] = []

    def add(self, sessions: Iterable[Session]) -> None:
        """Add some sessions."""
        batch = list(sessions)
        for session in batch:
            self.total.add(session)
            self.projects.setdefault(session.directory, UsageTotal()).add(session)
            self._add_models(session)
            self._add_days(session)
        self.longest = nlargest(
            LONGEST_SESSIONS, [*self.longest, *batch], key=lambda session: session.messages
        )

    def _add_days(self, session: Session) -> None:
        # Without messages per day, all of them count for the day of the last activity.
        days = session.days or {str(session.active_at // clock.DAY): session.messages}
        for number, messages in days.items():
            day = int(number)
            if self.since <= day <= self.until:
                self.days[day] = self.days.get(day, 0) + messages

    def _add_models(self, session: Session) -> None:
        for model, usage in usage_by_model(session).items():
            self.models.setdefault(model, UsageTotal()).add_model(usage)


def usage_by_model(session: Session) -> dict[str, Usage]:
    """Return what a session used of each model; usage of an unknown model is under ""."""
    unattributed = session.usage
    for usage in session.models.values():
        unattributed -= usage
    return session.models if unattributed.is_zero else {**session.models, "": unattributed}
