"""Find the sessions in which words occur, in the order of a list or best match first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from segue import fts5
from segue.model import codec, event
from segue.model.event import Event
from segue.model.query import Position, Query, SearchHit
from segue.model.search_text import Term
from segue.model.session import Session, decode_session, decode_sessions
from segue.sqlite_files import sqlite_errors
from segue.store import query_sql
from segue.store.base import MAX_SEQ
from segue.store.query_sql import Condition, IndexRange, PageSpec

if TYPE_CHECKING:
    from .fts_query import TermOccurrences
from .search_index import SearchIndex, is_damaged

VERY_RARE_EVENTS = 500  # a term with no more hits is looked up completely at once
RARE_EVENTS = 2_000  # ... and with no more than these, if the newest sessions do not fill a page
MAX_SCANNED_SESSIONS = 4_000  # tried in order before common terms are looked up completely as well
RANK_BATCH_EVENTS = 2_000  # events that a ranked search considers at a time

T = TypeVar("T")
ROW = "CAST(s.row AS BLOB)"  # JSON is stored as text, and decoded from bytes
_AMONG = "IN (SELECT value FROM json_each(?))"
EVENTS = "SELECT key, id, at, version, CAST(body AS BLOB) FROM events"

build = query_sql.Builder(numbered=False, indexed_by=True)


class TextSearch:
    """Searches of one reader, on a connection of their own that has the search index."""

    def __init__(self, store: Path) -> None:
        self.index = SearchIndex(store)
        self._last = _LastSearch()

    def page(
        self, ranges: Sequence[IndexRange], spec: PageSpec, terms: Sequence[Term]
    ) -> list[Session]:
        """Return a page of the sessions in which every term occurs."""
        return self._search(lambda connection: self._page(connection, ranges, spec, terms))

    def containing(self, pks: Collection[int], terms: Sequence[Term]) -> set[int]:
        """Return the sessions, among these, in which every term occurs."""
        return self._search(lambda connection: _containing(connection, pks, terms))

    def ranked(self, workspace: str, query: Query, terms: Sequence[Term]) -> list[SearchHit]:
        """Return the sessions that match best, with the event that matches best in each."""
        return self._search(lambda connection: _ranked(connection, workspace, query, terms))

    def known_words(self, workspace: str, words: Sequence[str]) -> set[str]:
        """Return which of these words occur in the sessions of a workspace."""
        sql = f"SELECT 1 FROM ({fts5.HITS}) JOIN sessions ON pk = rowid >> 24"
        sql += " WHERE workspace = ? LIMIT 1"

        def search(connection: sqlite3.Connection) -> set[str]:
            queries = ((word, fts5.expression(Term((word,)))) for word in words)
            return {
                word
                for word, query in queries
                if connection.execute(sql, (query, workspace)).fetchone()
            }

        return self._search(search)

    def newest_matches(
        self, workspace: str, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        """Return for each session the newest event in which one of the terms occurs."""
        return self._search(
            lambda connection: self._newest_matches(connection, workspace, sessions, terms)
        )

    def occurrences(self, pk: int, terms: Sequence[Term], last_seq: int) -> list[int]:
        """Return the seqs up to `last_seq` of events in which every term occurs, newest first."""

        def search(connection: sqlite3.Connection) -> list[int]:
            keys = [_occurrences_of_term(connection, term).hits(pk, last_seq) for term in terms]
            return sorted((key & MAX_SEQ for key in set.intersection(*keys)), reverse=True)

        return self._search(search)

    def _search(self, search: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of a search in one state of the store. A damaged index is replaced."""
        try:
            with sqlite_errors(), self.index.snapshot() as connection:
                return search(connection)
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
        self.index.discard()
        with self.index.snapshot() as connection:
            return search(connection)

    def _page(
        self,
        connection: sqlite3.Connection,
        ranges: Sequence[IndexRange],
        spec: PageSpec,
        terms: Sequence[Term],
    ) -> list[Session]:
        occurrences = self._occurrences_of(connection, terms)
        pks = _PageSearch(connection.execute, ranges, spec, occurrences).find()
        sql = f"SELECT pk, CAST(row AS BLOB) FROM sessions WHERE pk {_AMONG}"
        rows = dict(connection.execute(sql, (str(list(pks)),)).fetchall())
        sessions = decode_sessions([rows[pk] for pk in pks])
        self._last.remember(spec.workspace, sessions, pks)
        return sessions

    def _newest_matches(
        self,
        connection: sqlite3.Connection,
        workspace: str,
        sessions: Sequence[Session],
        terms: Sequence[Term],
    ) -> list[Event | None]:
        newest: dict[int, int] = {}
        occurrences = self._occurrences_of(connection, terms)
        pks = self._pks(connection, workspace, sessions)
        last_seqs = {pks[session.id]: session.last_seq for session in sessions if session.id in pks}
        for term in occurrences:
            for pk, key in term.newest(last_seqs).items():
                newest[pk] = max(key, newest.get(pk, 0))
        sql = f"{EVENTS} WHERE key {_AMONG}"
        rows = connection.execute(sql, (str(list(newest.values())),)).fetchall()
        events = {row[0] >> 24: as_event(row) for row in rows}
        return [events.get(pks.get(session.id, 0)) for session in sessions]

    def _pks(
        self, connection: sqlite3.Connection, workspace: str, sessions: Sequence[Session]
    ) -> dict[str, int]:
        """Return primary keys by session id. A session that was purged meanwhile has none."""
        pks = self._last.pks.get(workspace, {})
        if all(session.id in pks for session in sessions):
            return pks
        sql = f"SELECT id, pk FROM sessions WHERE workspace = ? AND id {_AMONG}"
        ids = codec.encode([session.id for session in sessions]).decode()
        return dict(connection.execute(sql, (workspace, ids)).fetchall())

    def _occurrences_of(
        self, connection: sqlite3.Connection, terms: Sequence[Term]
    ) -> list[TermOccurrences]:
        """Return the occurrences of terms, reusing those of the last search for its snippets.

        Must be called within a snapshot, so that the version is that of the snapshot.
        """
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if (connection, version) != self._last.version:
            self._last = _LastSearch((connection, version))
        before = self._last.terms
        self._last.terms = {
            term: before.get(term) or _occurrences_of_term(connection, term) for term in terms
        }
        return list(self._last.terms.values())


