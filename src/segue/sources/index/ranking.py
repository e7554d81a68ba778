"""Search an index for the best matches instead of the newest.

FTS5 ranks all hits of rare terms. Ranking every hit of a common term would take too long: there
the newest sessions are compared, with the same measure (BM25) computed from their texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import log
from typing import NamedTuple

from segue import fts5
from segue.model import search_text
from segue.model.query import Query
from segue.model.search_text import Term
from segue.model.session import Session, decode_session

from .database import Index
from .query import ListWalk, SourceInfo, TextPosition, first_matches, text_position
from .terms import TermSearch, decode_texts, is_row_text, term_search

MAX_RANKED_SESSIONS = 100  # newest sessions that are compared if the terms are common
MAX_TEXTS_READ = 2500  # of those sessions
HITS_PER_BATCH = 500  # checked against a query's filters at a time

_BM25_K1, _BM25_B = 1.2, 0.75  # the parameters of BM25 in FTS5


class RankedMatch(NamedTuple):
    """A session that matches, where its best text is, and the score of that text.

    The position is None if the best text is that of the session's row.
    """

    session: Session
    position: TextPosition | None
    score: float


class _Hit(NamedTuple):
    key: int
    size: int
    counts: list[int]  # of each term


def rank_sessions(index: Index, source: SourceInfo, query: Query) -> list[RankedMatch]:
    """Return the sessions that match best, best first."""
    terms = search_text.terms(query.text or "")
    if not terms:
        return []
    walk = ListWalk(index, source, query)
    with index.snapshot():
        search = term_search(index, terms)
        newest = first_matches(search, walk, MAX_RANKED_SESSIONS)
        if search.is_complete:
            hits = _rank_by_index(index, terms, search.candidates or set())
        else:
            hits = _rank_by_texts(search, newest, terms)
        seen: set[int] = set()
        matches: list[RankedMatch] = []
        while len(matches) < query.limit and (batch := list(islice(hits, HITS_PER_BATCH))):
            best = fts5.best_by_session(batch, seen)
            rows = dict(walk("pk, row", set(best)))
            for pk, (key, score) in best.items():
                if pk in rows and len(matches) < query.limit:
                    session = source.with_status(decode_session(rows[pk]))
                    position = None if is_row_text(key) else text_position(index, key)
                    matches.append(RankedMatch(session, position, score))
    return matches


def _rank_by_index(index: Index, terms: list[Term], files: set[int]) -> Iterator[tuple[int, float]]:
    """Return the hits in some files with their scores, best first."""
    hits = index.execute(fts5.RANKED_HITS, (fts5.any_term(terms),))
    return ((key, score) for key, score in hits if key >> 24 in files)


def _rank_by_texts(
    search: TermSearch, files: list[int], terms: list[Term]
) -> Iterator[tuple[int, float]]:
    hits: list[_Hit] = []
    read = total = 0
    for pk in files:
        if read >= MAX_TEXTS_READ:
            break
        for texts in search.read_texts(pk):
            read += len(texts)
            for key, text in decode_texts(texts):
                total += len(text)
                counts = [search_text.count_occurrences(term, text) for term in terms]
                if any(counts):
                    hits.append(_Hit(key, len(text), counts))
    hit_counts = [sum(hit.counts[number] > 0 for hit in hits) for number in range(len(terms))]
    rarities = [max(log((read - count + 0.5) / (count + 0.5)), 1e-6) for count in hit_counts]
    average_size = total / max(read, 1)

    def score(hit: _Hit) -> float:
        length = _BM25_K1 * (1 - _BM25_B + _BM25_B * hit.size / average_size)
        parts = zip(rarities, hit.counts, strict=True)
        return sum(rarity * n * (_BM25_K1 + 1) / (n + length) for rarity, n in parts)

    return iter(sorted(((hit.key, score(hit)) for hit in hits), key=lambda item: -item[1]))
