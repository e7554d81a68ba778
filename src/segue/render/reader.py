"""How render reads sessions: from the hub's services, or from a list of events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Protocol, Unpack

from segue.event_loop import run_in_thread
from segue.model.event import Event
from segue.model.principal import Principal
from segue.model.query import EventWindow, WindowOptions
from segue.model.session import Thread
from segue.secrets.events import (
    SecretCounter,
    adjacent_messages,
    mask_events,
    mask_thread,
    message_groups,
)


class EventReader(Protocol):
    """Read the events of a session and of the threads that it started."""

    async def events(
        self,
        principal: Principal,
        id: str,
        /,
        **window: Unpack[WindowOptions],
    ) -> Sequence[Event]:
        """Return the events of an EventWindow, in order."""
        ...

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return the threads that a session started."""
        ...

    def thread_events(
        self, principal: Principal, id: str, thread_id: str, /
    ) -> AsyncIterator[Event]:
        """Read the events of one thread; their seqs are unrelated to the session's."""
        ...


class ConversationReader:
    """The events of one conversation, as render reads them. Subagents are not part of it."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    async def events(
        self,
        principal: Principal,
        id: str,
        /,
        **window: Unpack[WindowOptions],
    ) -> Sequence[Event]:
        """Return the events of an EventWindow, in order."""
        return EventWindow(**window).select(self._events)

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return no threads."""
        return []

    async def thread_events(
        self, principal: Principal, id: str, thread: str, /
    ) -> AsyncIterator[Event]:
        """Read no events."""
        return
        yield


class MaskedReader:
    """A reader whose events have masks instead of secrets. `counter` counts the secrets."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader
        self.counter = SecretCounter()

    async def events(
        self,
        principal: Principal,
        id: str,
        /,
        **window: Unpack[WindowOptions],
    ) -> Sequence[Event]:
        """Return the events of an EventWindow, in order."""
        events = await self._reader.events(principal, id, **window)
        read = partial(self._reader.events, principal, id)
        earlier, later = await adjacent_messages(events, read)
        # Long texts take a while.
        return await run_in_thread(partial(self._masked, earlier, events, later))

    def _masked(
        self, earlier: Sequence[Event], events: Sequence[Event], later: Sequence[Event]
    ) -> Sequence[Event]:
        if not earlier and not later:
            return mask_events(events, self.counter)
        counter, adjacent = SecretCounter(), SecretCounter()
        masked = mask_events([*earlier, *events, *later], counter)
        mask_events([*earlier, *later], adjacent)  # counted with their own page
        self.counter.secrets += counter.secrets - adjacent.secrets
        return masked[len(earlier) : len(earlier) + len(events)]

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return the threads that a session started."""
        return [mask_thread(thread) for thread in await self._reader.threads(principal, id)]

    async def thread_events(
        self, principal: Principal, id: str, thread: str, /
    ) -> AsyncIterator[Event]:
        """Read the events of one thread."""
        events = self._reader.thread_events(principal, id, thread)
        async for group in message_groups(events):
            for event in await run_in_thread(partial(mask_events, group, self.counter)):
                yield event
