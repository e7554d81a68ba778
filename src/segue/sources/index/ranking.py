"""Ranked searches over an index: the best matches instead of the newest.

Words that have few hits are ranked by the full-text index, all of them. To rank each hit of a
common word would cost more than all else; of those the newest sessions are compared, by the same
measure (BM25), as their texts have the words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import log
from typing import NamedTuple

from segue.model import search_text
from segue.model.query import Query
from segue.model.search_text import Term
from segue.model.session import Session

from .database import Index, decode
from .query import Origin, Spot, Walk, first, spot
from .terms import Words, decoded, expression, words_of

NEWEST = 100  # sessions of which the best are chosen, where the words are common
READ = 2500  # of their texts
BATCH = 500  # hits that are held against a query's filters at a time

_STEEP, _LENGTH = 1.2, 0.75  # BM25's parameters, as FTS5 has them


class Best(NamedTuple):
    """A session that a ranked search found, where, and how good that is."""

    session: Session
    spot: Spot
    score: float


class _Hit(NamedTuple):
    key: int
    size: int
    times: list[int]  # of each term


def ranked(index: Index, origin: Origin, query: Query) -> list[Best]:
    """The sessions that match best, best first."""
    terms = search_text.terms(query.text or "")
    if not terms:
        return []
    walk = Walk(index, origin, query)
    with index.snapshot():
        words = words_of(index, terms)
        newest = first(words, walk, NEWEST)
        hits = _by_index(index, terms) if words.settled else _by_texts(words, newest, terms)
        having = words.only if words.settled else None
        seen: set[int] = set()
        found: list[Best] = []
        while len(found) < query.limit and (batch := list(islice(hits, BATCH))):
            best: dict[int, tuple[int, float]] = {}
            for key, score in batch:
                if key >> 24 not in seen and (having is None or key >> 24 in having):
                    seen.add(key >> 24)
                    best[key >> 24] = (key, score)
            rows = dict(walk("pk, row", set(best)))
            for pk, (key, score) in best.items():
                if pk in rows and len(found) < query.limit:
                    session = origin.now(decode(rows[pk]))
                    found.append(Best(session, spot(index, key), score))
    return found


def _by_index(index: Index, terms: list[Term]) -> Iterator[tuple[int, float]]:
    sql = "SELECT rowid, -rank FROM search WHERE search MATCH ? ORDER BY rank"
    return index.execute(sql, (" OR ".join(map(expression, terms)),))


def _by_texts(words: Words, files: list[int], terms: list[Term]) -> Iterator[tuple[int, float]]:
    hits: list[_Hit] = []
    read = total = 0
    for pk in files:
        if read >= READ:
            break
        for texts in words.texts(pk):
            read += len(texts)
            for key, said in decoded(texts):
                total += len(said)
                times = [search_text.count_occurrences(term, said) for term in terms]
                if any(times):
                    hits.append(_Hit(key, len(said), times))
    having = [sum(hit.times[number] > 0 for hit in hits) for number in range(len(terms))]
    rarity = [max(log((read - each + 0.5) / (each + 0.5)), 1e-6) for each in having]
    usual = total / max(read, 1)

    def score(hit: _Hit) -> float:
        length = _STEEP * (1 - _LENGTH + _LENGTH * hit.size / usual)
        parts = zip(rarity, hit.times, strict=True)
        return sum(each * n * (_STEEP + 1) / (n + length) for each, n in parts)

    return iter(sorted(((hit.key, score(hit)) for hit in hits), key=lambda one: -one[1]))
