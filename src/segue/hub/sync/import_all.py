"""Import all sessions of the sources, and keep the copies current."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from typing import Literal, NamedTuple

from msgspec.structs import replace

from segue.hub.sessions.lookup import SourceSet
from segue.model.errors import SegueError
from segue.model.principal import Principal
from segue.model.query import Position, Query, position
from segue.model.session import Session
from segue.sources.base import ListsOnly, Source
from segue.store.base import Store

from .importer import SourceSync, require_local

PAGE_SIZE = 200
SETTLE_SECONDS = 0.5  # between a change of a session and its import: most changes come in groups
FULL_PASS_SECONDS = 60.0  # a change that no watch has reported is imported after this time


class ImportStep(NamedTuple):
    """What was done with one session of a source; `error` says why an import failed."""

    session: Session
    result: Literal["imported", "updated", "unchanged", "failed"]
    error: str | None = None


class ImportAll:
    """Copy every session of the sources into the store, before their tools delete them."""

    def __init__(self, store: Store, sources: SourceSet, sync: SourceSync) -> None:
        self._store = store
        self._sources = sources
        self._sync = sync

    async def run(
        self, principal: Principal, source: str | None = None
    ) -> AsyncIterator[ImportStep]:
        """Import all sessions, or those of one source, and yield what was done with each.

        A copy that exists gets what was added. Sessions in a trash are left out, and so are those
        that a source only lists. One that cannot be read does not stop the others.
        """
        require_local(principal)
        for opened in await self._selected(principal, source):
            await opened.refresh()
            after: Position | None = None
            query = Query(archived="include", order="created", limit=PAGE_SIZE)
            while page := await opened.page(query, after):
                after = position(page[-1], query.order)
                for original in page:
                    yield await self._import(principal, original)

    async def follow(
        self, principal: Principal, source: str | None = None
    ) -> AsyncIterator[ImportStep]:
        """Import all sessions, then each one that changes, until the caller stops."""
        changed: set[str] = set()  # the ids of sessions to import
        wake = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_change(id: str) -> None:
            changed.add(id)
            wake.set()

        def report_change(id: str) -> None:  # in any thread
            loop.call_soon_threadsafe(on_change, id)

        with ExitStack() as watches:
            sources = await self._selected(principal, source)
            for opened in sources:
                watches.callback(opened.watch(report_change))
            next_pass = 0.0
            while True:
                if loop.time() >= next_pass:
                    async for step in self.run(principal, source):
                        yield step
                    next_pass = loop.time() + FULL_PASS_SECONDS
                with suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), max(0, next_pass - loop.time()))
                await asyncio.sleep(SETTLE_SECONDS)
                wake.clear()
                ids = sorted(changed)
                changed.clear()
                for id in ids:
                    for opened in sources:
                        if (original := await opened.get(id)) is not None:
                            yield await self._import(principal, original)

    async def _selected(self, principal: Principal, name: str | None) -> Sequence[Source]:
        sources = await self._sources.in_workspace(principal.workspace)
        return [
            source
            for source in sources
            if name in (None, source.name) and not isinstance(source, ListsOnly)
        ]

    async def _import(self, principal: Principal, original: Session) -> ImportStep:
        before = await self._store.get(principal.workspace, original.id)
        try:
            if before is None:
                session = await self._sync.import_from_source(principal, original)
                return ImportStep(session, "imported")
            session = await self._sync.pull(principal, before)
        except (SegueError, OSError) as error:
            return ImportStep(original, "failed", str(error))
        unchanged = replace(session, updated_at=0) == replace(before, updated_at=0)
        return ImportStep(session, "unchanged" if unchanged else "updated")
