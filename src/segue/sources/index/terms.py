"""Find the sessions of an index that have all terms of a search.

The full-text index returns all hits of a term at once, which is fast for a rare term. A common
term is searched in the texts themselves, one session after the other in the order of the list:
most sessions have it near their end, so a page costs its own sessions and not all that have the
term. How common a term is shows while texts are read. As soon as looking up all its hits would
cost less than reading on, it is looked up after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from segue import fts5
from segue.model import search_text
from segue.model.search_text import Term

from .database import ROW_TEXT_NUMBER, Index

MAX_EAGER_HITS = 4000  # of a term that is looked up at once
MIN_SELECTIVE_PREFIX = 6  # letters of an unfinished word that few words begin with
MAX_TEXTS_READ = 2000  # at the end of a session, before a term is looked up
FIRST_CHUNK_TEXTS = 4  # read first; later chunks are larger
HITS_PER_TEXT = 3  # looked up in the time that one text takes to read
MAX_SPARSE_FILES = 500  # up to so many are looked up one by one, and not along the list


def term_search(index: Index, terms: Sequence[Term]) -> TermSearch:
    """Return a search for these terms, the last one if it was for the same terms and index state.

    Call it in a snapshot, and use the search in the same one.
    """
    state = (index.version(), tuple(terms))
    if index.last_search is None or index.last_search[0] != state:
        index.last_search = state, TermSearch(index, terms)
    search: TermSearch = index.last_search[1]
    return search


class TermSearch:
    """A search for terms. Files are identified by their `pk`, texts by their key."""

    def __init__(self, index: Index, terms: Sequence[Term]) -> None:
        self._index = index
        self._execute = index.execute
        self._unknown = list(terms)  # terms that were not looked up
        # Of each term that was looked up: the files that have it, with the newest text.
        self._newest_texts: list[dict[int, int]] = []
        self.candidates: set[int] | None = None  # the files that have all terms looked up so far
        # How many texts were read, and how many files were found to have all terms, and each.
        self._texts_read = self._matching_files = 0
        self._files_with = dict.fromkeys(self._unknown, 0)

    def look_up_rare_terms(self) -> None:
        """Look up the terms with few hits."""
        for term in tuple(self._unknown):
            if self._is_rare(term):
                self._look_up(term)

    def _look_up(self, term: Term) -> None:
        hits = self._execute(fts5.HITS, (fts5.expression(term),)).fetchall()
        newest: dict[int, int] = {}
        for (key,) in hits:  # in ascending order; the text of the row is the last of its file
            if not is_row_text(key) or key >> 24 not in newest:
                newest[key >> 24] = key
        self._newest_texts.append(newest)
        files = newest.keys()
        self.candidates = set(files) if self.candidates is None else self.candidates & files
        self._unknown.remove(term)

    def _is_rare(self, term: Term) -> bool:
        if term.prefix and len(term.tokens[-1]) < MIN_SELECTIVE_PREFIX:
            return False
        # A prefix query is slow to begin: FTS5 merges all hits first. So count the whole word.
        whole_word = fts5.expression(term._replace(prefix=False))
        sql = f"{fts5.HITS} LIMIT 1 OFFSET ?"
        return self._execute(sql, (whole_word, MAX_EAGER_HITS)).fetchone() is None

    @property
    def is_complete(self) -> bool:
        """Whether all terms were looked up."""
        return not self._unknown

    @property
    def is_sparse(self) -> bool:
        """Whether a walk along the list would pass many files for each candidate."""
        return self.candidates is not None and len(self.candidates) <= MAX_SPARSE_FILES

    def first_files(self, files: Iterable[int], limit: int) -> list[int] | None:
        """Return the first of some files that have all terms; None if they prove to be sparse."""
        matches: list[int] = []
        was_sparse = self.is_sparse
        for pk in files:
            if self.candidates is not None and pk not in self.candidates:
                continue
            if self.has_all(pk):
                matches.append(pk)
                self._matching_files += 1
                if len(matches) == limit:
                    break
            if self._unknown and (term := self._cheap_term(limit - len(matches))):
                self._look_up(term)
                if self.is_sparse and not was_sparse:
                    return None
        return matches

    def _cheap_term(self, wanted_matches: int) -> Term | None:
        """Return the rarest term if looking it up is estimated to cost less than reading on."""
        term = min(self._unknown, key=lambda term: self._files_with[term])
        hits = self._index.texts() * (self._files_with[term] + 1) / (self._texts_read + 1)
        texts = self._texts_read * wanted_matches / (self._matching_files + 1)
        return term if hits < texts * HITS_PER_TEXT else None

    def has_all(self, pk: int) -> bool:
        """Return whether a file has all terms."""
        if self.candidates is not None and pk not in self.candidates:
            return False
        missing = list(self._unknown)
        for texts in self.read_texts(pk) if missing else ():
            for term in _possible_terms(missing, texts):
                if any(search_text.text_has_term(term, text) for _, text in decode_texts(texts)):
                    missing.remove(term)
                    self._files_with[term] += 1
            if not missing:
                break
        if not missing or not self._has_unread_texts(pk):
            return not missing
        for term in missing:
            self._look_up(term)
        return self.candidates is not None and pk in self.candidates

    def newest_text(self, pk: int) -> int | None:
        """Return the key of the newest text of a file's events that has any of the terms."""
        known = (texts.get(pk, 0) for texts in self._newest_texts)
        newest = max((key for key in known if not is_row_text(key)), default=0)
        for texts in self.read_texts(pk, newest) if self._unknown else ():
            if possible := _possible_terms(self._unknown, texts):
                for key, text in decode_texts(texts):
                    if is_row_text(key):
                        continue
                    if any(search_text.text_has_term(term, text) for term in possible):
                        return key
        if self._unknown and self._has_unread_texts(pk, newest):
            for term in tuple(self._unknown):
                self._look_up(term)
            return self.newest_text(pk)
        return newest or None

    def read_texts(self, pk: int, after: int = 0) -> Iterator[list[tuple[int, bytes]]]:
        """Return the last texts of a file with their keys, newest first, in growing chunks."""
        sql = "SELECT key, text FROM texts WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT ?"
        bounds = (max(pk << 24, after + 1), pk << 24 | ROW_TEXT_NUMBER)
        size = FIRST_CHUNK_TEXTS
        with closing(self._execute(sql, (*bounds, MAX_TEXTS_READ))) as rows:
            while texts := rows.fetchmany(size):
                # The estimates are about texts of events.
                self._texts_read += len(texts) - is_row_text(texts[0][0])
                yield texts
                size *= 8

    def _has_unread_texts(self, pk: int, after: int = 0) -> bool:
        """Return whether a file has more texts than `read_texts` returns."""
        sql = "SELECT texts FROM files WHERE pk = ?"
        (count,) = self._execute(sql, (pk,)).fetchone()
        count += 1  # the text of the row
        return (pk << 24) + int(count) - MAX_TEXTS_READ > max(pk << 24, after + 1)


def is_row_text(key: int) -> bool:
    """Return whether a key is that of a session's row, and not of an event."""
    return key & ROW_TEXT_NUMBER == ROW_TEXT_NUMBER


def _possible_terms(terms: Sequence[Term], texts: Sequence[tuple[int, bytes]]) -> list[Term]:
    """Return the terms whose characters all occur in some texts."""
    joined = b"\n".join([data for _, data in texts])
    if not joined.isascii():
        return list(terms)  # other characters may fold to these
    folded = joined.lower().decode()
    return [term for term in terms if all(token in folded for token in term.tokens)]


def decode_texts(texts: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Decode the texts of an index, with their keys."""
    return ((key, data.decode("utf-8", "surrogatepass")) for key, data in texts)
