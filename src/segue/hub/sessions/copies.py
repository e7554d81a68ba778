"""Find search hits in text that a fork copied: the parent session has the same hit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from segue.model.errors import NotFound
from segue.model.query import Query, SearchHit, matches
from segue.model.session import Session

_MAX_ANCESTORS = 100  # of one fork that are looked at

FindSession = Callable[[str], Awaitable[Session]]  # raises NotFound
FindNewest = Callable[[Session], Awaitable[SearchHit]]


class CopiedHits:
    """Compares the hits of one search with those of the sessions that forks copied."""

    def __init__(self, query: Query, find_session: FindSession, find_newest: FindNewest) -> None:
        self._query = query
        self._find_session = find_session
        self._find_newest = find_newest

    async def split(
        self, hits: Sequence[SearchHit]
    ) -> tuple[list[SearchHit], Mapping[str, list[Session]]]:
        """Return the hits that are not copies, and the forks that copied the text of each session.

        A fork whose own messages match too stays, with its newest match.
        """
        origins: dict[str, Session] = {}
        others: list[SearchHit] = []
        forks: list[Session] = []
        for hit in hits:
            if not _is_copied(hit):
                others.append(hit)
                continue
            newest = await self._find_newest(hit.session)
            origin = await self._origin(hit.session) if _is_copied(newest) else None
            if origin is None:
                others.append(hit._replace(event=newest.event))
            else:
                origins[hit.session.id] = origin
                forks.append(hit.session)
        copies: dict[str, list[Session]] = {}
        for fork in forks:
            id = fork.id
            while id in origins:
                id = origins[id].id
            copies.setdefault(id, []).append(fork)
        return others, copies

    async def _origin(self, fork: Session) -> Session | None:
        """Return the session in the results from which a fork copied the text, or None."""
        ancestors: list[Session] = []
        session = fork
        while session.fork is not None and len(ancestors) < _MAX_ANCESTORS:
            try:
                session = await self._find_session(session.fork.session)
            except NotFound:
                break
            if session.id == fork.id:
                return None  # no session is its own ancestor, but files may say so
            ancestors.append(session)
        parent = next(iter(ancestors), None)
        if parent is None or not matches(self._query, parent):
            return None
        return None if (await self._find_newest(parent)).event is None else parent


def _is_copied(hit: SearchHit) -> bool:
    """Return whether the event of a hit is one that a fork has from its parent."""
    fork = hit.session.fork
    return fork is not None and hit.event is not None and hit.event.seq <= fork.seq
