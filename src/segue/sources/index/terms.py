"""Which sessions of an index have the words of a search, and where they stand.

The full-text index tells all hits of a word at once, which is quick where they are few. A common
word is looked for in the texts themselves, one session after the other as a list has them: most
have it near their ends, so a page costs its own sessions and not all that have the word. How
common a word is shows while texts are read; as soon as all its hits would cost less than the
sessions that a page still wants, it is looked up after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from segue.model import search_text
from segue.model.search_text import Term

from .database import MOST, Index

FEW = 4000  # hits, up to which a word is looked up whole at once
LONG = 6  # letters of a word being typed, with which few others begin
NEAR = 2000  # texts at the end of a session that are read before a word is looked up whole
CHUNK = 4  # texts that are read at first; then more at a time
HITS = 3  # of a word, that are looked up in the time in which one text is read
SPARSE = 500  # sessions that are looked up one by one rather than met on the way

_HITS = "SELECT rowid FROM search WHERE search MATCH ?"


def expression(term: Term) -> str:
    """A term in FTS5's words. Tokens hold no quotes, so nothing needs escaping."""
    return f'"{" ".join(term.tokens)}"' + (" *" if term.prefix else "")


def words_of(index: Index, terms: Sequence[Term]) -> Words:
    """The terms of a search, with what is known of them where the last one was for the same.

    To be asked in a snapshot, and used in that one.
    """
    state = (index.version(), tuple(terms))
    if index.last is None or index.last[0] != state:
        index.last = state, Words(index, terms)
    return index.last[1]


class Words:
    """The terms of a search over one index. Files are named by their `pk`, texts by their key."""

    def __init__(self, index: Index, terms: Sequence[Term]) -> None:
        self._index = index
        self._execute = index.execute
        self._left = list(terms)  # that are still to be looked for in texts
        self._whole: list[dict[int, int]] = []  # of each of the others: files and newest texts
        self.only: set[int] | None = None  # the files that have all the others
        self._read = self._found = 0  # texts, and files that were found to have all
        self._met = dict.fromkeys(self._left, 0)  # and files that were found to have each

    def narrow(self) -> None:
        """Look up whole what has few hits."""
        for term in tuple(self._left):
            if self._has_few(term):
                self._take(term)

    def settle(self) -> set[int]:
        """Look up whole what is left; gives the files that have all."""
        for term in sorted(self._left, key=lambda term: -sum(map(len, term.tokens))):
            if self.only is not None and not self.only:
                break
            self._take(term)
        return self.only or set()

    def _take(self, term: Term) -> None:
        hits = self._execute(_HITS, (expression(term),)).fetchall()
        found = {key >> 24: key for (key,) in hits}  # they come in order, so the newest stays
        self._whole.append(found)
        self.only = set(found) if self.only is None else self.only & found.keys()
        self._left.remove(term)

    def _has_few(self, term: Term) -> bool:
        if term.prefix and len(term.tokens[-1]) < LONG:
            return False
        # To begin with a word is slow, for FTS5 then puts all of its hits together first.
        word = expression(term._replace(prefix=False))
        return self._execute(f"{_HITS} LIMIT 1 OFFSET ?", (word, FEW)).fetchone() is None

    @property
    def settled(self) -> bool:
        """Whether all was looked up whole."""
        return not self._left

    @property
    def sparse(self) -> bool:
        """Whether so few files come into question that a walk would pass by too many others."""
        return self.only is not None and len(self.only) <= SPARSE

    def first(self, files: Iterable[int], limit: int) -> list[int] | None:
        """The first of some files that have all; None when they turn out to be sparse."""
        found: list[int] = []
        sparse = self.sparse
        for pk in files:
            if self.only is not None and pk not in self.only:
                continue
            if self.has(pk):
                found.append(pk)
                self._found += 1
                if len(found) == limit:
                    break
            if self._left and (term := self._cheap(limit - len(found))):
                self._take(term)
                if self.sparse and not sparse:
                    return None
        return found

    def _cheap(self, wanted: int) -> Term | None:
        """The rarest term, if to look it up whole costs less than to go on, as far as is known."""
        term = min(self._left, key=lambda term: self._met[term])
        whole = self._index.texts() * (self._met[term] + 1) / (self._read + 1)
        rest = self._read * wanted / (self._found + 1)
        return term if whole < rest * HITS else None

    def has(self, pk: int) -> bool:
        """Whether a file has all."""
        if self.only is not None and pk not in self.only:
            return False
        missing = list(self._left)
        for texts in self.texts(pk) if missing else ():
            for term in _possible(missing, texts):
                if any(search_text.text_has_term(term, words) for _, words in decoded(texts)):
                    missing.remove(term)
                    self._met[term] += 1
            if not missing:
                break
        if not missing or not self._unread(pk):
            return not missing
        for term in missing:
            self._take(term)
        return self.only is not None and pk in self.only

    def newest(self, pk: int) -> int | None:
        """The key of a file's newest text in which any of them stands."""
        known = max((found.get(pk, 0) for found in self._whole), default=0)
        for texts in self.texts(pk, known) if self._left else ():
            if possible := _possible(self._left, texts):
                for key, words in decoded(texts):
                    if any(search_text.text_has_term(term, words) for term in possible):
                        return key
        if self._left and self._unread(pk, known):
            for term in tuple(self._left):
                self._take(term)
            return self.newest(pk)
        return known or None

    def texts(self, pk: int, above: int = 0) -> Iterator[list[tuple[int, bytes]]]:
        """The last texts of a file with their keys, the newest first, some at a time."""
        sql = "SELECT key, text FROM texts WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?"
        bounds = (max(pk << 24, above + 1), pk << 24 | MOST - 1)
        size = CHUNK
        with closing(self._execute(sql, (*bounds, NEAR))) as rows:
            while texts := rows.fetchmany(size):
                self._read += len(texts)
                yield texts
                size *= 8

    def _unread(self, pk: int, above: int = 0) -> bool:
        """Whether a file has more texts than are read one by one."""
        sql = "SELECT texts FROM files WHERE pk = ?"
        (count,) = self._execute(sql, (pk,)).fetchone()
        return (pk << 24) + int(count) - NEAR > max(pk << 24, above + 1)


def _possible(terms: Sequence[Term], texts: Sequence[tuple[int, bytes]]) -> list[Term]:
    """The terms that may stand in some texts: all of which the letters do."""
    joined = b"\n".join([data for _, data in texts])
    if not joined.isascii():
        return list(terms)  # in which letters may stand for others
    folded = joined.lower().decode()
    return [term for term in terms if all(token in folded for token in term.tokens)]


def decoded(texts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    return ((key, data.decode("utf-8", "surrogatepass")) for key, data in texts)