def _occurrences_of_term(connection: sqlite3.Connection, term: Term) -> TermOccurrences:
    """Return where a term occurs. Its module is imported late: most lists search for nothing."""
    from .fts_query import TermOccurrences

    return TermOccurrences(connection, term)


def _containing(
    connection: sqlite3.Connection, pks: Collection[int], terms: Sequence[Term]
) -> set[int]:
    matching = set(pks)
    for term in terms:
        matching &= _occurrences_of_term(connection, term).within(matching)
    return matching


def _ranked(
    connection: sqlite3.Connection, workspace: str, query: Query, terms: Sequence[Term]
) -> list[SearchHit]:
    checks = query_sql.row_checks(query)
    occurrences = [_occurrences_of_term(connection, term) for term in terms]
    seen: set[int] = set()
    hits: list[SearchHit] = []
    with closing(connection.execute(fts5.RANKED_HITS, (fts5.any_term(terms),))) as ranking:
        # Read batches until the page is full: the best hits may all be in other workspaces.
        while batch := ranking.fetchmany(RANK_BATCH_EVENTS):
            best = fts5.best_by_session(batch, seen)
            candidates = Condition(f"s.pk {_AMONG}", [str(list(best))])
            select = f"{ROW}, s.pk"
            spec = PageSpec(workspace, query, select=select, candidates=candidates)
            statement = build.page(checks, spec)
            rows = {pk: row for _, _, row, pk in connection.execute(*statement)}
            complete = set(_with_all_terms(rows, occurrences))
            for pk, (key, score) in best.items():
                if pk in complete:
                    # The text of the session's row has the seq 0, which no event has.
                    row = connection.execute(f"{EVENTS} WHERE key = ?", (key,)).fetchone()
                    event = None if row is None else as_event(row)
                    hits.append(SearchHit(decode_session(rows[pk]), event, score))
                    if len(hits) == query.limit:
                        return hits
    return hits


