"""What a read returns: the sessions of a list, and the events of a session.

Stores turn a Query into SQL, sources into index look-ups. `matches` defines the filters in Python,
and tests compare both with it. An EventWindow selects events, and `select` defines what it selects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypedDict

import msgspec

from .errors import InvalidInput
from .event import Event
from .lifecycle import STATUSES, Status
from .session import Session, SessionState

Order = Literal["active", "created"]


class Position(NamedTuple):
    """A position in a list: the time that the list is sorted by, and the id that breaks ties."""

    at: int
    id: str


class Query(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Filters, all of which must hold, an order and a page size.

    `cwd` is matched by real path: the hub resolves it into `directories`, with the worktrees of its
    repository if `worktrees` is set. `archived_as` is the status that an archived session counts as
    (terminated in REST). `trash` lists only the trash.

    `branch` is the git branch, `model` a part of the name of a model that was used, and `project`
    the name of the working directory, or the last parts of its path. The hub checks these three
    row by row: stores and sources receive queries without them.
    """

    cwd: str | None = None
    worktrees: bool = False
    directories: tuple[str, ...] = ()
    agent_id: str | None = None
    agent_version: int | None = None
    created_gt: int | None = None
    created_gte: int | None = None
    created_lt: int | None = None
    created_lte: int | None = None
    active_after: int | None = None
    active_before: int | None = None
    statuses: tuple[Status, ...] = ()
    deployment_id: str | None = None
    memory_store_id: str | None = None
    tag: str | None = None
    source: str | None = None
    branch: str | None = None
    model: str | None = None
    project: str | None = None
    archived: Literal["exclude", "include", "only"] = "exclude"
    archived_as: Status | None = None
    trash: bool = False
    text: str | None = None
    order: Order = "active"
    descending: bool = True
    limit: int = 50

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {self.limit}")
        for status in self.statuses:
            if status not in STATUSES:
                raise InvalidInput(f"{status!r} is not a status; use one of {', '.join(STATUSES)}")

    def states(self) -> tuple[SessionState, ...]:
        """Return the session states that the query selects."""
        if self.trash:
            return ("trashed",)
        return {
            "exclude": ("active",),
            "include": ("active", "archived"),
            "only": ("archived",),
        }[self.archived]  # type: ignore[return-value]  # literals, widened by the dict

    def created_bounds(self) -> tuple[int | None, int | None]:
        """Return the range of created_at, both ends included."""
        low, high = self.created_gte, self.created_lte
        if self.created_gt is not None:
            low = self.created_gt + 1 if low is None else max(low, self.created_gt + 1)
        if self.created_lt is not None:
            high = self.created_lt - 1 if high is None else min(high, self.created_lt - 1)
        return low, high

    @property
    def has_row_filters(self) -> bool:
        """Return whether the query has filters that the hub checks row by row."""
        return not (self.branch is None and self.model is None and self.project is None)

    def without_row_filters(self) -> Query:
        """Return the query as stores and sources receive it."""
        if not self.has_row_filters:
            return self
        return msgspec.structs.replace(self, branch=None, model=None, project=None)

    def filters(self) -> Query:
        """Return the filters without page size and order, to bind a cursor to."""
        return msgspec.structs.replace(self, limit=50, order="active", descending=True)


class SearchHit(NamedTuple):
    """A session that matches a search, and an event in it that shows why."""

    session: Session
    event: Event | None
    score: float = 0.0


def position(session: Session, order: Order) -> Position:
    """Return the position of a session in an order."""
    return Position(session.active_at if order == "active" else session.created_at, session.id)


def matches(query: Query, session: Session) -> bool:
    """Return whether a session matches every filter; the text is not checked."""
    if session.state not in query.states():
        return False
    if query.statuses:
        archived = session.state == "archived" and query.archived_as is not None
        if (query.archived_as if archived else session.status) not in query.statuses:
            return False
    low, high = query.created_bounds()
    if low is not None and session.created_at < low:
        return False
    if high is not None and session.created_at > high:
        return False
    if query.active_after is not None and session.active_at <= query.active_after:
        return False
    if query.active_before is not None and session.active_at >= query.active_before:
        return False
    if query.directories and session.directory not in query.directories:
        return False
    if query.agent_id is not None:
        if session.agent is None or session.agent.id != query.agent_id:
            return False
        if query.agent_version is not None and session.agent.version != query.agent_version:
            return False
    if query.deployment_id is not None and session.deployment_id != query.deployment_id:
        return False
    if query.memory_store_id is not None and query.memory_store_id not in session.memory_store_ids:
        return False
    if query.tag is not None and session.tag != query.tag:
        return False
    if query.source is not None and session.source != query.source:
        return False
    return matches_row_filters(query, session)


def matches_row_filters(query: Query, session: Session) -> bool:
    """Return whether a session matches the filters that the hub checks row by row."""
    if query.branch is not None and session.git_branch != query.branch:
        return False
    if query.model is not None:
        part = query.model.casefold()
        if not any(part in name.casefold() for name in session.models):
            return False
    return query.project is None or _is_project(session, query.project)


def _is_project(session: Session, project: str) -> bool:
    """Return whether the last parts of a session's directory are those of `project`."""
    parts = [part for part in project.split("/") if part]
    directories = (session.cwd, session.directory)
    return bool(parts) and any(path.split("/")[-len(parts) :] == parts for path in directories)


class EventWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The events with `after < seq < before`, of some types or of all.

    `since` and `until` are the times of the first and of the last event. These are the first
    `limit` events, or with `backward` the last ones; both are read in the order of their seqs.
    """

    after: int = 0
    before: int | None = None
    types: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    limit: int = 1000
    backward: bool = False

    def matches(self, event: Event) -> bool:
        """Return whether the type and the time of an event are among those of the window."""
        return (
            (not self.types or event.type in self.types)
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at <= self.until)
        )

    def select(self, events: Iterable[Event]) -> list[Event]:
        """Return the events of the window, out of a history in its order."""
        selected = [
            event
            for event in events
            if event.seq > self.after
            and (self.before is None or event.seq < self.before)
            and self.matches(event)
        ]
        return self.cut(selected)

    def cut(self, events: list[Event]) -> list[Event]:
        """Return the first `limit` of these events, or with `backward` the last."""
        if self.backward:
            return events[max(0, len(events) - self.limit) :]
        return events[: self.limit]


class WindowOptions(TypedDict, total=False):
    """The fields of an EventWindow as keyword arguments, so that callers name only some of them."""

    after: int
    before: int | None
    types: Sequence[str]
    since: int | None
    until: int | None
    limit: int
    backward: bool
