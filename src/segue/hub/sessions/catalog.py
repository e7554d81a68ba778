"""List, search and get sessions of the store and the sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from segue.model import clock
from segue.model import cursor as cursors
from segue.model.cursor import ListPosition
from segue.model.errors import NotFound, StoreError
from segue.model.principal import Principal
from segue.model.query import Query
from segue.model.session import Session
from segue.store.base import Store

from . import directories, interrupted
from .lookup import SessionLookup, SourceSet
from .pagination import MAX_PAGE_SIZE, Page, Pager
from .resolve import SessionResolver

if TYPE_CHECKING:
    from .search import SearchPage
    from .stats import ReadEvents, SessionUsage, UsageStats


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
        pager = Pager(self._store, sources, principal.workspace, check_rows=query.has_row_filters)
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

    async def with_native_id(self, principal: Principal, native_id: str) -> Sequence[Session]:
        """Return the sessions to which their tools gave an id, in any state."""
        from segue.sources.base import FindsNativeIds

        sessions = []
        for source in await self._sources.in_workspace(principal.workspace):
            if isinstance(source, FindsNativeIds):
                with suppress(NotFound, StoreError):  # of one source; others may have it
                    session = await source.with_native_id(native_id)
                    if session is not None:
                        sessions.append(await self.get(principal, session.id))
        return sessions

    async def search(
        self,
        principal: Principal,
        query: Query,
        cursor: str | None = None,
        *,
        ranked: bool = False,
        bind_filters: bool = True,
    ) -> SearchPage:
        """Return sessions that contain every word of `query.text`, each with a snippet.

        Pages go from the newest to the oldest; `ranked` returns one page of the best matches. If
        nothing matches, misspelt words are corrected, and the page says so. `bind_filters` is that
        of `list`.
        """
        from .search import SessionSearch

        list_page = partial(self.list, bind_filters=bind_filters)
        search = SessionSearch(list_page, self.get, self._store, self._sources)
        return await search.search(principal, _with_directories(query), cursor, ranked=ranked)

    async def count(self, principal: Principal, query: Query) -> int | None:
        """Return how many sessions a query matches; None if they are more than a page can have.

        Sources count what they had when a list or a search compared their files last.
        """
        sources = await self._sources.in_workspace(principal.workspace)
        pager = Pager(self._store, sources, principal.workspace, check_rows=query.has_row_filters)
        return await pager.count(_with_directories(query))

    async def count_unreadable(self, principal: Principal, source: str | None = None) -> int:
        """Return how many files or sessions the last list could not read, of one source or all."""
        return sum(
            candidate.unreadable_sessions()
            for candidate in await self._sources.in_workspace(principal.workspace)
            if source in (None, candidate.name)
        )

    async def stats(
        self,
        principal: Principal,
        since: int,
        until: int,
        read_events: ReadEvents,
        *,
        include: Callable[[SessionUsage], bool] = lambda used: True,
        max_sessions: int = 10,
    ) -> UsageStats:
        """Return messages, tokens and cost between two days, counted from 1970, both included.

        The events of sessions that were active outside the period too are read with `read_events`.
        """
        from .stats import read_stats

        query = Query(archived="include", active_after=since * clock.DAY - 1, limit=MAX_PAGE_SIZE)
        pages = self._pages(principal, query)
        return await read_stats(
            principal, pages, read_events, since, until, include=include, max_sessions=max_sessions
        )

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


def _with_directories(query: Query) -> Query:
    """Return the query with its `cwd` resolved to the real paths that it matches."""
    if query.cwd is None:
        return query
    cwd = directories.absolute(query.cwd)
    return replace(query, directories=directories.directories(cwd, worktrees=query.worktrees))