class _PageSearch:
    """The search for one page of sessions in which every term occurs.

    Sessions are scanned in order and tried, ever more at a time: common terms fill a page soon. If
    the first few do not fill it, rare terms are looked up completely and their sessions sorted. In
    the end the same is done for terms that are common, but in few of the wanted sessions.
    """

    def __init__(
        self,
        execute: Any,
        ranges: Sequence[IndexRange],
        spec: PageSpec,
        occurrences: Sequence[TermOccurrences],
    ) -> None:
        self._execute = execute
        self._ranges = ranges
        self._spec = spec._replace(select="s.pk", sort_columns=True)
        self._terms = occurrences
        self._limit = spec.query.limit
        self._pks: list[int] = []

    def find(self) -> list[int]:
        """Return the primary keys of the sessions, in order."""
        if not self._scan_in_order():
            self._look_up_terms()
        return self._pks[: self._limit]

    def _scan_in_order(self) -> bool:
        """Try sessions in the list's order. Returns whether the page is complete."""
        if any(
            term.rare(VERY_RARE_EVENTS) is not None
            for term in self._terms
            if not term.is_long_prefix
        ):
            return False
        size, tried = self._limit + self._limit // 4 + 10, 0
        while tried < MAX_SCANNED_SESSIONS:
            statement = build.page(self._ranges, self._spec._replace(limit=size))
            rows = self._execute(*statement).fetchall()
            self._pks += _with_all_terms([pk for _, _, pk in rows], self._terms)
            if len(self._pks) >= self._limit or len(rows) < size:
                return True
            self._spec = self._spec._replace(after=Position(*rows[-1][:2]))
            if any(term.rare(RARE_EVENTS) is not None for term in self._terms):
                return False
            tried += size
            size *= 2
        return False

    def _look_up_terms(self) -> None:
        """Complete the page from all sessions that have the rarest terms."""
        candidates = self._candidates()
        if not candidates:
            return
        spec = self._spec._replace(
            candidates=Condition(f"s.pk {_AMONG}", [str(list(candidates))]),
            limit=self._limit - len(self._pks) if len(self._terms) == 1 else None,
        )
        statement = build.page(query_sql.row_checks(spec.query), spec)
        pks = [pk for _, _, pk in self._execute(*statement).fetchall()]
        size = 2 * self._limit
        while pks and len(self._pks) < self._limit:
            self._pks += _with_all_terms(pks[:size], self._terms)
            pks = pks[size:]

    def _candidates(self) -> set[int]:
        """Return the sessions that have all rare terms, or all terms if none is rare."""
        # A long prefix is looked up completely only if no other term is rare: that may take longer
        # than to check for it in the sessions of another term.
        short_terms = [term for term in self._terms if not term.is_long_prefix]
        rare = [pks for term in short_terms if (pks := term.rare(RARE_EVENTS)) is not None]
        if not rare:
            rare = [pks for term in self._terms if (pks := term.rare(RARE_EVENTS)) is not None]
        smallest_set, *other_sets = sorted(
            rare or [term.everywhere() for term in self._terms], key=len
        )
        return set(smallest_set).intersection(*other_sets)


class _LastSearch:
    """Results of the last search, valid while the store's version is the same."""

    def __init__(self, version: tuple[sqlite3.Connection, int] | None = None) -> None:
        self.version = version  # of the store, as the connection counts it
        self.terms: dict[Term, TermOccurrences] = {}
        self.pks: dict[str, dict[str, int]] = {}  # by workspace and id

    def remember(self, workspace: str, sessions: Sequence[Session], pks: Sequence[int]) -> None:
        self.pks = {workspace: {session.id: pk for session, pk in zip(sessions, pks, strict=True)}}
        self.terms = {
            term: occurrences
            for term, occurrences in self.terms.items()
            if occurrences.remembered_count() <= RARE_EVENTS
        }


def _with_all_terms(pks: Collection[int], occurrences: Sequence[TermOccurrences]) -> list[int]:
    """Return the sessions, in their order, in which all terms occur."""
    matching = set(pks)
    # The rarest term first: it leaves few sessions to try for the others.
    for term in sorted(occurrences, key=lambda occurrence: occurrence.share()):
        matching = term.within(matching)
    return [pk for pk in pks if pk in matching]


def as_event(row: tuple[Any, ...]) -> Event:
    """Return the event of a row (key, id, at, version, body)."""
    key, id, at, version, body = row
    return Event(seq=key & MAX_SEQ, id=id, at=at, body=event.decode_body(body, version))
