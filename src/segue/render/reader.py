"""What render needs to read sessions; the hub's services provide it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from segue.model.event import Event
from segue.model.principal import Principal
from segue.model.session import Thread


class EventReader(Protocol):
    """Read the events of a session and of the threads that it started."""

    async def events(
        self,
        principal: Principal,
        id: str,
        /,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        limit: int = 1000,
        backward: bool = False,
    ) -> Sequence[Event]:
        """Return events with `after < seq < before`, oldest first, whichever end is read."""
        ...

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return the threads that a session started."""
        ...

    def thread_events(
        self, principal: Principal, id: str, thread_id: str, /
    ) -> AsyncIterator[Event]:
        """Read the events of one thread; their seqs are unrelated to the session's."""
        ...
