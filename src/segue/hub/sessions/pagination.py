"""Page through one list of sessions, merged from the store and the sources.

A session that exists from the first page to the last is on one of the pages. It is on two only if
it changed in the meantime. In order of creation, keyset pagination is enough for that. In order of
activity, rows move up while a client pages down. So the first page's cursor holds the change point
of each list, and after the last ordinary page, further pages sweep the sessions that changed since
then, in order of their ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from segue.model import cursor as cursors
from segue.model.cursor import ChangePoint, Cursor
from segue.model.errors import InvalidCursor, InvalidInput
from segue.model.query import Position, Query, matches_row_filters, position
from segue.model.session import Session
from segue.store.base import Store

from . import interrupted

if TYPE_CHECKING:
    from segue.sources.base import Source

MAX_PAGE_SIZE = 1000
_MIN_CHECKED_ROWS = 200  # to read at once for filters that are checked row by row
_MIN_ROWS = 8  # to read of each list at first, if several lists are merged
_START = Position(0, "")


class Page(NamedTuple):
    """Some sessions, and the cursors of the next and the previous page."""

    sessions: list[Session]
    next: str | None = None
    prev: str | None = None


class _Slice(NamedTuple):
    """A page whose cursors are not encoded yet."""

    sessions: list[Session]
    next: Cursor | None = None
    prev: Cursor | None = None


class _SessionList(Protocol):
    """One of the lists that a pager merges."""

    name: str

    def page(
        self, query: Query, after: Position | None, *, backward: bool
    ) -> Awaitable[list[Session]]: ...
    def change_point(self) -> Awaitable[ChangePoint]: ...
    def sweep(self, query: Query, since: ChangePoint, after: str) -> Awaitable[list[Session]]: ...


class _StoredSessions:
    """The sessions of a workspace that are in the store, as clients see them."""

    name = ""

    def __init__(self, store: Store, workspace: str) -> None:
        self._store = store
        self._workspace = workspace

    async def page(self, query: Query, after: Position | None, *, backward: bool) -> list[Session]:
        stored_query = interrupted.stored_query(query)
        read = partial(self._store.page, self._workspace, stored_query, backward=backward)
        keep = partial(interrupted.select, self._store, query)
        return await _fill_page(read, keep, query, after, backward=backward)

    def change_point(self) -> Awaitable[ChangePoint]:
        return self._store.change_point(self._workspace)

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        read = partial(self._store.sweep, self._workspace, interrupted.stored_query(query), since)
        keep = partial(interrupted.select, self._store, query)
        return await _fill_sweep(read, keep, query, after)


class _SourceSessions:
    """The sessions of a source that were not imported into the store."""

    def __init__(self, source: Source, store: Store) -> None:
        self.name = source.name
        self._source = source
        self._store = store

    async def page(self, query: Query, after: Position | None, *, backward: bool) -> list[Session]:
        read = partial(self._source.page, query, backward=backward)
        return await _fill_page(read, self._without_imported, query, after, backward=backward)

    async def change_point(self) -> ChangePoint:
        return await self._source.change_point()

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        read = partial(self._source.sweep, query, since)
        return await _fill_sweep(read, self._without_imported, query, after)

    async def _without_imported(self, rows: Sequence[Session]) -> list[Session]:
        imported = await self._store.existing_ids(self._source.workspace, [row.id for row in rows])
        return [row for row in rows if row.id not in imported]


class _CheckedSessions:
    """A list without the rows that the hub's own filters exclude."""

    def __init__(self, sessions: _SessionList) -> None:
        self.name = sessions.name
        self._sessions = sessions

    async def page(self, query: Query, after: Position | None, *, backward: bool) -> list[Session]:
        unchecked = self._unchecked(query)
        read = partial(self._sessions.page, unchecked, backward=backward)
        keep = partial(self._matching, query)
        return await _fill_page(
            read, keep, unchecked, after, backward=backward, page_size=query.limit
        )

    def change_point(self) -> Awaitable[ChangePoint]:
        return self._sessions.change_point()

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        unchecked = self._unchecked(query)
        read = partial(self._sessions.sweep, unchecked, since)
        swept = await _fill_sweep(read, partial(self._matching, query), unchecked, after)
        return swept[: query.limit]

    def _unchecked(self, query: Query) -> Query:
        limit = min(MAX_PAGE_SIZE, max(query.limit, _MIN_CHECKED_ROWS))
        return replace(query.without_row_filters(), limit=limit)

    async def _matching(self, query: Query, rows: Sequence[Session]) -> list[Session]:
        return [row for row in rows if matches_row_filters(query, row)]


