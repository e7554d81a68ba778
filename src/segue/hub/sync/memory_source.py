"""A source in memory: for tests, and for sessions that another agent tells us of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from segue.model.cursor import ChangePoint
from segue.model.errors import NotFound, ReadOnly
from segue.model.event import Drafts, Event, InfoChanged
from segue.model.query import Position, Query
from segue.model.search_text import Term
from segue.model.session import Session, Thread
from segue.sources.base import Edit, Transcripts
from segue.store.base import Signal
from segue.store.memory import MemoryStore


class MemorySource:
    """Keeps another tool's sessions in a MemoryStore of its own, and hands them out as a source."""

    def __init__(
        self, workspace: str = "local", name: str = "memory", edits: Sequence[Edit] = ()
    ) -> None:
        self.name = name
        self.workspace = workspace
        self.edits = frozenset(edits)
        self.label = name
        self.agent_record: Mapping[str, Any] | None = None
        self.transcripts: Transcripts | None = None
        self.kept = MemoryStore()
        self._applied: dict[str, Mapping[str, Any]] = {}

    async def add(self, id: str, drafts: Drafts) -> Session:
        """What the other tool does: begin a session."""
        return await self.kept.create(self.workspace, id, drafts)

    async def grow(self, id: str, drafts: Drafts) -> Session:
        """What the other tool does: go on with one."""
        session, _ = await self.kept.change(self.workspace, id, lambda _: drafts)
        return session

    async def close(self) -> None:
        await self.kept.close()

    async def refresh(self, cwd: str | None = None) -> None:
        """Nothing changes behind our back."""

    async def get(self, id: str) -> Session | None:
        return await self.kept.get(self.workspace, id)

    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        return await self.kept.in_id_range(self.workspace, low, high, limit)

    async def page(
        self, query: Query, after: Position | None = None, backward: bool = False
    ) -> list[Session]:
        return await self.kept.page(self.workspace, query, after, backward=backward)

    async def change_point(self) -> ChangePoint:
        return await self.kept.change_point(self.workspace)

    async def sweep(self, query: Query, mark: ChangePoint, after: str) -> list[Session]:
        return await self.kept.sweep(self.workspace, query, mark, after)

    async def events(self, id: str, **options: Any) -> list[Event]:
        return await self.kept.events(self.workspace, id, **options)

    async def conversation(self, id: str) -> AsyncIterator[Event]:
        for event in await self.events(id, limit=1 << 20):
            yield event

    async def threads(self, id: str) -> list[Thread]:
        return []

    async def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        raise NotFound(f"session {id} has no thread {thread}", session=id)
        yield

    async def locate(self, id: str, event_id: str) -> int | None:
        return await self.kept.locate(self.workspace, id, event_id)

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        return await self.kept.newest_matches(self.workspace, sessions, terms)

    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        return await self.kept.occurrences(self.workspace, id, terms, before, limit)

    async def ranked(self, query: Query) -> list[tuple[Session, Event | None, float]]:
        hits = await self.kept.ranked(self.workspace, query)
        return [(hit.session, hit.event, hit.score) for hit in hits]

    async def change(self, id: str, info: InfoChanged) -> None:
        await self.kept.change(self.workspace, id, lambda _: [info])

    async def delete(self, id: str) -> None:
        await self.kept.purge(self.workspace, id, lambda _: None)

    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        raise ReadOnly(f"{self.name} sessions are forked into the store", session=id)

    async def overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        for id, patch in patches.items():
            if self._applied.get(id) == patch or await self.get(id) is None:
                continue
            fields: dict[str, Any] = {
                name: patch[name] for name in ("title", "tag") if name in patch
            }
            for field in ("archived", "deleted"):
                if f"{field}_at" in patch:
                    fields[field] = patch[f"{field}_at"] is not None
            await self.change(id, InfoChanged(**fields))
            self._applied[id] = dict(patch)

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        def heard(signal: Signal) -> None:
            listener(signal.session)

        return self.kept.watch(heard)
