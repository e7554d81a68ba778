"""Look up where words occur in the full-text index.

The index has one row per event, so the hits of a term in one session are a range of its rows. A
seek in the index costs as much as stepping over some dozens of hits. So many sessions are tried at
a time: one scan along the hits, and a new seek only where the next session is far away.

FTS5 would assemble a prefix that is longer than the indexed prefixes, at every seek, from all words
that begin with it. If these are few, they are looked up one by one. Otherwise the term is looked up
by its first letters, and each hit is checked in the event's text. When few of the tried sessions
have the term, or too many hits are wrong, the term is rare, and assembling it once is fast.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import closing

from segue import fts5
from segue.fts5 import expression
from segue.model import event, search_text
from segue.model.search_text import Term
from segue.store.base import MAX_SEQ

INDEXED_PREFIX_CHARS = 3  # the longest prefix that the index has, see search_index.py
MAX_PREFIX_WORDS = 32  # words with a long prefix that are looked up one by one
MAX_SKIPPED_HITS = 40  # stepped over before the scan seeks instead
MAX_WRONG_HITS = 400  # of a long prefix, before it is looked up completely
RARE_SHARE = 0.1  # of the tried sessions: if fewer have a long prefix, it is looked up completely
MIN_SAMPLE_SESSIONS = 10  # tried before RARE_SHARE counts
RECENT_EVENTS = 250  # at a session's end, in which its newest hit is looked for first

_RANGE = f"{fts5.HITS} AND rowid BETWEEN ? AND ?"


def _words_with_prefix(connection: sqlite3.Connection, prefix: str) -> list[str]:
    """Return the indexed words with a prefix, at most one more than MAX_PREFIX_WORDS."""
    sql = "SELECT term FROM words WHERE term >= ? AND term < ? LIMIT ?"
    bounds = (prefix, prefix + chr(0x10FFFF))
    return [word for (word,) in connection.execute(sql, (*bounds, MAX_PREFIX_WORDS + 1))]


class TermOccurrences:
    """One term of a search, and what is known about where it occurs."""

    def __init__(self, connection: sqlite3.Connection, term: Term) -> None:
        self._connection = connection
        self._term = term
        self._exact = self._broad = expression(term)  # broad: hits may be of other words
        self._complete: dict[int, int] | None = None  # by session, the newest event with a hit
        self._more_hits_than = 0  # the term is known to have more hits than this
        self._checks: int | None = None  # how many hits may still be checked; None: need no check
        self._tried = self._with_term = 0  # sessions
        *first, last = term.tokens
        if term.prefix and len(last) > INDEXED_PREFIX_CHARS:
            words = _words_with_prefix(connection, last)
            if len(words) > MAX_PREFIX_WORDS:
                self._broad = expression(Term((*first, last[:INDEXED_PREFIX_CHARS]), prefix=True))
                self._checks = MAX_WRONG_HITS
            elif words:
                expressions = (expression(Term((*first, word))) for word in words)
                self._exact = self._broad = " OR ".join(expressions)
        self.is_long_prefix = self._checks is not None

    def share(self) -> float:
        """Return the estimated share of sessions with the term. Long words are taken to be rare."""
        if self._complete is not None:
            return 0.0  # trying a session costs nothing then
        return (self._with_term + 1 / len(self._term.tokens[-1])) / (self._tried + 1)

    def within(self, sessions: Collection[int]) -> set[int]:
        """Return the sessions, among these, in which the term occurs."""
        if self._complete is None:
            matches: set[int] = set()
            if self._checks is not None:
                # Hits of the exact word need no check.
                exact_word = expression(self._term._replace(prefix=False))
                matches = self._scan(sessions, exact_word, checked=False) or set()
            unmatched = set(sessions) - matches
            further_matches = self._scan(unmatched, self._broad, checked=self._checks is not None)
            if further_matches is not None:
                matches |= further_matches
                self._tried += len(sessions)
                self._with_term += len(matches)
                return matches
        return set(sessions).intersection(self.everywhere())

    def everywhere(self) -> Set[int]:
        """Return all sessions in which the term occurs."""
        if self._complete is None:
            hits = self._connection.execute(fts5.HITS, (self._exact,))
            self._complete = fts5.newest_by_session(hits)
        return self._complete.keys()

    def remembered_count(self) -> int:
        """Return how many sessions are remembered."""
        return len(self._complete or ())

    def rare(self, max_hits: int) -> Set[int] | None:
        """Return all sessions of the term if it has at most `max_hits` hits, else None."""
        if self._complete is None and self._checks is not None:
            if self._tried < MIN_SAMPLE_SESSIONS or self._with_term > self._tried * RARE_SHARE:
                return None
            self.everywhere()
        if self._complete is None and self._more_hits_than < max_hits:
            sql = f"{fts5.HITS} LIMIT ?"
            hits = self._connection.execute(sql, (self._exact, max_hits + 1)).fetchall()
            if len(hits) > max_hits:
                self._more_hits_than = max_hits
            else:
                self._complete = fts5.newest_by_session(hits)
        return (
            None
            if self._complete is None or self.remembered_count() > max_hits
            else self._complete.keys()
        )

    def hits(self, session: int, last: int) -> set[int]:
        """Return the keys of a session's events up to a seq in which the term occurs."""
        bounds = (session << 24 | 1, session << 24 | last)
        keys = self._connection.execute(_RANGE, (self._broad, *bounds)).fetchall()
        return {key for (key,) in keys if self._checks is None or self._occurs(key)}

    def newest(self, sessions: Mapping[int, int]) -> dict[int, int]:
        """Return by session the key of the newest event in which the term occurs.

        `sessions` has the seq of each session's last event. The index is fast in ascending order
        and slow in descending order. So sessions are scanned from near their ends, and from their
        beginnings only if no hit is there.
        """
        if self._complete is not None:
            newest = self._complete
            return {session: newest[session] for session in sessions if session in newest}
        newest_keys: dict[int, int] = {}
        recent = {session: max(0, last - RECENT_EVENTS) for session, last in sessions.items()}
        for session, keys in self._recent_hits(recent).items():
            if (key := self._newest_match(keys)) is not None:
                newest_keys[session] = key
        for session in sessions.keys() - newest_keys.keys():
            bounds = (session << 24, session << 24 | recent[session])
            older = self._connection.execute(_RANGE, (self._broad, *bounds)).fetchall()
            if (key := self._newest_match([key for (key,) in older])) is not None:
                newest_keys[session] = key
        return newest_keys

    def _newest_match(self, keys: Sequence[int]) -> int | None:
        matches = (key for key in reversed(keys) if self._checks is None or self._occurs(key))
        return next(matches, None)

    def _recent_hits(self, starts: Mapping[int, int]) -> dict[int, list[int]]:
        """Return by session the keys of its hits above a seq, in order."""
        keys_by_session: dict[int, list[int]] = {}
        lows = sorted(session << 24 | seq for session, seq in starts.items())
        index = 0
        with closing(self._connection.cursor()) as hits:
            while index < len(lows):
                bounds = (lows[index], lows[-1] | MAX_SEQ)
                skipped = 0
                for (key,) in hits.execute(_RANGE, (self._broad, *bounds)):
                    while index + 1 < len(lows) and lows[index + 1] <= key:
                        index += 1
                        skipped = 0
                    if lows[index] <= key <= lows[index] | MAX_SEQ:
                        keys_by_session.setdefault(key >> 24, []).append(key)
                        continue
                    skipped += 1
                    if skipped > MAX_SKIPPED_HITS:
                        break
                else:
                    break
                index += 1
        return keys_by_session

    def _scan(
        self, candidates: Collection[int], fts_query: str, *, checked: bool
    ) -> set[int] | None:
        """Return the sessions with a hit, or None if too many hits had to be checked."""
        sessions = sorted(candidates)
        matches: set[int] = set()
        index = 0
        with closing(self._connection.cursor()) as hits:
            while index < len(sessions):
                bounds = (sessions[index] << 24, sessions[-1] << 24 | MAX_SEQ)
                skipped = 0
                for (key,) in hits.execute(_RANGE, (fts_query, *bounds)):
                    session = key >> 24
                    if session > sessions[index]:
                        index = bisect_left(sessions, session, index)
                        skipped = 0
                    if session != sessions[index]:
                        skipped += 1
                        if skipped > MAX_SKIPPED_HITS:
                            break
                    elif not checked or self._occurs(key):
                        matches.add(session)
                        index += 1
                        skipped = 0
                        if index == len(sessions):
                            break
                    elif not self._checks:
                        return None
                    else:
                        self._checks -= 1
                else:
                    break
        return matches

    def _occurs(self, key: int) -> bool:
        if not key & MAX_SEQ:
            return self._occurs_in_row(key >> 24)
        sql = "SELECT version, CAST(body AS BLOB) FROM events WHERE key = ?"
        version, body = self._connection.execute(sql, (key,)).fetchone()
        prefix = self._term.tokens[-1]
        # A quick test for plain ASCII, in which no letter is written as an escape.
        if body.isascii() and b"\\u" not in body and prefix.encode() not in body.lower():
            return False
        return self._matches(search_text.searchable_text(event.decode_body(body, version)))

    def _occurs_in_row(self, session: int) -> bool:
        sql = "SELECT text FROM rows WHERE session = ?"
        (text,) = self._connection.execute(sql, (session,)).fetchone()
        return self._matches(text)

    def _matches(self, text: str) -> bool:
        if len(self._term.tokens) == 1:
            return search_text.has_word_with_prefix(self._term.tokens[-1], text)
        return search_text.words_have_term(self._term, search_text.tokens(text))
