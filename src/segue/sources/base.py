"""What a source offers the hub.

A source belongs to one workspace. It answers the same questions as a store about sessions it did
not make, and takes the changes that its own format can hold; `can` says which. The rest lives in
the store's overlay, which the hub hands over so that lists and filters see it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from segue.model import ids
from segue.model.cursor import ChangePoint
from segue.model.event import Event, InfoChanged
from segue.model.query import Position, Query
from segue.model.search_text import Term
from segue.model.session import Session, Thread

# `trash` is deleting that can be taken back, `delete` for good; the others say it themselves.
Ability = Literal["title", "tag", "archive", "trash", "delete", "fork"]


def agent_id(workspace: str, source: str) -> str:
    """The id of the agent whose sessions a source has."""
    return ids.derived_id("segue", "source", workspace, source)


class Source(Protocol):
    """Sessions of another tool."""

    name: str
    workspace: str
    can: frozenset[Ability]
    # What every workspace that has the source knows of its agent; None where sessions name none.
    agent: Mapping[str, Any] | None

    async def close(self) -> None: ...
    async def refresh(self, cwd: str | None = None) -> None:
        """See what the tool did meanwhile; the hub asks for it before the first page of a list.

        `cwd` is the directory whose sessions are wanted, if not all are.
        """
        ...

    async def get(self, id: str) -> Session | None: ...
    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        """As `Store.between`."""
        ...

    async def page(
        self, query: Query, after: Position | None = None, backward: bool = False
    ) -> list[Session]:
        """As `Store.page`."""
        ...

    async def change_point(self) -> ChangePoint: ...
    async def sweep(self, query: Query, mark: ChangePoint, after: str) -> list[Session]: ...
    async def events(
        self,
        id: str,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        backward: bool = False,
    ) -> list[Event]:
        """As `Store.events`; `seq` is the position in the file."""
        ...

    def conversation(self, id: str) -> AsyncIterator[Event]:
        """The part of the history that led to the newest message: what a reader is shown."""
        ...

    async def threads(self, id: str) -> list[Thread]:
        """The agents that a session started, in the order of their beginning."""
        ...

    def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        """What one of them did; their places are its own. NotFound when there is none."""
        ...

    async def locate(self, id: str, event_id: str) -> int | None: ...
    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]: ...
    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        """As `Store.occurrences`."""
        ...

    async def ranked(self, query: Query) -> list[tuple[Session, Event | None, float]]: ...
    async def change(self, id: str, info: InfoChanged) -> None:
        """Write a change into the tool's own files; only what `can` names is ever asked."""
        ...

    async def delete(self, id: str) -> None: ...
    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        """A new session in the tool's own files, with the history up to the event `at`."""
        ...

    async def overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        """What the overlay says of sessions here: title, tag, archived_at, deleted_at by id."""
        ...

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Tell `listener` the ids of sessions that changed, until the returned call."""
        ...
