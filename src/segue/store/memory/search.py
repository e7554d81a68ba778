"""Search the events of the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence

from segue.model import search_text
from segue.model.event import Event
from segue.model.query import SearchHit
from segue.model.search_text import Term
from segue.model.session import Session


def mentions(terms: Sequence[Term], session: Session, events: Sequence[Event]) -> bool:
    """Return whether every term occurs in the session's row or some event; False without terms."""
    texts = [row_words(session), *map(words_of, events)]
    matches = [any(search_text.words_have_term(term, words) for words in texts) for term in terms]
    return bool(matches) and all(matches)


def score(terms: Sequence[Term], words: Sequence[str]) -> float:
    """Return the share of a text's words that are terms; 0 if none of them occurs in it."""
    matches = sum(search_text.words_have_term(term, words) for term in terms)
    return matches / max(1, len(words))


def best_hit(terms: Sequence[Term], session: Session, events: Sequence[Event]) -> SearchHit:
    """Return a session with its best event, or none if its row matches better."""
    row_hit = SearchHit(session, None, score(terms, row_words(session)))
    hits = [SearchHit(session, event, score(terms, words_of(event))) for event in events]
    return max(*hits, row_hit, key=lambda hit: hit.score)


def words_of(event: Event) -> list[str]:
    """Return the words of an event."""
    return search_text.tokens(search_text.searchable_text(event.body))


def row_words(session: Session) -> list[str]:
    """Return the words of a session's row."""
    return search_text.tokens(search_text.searchable_row(session))


def words_in(session: Session, events: Sequence[Event]) -> set[str]:
    """Return all words of a session."""
    return set(row_words(session)).union(*map(words_of, events))
