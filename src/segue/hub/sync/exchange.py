"""Export sessions to JSONL files and import them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from segue.hub.access.idempotency import mask_answers
from segue.hub.session_deps import SessionDeps
from segue.hub.sessions import directories
from segue.hub.sessions.chosen_agents import agent_events
from segue.hub.sessions.editor import require_idle
from segue.hub.sessions.granted_permissions import revocation_events
from segue.hub.sessions.interrupted import ended
from segue.hub.turns.end_turn import end_turn_events
from segue.hub.workdir.mounts import WORK
from segue.model import clock, ids, projection
from segue.model.errors import Busy, Conflict, InvalidInput, ReadOnly
from segue.model.event import AnyBody, ConfigChanged, Created, Event, InfoChanged, Interrupted
from segue.model.principal import Principal
from segue.model.session import OWN, UNCONFIRMED_DIRECTORY, Session
from segue.sources.base import Source

from . import export_file
from .event_buffer import EventBuffer, event_buffer
from .imported_agents import ImportedAgents, exported_agents


class SessionExchange:
    """Export sessions of the store and the sources, and import exported ones."""

    def __init__(self, deps: SessionDeps) -> None:
        self._store = deps.store
        self._data_dir = deps.data_dir
        self._lookup = deps.lookup
        self._records = deps.records
        self._quotas = deps.quotas

    async def export(
        self, principal: Principal, id: str, *, mask: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a session's export file; with `mask`, without its secrets.

        If the process of the session's turn died, the file has the events that end the turn.
        """
        session, source = await self._lookup.find(principal, id)
        closing: Sequence[Event]
        derived = 0
        if source is not None:
            session, closing = await self._as_stored(session, source)
        else:
            session, closing = await ended(self._store, session)
            derived = len(closing)
            if not closing and await self._ends_with_unconfirmed_directory(session):
                session = replace(session, last_seq=session.last_seq - 1)
        types = ("created", "config_changed")
        changes = self._lookup.read(principal.workspace, id, source, types=types)
        bodies = [event.body async for event in changes]
        agents = await exported_agents(self._store, principal.workspace, bodies)
        events = self._lookup.read(principal.workspace, id, source)
        exported = _exported_events(events, session, closing)
        if mask:
            from segue.secrets.events import mask_session, mask_stream

            session, exported = mask_session(session), mask_stream(exported)
            agents = [_masked_agent(agent) for agent in agents]
        async for line in export_file.write(session, agents, exported, derived=derived):
            yield line

    async def import_session(
        self,
        principal: Principal,
        lines: Iterable[bytes],
        *,
        new_id: bool = False,
        cwd: str | None = None,
    ) -> Session:
        """Import an export file completely or not at all, with its own id unless `new_id` is set.

        The events and the agents are stored as they are in the file. Events are added only if the
        session may not continue here as it was: a turn that was running is closed, permissions that
        were granted elsewhere are revoked, and another agent is chosen if the session's own would
        start a program that the file chooses, allow tools without asking, or is unknown.

        The session works in `cwd`. Without it, the session keeps the directory of the file; if that
        exists, tools ask before they read it. Additional directories of the file are not used.
        """
        if cwd is not None and not os.path.isdir(directories.absolute(cwd)):
            raise InvalidInput(f"the directory {cwd} does not exist")
        header, events = export_file.read(lines)
        id = ids.new_id() if new_id else header.session.id
        workspace = principal.workspace
        agents = await ImportedAgents.from_records(
            self._store, self._records, workspace, header.agents
        )
        with event_buffer(self._data_dir) as buffer:
            session = _read_session(workspace, id, events, buffer)
            if await self._store.get(workspace, id) is not None:
                raise Conflict(f"session {id} exists already", session=id)
            await self._quotas.check(principal, sessions=1, bytes=1)
            bodies = await self._reset_events(session, agents, header.session.title)
            for body in [*bodies, *self._directory_events(session, cwd)]:
                buffer.add(_new_event(buffer.count + 1, body))
            # Store the agents first, so that a crash leaves no session without its agent. Each
            # version needs the one before it.
            for record in agents.new:
                await self._store.put_record(record)
            async with self._quotas.reserve(principal, sessions=1, bytes=1):
                return await self._store.load(workspace, id, buffer)

    async def redact(self, principal: Principal, id: str) -> Session:
        """Create a copy of a session, under a new id, with masks instead of secrets."""
        lines = [line async for line in self.export(principal, id, mask=True)]
        return await self.import_session(principal, lines, new_id=True)

    async def redact_in_place(self, principal: Principal, id: str) -> tuple[int, str | None]:
        """Replace the secrets in the history of one of segue's own sessions by masks.

        Returns how many secrets there were, and where the store's files have them still, None if
        nowhere. Raises ReadOnly for sessions of other tools and their copies, and Busy while a turn
        runs or waits, as its state would be lost.
        """
        from segue.secrets.events import SecretCounter, mask_stream

        session, source = await self._lookup.find(principal, id)
        if source is not None or session.source != OWN:
            raise ReadOnly(
                f"session {id} is from {session.source}: segue does not change other tools' "
                "sessions; redact a copy instead",
                session=id,
            )
        counter = SecretCounter()
        with event_buffer(self._data_dir) as buffer:
            events = self._lookup.read(principal.workspace, id, None)
            async for event in mask_stream(events, counter):
                buffer.add(event)
            if not counter.secrets:
                return 0, None
            items = await self._store.inbox(principal.workspace, id)
            waits = any(item.kind in ("prompt", "turn") for item in items)

            def guard(current: Session) -> None:
                require_idle(current)
                if current.turn is not None or waits:
                    raise Busy(
                        f"session {id} has a turn that waits; answer its requests or cancel it",
                        session=id,
                        status=current.status,
                    )
                if current.last_seq != session.last_seq:
                    raise Conflict(f"session {id} was changed; try again", session=id)

            await self._store.purge(principal.workspace, id, guard, replacement=buffer)
        await mask_answers(self._records, principal.workspace)
        return counter.secrets, await self._store.erase_deleted()

    async def _ends_with_unconfirmed_directory(self, session: Session) -> bool:
        """Return whether the last event limits the session's directory; each import adds its own.

        So the export of a copy that was not continued is the file that was imported.
        """
        last = await self._store.events(session.workspace, session.id, limit=1, backward=True)
        return bool(last) and last[0].body == _limit_directory(session)

    async def _as_stored(self, session: Session, source: Source) -> tuple[Session, list[Event]]:
        """Return a source's session as the store would have it after an import.

        Its events are numbered from 1 without gaps. The returned events are added to them: they
        have the title, the tag and the state that the source knows but that are in no event.
        """
        if session.fork is not None:
            parent_seq, inherited = session.fork.seq, 0
            async for event in self._lookup.read(session.workspace, session.id, source):
                inherited += event.seq <= parent_seq
            session = replace(session, fork=replace(session.fork, seq=inherited))
        row: Session | None = None
        events = self._lookup.read(session.workspace, session.id, source)
        async for event in _numbered(events, session):
            if row is None:
                row = projection.start(session.workspace, session.id, event)
            else:
                row = projection.apply(row, event)
        if row is None:
            raise InvalidInput(f"session {session.id} has no events")
        closing: list[Event] = []
        for body, at in _unrecorded_info(session, row):
            seq = row.last_seq + 1
            id = ids.derived_id("segue", "export", session.id, str(len(closing)))
            closing.append(Event(seq=seq, id=id, at=at, body=body))
            row = projection.apply(row, closing[-1])
        return row, closing

    async def _reset_events(
        self, session: Session, agents: ImportedAgents, title: str | None
    ) -> list[AnyBody]:
        """Return the events that an imported session needs before it may continue here."""
        bodies: list[AnyBody] = []
        if session.turn is not None:
            why = "the session was copied while this turn ran"
            bodies += [Interrupted(reason=why), *end_turn_events(session, why, "error")]
        bodies += agent_events(session, await _with_accepted_agents(session, agents))
        bodies += revocation_events(session)
        if session.title is None and title is not None:
            # In files of version 1, a title that only a source knew is in no event.
            bodies.append(InfoChanged(title=title, by="auto"))
        return bodies

    def _directory_events(self, session: Session, cwd: str | None) -> list[AnyBody]:
        """Return the events that limit the directories of an imported session."""
        bodies: list[AnyBody] = [ConfigChanged(roots=())] if session.roots else []
        if cwd is not None:
            real_cwd = directories.real(cwd)
            if real_cwd != session.directory or session.directory_is_unconfirmed:
                confirmed = {UNCONFIRMED_DIRECTORY: None}
                bodies.append(ConfigChanged(cwd=real_cwd, options=confirmed))
        elif not session.directory_is_unconfirmed and self._has_directory_of_others(session):
            bodies.append(_limit_directory(session))
        return bodies

    def _has_directory_of_others(self, session: Session) -> bool:
        """Return whether a session's directory exists and segue did not create it."""
        if session.directory == str(self._data_dir / WORK / session.id):
            return False
        return os.path.isdir(session.cwd) or os.path.isdir(session.directory)


