"""Search the sessions of the store and the sources: newest first, or best match first.

A session matches if every word occurs in one of its events, or in its title, tag, project's path,
branch or source. Every interface uses this search.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from segue.model import clock, search_text
from segue.model.errors import InvalidInput
from segue.model.event import Event
from segue.model.principal import Principal
from segue.model.query import Query, SearchHit, matches_row_filters
from segue.model.search_text import Term
from segue.model.session import Session
from segue.sources.index.helpers import index_new_sources
from segue.store.base import Store

from . import interrupted, spelling
from .lookup import SourceSet
from .pagination import MAX_PAGE_SIZE, Page

MAX_CORRECTIONS = 3  # of a word, that are tried
# A session that was active just now counts twice as much as a very old one that matches as well.
RECENCY_DAYS = 30

GetSession = Callable[[Principal, str], Awaitable[Session]]
ListPage = Callable[[Principal, Query, str | None], Awaitable[Page]]


class SearchMatch(NamedTuple):
    """A session that matches a search: the event that matches, and a snippet of its text.

    `marks` are the ranges of the snippet that hold the searched words. If the words are in the
    session's title, project, branch or source, there is no event. `copies` are the forks that have
    the same text from this session; a search returns the text once.
    """

    session: Session
    event: Event | None
    snippet: str
    marks: list[range]
    score: float = 0.0
    copies: Sequence[Session] = ()


class SearchPage(NamedTuple):
    """One page of search matches, and the cursor of the next page.

    `corrected` is the text that was searched for instead, if nothing matched the given one. The
    cursor belongs to that text then. `copies` are the forks that were left out, by the id of the
    session that has their text. That session may be on another page.
    """

    matches: list[SearchMatch]
    next: str | None = None
    corrected: str | None = None
    copies: Mapping[str, Sequence[Session]] = {}


class SessionSearch:
    """Search sessions. `list_page` lists a page of the sessions that match a query."""

    def __init__(
        self, list_page: ListPage, get_session: GetSession, store: Store, sources: SourceSet
    ) -> None:
        self._list_page = list_page
        self._get_session = get_session
        self._store = store
        self._sources = sources

    async def search(
        self, principal: Principal, query: Query, cursor: str | None, *, ranked: bool
    ) -> SearchPage:
        """Return a page of matches. See `SessionCatalog.search`."""
        if not search_text.terms(query.text or ""):
            raise InvalidInput("a search needs at least one word")
        page = await self._search(principal, query, cursor, ranked=ranked)
        if page.matches or page.copies or cursor is not None:
            return page
        for text in await self._corrections(principal, query):
            corrected = replace(query, text=text)
            page = await self._search(principal, corrected, None, ranked=ranked)
            if page.matches:
                return page._replace(corrected=text)
        return page

    async def _search(
        self, principal: Principal, query: Query, cursor: str | None, *, ranked: bool
    ) -> SearchPage:
        terms = search_text.terms(query.text or "")
        if ranked:
            hits = await self._best_hits(principal, query)
            return await self._without_copies(principal, query, hits)
        page = await self._list_page(principal, query, cursor)
        hits = await self._matching_events(principal, page.sessions, terms)
        return (await self._without_copies(principal, query, hits))._replace(next=page.next)

    async def _without_copies(
        self, principal: Principal, query: Query, hits: Sequence[SearchHit]
    ) -> SearchPage:
        """Return hits as matches; one that a fork copied from another result is named there."""
        terms = search_text.terms(query.text or "")
        copies: Mapping[str, Sequence[Session]] = {}
        if any(hit.session.fork is not None for hit in hits):
            from .copies import CopiedHits

            async def find_newest(session: Session) -> SearchHit:
                return (await self._matching_events(principal, [session], terms))[0]

            copied = CopiedHits(query, lambda id: self._get_session(principal, id), find_newest)
            hits, copies = await copied.split(hits)
        matches = [
            _match_for(principal, hit, terms)._replace(copies=copies.get(hit.session.id, ()))
            for hit in hits
        ]
        return SearchPage(matches, copies=copies)

    # Misspelt words.

    async def _corrections(self, principal: Principal, query: Query) -> list[str]:
        """Return texts in which the words that match nothing are replaced by similar ones."""
        terms = search_text.terms(query.text or "")
        corrections: list[list[Term]] = []
        for term in terms:
            alone = replace(query, text=search_text.query_of([term]), limit=1)
            if (await self._list_page(principal, alone, None)).sessions:
                corrections.append([term])
                continue
            similar = await self._similar_terms(principal, term)
            if not similar:
                return []
            corrections.append(similar)
        if all(len(options) == 1 and options[0] in terms for options in corrections):
            return []  # each word matches a session, but no session has all of them
        first = [options[0] for options in corrections]
        texts = [first]
        for number, options in enumerate(corrections):
            texts += [[*first[:number], option, *first[number + 1 :]] for option in options[1:]]
        return [search_text.query_of(text) for text in texts]

    async def _similar_terms(self, principal: Principal, term: Term) -> list[Term]:
        """Return terms that differ in one misspelt word, and whose words occur."""
        similar: list[Term] = []
        for number, token in enumerate(term.tokens):
            words = spelling.similar_words(token)
            known = await self._known_words(principal, [token, *words])
            if token in known:
                continue
            for word in islice((word for word in words if word in known), MAX_CORRECTIONS):
                tokens = (*term.tokens[:number], word, *term.tokens[number + 1 :])
                similar.append(term._replace(tokens=tokens))
        return similar

    async def _known_words(self, principal: Principal, words: Sequence[str]) -> set[str]:
        known = await self._store.known_words(principal.workspace, words)
        for source in await self._sources.in_workspace(principal.workspace):
            known |= await source.known_words(words)
        return known

    # Matches.

    async def _best_hits(self, principal: Principal, query: Query) -> Sequence[SearchHit]:
        if query.has_row_filters:
            unchecked = replace(query.without_row_filters(), limit=MAX_PAGE_SIZE)
            best = await self._best_hits(principal, unchecked)
            return [hit for hit in best if matches_row_filters(query, hit.session)][: query.limit]
        hits = [*await self._stored_hits(principal, query)]
        sources = await self._sources.in_workspace(principal.workspace)
        await index_new_sources(sources, searchable=True)
        for source in sources:
            ranked = await source.ranked(query)
            imported = await self._store.existing_ids(
                principal.workspace, [hit.session.id for hit in ranked]
            )
            hits += [hit for hit in ranked if hit.session.id not in imported]
        now = clock.now()
        hits = [hit._replace(score=hit.score * _recency(hit.session, now)) for hit in hits]
        return sorted(hits, key=lambda hit: -hit.score)[: query.limit]

    async def _stored_hits(self, principal: Principal, query: Query) -> Sequence[SearchHit]:
        stored_query = interrupted.stored_query(query)
        hits = await self._store.ranked(principal.workspace, stored_query)
        sessions = await interrupted.select(self._store, query, [hit.session for hit in hits])
        by_id = {session.id: session for session in sessions}
        return [
            hit._replace(session=by_id[hit.session.id]) for hit in hits if hit.session.id in by_id
        ]

    async def _matching_events(
        self, principal: Principal, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> Sequence[SearchHit]:
        """Return each session with an event that contains the terms, if one event does."""
        sources = await self._sources.in_workspace(principal.workspace)
        stored_ids = {session.id for session in sessions}
        if sources:
            stored_ids = await self._store.existing_ids(principal.workspace, list(stored_ids))
        events: dict[str, Event | None] = {}
        stored = [session for session in sessions if session.id in stored_ids]
        matches = await self._store.newest_matches(principal.workspace, stored, terms)
        events.update(zip((session.id for session in stored), matches, strict=True))
        for source in sources:
            owned = [
                session
                for session in sessions
                if session.source == source.name and session.id not in stored_ids
            ]
            matches = await source.newest_matches(owned, terms)
            events.update(zip((session.id for session in owned), matches, strict=True))
        return [SearchHit(session, events.get(session.id)) for session in sessions]


def _recency(session: Session, now: int) -> float:
    """Return 2 for a session that was active just now, and less for older ones, down to 1."""
    days = max(0, now - session.active_at) / clock.DAY
    return 1 + 1 / (1 + days / RECENCY_DAYS)


def _match_for(principal: Principal, hit: SearchHit, terms: Sequence[Term]) -> SearchMatch:
    event = hit.event and hit.event.for_caller(local=principal.local)
    return search_match(hit._replace(event=event), terms)


def search_match(hit: SearchHit, terms: Sequence[Term]) -> SearchMatch:
    """Return a search hit with a snippet of its event's text."""
    text = "" if hit.event is None else search_text.searchable_text(hit.event.body)
    snippet, marks = search_text.snippet(text, terms)
    return SearchMatch(hit.session, hit.event, snippet, marks, hit.score)
