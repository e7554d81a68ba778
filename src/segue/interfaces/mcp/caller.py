"""One tool call: the hub, the caller, the sessions that it gets, and how answers are masked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from segue.hub import Hub
from segue.hub.sessions.pagination import Page
from segue.hub.sessions.search import SearchMatch, SearchPage
from segue.model import ids, search_text
from segue.model.errors import InvalidInput, NotFound
from segue.model.event import Event, ToolCall, ToolResult
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session
from segue.render.pairing import find_outcomes, pair_key
from segue.render.reader import EventReader, MaskedReader
from segue.secrets import mask_text
from segue.secrets.events import adjacent_messages, mask_events, mask_session

from .answers import session_line, shorten
from .scope import Caller, McpSettings, SessionScope

T = TypeVar("T")
R = TypeVar("R")
MAX_INLINE_CHARS = 10_000  # of a text that is masked on the event loop
_PAIR_EVENTS = 100  # read to find the result of a call


class Call:
    """What a tool works with: the sessions of the caller's scope, without the calling session."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        settings: McpSettings,
        scope: SessionScope,
        caller: Caller | None = None,
    ) -> None:
        self.hub = hub
        self.principal = principal
        self.settings = settings
        self._scope = scope
        self._caller = caller or Caller()

    @property
    def reader(self) -> EventReader:
        """The histories of sessions, with masks instead of secrets."""
        return MaskedReader(self.hub.history) if self.settings.mask else self.hub.history

    async def snippet(self, session: Session, event: Event, words: str, width: int = 160) -> str:
        """Return the part of an event's text that has some words, as the caller may see it."""
        text = search_text.searchable_text(event.body)
        if self.settings.mask:
            # A secret may be split over messages, or over the blocks of one.
            earlier, later = await self._adjacent(session, event)
            if earlier or later or len(getattr(event.body, "content", ())) > 1:
                masked = await _mask_among(earlier, event, later)
                text = search_text.searchable_text(masked.body)
            text = await _mask(mask_text, text, len(text))
        return search_text.snippet(text, search_text.terms(words), width)[0]

    def line(self, session: Session) -> str:
        """Return a session's title, id and facts on two lines, as the caller may see them."""
        return session_line(session, self.title(session))

    def title(self, session: Session) -> str:
        """Return a session's title as the caller may see it."""
        title = session.title or "Untitled"
        return mask_text(title) if self.settings.mask else title

    def visible_row(self, session: Session) -> Session:
        """Return a session's row as the caller may see it."""
        return mask_session(session) if self.settings.mask else session

    async def query(self, **filters: Any) -> Query:
        """Return a query for the sessions of the caller's scope."""
        return await self._scope.query(self.hub, self.principal, **filters)

    def source(self, tool: str | None) -> str | None:
        """Return the source of a tool's sessions. Raises InvalidInput if there is none."""
        known = self.hub.sources.names(self.principal.workspace)
        if tool is not None and tool not in known:
            raise InvalidInput(f"tool: {shorten(tool, 80)!r} is not one of {', '.join(known)}")
        return tool

    async def session(self, name: str) -> Session:
        """Return a session of the scope by its id, an id prefix or its tool's own id.

        Raises NotFound if the scope has none.
        """
        session = await self._resolve(name.removeprefix("segue://session/"))
        if not await self._scope.includes(self.hub, self.principal, session):
            raise NotFound(
                f"session {name} is in {session.cwd}, outside of this server's scope; "
                "start the server with `--scope all` to read it"
            )
        return session

    async def _resolve(self, name: str) -> Session:
        if not name:
            raise InvalidInput("session: give the id of a session, as search_sessions lists it")
        try:
            await self.hub.sync.ensure_current(self.principal, ids.parse(name) or name)
            return await self.hub.sessions.resolve(self.principal, name, titles=False)
        except NotFound:
            raise NotFound(
                f"no session has the id {shorten(name, 80)!r}; search_sessions and recent_work "
                "list ids (a beginning needs at least 4 characters)"
            ) from None

    async def page(self, query: Query, cursor: str | None) -> tuple[list[Session], str | None]:
        """Return a page of sessions without the caller's own, and the cursor of the next page."""
        page = await self._list(query, cursor)
        return [s for s in page.sessions if not await self._is_caller(s)], page.next

    async def search(
        self, query: Query, cursor: str | None = None, *, ranked: bool = False
    ) -> tuple[list[SearchMatch], str | None, str | None]:
        """Return matches without the caller's own, the next cursor, and a corrected text."""
        if ranked:  # one more, because the calling session is left out
            query = replace(query, limit=query.limit + 1)
        page = await self._search(query, cursor, ranked=ranked)
        matches = [m for m in page.matches if not await self._is_caller(m.session)]
        return matches, page.next, page.corrected

    async def cursor_after(self, query: Query, cursor: str | None, last: Session) -> str | None:
        """Return the cursor of what follows one session of a page, for an answer that is full."""
        ids = await self._ids(query, cursor)
        if last.id not in ids:
            return cursor  # the session was active just now, and is on another page
        query = replace(query, limit=ids.index(last.id) + 1)
        if query.text:
            return (await self._search(query, cursor)).next
        return (await self._list(query, cursor)).next

    async def _ids(self, query: Query, cursor: str | None) -> list[str]:
        if query.text:
            return [match.session.id for match in (await self._search(query, cursor)).matches]
        return [session.id for session in (await self._list(query, cursor)).sessions]

    # Cursors are not bound to the filters: an age such as `7d` is another time in each call.

    async def _search(
        self, query: Query, cursor: str | None, *, ranked: bool = False
    ) -> SearchPage:
        return await self.hub.sessions.search(
            self.principal, query, cursor, ranked=ranked, bind_filters=False
        )

    async def _list(self, query: Query, cursor: str | None) -> Page:
        return await self.hub.sessions.list(self.principal, query, cursor, bind_filters=False)

    async def _is_caller(self, session: Session) -> bool:
        return await self._caller.is_session(self.hub, self.principal, session)

    async def find_events(self, session: Session, words: str, limit: int) -> list[Event]:
        """Return the events of a session that contain all words, the newest first."""
        matches = await self.hub.history.find(self.principal, session.id, words, limit=limit)
        return [match.event for match in matches if match.event is not None]

    async def results(self, session: Session, events: Sequence[Event]) -> dict[str, Event]:
        """Return the results of the tool calls among some events, by `pair_key`."""
        results: dict[str, Event] = {}
        for event in events:
            key = str(pair_key(event))
            if isinstance(event.body, ToolCall) and key not in results:
                following = await self.reader.events(
                    self.principal,
                    session.id,
                    after=event.seq,
                    types=("tool_result",),
                    limit=_PAIR_EVENTS,
                )
                results |= find_outcomes(following) | results
        return results

    async def calls(
        self, session: Session, events: Sequence[Event]
    ) -> list[tuple[Event, ToolCall, ToolResult | None]]:
        """Return the tool calls among some events with their results, masked."""
        calls = [event for event in events if isinstance(event.body, ToolCall)]
        opened = {event.seq for event in calls}
        for event in events:
            if isinstance(event.body, ToolResult):
                opening = await self._opening(session, event, event.body.call_id)
                if opening is not None and opening.seq not in opened:
                    opened.add(opening.seq)
                    calls.append(opening)
        results = await self.results(session, calls)
        masked_calls = []
        for event in calls:
            masked = await self._masked(event, session)
            assert isinstance(masked.body, ToolCall)
            outcome = results.get(str(pair_key(event)))
            result = outcome.body if outcome is not None else None
            masked_calls.append(
                (masked, masked.body, result if isinstance(result, ToolResult) else None)
            )
        return masked_calls

    async def _opening(self, session: Session, result: Event, call_id: str) -> Event | None:
        """Return the tool call that a result belongs to."""
        earlier = await self.hub.history.events(
            self.principal,
            session.id,
            before=result.seq,
            types=("tool_call",),
            limit=_PAIR_EVENTS,
            backward=True,
        )
        calls = (e for e in earlier if isinstance(e.body, ToolCall) and e.body.call_id == call_id)
        return next(calls, None)

    async def _masked(self, event: Event, session: Session) -> Event:
        """Return an event as the caller may see it."""
        if not self.settings.mask:
            return event
        earlier, later = await self._adjacent(session, event)
        return await _mask_among(earlier, event, later)

    async def _adjacent(
        self, session: Session, event: Event
    ) -> tuple[Sequence[Event], Sequence[Event]]:
        read = partial(self.hub.history.events, self.principal, session.id)
        return await adjacent_messages([event], read)


async def _mask_among(earlier: Sequence[Event], event: Event, later: Sequence[Event]) -> Event:
    """Return an event with masks instead of secrets, also of those that adjacent messages share."""
    events = [*earlier, event, *later]
    size = sum(len(search_text.searchable_text(event.body)) for event in events)
    return (await _mask(mask_events, events, size))[len(earlier)]


async def _mask(mask: Callable[[T], R], value: T, size: int) -> R:
    """Return what `mask` makes of a value with this many characters.

    Only short texts are masked on the event loop.
    """
    return mask(value) if size <= MAX_INLINE_CHARS else await asyncio.to_thread(mask, value)
