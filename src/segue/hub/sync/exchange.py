"""Export sessions to JSONL files and import them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from msgspec.structs import replace

from segue.hub.access.quotas import Quotas
from segue.hub.resources.records import Records
from segue.hub.sessions.lookup import SessionLookup
from segue.hub.turns.end_turn import end_turn_events
from segue.model import clock, ids, projection
from segue.model.errors import Conflict
from segue.model.event import AnyBody, ConfigChanged, Created, Event, InfoChanged, Interrupted
from segue.model.principal import Principal
from segue.model.record import Record
from segue.model.session import ALWAYS_ALLOWED, Session
from segue.sources.base import Source
from segue.store.base import Store

from . import export_file
from .event_buffer import event_buffer
from .imported_agents import ImportedAgents


class SessionExchange:
    """Export sessions of the store and the sources, and import exported ones."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        lookup: SessionLookup,
        records: Records,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._data_dir = data_dir
        self._lookup = lookup
        self._records = records
        self._quotas = quotas

    async def export(self, principal: Principal, id: str) -> AsyncIterator[bytes]:
        """Yield the lines of a session's export file."""
        session, source = await self._lookup.find(principal, id)
        agents: list[Record] = []
        if source is not None:
            session = await self._numbered_row(session, source)
        elif session.agent is not None:
            agents = await self._agent_versions(session)
        events = self._lookup.read(principal.workspace, id, source)
        async for line in export_file.write(session, agents, _numbered(events, session)):
            yield line

    async def import_session(
        self, principal: Principal, lines: Iterable[bytes], *, new_id: bool = False
    ) -> Session:
        """Import an export file completely or not at all, with its own id unless `new_id` is set.

        The session's agent is imported with it, unless the agent would start a program that the
        file chooses: then the built-in agent answers. Permissions that were granted elsewhere are
        not imported, and a turn that was running is closed.
        """
        header, events = export_file.read(lines)
        id = ids.new_id() if new_id else header.session.id
        agents = await ImportedAgents.from_records(
            self._records, principal.workspace, header.agents
        )
        with event_buffer(self._data_dir) as buffer:
            needs_reset = header.session.turn is not None
            for event in events:
                needs_reset = needs_reset or isinstance(event.body, ConfigChanged)
                buffer.add(await agents.adapt(event))
            if needs_reset:
                for body in _reset_events(projection.project(principal.workspace, id, buffer)):
                    buffer.add(_new_event(buffer.count + 1, body))
            if await self._store.get(principal.workspace, id) is not None:
                raise Conflict(f"session {id} exists already", session=id)
            await self._quotas.check(principal, sessions=1, bytes=1)
            # Store the agents first, so that a crash leaves no session without its agent. Each
            # version needs the one before it.
            for record in agents.new:
                await self._store.put_record(record)
            async with self._quotas.reserve(principal, sessions=1, bytes=1):
                session = await self._store.load(principal.workspace, id, buffer)
        if session.title is None and (title := header.session.title):
            # A source can know a title that is in no event.
            named = InfoChanged(title=title, by="auto")
            session, _ = await self._store.change(principal.workspace, id, lambda _: [named])
        return session

    async def _agent_versions(self, session: Session) -> list[Record]:
        """Return the versions of a session's agent up to the one it uses."""
        if session.agent is None:
            return []
        records = [
            await self._store.get_record(session.workspace, "agent", session.agent.id, version)
            for version in range(1, session.agent.version + 1)
        ]
        return [record for record in records if record is not None]

    async def _numbered_row(self, session: Session, source: Source) -> Session:
        """Return a source's row as if its events were numbered from 1 without gaps."""
        last = inherited = 0
        async for event in self._lookup.read(session.workspace, session.id, source):
            last += 1
            inherited += session.fork is not None and event.seq <= session.fork.seq
        fork = session.fork and replace(session.fork, seq=inherited)
        return replace(session, last_seq=last, fork=fork, agent=None)


async def _numbered(events: AsyncIterator[Event], session: Session) -> AsyncIterator[Event]:
    seq = 0
    async for event in events:
        seq += 1
        if isinstance(event.body, Created) and event.body.fork != session.fork:
            event = replace(event, body=replace(event.body, fork=session.fork))
        yield event if event.seq == seq else replace(event, seq=seq)


def _reset_events(session: Session) -> list[AnyBody]:
    """Return the events that close an imported session's turn and revoke its permissions."""
    bodies: list[AnyBody] = []
    if session.turn is not None:
        why = "the session was copied while this turn ran"
        bodies += [Interrupted(reason=why), *end_turn_events(session, why, "error")]
    if _grants_permissions(session) or _grants_permissions(session.for_local_turn()):
        bodies.append(ConfigChanged(mode="default", options={ALWAYS_ALLOWED: []}))
    return bodies


def _grants_permissions(session: Session) -> bool:
    granting_modes = ("acceptEdits", "bypassPermissions")
    return bool(session.options.get(ALWAYS_ALLOWED)) or session.mode in granting_modes


def _new_event(seq: int, body: AnyBody) -> Event:
    return Event(seq=seq, id=ids.new_id(), at=clock.now(), body=body)
