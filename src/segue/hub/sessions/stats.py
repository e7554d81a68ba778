"""Sum up messages, tokens and cost of a period by day, model, project and source."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Protocol

import msgspec

from segue.model import clock
from segue.model.event import Event, Usage
from segue.model.principal import Principal
from segue.model.session import Session

READ_EVENTS = 1000  # at a time
MAX_DIVIDED_SESSIONS = 200  # active outside the period too, so their events are read
DIMENSIONS = ("project", "model", "source")
MEASURES = ("cost", "tokens", "sessions")  # that charts show and sort by: the first that is known


class ReadEvents(Protocol):
    """Return events of a session with `after < seq`, of some types, in a period."""

    async def __call__(
        self,
        principal: Principal,
        id: str,
        *,
        after: int,
        types: Sequence[str],
        since: int,
        until: int,
        limit: int,
    ) -> Sequence[Event]: ...


class UsageTotal(msgspec.Struct):
    """The sum over some sessions; `unpriced` counts those that used a model without a price."""

    sessions: int = 0
    messages: int = 0
    usage: Usage = Usage()
    unpriced: int = 0

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the values of the MEASURES."""
        return (self.usage.cost or 0, self.usage.tokens, self.sessions)

    def add(self, session: Session) -> None:
        """Add one session."""
        self.add_usage(session.usage, own_messages(session), priced=session.has_full_cost)

    def add_model(self, usage: Usage, messages: int = 0) -> None:
        """Add what one session used of a model."""
        self.add_usage(usage, messages, priced=usage.is_priced)

    def add_usage(self, usage: Usage, messages: int, *, priced: bool) -> None:
        """Add what one session used."""
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


class SessionUsage(msgspec.Struct, frozen=True):
    """What a session used in a period, by model; "" stands for an unknown model.

    `costs` has the cost of each day, in millionths of a US dollar. The cost of a session that was
    active on several days of the period, and on no other, is divided by its messages. `is_priced`
    says that the cost of every model is known.
    """

    session: Session
    messages: int
    models: Mapping[str, Usage]
    costs: Mapping[int, int]
    is_priced: bool

    @property
    def usage(self) -> Usage:
        """Return the sum over all models."""
        total = Usage()
        for usage in self.models.values():
            total += usage
        return total

    def cost_of(self, usage: Usage) -> Mapping[int, float]:
        """Return the cost of one of the models by day, in proportion to the cost of each day."""
        total = sum(self.costs.values())
        return {day: cost * (usage.cost or 0) / total for day, cost in self.costs.items() if total}


class UsageStats(msgspec.Struct):
    """What the sessions used between two days, counted from 1970, both included.

    `days` has the messages of each day. `totals` has what each project, model and source used, by
    dimension; `costs` has its cost by day. `sessions` are those with the highest cost, among the
    `included` ones. `undivided` counts sessions that were active outside the period as well, and
    were too many to read: they count as a whole.
    """

    since: int
    until: int
    total: UsageTotal = msgspec.field(default_factory=UsageTotal)
    days: dict[int, int] = msgspec.field(default_factory=dict)
    totals: dict[str, dict[str, UsageTotal]] = msgspec.field(default_factory=dict)
    costs: dict[str, dict[str, dict[int, float]]] = msgspec.field(default_factory=dict)
    sessions: list[SessionUsage] = []
    included: UsageTotal = msgspec.field(default_factory=UsageTotal)
    undivided: int = 0

    def contains(self, day: int) -> bool:
        """Return whether a day is in the period."""
        return self.since <= day <= self.until

    def add(self, used: SessionUsage) -> None:
        """Add what one session used."""
        session, usage = used.session, used.usage
        self.total.add_usage(usage, used.messages, priced=used.is_priced)
        for day, messages in _days(session).items():
            if self.contains(day):
                self.days[day] = self.days.get(day, 0) + messages
        for dimension, name in (("project", session.directory), ("source", session.source)):
            total = self._total(dimension, name)
            total.add_usage(usage, used.messages, priced=used.is_priced)
            self._add_costs(dimension, name, used.costs)
        for model, part in used.models.items():
            self._total("model", model).add_model(part, used.messages)
            self._add_costs("model", model, used.cost_of(part))

    def _total(self, dimension: str, name: str) -> UsageTotal:
        return self.totals.setdefault(dimension, {}).setdefault(name, UsageTotal())

    def _add_costs(self, dimension: str, name: str, costs: Mapping[int, float]) -> None:
        days = self.costs.setdefault(dimension, {}).setdefault(name, {})
        for day, cost in costs.items():
            days[day] = days.get(day, 0) + cost


