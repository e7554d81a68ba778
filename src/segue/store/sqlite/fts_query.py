"""Where words occur: what searches ask of the full-text index.

The index holds one row an event, so the hits of a term in one session are a range of its rows. To
seek in the index costs as much as to walk some dozens of hits. So sessions are tried many at a
time: one walk along the hits, and a new seek only where the next session is far.

A prefix longer than those that the index keeps would be put together, at every seek, from all the
words that it begins. Where it begins few, they are looked for themselves. Else it is looked for by
its first letters, and each hit is checked in the event's own text. When few of the sessions tried
have it, or too many hits turn out wrong, then the term is rare among its neighbours, and to put it
together once is quick.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import closing

from segue.model import event, search_text
from segue.model.search_text import Term
from segue.store.base import MAX_SEQ

INDEXED_PREFIX = 3  # letters; the longest that the index keeps, see the migration that makes it
WORDS = 32  # begun by a long prefix that are looked for one by one
NEAR = 40  # hits that are walked rather than sought past
CHECKS = 400  # hits of a long prefix that may turn out wrong before it is looked up whole
FEW = 0.1  # of the sessions tried: with fewer, a long prefix is looked up whole
ENOUGH = 10  # sessions tried, to say whether those were few
RECENT = 250  # events at a session's end in which its newest hit is looked for first

_RANGE = "SELECT rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ?"
_EVERYWHERE = "SELECT rowid FROM search WHERE search MATCH ?"


def expression(term: Term) -> str:
    """A term in FTS5's words. Tokens hold no quotes, so nothing needs escaping."""
    return f'"{" ".join(term.tokens)}"' + (" *" if term.prefix else "")


def _begun(connection: sqlite3.Connection, prefix: str) -> list[str]:
    """The words in the index that begin so; one more than are wanted if they are too many."""
    sql = "SELECT term FROM words WHERE term >= ? AND term < ? LIMIT ?"
    bounds = (prefix, prefix + chr(0x10FFFF))
    return [word for (word,) in connection.execute(sql, (*bounds, WORDS + 1))]