async def _fill_page(
    read: Callable[[Position | None], Awaitable[list[Session]]],
    keep: Callable[[Sequence[Session]], Awaitable[list[Session]]],
    query: Query,
    after: Position | None,
    *,
    backward: bool,
    page_size: int | None = None,
) -> list[Session]:
    """Return a page of rows that `keep` returns: a full page, if there are enough rows.

    Each read returns up to `query.limit` rows. The page has `page_size` rows, by default the limit.
    """
    size = page_size or query.limit
    sessions: list[Session] = []
    while True:
        rows = await read(after)
        kept = await keep(rows)
        sessions = kept + sessions if backward else sessions + kept
        if len(rows) < query.limit or len(sessions) >= size:
            return sessions[-size:] if backward else sessions[:size]
        after = position(rows[0] if backward else rows[-1], query.order)


async def _fill_sweep(
    read: Callable[[str], Awaitable[list[Session]]],
    keep: Callable[[Sequence[Session]], Awaitable[list[Session]]],
    query: Query,
    after: str,
) -> list[Session]:
    """Sweep until `keep` has returned a page of rows, or the sweep ends."""
    sessions: list[Session] = []
    while True:
        rows = await read(after)
        sessions += await keep(rows)
        if len(rows) < query.limit or len(sessions) >= query.limit:
            return sessions[: query.limit]
        after = rows[-1].id


class _ReadAhead:
    """What a page has read of one list, in the direction of the page."""

    def __init__(
        self, sessions: _SessionList, query: Query, after: Position | None, *, backward: bool
    ) -> None:
        self._sessions = sessions
        self._query = query
        self._backward = backward
        self._end = after
        self.rows: dict[str, Session] = {}  # by id: a session that just moved is read again
        self._has_more = True

    async def read(self, count: int) -> None:
        """Read the next `count` rows."""
        query = replace(self._query, limit=count)
        rows = await self._sessions.page(query, self._end, backward=self._backward)
        self.rows.update((row.id, row) for row in rows)
        self._has_more = len(rows) == count
        if rows:
            self._end = position(rows[0] if self._backward else rows[-1], query.order)

    def may_precede(self, last: Position | None) -> bool:
        """Return whether unread rows may belong before a position; None is the end of the list."""
        if last is None or self._end is None or not self._has_more:
            return self._has_more
        return self._end > last if self._query.descending != self._backward else self._end < last


