"""A source in memory: for tests, and for the sessions that another ACP agent lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Unpack

from segue.model.cursor import ChangePoint
from segue.model.errors import NotFound, ReadOnly
from segue.model.event import Drafts, Event, InfoChanged
from segue.model.query import Position, Query, SearchHit, WindowOptions
from segue.model.search_text import Term
from segue.model.session import Session, Thread
from segue.sources.base import Edit, Transcripts
from segue.store.base import Signal
from segue.store.memory import MemoryStore


class MemorySource:
    """A source whose sessions are in a MemoryStore of its own.

    `create` and `append` do what the tool would do.
    """

    def __init__(
        self, workspace: str = "local", name: str = "memory", edits: Sequence[Edit] = ()
    ) -> None:
        self.name = name
        self.workspace = workspace
        self.edits = frozenset(edits)
        self.label = name
        self.agent_record: Mapping[str, Any] | None = None
        self.transcripts: Transcripts | None = None
        self._store = MemoryStore()
        self._patches: Mapping[str, Mapping[str, Any]] = {}
        self._originals: dict[str, Session] = {}  # the patched sessions, without their patches

    async def create(self, id: str, drafts: Drafts) -> Session:
        """Create a session."""
        session = await self._store.create(self.workspace, id, drafts)
        if patch := self._patches.get(id):
            self._originals[id] = session
            session = await self._set_fields(session, patch)
        return session

    async def append(self, id: str, drafts: Drafts) -> Session:
        """Append events to a session."""
        session, _ = await self._store.change(self.workspace, id, lambda _: drafts)
        return session

    async def close(self) -> None:
        await self._store.close()

    async def refresh(self, cwd: str | None = None) -> None:
        """Do nothing: the sessions are always current."""

    def unreadable_sessions(self) -> int:
        return 0

    async def get(self, id: str) -> Session | None:
        return await self._store.get(self.workspace, id)

    async def in_id_range(self, low: str, high: str, limit: int) -> list[Session]:
        return await self._store.in_id_range(self.workspace, low, high, limit)

    async def page(
        self, query: Query, after: Position | None = None, *, backward: bool = False
    ) -> list[Session]:
        return await self._store.page(self.workspace, query, after, backward=backward)

    async def change_point(self) -> ChangePoint:
        return await self._store.change_point(self.workspace)

    async def sweep(self, query: Query, since: ChangePoint, after: str) -> list[Session]:
        return await self._store.sweep(self.workspace, query, since, after)

    async def events(self, id: str, **window: Unpack[WindowOptions]) -> list[Event]:
        return await self._store.events(self.workspace, id, **window)

    async def conversation(self, id: str) -> AsyncIterator[Event]:
        for event in await self.events(id, limit=1 << 20):
            yield event

    async def threads(self, id: str) -> list[Thread]:
        await self.events(id, limit=1)  # raises NotFound for an unknown session
        return []

    async def thread(self, id: str, thread: str) -> AsyncIterator[Event]:
        raise NotFound(f"session {id} has no thread {thread}", session=id)
        yield

    async def locate(self, id: str, event_id: str) -> int | None:
        return await self._store.locate(self.workspace, id, event_id)

    async def newest_matches(
        self, sessions: Sequence[Session], terms: Sequence[Term]
    ) -> list[Event | None]:
        return await self._store.newest_matches(self.workspace, sessions, terms)

    async def occurrences(
        self, id: str, terms: Sequence[Term], before: int | None, limit: int
    ) -> list[int]:
        return await self._store.occurrences(self.workspace, id, terms, before, limit)

    async def known_words(self, words: Sequence[str]) -> set[str]:
        return await self._store.known_words(self.workspace, words)

    async def ranked(self, query: Query) -> list[SearchHit]:
        return await self._store.ranked(self.workspace, query)

    async def change(self, id: str, info: InfoChanged) -> str:
        await self._store.change(self.workspace, id, lambda _: [info])
        return id

    async def delete(self, id: str) -> None:
        await self._store.purge(self.workspace, id, lambda _: None)

    async def fork(
        self, id: str, new_id: str, *, at: int | None, cwd: str | None, title: str | None
    ) -> Session:
        raise ReadOnly(f"{self.name} sessions are forked into the store", session=id)

    async def apply_overlay(self, patches: Mapping[str, Mapping[str, Any]]) -> None:
        previous, self._patches = self._patches, {id: dict(patches[id]) for id in patches}
        for id in previous.keys() | patches.keys():
            old, new = previous.get(id, {}), patches.get(id, {})
            session = await self.get(id)
            if session is None or old == new:
                continue
            original = self._originals.setdefault(id, session)
            restored = {name: getattr(original, name) for name in old}
            await self._set_fields(session, restored | dict(new))

    async def _set_fields(self, session: Session, fields: Mapping[str, Any]) -> Session:
        """Set the title, tag and state of a session as its row."""
        changes = {name: fields[name] for name in ("title", "tag") if name in fields}
        for state in ("archived", "deleted"):
            if f"{state}_at" in fields:
                changes[state] = fields[f"{state}_at"] is not None
        return await self.append(session.id, [InfoChanged(**changes)])

    def watch(self, listener: Callable[[str], None]) -> Callable[[], None]:
        def notify(signal: Signal) -> None:
            listener(signal.session)

        return self._store.watch(notify)