class Wanted:
    """One term of a search, and what is known of where it occurs."""

    def __init__(self, connection: sqlite3.Connection, term: Term) -> None:
        self._connection = connection
        self._term = term
        self._exact = self._near = expression(term)
        self._whole: dict[int, int] | None = None  # by session, the newest event with a hit
        self._above = 0  # hits that it is known to have more of
        self._checks: int | None = None  # how many are left, where hits must be checked
        self._tried = self._met = 0  # sessions
        *first, last = term.tokens
        if term.prefix and len(last) > INDEXED_PREFIX:
            words = _begun(connection, last)
            if len(words) > WORDS:
                self._near = expression(Term((*first, last[:INDEXED_PREFIX]), prefix=True))
                self._checks = CHECKS
            elif words:
                each = (expression(Term((*first, word))) for word in words)
                self._exact = self._near = " OR ".join(each)
        self.long = self._checks is not None

    def share(self) -> float:
        """What share of sessions has it, as far as is known. Of words, the long ones are rare."""
        if self._whole is not None:
            return 0.0  # to ask costs nothing
        return (self._met + 1 / len(self._term.tokens[-1])) / (self._tried + 1)

    def within(self, sessions: Collection[int]) -> set[int]:
        """Those of these sessions in which the term occurs."""
        if self._whole is None:
            found: set[int] = set()
            if self._checks is not None:
                # Where the word stands as it was asked for, nothing needs to be checked.
                word = expression(self._term._replace(prefix=False))
                found = self._walk(sessions, word, checked=False) or set()
            rest = set(sessions) - found
            others = self._walk(rest, self._near, checked=self._checks is not None)
            if others is not None:
                found |= others
                self._tried += len(sessions)
                self._met += len(found)
                return found
        return set(sessions).intersection(self.everywhere())

    def everywhere(self) -> Set[int]:
        """All the sessions in which the term occurs."""
        if self._whole is None:
            rows = self._connection.execute(_EVERYWHERE, (self._exact,))
            self._whole = {key >> 24: key for (key,) in rows}
        return self._whole.keys()

    def known(self) -> int:
        """How many sessions are remembered."""
        return len(self._whole or ())

    def rare(self, most: int) -> Set[int] | None:
        """All its sessions, if the term is known to have no more hits than that."""
        if self._whole is None and self._checks is not None:
            if self._tried < ENOUGH or self._met > self._tried * FEW:
                return None
            self.everywhere()
        if self._whole is None and self._above < most:
            sql = f"{_EVERYWHERE} LIMIT ?"
            hits = self._connection.execute(sql, (self._exact, most + 1)).fetchall()
            if len(hits) > most:
                self._above = most
            else:
                self._whole = {key >> 24: key for (key,) in hits}
        return None if self._whole is None or self.known() > most else self._whole.keys()

    def hits(self, session: int, last: int) -> set[int]:
        """The keys of a session's events in which the term occurs, up to a seq."""
        bounds = (session << 24, session << 24 | last)
        keys = self._connection.execute(_RANGE, (self._near, *bounds)).fetchall()
        return {key for (key,) in keys if self._checks is None or self._occurs(key)}

    def newest(self, sessions: Mapping[int, int]) -> dict[int, int]:
        """By session, the key of the newest event in which the term occurs.

        Given are the sessions with the seq of their last event. The index is quick at walking up
        and slow at walking down: sessions are walked up from near their ends, and from their
        beginnings only where nothing was found there.
        """
        if self._whole is not None:
            whole = self._whole
            return {session: whole[session] for session in sessions if session in whole}
        found: dict[int, int] = {}
        recent = {session: max(0, last - RECENT) for session, last in sessions.items()}
        for session, keys in self._recent(recent).items():
            if (key := self._last(keys)) is not None:
                found[session] = key
        for session in sessions.keys() - found.keys():
            bounds = (session << 24, session << 24 | recent[session])
            older = self._connection.execute(_RANGE, (self._near, *bounds)).fetchall()
            if (key := self._last([key for (key,) in older])) is not None:
                found[session] = key
        return found

    def _last(self, keys: Sequence[int]) -> int | None:
        right = (key for key in reversed(keys) if self._checks is None or self._occurs(key))
        return next(right, None)

    def _recent(self, starts: Mapping[int, int]) -> dict[int, list[int]]:
        """By session, the keys of its hits above a seq, in order."""
        found: dict[int, list[int]] = {}
        lows = sorted(session << 24 | seq for session, seq in starts.items())
        at = 0
        with closing(self._connection.cursor()) as hits:
            while at < len(lows):
                bounds = (lows[at], lows[-1] | MAX_SEQ)
                steps = 0
                for (key,) in hits.execute(_RANGE, (self._near, *bounds)):
                    while at + 1 < len(lows) and lows[at + 1] <= key:
                        at += 1
                        steps = 0
                    if lows[at] <= key <= lows[at] | MAX_SEQ:
                        found.setdefault(key >> 24, []).append(key)
                        continue
                    steps += 1
                    if steps > NEAR:
                        break
                else:
                    break
                at += 1
        return found

    def _walk(self, among: Collection[int], sought: str, *, checked: bool) -> set[int] | None:
        """The sessions with a hit, or None if that cannot be said without looking further."""
        sessions = sorted(among)
        found: set[int] = set()
        at = 0
        with closing(self._connection.cursor()) as hits:
            while at < len(sessions):
                bounds = (sessions[at] << 24, sessions[-1] << 24 | MAX_SEQ)
                steps = 0
                for (key,) in hits.execute(_RANGE, (sought, *bounds)):
                    session = key >> 24
                    if session > sessions[at]:
                        at = bisect_left(sessions, session, at)
                        steps = 0
                    if session != sessions[at]:
                        steps += 1
                        if steps > NEAR:
                            break
                    elif not checked or self._occurs(key):
                        found.add(session)
                        at += 1
                        steps = 0
                        if at == len(sessions):
                            break
                    elif not self._checks:
                        return None
                    else:
                        self._checks -= 1
                else:
                    break
        return found

    def _occurs(self, key: int) -> bool:
        sql = "SELECT version, body FROM events WHERE key = ?"
        version, body = self._connection.execute(sql, (key,)).fetchone()
        begun = self._term.tokens[-1]
        # Most that do not have it are plain ASCII, in which nothing stands for other letters.
        if body.isascii() and b"\\u" not in body and begun.encode() not in body.lower():
            return False
        shown = search_text.searchable_text(event.decode_body(body, version))
        if len(self._term.tokens) == 1:
            return search_text.has_word_with_prefix(begun, shown)
        return search_text.words_have_term(self._term, search_text.tokens(shown))
