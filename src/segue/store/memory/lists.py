"""Lists and searches of sessions, in memory."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from segue.model import search_text
from segue.model.cursor import ChangePoint
from segue.model.event import Event
from segue.model.query import Position, Query, SearchHit, matches, position
from segue.model.search_text import Term
from segue.model.session import Session, SessionState

from .entry import Entry
from .search import best_hit, mentions, score, words_in, words_of


class MemoryLists:
    """Lists of the sessions in `entries`, which the store changes."""

    def __init__(self, entries: Mapping[tuple[str, str], Entry]) -> None:
        self._entries = entries

    async def page(
        self, workspace: str, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        def position_of(session: Session) -> Position:
            return position(session, query.order)

        descending = query.descending != backward
        sessions = [entry.session for entry in self._matching(workspace, query)]
        sessions.sort(key=position_of, reverse=descending)
        if after is not None:
            is_after = operator.lt if descending else operator.gt
            sessions = [row for row in sessions if is_after(position_of(row), after)]
        sessions = sessions[: query.limit]
        return sessions[::-1] if backward else sessions

    async def sweep(
        self, workspace: str, query: Query, since: ChangePoint, after: str
    ) -> list[Session]:
        sessions = [
            entry.session
            for entry in self._matching(workspace, query)
            if entry.change >= since.low and entry.born < since.high and entry.session.id > after
        ]
        return sorted(sessions, key=lambda session: session.id)[: query.limit]

    async def ranked(self, workspace: str, query: Query) -> list[SearchHit]:
        if query.text is None:
            return []
        terms = search_text.terms(query.text)
        matching = self._matching(workspace, query)
        hits = [best_hit(terms, entry.session, entry.events) for entry in matching]
        return sorted(hits, key=lambda hit: hit.score, reverse=True)[: query.limit]

    async def known_words(self, workspace: str, words: Sequence[str]) -> set[str]:
        words_by_session = (words_in(e.session, e.events) for e in self.of_workspace(workspace))
        return set(words).intersection(chain.from_iterable(words_by_session))

    async def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        entries = [self._entries.get((workspace, session.id)) for session in sessions]
        histories = [reversed(entry.events) if entry else () for entry in entries]
        return [
            next((e for e in events if score(terms, words_of(e))), None) for events in histories
        ]

    async def occurrences(
        self, workspace: str, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        entry = self._entries.get((workspace, id))
        seqs = [
            event.seq
            for event in (entry.events[::-1] if entry and terms else ())
            if (before is None or event.seq < before)
            and all(search_text.words_have_term(term, words_of(event)) for term in terms)
        ]
        return seqs[:limit]

    async def stale(
        self, workspace: str, state: SessionState, before: int, limit: int
    ) -> list[Session]:
        def since(session: Session) -> int:
            times = {"archived": session.archived_at, "trashed": session.deleted_at}
            at = times.get(state, session.active_at)
            assert at is not None  # set for every session in that state
            return at

        rows = [
            entry.session for entry in self.of_workspace(workspace) if entry.session.state == state
        ]
        rows = [row for row in rows if since(row) < before]
        return sorted(rows, key=lambda row: (since(row), row.id))[:limit]

    def of_workspace(self, workspace: str) -> Iterator[Entry]:
        """Yield the sessions of a workspace."""
        return (entry for (owner, _), entry in self._entries.items() if owner == workspace)

    def _matching(self, workspace: str, query: Query) -> Iterator[Entry]:
        terms = None if query.text is None else search_text.terms(query.text)
        for entry in self.of_workspace(workspace):
            if matches(query, entry.session) and (
                terms is None or mentions(terms, entry.session, entry.events)
            ):
                yield entry
