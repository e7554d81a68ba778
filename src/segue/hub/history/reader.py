"""Read a session's events, conversation and threads, and follow new events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Unpack, cast, overload

from segue.hub.sessions.interrupted import EndedSession, ended
from segue.hub.sessions.lookup import SessionLookup, SourceSet
from segue.model import search_text
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Delta, Event, PermissionAsked, ToolCall
from segue.model.principal import Principal
from segue.model.query import EventWindow, SearchHit, WindowOptions
from segue.model.requests.spans import OpenRequest
from segue.model.session import Session, Thread
from segue.sources import registry
from segue.sources.base import ReadEvents, Source
from segue.store.base import Store

from .threads import read_threads, thread_event

if TYPE_CHECKING:
    from segue.hub.sessions.search import SearchMatch

    from .background_pull import BackgroundPulls, EnsureCurrent
    from .follow import LiveUpdate, LiveUpdates, SessionChange


# The tool calls before a permission request among which the one that it is about is searched.
MAX_SEARCHED_CALLS = 50


class OpenPermission(NamedTuple):
    """A permission request that was not answered, and the tool call that it is about."""

    request: PermissionAsked
    call: ToolCall | None


class HistoryReader:
    """Read histories of the store and the sources."""

    def __init__(
        self,
        store: Store,
        sources: SourceSet,
        lookup: SessionLookup,
        ensure_current: EnsureCurrent,
    ) -> None:
        """Create the reader; `ensure_current` pulls what a tool added to an imported session."""
        self._store = store
        self._sources = sources
        self._lookup = lookup
        self._ensure_current = ensure_current

    @cached_property
    def live(self) -> LiveUpdates:
        """What wakes the subscribers of sessions in this process."""
        from .follow import LiveUpdates

        return LiveUpdates(self._store, self._sources)

    @cached_property
    def _background_pulls(self) -> BackgroundPulls:
        from .background_pull import BackgroundPulls

        return BackgroundPulls(self.live, self._ensure_current)

    async def close(self) -> None:
        """Stop to listen for changes, and stop the pulls in the background."""
        if "_background_pulls" in self.__dict__:
            await self._background_pulls.close()
        if "live" in self.__dict__:
            self.live.close()

    async def events(
        self,
        principal: Principal,
        id: str,
        **window: Unpack[WindowOptions],
    ) -> Sequence[Event]:
        """Return the events of an EventWindow, in order."""
        events: Sequence[Event]
        try:
            events = await self._store.events(principal.workspace, id, **window)
        except NotFound:
            _, source = await self._lookup.find(principal, id)
            if source is not None:
                events = await source.events(id, **window)
            else:  # it was imported just now
                events = await self._store.events(principal.workspace, id, **window)
        return events if principal.local else [event.for_caller(local=False) for event in events]

    async def read(self, principal: Principal, id: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the whole history after a seq, one batch at a time."""
        _, source = await self._lookup.find(principal, id)
        async for event in self._lookup.read(principal.workspace, id, source, after=after):
            yield event.for_caller(local=principal.local)

    async def conversation(self, principal: Principal, id: str) -> AsyncIterator[Event]:
        """Yield the events of the active branch: those that led to the newest message.

        Events of threads are not among them.
        """
        _, source = await self._lookup.find(principal, id)
        if source is not None:
            async for event in source.conversation(id):
                yield event.for_caller(local=principal.local)
            return
        async for event in self._lookup.read(principal.workspace, id, None):
            if not event.body.is_off_branch and event.body.thread is None:
                yield event.for_caller(local=principal.local)

    async def as_ended(self, principal: Principal, id: str) -> EndedHistory:
        """Return a session's history as it will be after its turn, if its process died.

        The partial text of a message is in it. The history of any other session is as it is stored.
        """
        session, source = await self._lookup.find(principal, id)
        stored = EndedSession(session)
        return EndedHistory(self, stored if source else await ended(self._store, session))

    async def locate(self, principal: Principal, id: str, event_id: str) -> int:
        """Return the seq of an event; raises NotFound if the session has no such event."""
        _, source = await self._lookup.find(principal, id)
        if source is not None:
            seq = await source.locate(id, event_id)
        else:
            seq = await self._store.locate(principal.workspace, id, event_id)
        if seq is None:
            raise NotFound(f"no event {event_id} in session {id}", session=id)
        return seq

    async def open_requests(self, principal: Principal, session: Session) -> list[OpenPermission]:
        """Return the permission requests that a session's turn waits for, in their order."""
        requests = []
        for ask_id in session.open_asks:
            seq = await self.locate(principal, session.id, ask_id)
            for event in await self.events(principal, session.id, after=seq - 1, limit=1):
                if isinstance(event.body, PermissionAsked):
                    call = await self._call_before(principal, session.id, event.body.call_id, seq)
                    requests.append(OpenPermission(event.body, call))
        return requests

    async def _call_before(
        self, principal: Principal, id: str, call_id: str | None, seq: int
    ) -> ToolCall | None:
        """Return a tool call that was stored shortly before a permission request, if it was."""
        from segue.model.tools.changes import with_changes  # lists do not need it

        types = ["tool_call", "tool_call_changed"]
        events = await self.events(
            principal, id, before=seq, types=types, limit=MAX_SEARCHED_CALLS, backward=True
        )
        in_order = with_changes(sorted(events, key=lambda event: event.seq))
        bodies = [event.body for event in in_order if isinstance(event.body, ToolCall)]
        return next((body for body in bodies if body.call_id == call_id), None)

    async def find(
        self,
        principal: Principal,
        id: str,
        words: str,
        *,
        before: int | None = None,
        limit: int = 100,
    ) -> list[SearchMatch]:
        """Return the events of a session that contain all words, the newest first."""
        from segue.hub.sessions.search import search_match

        terms = _terms(words)
        session, source = await self._lookup.find(principal, id)
        if source is not None:
            seqs = await source.occurrences(id, terms, before, limit)
        else:
            seqs = await self._store.occurrences(principal.workspace, id, terms, before, limit)
        return [
            search_match(SearchHit(session, event), terms)
            for seq in seqs
            for event in await self.events(principal, id, after=seq - 1, before=seq + 1, limit=1)
        ]

    async def find_in_threads(
        self, principal: Principal, id: str, words: str, *, limit: int = 100
    ) -> list[tuple[Thread, SearchMatch]]:
        """Return the events of a session's threads that contain all words."""
        from segue.hub.sessions.search import search_match

        terms = _terms(words)
        session, _ = await self._lookup.find(principal, id)
        matches: list[tuple[Thread, SearchMatch]] = []
        for thread in await self.threads(principal, id):
            async for event in self.thread_events(principal, id, thread.id):
                text = search_text.searchable_text(event.body)
                if text and all(search_text.text_has_term(term, text) for term in terms):
                    matches.append((thread, search_match(SearchHit(session, event), terms)))
                    if len(matches) == limit:
                        return matches
        return matches

    async def threads(self, principal: Principal, id: str) -> Sequence[Thread]:
        """Return the threads of a session: agents that its own agent has delegated work to."""
        session, source = await self._lookup.find(principal, id)
        if source is not None:
            return await source.threads(id)
        own = await read_threads(self._store, session) if session.threads else []
        return [*(await self._imported_threads(session)).values(), *own]

    async def thread_events(
        self, principal: Principal, id: str, thread_id: str
    ) -> AsyncIterator[Event]:
        """Yield the events of a thread. Those of another tool's thread have a seq of their own.

        Raises NotFound if the session has no such thread.
        """
        session, source = await self._lookup.find(principal, id)
        if source is not None:
            async for event in source.thread(id, thread_id):
                yield event.for_caller(local=principal.local)
            return
        own = await read_threads(self._store, session) if session.threads else []
        for thread in own:
            if thread.id == thread_id:
                after = (thread.seq or 0) - 1
                async for event in self._lookup.read(session.workspace, id, None, after=after):
                    if own_event := thread_event(event, thread_id):
                        yield own_event.for_caller(local=principal.local)
                return
        threads = await self._imported_threads(session)
        key = next((key for key, thread in threads.items() if thread.id == thread_id), None)
        definition = registry.of_copy(session)
        if key is None or definition is None:
            raise NotFound(f"session {id} has no thread {thread_id}", session=id)
        transcripts = definition.transcripts()
        async for event in transcripts.thread_events(session, key, self._reader(session)):
            yield event.for_caller(local=principal.local)

    async def _imported_threads(self, session: Session) -> Mapping[str, Thread]:
        definition = registry.of_copy(session)
        if definition is None:
            return {}
        return await definition.transcripts().threads(session, self._reader(session))

    def _reader(self, session: Session) -> ReadEvents:
        return lambda types: self._lookup.read(session.workspace, session.id, None, types=types)

    async def ack(self, principal: Principal, id: str, seq: int) -> None:
        """Record, for all processes, that a client has received the events up to `seq`.

        Does nothing for a session that a source owns.
        """
        _, source = await self._lookup.find(principal, id)
        if source is None:
            await self._store.ack(principal.workspace, id, seq)

    async def acked_seq(self, principal: Principal, id: str) -> int:
        """Return the last seq that a client has received; 0 for a session of a source."""
        _, source = await self._lookup.find(principal, id)
        return 0 if source is not None else await self._store.acked_seq(principal.workspace, id)

    @overload
    def follow(
        self,
        principal: Principal,
        id: str,
        after: int = 0,
        *,
        deltas: Literal[False] = False,
        requests: Literal[False] = False,
    ) -> AsyncGenerator[Event, None]: ...

    @overload
    def follow(
        self,
        principal: Principal,
        id: str,
        after: int = 0,
        *,
        deltas: bool = False,
        requests: bool = False,
    ) -> AsyncGenerator[Event | Delta, None]: ...

    def follow(
        self,
        principal: Principal,
        id: str,
        after: int = 0,
        *,
        deltas: bool = False,
        requests: bool = False,
    ) -> AsyncGenerator[Event, None] | AsyncGenerator[Event | Delta, None]:
        """Yield the stored events after a seq, then new ones from any process as they come.

        With `deltas`, also yield the deltas of messages that are being written, and with `requests`
        a delta for each model request without a response so far. Ends when the session is purged.

        A source's session is followed in its source. After it was imported, its first turn in the
        store and all later events are followed in the store.
        """
        items = self._follow(principal, id, after, deltas=deltas, requests=requests, updates=False)
        return cast("AsyncGenerator[Event | Delta, None]", items)

    def follow_with_updates(
        self, principal: Principal, id: str, after: int
    ) -> AsyncGenerator[Event | Delta | LiveUpdate, None]:
        """Yield what `follow` yields with `deltas`, and the live updates of agents."""
        return self._follow(principal, id, after, deltas=True, requests=False, updates=True)

    async def _follow(
        self,
        principal: Principal,
        id: str,
        after: int,
        *,
        deltas: bool,
        requests: bool,
        updates: bool,
    ) -> AsyncGenerator[Event | Delta | LiveUpdate, None]:
        session, source = await self._lookup.find(principal, id)
        name = (principal.workspace, id)
        if source is not None:
            async for item in self._follow_in_source(name, source, after):
                yield item.for_caller(local=principal.local) if isinstance(item, Event) else item
            imported = await self._store.get(*name)
            if imported is None:
                return
            session = imported
            turns = await self._store.events(*name, types=("status_changed",), limit=1)
            after = turns[0].seq - 1 if turns else session.last_seq

        def read(seq: int) -> AsyncIterator[Event]:
            return self._lookup.read(*name, None, after=seq)

        is_imported = session.source in {source.name for source in self._sources}
        with self._background_pulls.while_followed(name) if is_imported else nullcontext():
            async for item in self.live.follow(
                read, name, after, deltas=deltas, requests=requests, updates=updates
            ):
                yield item.for_caller(local=principal.local) if isinstance(item, Event) else item

    async def open_request(self, principal: Principal, id: str) -> OpenRequest | None:
        """Return the model request of the session's turn that has no response so far."""
        session, source = await self._lookup.find(principal, id)
        if source is not None or session.turn is None:
            return None
        return await self.live.open_request((principal.workspace, id))

    async def _follow_in_source(
        self, name: tuple[str, str], source: Source, after: int
    ) -> AsyncIterator[Event | Delta | LiveUpdate]:
        """Yield a source's events until the session is imported or deleted."""
        workspace, id = name

        async def read(seq: int) -> AsyncIterator[Event]:
            imported = await self._store.get(workspace, id) is not None
            async for event in self._lookup.read(workspace, id, source, after=seq):
                yield event
            if imported:
                raise NotFound(f"session {id} is in the store now", session=id)

        async for item in self.live.follow(read, name, after, deltas=False):
            yield item

    def changes(self, principal: Principal) -> AsyncIterator[SessionChange]:
        """Yield the ids of the workspace's sessions as they change."""
        return self.live.changes(principal.workspace)


