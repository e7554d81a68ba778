"""List, search and get sessions of the store and the sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from segue.model import clock, search_text
from segue.model import cursor as cursors
from segue.model.cursor import ListPosition
from segue.model.errors import InvalidInput
from segue.model.event import Event
from segue.model.principal import Principal
from segue.model.query import Query, SearchHit
from segue.model.session import Session
from segue.store.base import Store

from . import directories, interrupted
from .lookup import SessionLookup, SourceSet
from .pagination import MAX_PAGE_SIZE, Page, Pager
from .resolve import SessionResolver

if TYPE_CHECKING:
    from .stats import UsageStats


class SearchMatch(NamedTuple):
    """A session that matches a search: the event that matches, and a snippet of its text.

    `marks` are the ranges of the snippet that hold the searched words. `copies` are the forks that
    have the same text from this session; a search returns the text once.
    """

    session: Session
    event: Event | None
    snippet: str
    marks: list[range]
    score: float = 0.0
    copies: Sequence[Session] = ()


class SearchPage(NamedTuple):
    """One page of search matches, and the cursor of the next page.

    `copies` are the forks that were left out, by the id of the session that has their text. That
    session may be on another page.
    """

    matches: list[SearchMatch]
    next: str | None = None
    copies: Mapping[str, Sequence[Session]] = {}


class SessionCatalog:
    """Read sessions. No method changes a session or writes to a store."""

    def __init__(self, store: Store, sources: SourceSet, lookup: SessionLookup) -> None:
        self._store = store
        self._sources = sources
        self._lookup = lookup
        self._resolver = SessionResolver(self)

    async def get(self, principal: Principal, id: str) -> Session:
        """Return a session.

        Raises NotFound if the principal's workspace has no session with this id.
        """
        session, source = await self._lookup.find(principal, id)
        if source is None:
            (session,) = await interrupted.as_read(self._store, [session])
        return session

    async def resolve(
        self, principal: Principal, name: str, *, trashed: bool = False, titles: bool = True
    ) -> Session:
        """Return the session that a person means by an id, an id prefix or (`titles`) a title.

        Raises NotFound if no session matches, AmbiguousName if several do. With `trashed`, only
        sessions in the trash match.
        """
        return await self._resolver.resolve(principal, name, trashed=trashed, titles=titles)

    async def owner(self, principal: Principal, id: str) -> str | None:
        """Return the name of the source that owns a session; None for sessions of the store."""
        _, source = await self._lookup.find(principal, id)
        return None if source is None else source.name

    async def list(
        self,
        principal: Principal,
        query: Query | None = None,
        cursor: str | None = None,
        *,
        bind_filters: bool = True,
    ) -> Page:
        """Return a page of sessions, ordered by last activity unless the query says otherwise.

        With `bind_filters`, the page's cursors are valid only for the same filters.
        """
        query = _with_directories(query or Query())
        sources = await self._sources.in_workspace(principal.workspace)
        pager = Pager(self._store, sources, principal.workspace)
        page = await pager.page(query, cursor, bind_filters=bind_filters)
        if query.cwd is None:
            return page
        # Answer with the path that the client sent, which may be a link to the real directory.
        real_path = query.directories[0]
        sessions = [
            replace(session, cwd=query.cwd) if session.directory == real_path else session
            for session in page.sessions
        ]
        return page._replace(sessions=sessions)

    async def in_id_range(
        self, principal: Principal, low: str, high: str, *, limit: int = 50
    ) -> Sequence[Session]:
        """Return sessions in any state with ids from `low` to `high`, ordered by id."""
        stored = await self._store.in_id_range(principal.workspace, low, high, limit)
        sessions = await interrupted.as_read(self._store, stored)
        for source in await self._sources.in_workspace(principal.workspace):
            rows = await source.in_id_range(low, high, limit)
            imported = await self._store.existing_ids(principal.workspace, [row.id for row in rows])
            sessions += [row for row in rows if row.id not in imported]
        return sorted(sessions, key=lambda session: session.id)[:limit]

    async def search(
        self,
        principal: Principal,
        query: Query,
        cursor: str | None = None,
        *,
        ranked: bool = False,
    ) -> SearchPage:
        """Return sessions that contain every word of `query.text`, each with a snippet.

        Pages go from the newest to the oldest; `ranked` returns one page of the best matches.
        """
        terms = search_text.terms(query.text or "")
        if not terms:
            raise InvalidInput("a search needs at least one word")
        next_cursor = None
        if ranked:
            hits = await self._best_hits(principal, _with_directories(query))
        else:
            listed = await self.list(principal, query, cursor)
            hits = await self._matching_events(principal, listed.sessions, terms)
            next_cursor = listed.next
        page = await self._without_copies(principal, query, hits, terms)
        return page._replace(next=next_cursor)

    async def _without_copies(
        self,
        principal: Principal,
        query: Query,
        hits: Sequence[SearchHit],
        terms: Sequence[search_text.Term],
    ) -> SearchPage:
        """Return hits as matches; one that a fork copied from another result is named there."""
        copies: Mapping[str, Sequence[Session]] = {}
        if any(hit.session.fork is not None for hit in hits):
            from .copies import CopiedHits

            async def find_newest(session: Session) -> SearchHit:
                return (await self._matching_events(principal, [session], terms))[0]

            copied = CopiedHits(
                _with_directories(query), lambda id: self.get(principal, id), find_newest
            )
            hits, copies = await copied.split(hits)
        matches = [
            _match_for(principal, hit, terms)._replace(copies=copies.get(hit.session.id, ()))
            for hit in hits
        ]
        return SearchPage(matches, copies=copies)

    async def stats(self, principal: Principal, days: int) -> UsageStats:
        """Return messages, tokens and cost of the sessions that were active in the last days."""
        from .stats import UsageStats

        until = clock.now() // clock.DAY
        since = until - days + 1
        stats = UsageStats(since=since, until=until)
        query = Query(archived="include", active_after=since * clock.DAY - 1, limit=MAX_PAGE_SIZE)
        async for sessions in self._pages(principal, query):
            stats.add(sessions)
        return stats

    async def encode_cursor(self, principal: Principal, position: ListPosition) -> str:
        """Return a signed cursor for a position in a list of anything but sessions."""
        return cursors.encode(position, await self._store.cursor_key(), principal.workspace)

    async def decode_cursor(self, principal: Principal, token: str) -> ListPosition:
        """Return the position of a cursor from `encode_cursor`; raises InvalidCursor otherwise."""
        return cursors.decode_list_position(
            token, await self._store.cursor_key(), principal.workspace
        )

    async def _pages(self, principal: Principal, query: Query) -> AsyncIterator[Sequence[Session]]:
        cursor: str | None = None
        while True:
            page = await self.list(principal, query, cursor)
            yield page.sessions
            cursor = page.next
            if cursor is None:
                return

    async def _best_hits(self, principal: Principal, query: Query) -> Sequence[SearchHit]:
        hits = [*await self._stored_hits(principal, query)]
        for source in await self._sources.in_workspace(principal.workspace):
            ranked = await source.ranked(query)
            imported = await self._store.existing_ids(
                principal.workspace, [hit.session.id for hit in ranked]
            )
            hits += [hit for hit in ranked if hit.session.id not in imported]
        return sorted(hits, key=lambda hit: -hit.score)[: query.limit]

    async def _stored_hits(self, principal: Principal, query: Query) -> Sequence[SearchHit]:
        stored_query = interrupted.stored_query(query)
        hits = await self._store.ranked(principal.workspace, stored_query)
        sessions = await interrupted.select(self._store, query, [hit.session for hit in hits])
        by_id = {session.id: session for session in sessions}
        return [
            hit._replace(session=by_id[hit.session.id]) for hit in hits if hit.session.id in by_id
        ]

    async def _matching_events(
        self, principal: Principal, sessions: Sequence[Session], terms: Sequence[search_text.Term]
    ) -> Sequence[SearchHit]:
        """Return each session with an event that contains the terms, if one event does."""
        sources = await self._sources.in_workspace(principal.workspace)
        stored_ids = {session.id for session in sessions}
        if sources:
            stored_ids = await self._store.existing_ids(principal.workspace, list(stored_ids))
        events: dict[str, Event | None] = {}
        stored = [session for session in sessions if session.id in stored_ids]
        matches = await self._store.newest_matches(principal.workspace, stored, terms)
        events.update(zip((session.id for session in stored), matches, strict=True))
        for source in sources:
            owned = [
                session
                for session in sessions
                if session.source == source.name and session.id not in stored_ids
            ]
            matches = await source.newest_matches(owned, terms)
            events.update(zip((session.id for session in owned), matches, strict=True))
        return [SearchHit(session, events.get(session.id)) for session in sessions]


def _match_for(
    principal: Principal, hit: SearchHit, terms: Sequence[search_text.Term]
) -> SearchMatch:
    event = hit.event and hit.event.for_caller(local=principal.local)
    return search_match(hit._replace(event=event), terms)


def search_match(hit: SearchHit, terms: Sequence[search_text.Term]) -> SearchMatch:
    """Return a search hit with a snippet of its event's text."""
    text = "" if hit.event is None else search_text.searchable_text(hit.event.body)
    snippet, marks = search_text.snippet(text, terms)
    return SearchMatch(hit.session, hit.event, snippet, marks, hit.score)


def _with_directories(query: Query) -> Query:
    """Return the query with its `cwd` resolved to the real paths that it matches."""
    if query.cwd is None:
        return query
    cwd = directories.absolute(query.cwd)
    return replace(query, directories=directories.directories(cwd, worktrees=query.worktrees))