class Pager:
    """Page through the sessions of one workspace, from the store and the sources."""

    def __init__(
        self,
        store: Store,
        sources: Sequence[Source],
        workspace: str,
        *,
        check_rows: bool = False,
    ) -> None:
        """Create a pager. `check_rows` applies the filters that the hub checks row by row."""
        self._store = store
        self._workspace = workspace
        self._sources = sources
        self._lists: list[_SessionList] = [_StoredSessions(store, workspace)]
        self._lists += [_SourceSessions(source, store) for source in sources]
        if check_rows:
            self._lists = [_CheckedSessions(sessions) for sessions in self._lists]

    async def page(self, query: Query, token: str | None, *, bind_filters: bool) -> Page:
        """Return the first page, or the page of a cursor's token.

        With `bind_filters`, cursors are valid for the same filters only. Raises InvalidInput if
        the limit is too large, InvalidCursor if the token does not fit the query.
        """
        if query.limit > MAX_PAGE_SIZE:
            raise InvalidInput(f"limit must be from 1 to {MAX_PAGE_SIZE}, not {query.limit}")
        key = await self._store.cursor_key()
        cursor: Cursor | None = None
        if token is not None:
            cursor = cursors.decode(token, key, self._workspace)
            _check(cursor, query, _filters(query, bind=bind_filters))
        if cursor is None:
            result = await self._first(query, bind_filters=bind_filters)
        elif cursor.phase == "sweep":
            result = await self._sweep(query, cursor)
        elif cursor.backward:
            result = await self._before(query, cursor)
            if not result.sessions:  # all earlier sessions were deleted
                return await self.page(query, None, bind_filters=bind_filters)
        else:
            result = await self._after(query, cursor)

        def encode(cursor: Cursor | None) -> str | None:
            return None if cursor is None else cursors.encode(cursor, key, self._workspace)

        return Page(result.sessions, encode(result.next), encode(result.prev))

    async def count(self, query: Query) -> int | None:
        """Return how many sessions there are; None if they are more than MAX_PAGE_SIZE."""
        query = replace(query, limit=MAX_PAGE_SIZE + 1)
        count = 0
        for sessions in self._lists:  # no session is in two lists
            count += len(await sessions.page(query, None, backward=False))
            if count > MAX_PAGE_SIZE:
                return None
        return count

    async def _first(self, query: Query, *, bind_filters: bool) -> _Slice:
        """Return the first page. Its cursor holds the lists' change points."""
        listed = [source for source in self._sources if query.source in (None, source.name)]
        if len(listed) > 1:
            from segue.sources.index.helpers import index_new_sources  # most lists need none

            await index_new_sources(listed, searchable=query.text is not None)
        for source in listed:
            await source.refresh(query.cwd)
        change_points = {}
        if query.order == "active":
            change_points = {
                sessions.name: await sessions.change_point() for sessions in self._lists
            }
        sessions, has_more = await self._merge(query, None, backward=False)
        if not has_more:
            return _Slice(sessions)
        cursor = Cursor(
            order=query.order,
            descending=query.descending,
            position=position(sessions[-1], query.order),
            marks=change_points,
            filters=_filters(query, bind=bind_filters),
        )
        return _Slice(sessions, cursor)

    async def _after(self, query: Query, cursor: Cursor) -> _Slice:
        """Return the page after a cursor. The last one leads to the sweep, if there is one."""
        sessions, has_more = await self._merge(query, cursor.position, backward=False)
        following: Cursor | None = None
        if has_more:
            following = _move(cursor, sessions[-1], query)
        elif query.order == "active":
            sweep = replace(cursor, phase="sweep", position=_START)
            swept = await self._sweep(query, sweep)
            if swept.sessions and not sessions:  # only the last page may be empty
                return swept
            following = sweep if swept.sessions else None
        first = position(sessions[0], query.order) if sessions else cursor.position
        return _Slice(sessions, following, replace(cursor, position=first, backward=True))

    async def _before(self, query: Query, cursor: Cursor) -> _Slice:
        """Return the page before a cursor."""
        sessions, has_more = await self._merge(query, cursor.position, backward=True)
        if not sessions:
            return _Slice([])
        following = replace(_move(cursor, sessions[-1], query), backward=False)
        return _Slice(sessions, following, _move(cursor, sessions[0], query) if has_more else None)

    async def _sweep(self, query: Query, cursor: Cursor) -> _Slice:
        """Return the next sessions, by id, that changed since the first page."""
        query_one_more = replace(query, limit=query.limit + 1)
        rows: list[Session] = []
        for sessions in self._lists:
            # A source that was added after the first page has no change point.
            if since := cursor.marks.get(sessions.name):
                rows += await sessions.sweep(query_one_more, since, cursor.position.id)
        rows.sort(key=lambda row: row.id)
        has_more = len(rows) > query.limit
        rows = rows[: query.limit]
        return _Slice(
            rows, replace(cursor, position=Position(0, rows[-1].id)) if has_more else None
        )

    async def _merge(
        self, query: Query, after: Position | None, *, backward: bool
    ) -> tuple[list[Session], bool]:
        """Return a page of all lists, and whether there are more sessions in its direction."""
        query_one_more = replace(query, limit=query.limit + 1)
        if len(self._lists) == 1:
            rows = await self._lists[0].page(query_one_more, after, backward=backward)
            return _cut(rows, query.limit, backward=backward), len(rows) > query.limit
        lists = [_ReadAhead(rows, query, after, backward=backward) for rows in self._lists]
        # Most pages need few rows of each list. A search is slow to begin, so it reads all at once.
        count = query_one_more.limit
        if query.text is None:
            count = min(count, max(_MIN_ROWS, 2 * count // len(lists)))
        unfinished = lists
        while unfinished:
            for sessions in unfinished:
                await sessions.read(count)
            rows = [row for sessions in lists for row in sessions.rows.values()]
            rows.sort(key=lambda row: position(row, query.order), reverse=query.descending)
            page = _cut(rows, query_one_more.limit, backward=backward)
            last = None
            if len(page) == query_one_more.limit:
                last = position(page[0] if backward else page[-1], query.order)
            unfinished = [sessions for sessions in lists if sessions.may_precede(last)]
            count = min(2 * count, MAX_PAGE_SIZE)
        return _cut(page, query.limit, backward=backward), len(page) > query.limit


def _cut(rows: list[Session], count: int, *, backward: bool) -> list[Session]:
    """Return the rows next to the position that a page was read from."""
    return rows[-count:] if backward else rows[:count]


def _move(cursor: Cursor, session: Session, query: Query) -> Cursor:
    """Return the cursor at the position of a session."""
    return replace(cursor, position=position(session, query.order))


def _filters(query: Query, *, bind: bool) -> bytes:
    """Return what binds a cursor to the query's filters; empty if it is not bound."""
    return cursors.fingerprint(query) if bind else b""


def _check(cursor: Cursor, query: Query, filters: bytes) -> None:
    """Raise InvalidCursor if a cursor belongs to another query."""
    if (cursor.order, cursor.descending) != (query.order, query.descending):
        raise InvalidCursor("page token order does not match request")
    if cursor.filters != filters:
        raise InvalidCursor("this page cursor belongs to a list with other filters")
    if query.order == "created":
        low, high = query.created_bounds()
        at = cursor.position.at
        if (low is not None and at < low) or (high is not None and at > high):
            raise InvalidCursor("this page cursor's position is outside the created_at filters")