class EndedHistory:
    """A history that may have events at its end that are not stored; `render` can read it.

    `session` is the row after these events.
    """

    def __init__(self, history: HistoryReader, ended: EndedSession) -> None:
        self._history = history
        self.session, self._closing = ended

    async def events(
        self,
        principal: Principal,
        id: str,
        /,
        **window: Unpack[WindowOptions],
    ) -> Sequence[Event]:
        """Return the events of an EventWindow, in order."""
        if not self._closing:
            return await self._history.events(principal, id, **window)
        selection = EventWindow(**window)
        first = self._closing[0].seq  # recovery may store its own events meanwhile
        window["before"] = first if selection.before is None else min(selection.before, first)
        stored = await self._history.events(principal, id, **window)
        return selection.cut([*stored, *selection.select(self._closing)])

    async def conversation(self, principal: Principal, id: str, /) -> AsyncIterator[Event]:
        """Yield the events of the active branch, and those that end the turn."""
        async for event in self._history.conversation(principal, id):
            if self._closing and event.seq >= self._closing[0].seq:
                break
            yield event
        for event in self._closing:
            yield event

    async def threads(self, principal: Principal, id: str, /) -> Sequence[Thread]:
        """Return the threads that a session started."""
        return await self._history.threads(principal, id)

    def thread_events(
        self, principal: Principal, id: str, thread_id: str, /
    ) -> AsyncIterator[Event]:
        """Read the events of one thread; their seqs are unrelated to the session's."""
        return self._history.thread_events(principal, id, thread_id)


def _terms(words: str) -> list[search_text.Term]:
    terms = search_text.terms(words)
    if not terms:
        raise InvalidInput("a search needs at least one word")
    return terms