def chart_measure(totals: Iterable[UsageTotal]) -> int:
    """Return the index of the measure that a chart of some totals shows."""
    sizes = [total.size for total in totals]
    known = (index for index in range(len(MEASURES)) if any(size[index] for size in sizes))
    return next(known, 0)


async def read_stats(
    principal: Principal,
    pages: AsyncIterable[Iterable[Session]],
    read_events: ReadEvents,
    since: int,
    until: int,
    *,
    include: Callable[[SessionUsage], bool],
    max_sessions: int,
) -> UsageStats:
    """Return what some sessions used between two days; `sessions` has at most `max_sessions`.

    `include` says whether a session is listed and part of the sum `included`.
    """
    stats = UsageStats(since=since, until=until)
    divided = 0
    async for page in pages:
        included = []
        for session in page:
            days = _days(session)
            inside = {day: count for day, count in days.items() if stats.contains(day)}
            if not inside:
                continue
            if len(inside) == len(days):
                used = _whole(session, inside)
            elif divided < MAX_DIVIDED_SESSIONS:
                divided += 1
                used = await _part(principal, session, inside, read_events, since, until)
            else:
                stats.undivided += 1
                used = _whole(session, inside)
            stats.add(used)
            if include(used):
                stats.included.add_usage(used.usage, used.messages, priced=used.is_priced)
                included.append(used)
        stats.sessions = nlargest(
            max_sessions,
            [*stats.sessions, *included],
            key=lambda used: (used.usage.cost or 0, used.usage.tokens, used.messages),
        )
    return stats


def own_messages(session: Session) -> int:
    """Return the messages of a session; those that a fork has from its parent count there."""
    return sum(session.days.values()) if session.days else _messages_without_days(session)


def _days(session: Session) -> dict[int, int]:
    """Return the messages of a session by day."""
    # Without messages per day, all of them count for the day of the last activity.
    days = session.days or {str(session.active_at // clock.DAY): _messages_without_days(session)}
    return {int(day): messages for day, messages in days.items()}


def _messages_without_days(session: Session) -> int:
    return session.messages if session.fork is None else 0


def _whole(session: Session, days: Mapping[int, int]) -> SessionUsage:
    """Return what a session used, with its cost divided among days by their messages."""
    messages, cost = sum(days.values()), session.usage.cost or 0
    costs = {day: cost * count // messages for day, count in days.items()} if messages else {}
    last = max(days)
    costs[last] = costs.get(last, 0) + cost - sum(costs.values())
    return SessionUsage(session, messages, usage_by_model(session), costs, session.has_full_cost)


async def _part(
    principal: Principal,
    session: Session,
    days: Mapping[int, int],
    read_events: ReadEvents,
    since: int,
    until: int,
) -> SessionUsage:
    """Return what a session used in a period, from the model requests that ended in it."""
    from segue.model.requests.spans import RESPONSE_TYPES, request_end

    models: dict[str, Usage] = {}
    costs: dict[int, int] = {}
    after = session.fork.seq if session.fork is not None else 0  # its parent has paid for those
    while True:
        events = await read_events(
            principal,
            session.id,
            after=after,
            types=RESPONSE_TYPES,
            since=since * clock.DAY,
            until=(until + 1) * clock.DAY - 1,
            limit=READ_EVENTS,
        )
        for event in events:
            if (end := request_end(event.body)) is not None:
                day, model = event.at // clock.DAY, end.model or ""
                models[model] = models.get(model, Usage()) + end.usage
                costs[day] = costs.get(day, 0) + (end.usage.cost or 0)
        if len(events) < READ_EVENTS:
            break
        after = events[-1].seq
    is_priced = all(usage.is_priced for usage in models.values())
    return SessionUsage(session, sum(days.values()), models, costs, is_priced)


def usage_by_model(session: Session) -> dict[str, Usage]:
    """Return what a session used of each model; usage of an unknown model is under ""."""
    unattributed = session.usage
    for usage in session.models.values():
        unattributed -= usage
    return session.models if unattributed.is_zero else {**session.models, "": unattributed}
