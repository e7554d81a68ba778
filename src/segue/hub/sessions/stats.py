"""What a workspace's sessions come to: messages by day, tokens and cost by model and project."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from heapq import nlargest

import msgspec

from segue.model import clock
from segue.model.event import Usage
from segue.model.session import Session

LONGEST = 10


class Spent(msgspec.Struct):
    """What came together under one name; of `unpriced` sessions nobody told the cost."""

    sessions: int = 0
    messages: int = 0
    usage: Usage = Usage()
    unpriced: int = 0

    def add(self, usage: Usage, messages: int = 0) -> None:
        self.sessions += 1
        self.messages += messages
        self.usage += usage
        self.unpriced += not usage.is_priced

    def merge(self, other: Spent) -> None:
        self.sessions += other.sessions
        self.messages += other.messages
        self.usage += other.usage
        self.unpriced += other.unpriced


class Tally(msgspec.Struct):
    """The sessions that were active since a day. `days` has messages by day, counted from 1970.

    Tokens and cost are those of the whole sessions: when in a session a model was called is not
    kept. What no model is known for stands under the empty name.
    """

    since: int
    until: int
    total: Spent = msgspec.field(default_factory=Spent)
    days: dict[int, int] = msgspec.field(default_factory=dict)
    models: dict[str, Spent] = msgspec.field(default_factory=dict)
    projects: dict[str, Spent] = msgspec.field(default_factory=dict)
    longest: list[Session] = []

    def add(self, sessions: Iterable[Session]) -> None:
        batch = list(sessions)
        for session in batch:
            self.total.add(session.usage, session.messages)
            project = self.projects.setdefault(session.directory, Spent())
            project.add(session.usage, session.messages)
            self._add_models(session)
            # A source may not tell the days apart: then all of it counts for the last one.
            days = session.days or {str(session.active_at // clock.DAY): session.messages}
            for number, messages in days.items():
                day = int(number)
                if self.since <= day <= self.until:
                    self.days[day] = self.days.get(day, 0) + messages
        self.longest = nlargest(LONGEST, [*self.longest, *batch], key=lambda each: each.messages)

    def _add_models(self, session: Session) -> None:
        rest = session.usage
        for model, usage in session.models.items():
            self.models.setdefault(model, Spent()).add(usage)
            rest = rest - usage
        if rest != Usage():
            self.models.setdefault("", Spent()).add(rest)


async def tally(pages: AsyncIterator[Iterable[Session]], since: int, until: int) -> Tally:
    """The tally of all sessions on some pages, for the days from one to another."""
    made = Tally(since=since, until=until)
    async for page in pages:
        made.add(page)
    return made
