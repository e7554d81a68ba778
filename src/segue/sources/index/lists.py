"""The lists and searches of a source, answered by its index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from segue.model.cursor import ChangePoint
from segue.model.event import Event
from segue.model.query import Position, Query, SearchHit
from segue.model.search_text import Term
from segue.model.session import Session

from . import query as index_query
from .current_index import CurrentIndex
from .query import TextPosition


class SourceLists:
    """Lists and searches; `event_at` reads the event at a position, or None if it is gone."""

    def __init__(
        self,
        current: CurrentIndex[Any],
        event_at: Callable[[Session, TextPosition], Event | None],
    ) -> None:
        self._current = current
        self._event_at = event_at

    async def page(
        self, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        ask = self._current.ask_current if query.text is None else self._current.ask_searchable
        return await ask(
            lambda index: index_query.page(
                index, self._current.info, query, after, backward=backward
            )
        )

    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        await self._current.refresh()
        return await self._current.ask_current(
            lambda index: index_query.in_id_range(index, self._current.info, low, high, limit)
        )

    async def change_point(self) -> ChangePoint:
        return await self._current.ask_current(lambda index: index.change_point())

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        ask = self._current.ask_current if query.text is None else self._current.ask_searchable
        return await ask(
            lambda index: index_query.sweep(index, self._current.info, query, since, after)
        )

    async def ranked(self, query: Query) -> list[SearchHit]:
        from . import ranking  # lists do not need it

        await self._current.refresh()
        matches = await self._current.ask_searchable(
            lambda index: ranking.rank_sessions(index, self._current.info, query)
        )
        return [
            SearchHit(
                match.session,
                match.position and self._event_at(match.session, match.position),
                match.score,
            )
            for match in matches
        ]

    async def known_words(self, words: Sequence[str]) -> set[str]:
        return await self._current.ask_searchable(
            lambda index: index_query.known_words(index, words)
        )

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        session_ids = [session.id for session in sessions]
        positions = await self._current.ask_searchable(
            lambda index: index_query.newest_positions(index, session_ids, terms)
        )
        return [
            None if position is None else self._event_at(session, position)
            for session, position in zip(sessions, positions, strict=True)
        ]

    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        return await self._current.ask_searchable(
            lambda index: index_query.occurrences(index, id, terms, before, limit)
        )
