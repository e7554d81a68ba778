"""Paging: one ordered list out of the store and the sources, with cursors that keep their promise.

A session that exists from the first page to the last is in the union of the pages, and appears
twice only if it was touched meanwhile. By creation that is plain keyset paging. By activity rows
move up while a client pages down; so the first page notes where each list's changes stood, and
after the last ordinary page further ones sweep, in id order, what changed since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from segue.model import cursor as cursors
from segue.model.cursor import ChangePoint, Cursor
from segue.model.errors import InvalidCursor, InvalidInput
from segue.model.query import Position, Query, position
from segue.model.session import Session
from segue.sources.base import Source
from segue.store.base import Store

MAX_PAGE_SIZE = 1000


class Page(NamedTuple):
    """Some sessions, and the cursors to their neighbours."""

    sessions: list[Session]
    next: str | None = None
    prev: str | None = None


class _List(Protocol):
    name: str

    def page(
        self, query: Query, after: Position | None, backward: bool
    ) -> Awaitable[list[Session]]: ...
    def change_point(self) -> Awaitable[ChangePoint]: ...
    def sweep(self, query: Query, mark: ChangePoint, after: str) -> Awaitable[list[Session]]: ...


class _Stored:
    name = ""

    def __init__(self, store: Store, workspace: str) -> None:
        self._store = store
        self._workspace = workspace

    def page(
        self, query: Query, after: Position | None, backward: bool
    ) -> Awaitable[list[Session]]:
        return self._store.page(self._workspace, query, after, backward=backward)

    def change_point(self) -> Awaitable[ChangePoint]:
        return self._store.change_point(self._workspace)

    def sweep(self, query: Query, mark: ChangePoint, after: str) -> Awaitable[list[Session]]:
        return self._store.sweep(self._workspace, query, mark, after)


class _Unshadowed:
    """A source without the sessions of which the store has a copy."""

    def __init__(self, source: Source, store: Store) -> None:
        self.name = source.name
        self._source = source
        self._store = store

    async def change_point(self) -> ChangePoint:
        return await self._source.change_point()

    async def page(self, query: Query, after: Position | None, backward: bool) -> list[Session]:
        found: list[Session] = []
        while True:
            rows = await self._source.page(query, after, backward)
            seen = await self._visible(rows)
            found = seen + found if backward else found + seen
            if len(rows) < query.limit or len(found) >= query.limit:
                return found[-query.limit :] if backward else found[: query.limit]
            after = position(rows[0] if backward else rows[-1], query.order)

    async def sweep(self, query: Query, mark: ChangePoint, after: str) -> list[Session]:
        found: list[Session] = []
        while True:
            rows = await self._source.sweep(query, mark, after)
            found += await self._visible(rows)
            if len(rows) < query.limit or len(found) >= query.limit:
                return found[: query.limit]
            after = rows[-1].id

    async def _visible(self, rows: Sequence[Session]) -> list[Session]:
        copied = await self._store.existing_ids(self._source.workspace, [row.id for row in rows])
        return [row for row in rows if row.id not in copied]


class Pager:
    """Pages of one workspace's sessions, from the store and its sources."""

    def __init__(self, store: Store, sources: Sequence[Source], workspace: str) -> None:
        self._store = store
        self._workspace = workspace
        self._sources = sources
        self._lists: list[_List] = [_Stored(store, workspace)]
        self._lists += [_Unshadowed(source, store) for source in sources]

    async def page(self, query: Query, token: str | None, bind_filters: bool) -> Page:
        """A page from the start, or from where a cursor says.

        `bind_filters` makes cursors good for the same filters only.
        """
        if query.limit > MAX_PAGE_SIZE:
            raise InvalidInput(f"limit must be from 1 to {MAX_PAGE_SIZE}, not {query.limit}")
        key = await self._store.cursor_key()
        filters = cursors.fingerprint(query) if bind_filters else b""
        cursor: Cursor | None = None
        if token is not None:
            cursor = cursors.decode(token, key, self._workspace)
            _check(cursor, query, filters)
        if cursor is None:
            for source in self._sources:
                await source.refresh(query.cwd)
        if cursor is not None and cursor.phase == "sweep":
            sessions, following = await self._swept(query, cursor)
            preceding = None
        elif cursor is not None and cursor.backward:
            sessions, following, preceding = await self._before(query, cursor)
            if not sessions:  # everything before was deleted meanwhile
                return await self.page(query, None, bind_filters)
        else:
            sessions, following, preceding = await self._after(query, cursor, filters)

        def spell(made: Cursor | None) -> str | None:
            return None if made is None else cursors.encode(made, key, self._workspace)

        return Page(sessions, spell(following), spell(preceding))

    async def _after(
        self, query: Query, cursor: Cursor | None, filters: bytes
    ) -> tuple[list[Session], Cursor | None, Cursor | None]:
        if cursor is None:
            marks = {}
            if query.order == "active":
                marks = {each.name: await each.change_point() for each in self._lists}
            here = Cursor(
                order=query.order,
                descending=query.descending,
                position=Position(0, ""),
                marks=marks,
                filters=filters,
            )
        else:
            here = cursor
        sessions = await self._merged(query, cursor.position if cursor else None, backward=False)
        more = len(sessions) > query.limit
        sessions = sessions[: query.limit]
        following: Cursor | None = None
        if more:
            following = replace(here, position=position(sessions[-1], query.order))
        elif cursor is not None and query.order == "active":
            sweep = replace(here, phase="sweep", position=Position(0, ""))
            changed, rest = await self._swept(query, sweep)
            if changed and not sessions:  # no page but the last may be empty
                return changed, rest, None
            following = sweep if changed else None
        preceding: Cursor | None = None
        if cursor is not None:
            first = position(sessions[0], query.order) if sessions else cursor.position
            preceding = replace(here, position=first, backward=True)
        return sessions, following, preceding

    async def _before(
        self, query: Query, cursor: Cursor
    ) -> tuple[list[Session], Cursor | None, Cursor | None]:
        sessions = await self._merged(query, cursor.position, backward=True)
        more = len(sessions) > query.limit
        sessions = sessions[-query.limit :]
        if not sessions:
            return [], None, None
        following = replace(cursor, position=position(sessions[-1], query.order), backward=False)
        first = position(sessions[0], query.order)
        return sessions, following, replace(cursor, position=first) if more else None

    async def _merged(
        self, query: Query, after: Position | None, *, backward: bool
    ) -> list[Session]:
        """Up to one more than a page, so as to know whether there is more."""
        wanted = replace(query, limit=query.limit + 1)
        rows = [await each.page(wanted, after, backward) for each in self._lists]
        if len(rows) == 1:
            return rows[0]
        merged = [row for part in rows for row in part]
        merged.sort(key=lambda row: position(row, query.order), reverse=query.descending)
        return merged[-wanted.limit :] if backward else merged[: wanted.limit]

    async def _swept(self, query: Query, cursor: Cursor) -> tuple[list[Session], Cursor | None]:
        wanted = replace(query, limit=query.limit + 1)
        rows: list[Session] = []
        for each in self._lists:
            # A source that was not there on the first page promised nothing then.
            if mark := cursor.marks.get(each.name):
                rows += await each.sweep(wanted, mark, cursor.position.id)
        rows.sort(key=lambda row: row.id)
        more = len(rows) > query.limit
        rows = rows[: query.limit]
        return rows, replace(cursor, position=Position(0, rows[-1].id)) if more else None


def _check(cursor: Cursor, query: Query, filters: bytes) -> None:
    if (cursor.order, cursor.descending) != (query.order, query.descending):
        raise InvalidCursor("page token order does not match request")
    if cursor.filters != filters:
        raise InvalidCursor("this page cursor belongs to a list with other filters")
    if query.order == "created":
        low, high = query.created_bounds()
        at = cursor.position.at
        if (low is not None and at < low) or (high is not None and at > high):
            raise InvalidCursor("the created_at window leaves out this page cursor's position")
