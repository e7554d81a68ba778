"""Which sessions of an index have the words of a search, and where they stand.

The full-text index tells all hits of a word at once, which is quick where they are few. A common
word is looked for in the texts themselves, one session after the other as a list has them: most
have it near their ends, so a page costs its own sessions and not all that have the word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from ..model import text
from ..model.text import Term
from .index import MOST as TEXTS
from .index import Index

FEW = 2000  # hits, up to which a word is looked up whole
LONG = 6  # letters of a word being typed, with which few others begin
ENOUGH = 32  # sessions tried, to say how many have the words
MANY = 1 / 8  # of those: with fewer, the words are looked up whole after all
NEAR = 2000  # texts at the end of a session that are read before the full-text index is asked
SPARSE = 500  # sessions that are looked up one by one rather than met on the way

_HITS = "SELECT rowid FROM search WHERE search MATCH ?"


def expression(term: Term) -> str:
    """A term in FTS5's words. Tokens hold no quotes, so nothing needs escaping."""
    return f'"{" ".join(term.tokens)}"' + (" *" if term.prefix else "")


class Words:
    """The terms of a search over one index. Files are named by their `pk`."""

    def __init__(self, index: Index, terms: Sequence[Term]) -> None:
        self._execute = index.execute
        self._left = list(terms)  # that are still to be looked for in texts
        self.only: set[int] | None = None  # the files that have all the others

    def narrow(self) -> None:
        """Look up whole what has few hits."""
        for term in tuple(self._left):
            if (found := self._few(term)) is not None:
                self._take(term, found)

    def settle(self) -> set[int]:
        """Look up whole what is left; gives the files that have all."""
        for term in sorted(self._left, key=lambda term: -sum(map(len, term.tokens))):
            if self.only is not None and not self.only:
                break
            self._take(term, (key for (key,) in self._execute(_HITS, (expression(term),))))
        return self.only or set()

    def _take(self, term: Term, keys: Iterable[int]) -> None:
        found = {key >> 24 for key in keys}
        self.only = found if self.only is None else self.only & found
        self._left.remove(term)

    def _few(self, term: Term) -> list[int] | None:
        if term.prefix and len(term.tokens[-1]) < LONG:
            return None
        # To begin with a word is slow, for FTS5 then puts all of its hits together first.
        word = expression(term._replace(prefix=False))
        hits = self._execute(f"{_HITS} LIMIT ?", (word, FEW + 1)).fetchall()
        if len(hits) > FEW:
            return None
        if term.prefix:
            hits = self._execute(_HITS, (expression(term),)).fetchall()
        return [key for (key,) in hits]

    @property
    def sparse(self) -> bool:
        """Whether so few files come into question that a walk would pass by too many others."""
        return self.only is not None and len(self.only) <= SPARSE

    def first(self, files: Iterable[int], limit: int) -> list[int] | None:
        """The first of some files that have all; None when too many would have to be tried."""
        found: list[int] = []
        tried = 0
        for pk in files:
            if self.only is not None and pk not in self.only:
                continue
            tried += 1
            if self.has(pk):
                found.append(pk)
                if len(found) == limit:
                    break
            if self._left and tried == ENOUGH and len(found) < tried * MANY:
                return None
        return found

    def has(self, pk: int) -> bool:
        """Whether a file has all."""
        if self.only is not None and pk not in self.only:
            return False
        missing, below = self._left, 0
        for number, _, words in self._texts(pk) if missing else ():
            below = number
            missing = [term for term in missing if not text.stands(term, words)]
            if not missing:
                return True
        if not missing or not below:
            return not missing
        sql = f"{_HITS} AND rowid BETWEEN ? AND ? LIMIT 1"
        bounds = pk << 24, (pk << 24) + below - 1
        return all(self._execute(sql, (expression(term), *bounds)).fetchone() for term in missing)

    def newest(self, pk: int) -> int | None:
        """The seq of a file's newest text in which any of them stands."""
        below = 0
        for number, seq, words in self._texts(pk):
            below = number
            if any(text.stands(term, words) for term in self._left):
                return seq
        if not below:
            return None
        any_of = " OR ".join(map(expression, self._left))
        sql = "SELECT seq FROM texts WHERE key = (SELECT max(rowid) FROM search"
        sql += " WHERE search MATCH ? AND rowid BETWEEN ? AND ?)"
        bounds = pk << 24, (pk << 24) + below - 1
        row = self._execute(sql, (any_of, *bounds)).fetchone()
        return None if row is None else int(row[0])

    def _texts(self, pk: int) -> Iterator[tuple[int, int, str]]:
        """The last texts of a file, the newest first: number, seq and words.

        The number of the last one is 0, unless there are more than should be read.
        """
        sql = "SELECT key, seq, text FROM texts WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?"
        with closing(self._execute(sql, (pk << 24, pk << 24 | TEXTS - 1, NEAR))) as rows:
            for key, seq, data in rows:
                yield key & TEXTS - 1, seq, data.decode("utf-8", "surrogatepass")