def _masked_agent(agent: export_file.AgentRecord) -> export_file.AgentRecord:
    from segue.secrets import mask_value

    body, _ = mask_value(agent.body)
    return replace(agent, body=body)


def _read_session(workspace: str, id: str, events: Iterable[Event], buffer: EventBuffer) -> Session:
    """Add the events of a file to a buffer, and return the session's row after them."""
    session: Session | None = None
    used_ids: set[str] = set()
    for event in events:
        if event.id in used_ids:  # a damaged transcript may repeat a message
            event = replace(event, id=ids.new_id())
        used_ids.add(event.id)
        if session is None:
            session = projection.start(workspace, id, event)
        else:
            session = projection.apply(session, event)
        buffer.add(event)
    if session is None:
        raise InvalidInput("the file has no session; use a file that `segue export` wrote")
    return session


def _limit_directory(session: Session) -> ConfigChanged:
    """Return the event after which every tool asks in a session's directory."""
    return ConfigChanged(options={UNCONFIRMED_DIRECTORY: session.directory})


async def _exported_events(
    events: AsyncIterator[Event], session: Session, closing: Sequence[Event]
) -> AsyncIterator[Event]:
    """Yield the events that the session row counts, and the closing ones."""
    async for event in _numbered(events, session):
        if event.seq > session.last_seq - len(closing):
            break  # it was added after the row was read
        yield event
    for event in closing:
        yield event


