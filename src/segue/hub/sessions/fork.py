"""Fork sessions: inside the store, inside a source, or from a source into the store."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from segue.hub.session_deps import SessionDeps
from segue.hub.sync.event_buffer import event_buffer
from segue.hub.turns.end_turn import fork_tail_events
from segue.model import clock, ids, projection
from segue.model.errors import InvalidInput
from segue.model.event import (
    AnyBody,
    ConfigChanged,
    Created,
    Draft,
    Event,
    ForkPoint,
    InfoChanged,
)
from segue.model.principal import Principal
from segue.model.session import UNCONFIRMED_DIRECTORY, Session
from segue.sources import registry
from segue.sources.base import OverlayOnly, Source
from segue.store.base import fork_event

from . import directories
from .chosen_agents import agent_events
from .granted_permissions import revocation_events


class ForkRequest(NamedTuple):
    """What a caller asks of a fork; see `SessionEditor.fork`."""

    new_id: str
    at: int | None
    cwd: str | None
    title: str | None
    origin: str
    in_store: bool


class SessionForker:
    """Create forks."""

    def __init__(self, deps: SessionDeps) -> None:
        self._store = deps.store
        self._data_dir = deps.data_dir
        self._lookup = deps.lookup
        self._records = deps.records
        self._quotas = deps.quotas

    async def fork(self, principal: Principal, id: str, request: ForkRequest) -> Session:
        """Fork a session in its source if the source can, else into the store."""
        parent, source = await self._lookup.find(principal, id)
        at, title = request.at, request.title
        last = parent.last_seq if at is None else at
        if not 1 <= last <= parent.last_seq:
            raise InvalidInput(f"session {id} has events 1 to {parent.last_seq}, not {last}")
        if source is not None and at is not None:
            await _require_event(source, id, at)
        if source is not None and "fork" in source.edits and not request.in_store:
            cwd = request.cwd
            new_cwd = None if cwd is None or directories.real(cwd) == parent.directory else cwd
            with suppress(OverlayOnly):
                return await source.fork(id, request.new_id, at=at, cwd=new_cwd, title=title)
        parent = self._with_agent_of_copies(parent, source)
        created = await self._created(principal, parent, request, last)
        async with self._quotas.reserve(principal, sessions=1, bytes=1):
            if source is None:
                return await self._store.fork(
                    principal.workspace,
                    id,
                    request.new_id,
                    last,
                    Draft(body=created),
                    lambda session: [
                        *_closing_events(session, title, session.title),
                        *_settings_of_parent(session, parent),
                    ],
                )
            return await self._copy_from_source(source, parent, request, created, last)

    def _with_agent_of_copies(self, parent: Session, source: Source | None) -> Session:
        """Return a session with the agent of its forks.

        In a session of another tool, a configured model answers, and never the demo agent. A
        session that was imported from a file may name no agent or segue's own one.
        """
        workspace, agent = parent.workspace, parent.agent
        if source is not None:
            return replace(parent, agent=self._records.author(workspace, source.name))
        tool = registry.find(parent.source)
        if tool is None or not (agent is None or self._records.is_default(workspace, agent)):
            return parent
        author = self._records.agent_of_copies(workspace, tool.name, tool.label)
        local = {name: value for name, value in parent.local_settings.items() if name != "agent"}
        return replace(parent, agent=author, local_settings=local)

    async def _copy_from_source(
        self, source: Source, parent: Session, request: ForkRequest, created: Created, last: int
    ) -> Session:
        """Copy the conversation of a source's session into a new session of the store."""
        workspace, new_id = parent.workspace, request.new_id
        with event_buffer(self._data_dir) as events:
            async for event in source.conversation(parent.id):
                if 1 < event.seq <= last:
                    events.add(fork_event(replace(event, seq=events.count + 2), new_id))
            point = ForkPoint(session=parent.id, seq=events.count + 1)
            events.first = _new_event(1, replace(created, fork=point))
            session = projection.project(workspace, new_id, events)
            for body in _closing_events(session, request.title, session.title or parent.title):
                events.add(_new_event(events.count + 2, body))
            return await self._store.load(workspace, new_id, events)

    async def _created(
        self,
        principal: Principal,
        parent: Session,
        request: ForkRequest,
        last: int,
    ) -> Created:
        workspace = principal.workspace
        # A directory that another tool recorded is used as it is, even if it is gone.
        cwd = directories.absolute(request.cwd) if request.cwd else parent.cwd
        real_cwd = directories.real(cwd)
        if principal.local:
            parent = parent.for_local_turn()
        agent = parent.agent or await self._records.built_in_agent(workspace)
        await self._records.store_built_in(workspace, agent, parent.environment_id)
        return Created(
            cwd=cwd,
            real_cwd=None if real_cwd == cwd else real_cwd,
            roots=parent.roots,
            origin=request.origin,
            agent=agent,
            environment_id=parent.environment_id,
            memory_store_ids=parent.memory_store_ids,
            vault_ids=parent.vault_ids,
            resources=parent.resources,
            metadata=parent.metadata,
            git_branch=parent.git_branch,
            fork=ForkPoint(session=parent.id, seq=last),
            budget=parent.budget,
            by_key=parent.agent_by_key,
        )


def _closing_events(session: Session, title: str | None, inherited: str | None) -> list[AnyBody]:
    """Return the events that end what the fork cut off, and the fork's title."""
    bodies = fork_tail_events(session)
    if title is not None:
        bodies.append(InfoChanged(title=title))
    elif inherited is not None:
        bodies.append(InfoChanged(title=f"{inherited} (fork)", by=session.title_by or "auto"))
    return bodies


def _settings_of_parent(session: Session, parent: Session) -> list[AnyBody]:
    """Return the events that replace what the parent's user has revoked or changed since.

    The copied events may choose an agent or grant permissions that the parent no longer has. In
    an imported session they were never accepted here.
    """
    bodies = [*agent_events(session, parent), *revocation_events(session, accepted=parent)]
    if not set(session.roots) <= set(parent.roots):
        bodies.append(ConfigChanged(roots=parent.roots))
    if (
        parent.directory_is_unconfirmed
        and session.directory == parent.directory
        and not session.directory_is_unconfirmed
    ):
        bodies.append(ConfigChanged(options={UNCONFIRMED_DIRECTORY: session.directory}))
    return bodies


async def _require_event(source: Source, id: str, seq: int) -> None:
    """Raise InvalidInput if no event of a source's session has this seq."""
    events = await source.events(id, before=seq + 1, limit=1, backward=True)
    if not events or events[0].seq != seq:
        hint = f"; the last one before that is {events[0].seq}" if events else ""
        raise InvalidInput(f"session {id} has no event {seq}{hint}")


def _new_event(seq: int, body: AnyBody) -> Event:
    return Event(seq=seq, id=ids.new_id(), at=clock.now(), body=body)
