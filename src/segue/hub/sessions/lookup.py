"""Find a session in the store or in one of the sources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from segue.model.errors import NotFound, ReadOnly
from segue.model.event import Event
from segue.model.principal import Principal
from segue.model.query import WindowOptions
from segue.model.session import OWN, Session
from segue.sources import registry
from segue.store.base import Store

if TYPE_CHECKING:
    from segue.sources.base import Source

EVENTS_PER_READ = 100  # events per read; a single event can be long


class SourceSet:
    """The sources that are open in this process, each with the store's overlay applied."""

    def __init__(self, store: Store, sources: Sequence[Source] = ()) -> None:
        self._store = store
        self._sources = list(sources)
        self._overlaid: set[str] = set()

    def __iter__(self) -> Iterator[Source]:
        return iter(self._sources)

    def names(self, workspace: str) -> list[str]:
        """Return the names that sessions of a workspace are filtered by, segue's own first."""
        names = [source.name for source in self._sources if source.workspace == workspace]
        return list(dict.fromkeys([OWN, *registry.names(), *names]))

    def add(self, source: Source) -> None:
        """Add a source that was opened later."""
        self._sources.append(source)

    async def in_workspace(self, workspace: str) -> list[Source]:
        """Return the sources of a workspace."""
        sources = [source for source in self._sources if source.workspace == workspace]
        for source in sources:
            if source.name not in self._overlaid:
                await self.apply_overlay(source)
                self._overlaid.add(source.name)
        return sources

    async def apply_overlay(self, source: Source) -> None:
        """Give a source the titles, tags and states that the store keeps for its sessions."""
        await source.apply_overlay(await self._store.overlays(source.workspace, source.name))

    async def close(self) -> None:
        """Close every source."""
        for source in self._sources:
            await source.close()


class LocatedSession(NamedTuple):
    """A session, and the source that owns it; None if it is in the store."""

    session: Session
    source: Source | None


class SessionLookup:
    """Find sessions by id. An imported copy hides the source's session of the same id."""

    def __init__(self, store: Store, sources: SourceSet) -> None:
        self._store = store
        self._sources = sources

    async def find(self, principal: Principal, id: str) -> LocatedSession:
        """Return a session and where it is.

        Raises NotFound if the principal's workspace has no session with this id.
        """
        session = await self._store.get(principal.workspace, id)
        if session is not None:
            return LocatedSession(session, None)
        for source in await self._sources.in_workspace(principal.workspace):
            session = await source.get(id)
            if session is not None:
                return LocatedSession(session, source)
        raise NotFound(f"no session {id}", session=id)

    async def find_stored(self, principal: Principal, id: str) -> Session:
        """Return a session of the store.

        Raises NotFound if there is none, ReadOnly if a source owns the session.
        """
        session, source = await self.find(principal, id)
        if source is not None:
            raise ReadOnly(
                f"session {id} belongs to {source.name}; fork or import it to continue it here",
                session=id,
            )
        return session

    async def read(
        self,
        workspace: str,
        id: str,
        source: Source | None,
        *,
        after: int = 0,
        types: Sequence[str] = (),
    ) -> AsyncIterator[Event]:
        """Yield the events after a seq, of some types or of all, reading one batch at a time."""
        window: WindowOptions = {"after": after, "types": types, "limit": EVENTS_PER_READ}
        while True:
            if source is not None:
                batch = await source.events(id, **window)
            else:
                batch = await self._store.events(workspace, id, **window)
            for event in batch:
                window["after"] = event.seq
                yield event
            if len(batch) < EVENTS_PER_READ:
                return