async def _numbered(events: AsyncIterator[Event], session: Session) -> AsyncIterator[Event]:
    """Yield the events as the store would have them, numbered from 1 without gaps."""
    seq = 0
    async for event in events:
        seq += 1
        if isinstance(event.body, Created):
            created = replace(event.body, source="segue", fork=session.fork)
            event = replace(event, body=created)
        yield event if event.seq == seq else replace(event, seq=seq)


def _unrecorded_info(session: Session, row: Session) -> list[tuple[InfoChanged, int]]:
    """Return the changes, with their times, that give a row the info of a source's session."""
    changes: list[tuple[InfoChanged, int]] = []
    if session.title != row.title:
        named = InfoChanged(title=session.title, by=session.title_by or "auto")
        changes.append((named, row.updated_at))
    if session.tag != row.tag:
        changes.append((InfoChanged(tag=session.tag), row.updated_at))
    if session.archived_at is not None and row.archived_at is None:
        changes.append((InfoChanged(archived=True), session.archived_at))
    if session.deleted_at is not None and row.deleted_at is None:
        changes.append((InfoChanged(deleted=True), session.deleted_at))
    return changes


async def _with_accepted_agents(session: Session, agents: ImportedAgents) -> Session:
    """Return a session with agents that may answer here, also in the local user's turns."""
    changes: dict[str, Any] = {}
    if session.agent is not None:
        changes["agent"] = await agents.local_ref(session.agent)
    own = session.for_local_turn().agent
    if "agent" in session.local_settings and own is not None:
        accepted = to_builtins(await agents.local_ref(own))
        changes["local_settings"] = {**session.local_settings, "agent": accepted}
    return replace(session, **changes)


def _new_event(seq: int, body: AnyBody) -> Event:
    return Event(seq=seq, id=ids.new_id(), at=clock.now(), body=body)
