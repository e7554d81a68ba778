"""What all of the hub's parts share: the store, the sources, and finding a session in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from segue.agents.registry import AgentRegistry
from segue.hub.resources.records import Records
from segue.model.errors import NotFound, ReadOnly
from segue.model.event import Event
from segue.model.principal import Principal
from segue.model.record import Record
from segue.model.session import Session
from segue.sources.base import Source, agent_id
from segue.store.base import Store

if TYPE_CHECKING:
    from segue.encryption import SecretBox
    from segue.hub.access.config import Config
    from segue.hub.access.keys import Keys
    from segue.hub.access.logins import Visits
    from segue.hub.access.shares import Shares
    from segue.hub.history.follow import Live
    from segue.hub.resources.credentials import Credentials
    from segue.hub.resources.files import Files
    from segue.hub.resources.memories import Memories
    from segue.hub.resources.skills import Skills
    from segue.hub.resources.work_queue import Work
    from segue.hub.workdir.mounts import Mounts
    from segue.hub.workdir.outputs import Outputs
    from segue.hub.workdir.prepare import Rooms

CHUNK = 100  # events at a time; some are long


class Base:
    """The store and its sources, as one workspace sees them."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        *,
        sources: Sequence[Source] = (),
        agent_registry: AgentRegistry | None = None,
        clone: Sequence[str] = (),
        database: str | None = None,
    ) -> None:
        self.store = store
        self.data_dir = data_dir
        self.database = database  # the store's address, where it is not in `data_dir`
        self.sources = tuple(sources)
        # How far the files of copies were when they were last read.
        self._had: dict[tuple[str, str], int] = {}
        self.agent_registry = agent_registry or AgentRegistry()
        self.records = Records(
            store,
            {
                (source.workspace, agent_id(source.workspace, source.name)): source.agent
                for source in sources
                if source.agent is not None
            },
        )
        self._clone = clone
        self._live: Live | None = None
        self._overlaid: set[str] = set()

    # What a list of sessions does without is imported by what needs it.

    @cached_property
    def config(self) -> Config:
        from segue.hub.access.config import Config

        return Config(self.store)

    @cached_property
    def keys(self) -> Keys:
        from segue.hub.access.keys import Keys

        return Keys(self.store)

    @cached_property
    def secrets(self) -> SecretBox:
        from segue.encryption import SecretBox

        return SecretBox(self.data_dir)

    @cached_property
    def credentials(self) -> Credentials:
        from segue.hub.resources.credentials import Credentials

        return Credentials(self.records, self.secrets)

    @cached_property
    def files(self) -> Files:
        from segue.hub.resources.files import Files

        return Files(self.store, self.records)

    @cached_property
    def work(self) -> Work:
        from segue.hub.resources.work_queue import Work

        return Work(self.store, self.records)

    @cached_property
    def outputs(self) -> Outputs:
        from segue.hub.workdir.outputs import Outputs

        return Outputs(self.records, self.files)

    @cached_property
    def memories(self) -> Memories:
        from segue.hub.resources.memories import Memories

        return Memories(self.records)

    @cached_property
    def skills(self) -> Skills:
        from segue.hub.resources.skills import Skills

        return Skills(self.store, self.records)

    @cached_property
    def visits(self) -> Visits:
        from segue.hub.access.logins import Visits

        return Visits(self.records, self.keys)

    @cached_property
    def shares(self) -> Shares:
        from segue.hub.access.shares import Shares

        return Shares(self.records)

    @cached_property
    def mounts(self) -> Mounts:
        from segue.hub.workdir.mounts import Mounts

        return Mounts(
            self.store, self.data_dir, self.records, self.files, self.secrets, self._clone
        )

    @cached_property
    def rooms(self) -> Rooms:
        from segue.hub.workdir.mounts import WORK
        from segue.hub.workdir.prepare import Rooms

        work = self.data_dir / WORK
        return Rooms(
            self.store, work, self.records, self.mounts, self.memories, self.skills, self.outputs
        )

    @property
    def live(self) -> Live:
        if self._live is None:
            from segue.hub.history.follow import Live

            self._live = Live(self.store, self.sources)
        return self._live

    async def _sources(self, principal: Principal) -> Sequence[Source]:
        mine = [source for source in self.sources if source.workspace == principal.workspace]
        for source in mine:
            if source.name not in self._overlaid:
                await source.overlay(await self.store.overlays(source.workspace, source.name))
                self._overlaid.add(source.name)
        return mine

    async def _find(self, principal: Principal, id: str) -> tuple[Session, Source | None]:
        """The session, and its source when the store has no copy."""
        session = await self.store.get(principal.workspace, id)
        if session is not None:
            return session, None
        for source in await self._sources(principal):
            session = await source.get(id)
            if session is not None:
                return session, source
        raise NotFound(f"no session {id}", session=id)

    async def _native(self, principal: Principal, id: str) -> Session:
        session, source = await self._find(principal, id)
        if source is not None:
            raise ReadOnly(
                f"session {id} is kept by {source.name}; fork or import it to go on here",
                session=id,
            )
        return session

    async def _agent(self, principal: Principal, id: str, version: int) -> Record | None:
        return await self.store.get_record(principal.workspace, "agent", id, version)

    async def _read(
        self, workspace: str, id: str, source: Source | None, after: int
    ) -> AsyncIterator[Event]:
        while True:
            if source is not None:
                batch = await source.events(id, after=after, limit=CHUNK)
            else:
                batch = await self.store.events(workspace, id, after=after, limit=CHUNK)
            for event in batch:
                after = event.seq
                yield event
            if len(batch) < CHUNK:
                return
