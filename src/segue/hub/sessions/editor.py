"""Editing: create, rename, tag, archive, delete, fork, import, retention."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from segue.hub.sync import exchange
from segue.hub.turns.end_turn import end_turn_events, fork_tail_events
from segue.model import clock, ids, projection
from segue.model.errors import Busy, Conflict, InvalidInput, NotFound, ReadOnly
from segue.model.event import (
    AgentRef,
    AnyBody,
    ConfigChanged,
    Created,
    Draft,
    Event,
    ForkPoint,
    InfoChanged,
    Interrupted,
)
from segue.model.principal import Principal
from segue.model.session import Session
from segue.sources.base import Ability, Source
from segue.store.base import EventDecider, fork_event

from . import directories
from . import retention as retaining
from .lookup import Base

# The changes that a source may be able to keep in its own files.
_SHADOWS: dict[str, Ability] = {
    "title": "title",
    "tag": "tag",
    "archived": "archive",
    "deleted": "trash",
}


class Editing(Base):
    """What changes a session without a turn."""

    async def create(
        self,
        principal: Principal,
        *,
        cwd: str | None = None,
        title: str | None = None,
        tag: str | None = None,
        id: str | None = None,
        agent: AgentRef | None = None,
        environment_id: str | None = None,
        **made_with: Any,
    ) -> Session:
        """A new session. Without `cwd` it gets a directory of its own under the data directory.

        `made_with` are further fields of the Created event: roots, metadata, origin …
        """
        session_id = id or ids.new_id()
        if cwd is None:
            from segue.hub.workdir.mounts import WORK

            cwd = str(self.data_dir / WORK / session_id)
            os.makedirs(cwd, mode=0o700, exist_ok=True)
        else:
            made_with.setdefault("git_branch", directories.branch(cwd))
        workspace = principal.workspace
        created = Created(
            cwd=directories.absolute(cwd),
            real_cwd=_unless_same(directories.real(cwd), cwd),
            agent=agent or await self.records.built_in_agent(workspace),
            environment_id=environment_id or await self.records.built_in_environment(workspace),
            **made_with,
        )
        drafts: list[AnyBody] = [created]
        if title is not None or tag is not None:
            drafts.append(
                InfoChanged(
                    title=UNSET if title is None else _checked(title, "title"),
                    tag=UNSET if tag is None else _checked(tag, "tag"),
                )
            )
        return await self.store.create(workspace, session_id, drafts)

    async def append(
        self, principal: Principal, id: str, *bodies: AnyBody | Draft
    ) -> Sequence[Event]:
        """Add events from outside a turn."""
        _, events = await self._change(principal, id, lambda _: bodies)
        return events

    async def set_title(self, principal: Principal, id: str, title: str | None) -> Session:
        """Name a session, or clear its name. Titles a person set are never replaced."""
        title = None if title is None else _checked(title, "title")
        return await self._info(principal, id, InfoChanged(title=title))

    async def set_tag(self, principal: Principal, id: str, tag: str | None) -> Session:
        tag = None if tag is None else _checked(tag, "tag")
        return await self._info(principal, id, InfoChanged(tag=tag))

    async def set_metadata(
        self, principal: Principal, id: str, patch: dict[str, str | None]
    ) -> Session:
        """Set keys, and remove those whose value is None."""
        return await self._info(principal, id, InfoChanged(metadata=patch))

    async def set_info(self, principal: Principal, id: str, info: InfoChanged) -> Session:
        """Several of the above at once, as one event: all of it or nothing."""
        return await self._info(principal, id, info)

    async def set_resources(
        self,
        principal: Principal,
        id: str,
        edit: Callable[[tuple[dict[str, Any], ...]], tuple[dict[str, Any], ...]],
    ) -> Session:
        """Change what a session has mounted, by a function of what it has now."""
        await self._native(principal, id)

        def decide(session: Session) -> list[AnyBody]:
            after = edit(session.resources)
            return [] if after == session.resources else [ConfigChanged(resources=after)]

        session, _ = await self.store.change(principal.workspace, id, decide)
        return session

    async def configure(self, principal: Principal, id: str, change: ConfigChanged) -> Session:
        """Change how a session is run: mode, options, roots, agent."""
        session, _ = await self._change(principal, id, lambda _: [change])
        return session

    async def archive(self, principal: Principal, id: str) -> Session:
        """Hide a session from ordinary lists. Busy while it is running."""
        return await self._info(principal, id, InfoChanged(archived=True), resting=True)

    async def unarchive(self, principal: Principal, id: str) -> Session:
        return await self._info(principal, id, InfoChanged(archived=False))

    async def trash(self, principal: Principal, id: str) -> Session:
        """Delete a session so that it can be restored. Busy while it is running."""
        return await self._info(principal, id, InfoChanged(deleted=True), resting=True)

    async def restore(self, principal: Principal, id: str) -> Session:
        """Take a session out of the trash."""
        return await self._info(principal, id, InfoChanged(deleted=False))

    async def purge(self, principal: Principal, id: str) -> None:
        """Delete a session for good. Busy while it is running.

        What a source still has of it goes to the trash there; it would appear again otherwise.
        """
        session, source = await self._find(principal, id)
        if source is not None:
            if "delete" not in source.can:
                raise ReadOnly(f"{source.name} sessions cannot be deleted from here", session=id)
            await source.delete(id)
            return
        at_rest(session)
        await self._bury(principal, id)
        await self.store.purge(principal.workspace, id, at_rest)
        await self.outputs.discard(session)
        await self.mounts.discard(session)

    async def fork(
        self,
        principal: Principal,
        id: str,
        *,
        at: int | None = None,
        cwd: str | None = None,
        title: str | None = None,
        new_id: str | None = None,
        origin: str = "python",
        here: bool = False,
    ) -> Session:
        """A new session with the history of another, up to the event `at` or all of it.

        What was open at that point (a tool call, a turn) is closed in the fork. The fork of a
        source's session is one of that source, where the tool can go on with it; `here` makes it
        one of the store, where agents of ours can.
        """
        parent, source = await self._find(principal, id)
        upto = parent.last_seq if at is None else at
        if not 1 <= upto <= parent.last_seq:
            raise InvalidInput(f"session {id} has events 1 to {parent.last_seq}, no {upto}")
        if source is not None and at is not None:
            await _check_place(source, id, at)
        name = None if title is None else _checked(title, "title")
        new_id = new_id or ids.new_id()
        if source is not None and "fork" in source.can and not here:
            moved = None if cwd is None or directories.real(cwd) == parent.directory else cwd
            return await source.fork(id, new_id, at=at, cwd=moved, title=name)
        # What another tool's file says of its own directory is taken as it is.
        cwd = directories.absolute(cwd) if cwd else parent.cwd
        workspace = principal.workspace
        created = Created(
            cwd=cwd,
            real_cwd=_unless_same(directories.real(cwd), cwd),
            roots=parent.roots,
            origin=origin,
            agent=(None if source else parent.agent)
            or await self.records.built_in_agent(workspace),
            environment_id=parent.environment_id
            or await self.records.built_in_environment(workspace),
            memory_store_ids=parent.memory_store_ids,
            vault_ids=parent.vault_ids,
            resources=parent.resources,
            metadata=parent.metadata,
            git_branch=parent.git_branch,
            fork=ForkPoint(session=id, seq=upto),
            budget=parent.budget,
        )

        def tail(session: Session) -> list[AnyBody]:
            bodies = fork_tail_events(session)
            if name is not None:
                bodies.append(InfoChanged(title=name))
            elif (known := session.title or (parent.title if source else None)) is not None:
                by = session.title_by or "auto"
                bodies.append(InfoChanged(title=f"{known} (fork)", by=by))
            return bodies

        if source is None:
            draft = Draft(body=created)
            return await self.store.fork(workspace, id, new_id, upto, draft, tail)
        from segue.hub.sync.event_buffer import spooled

        with spooled(self.data_dir) as taken:
            async for event in source.conversation(id):
                if 1 < event.seq <= upto:
                    taken.add(fork_event(replace(event, seq=taken.count + 2), new_id))
            point = ForkPoint(session=id, seq=taken.count + 1)
            taken.first = _new_event(1, replace(created, fork=point))
            session = projection.project(workspace, new_id, taken)
            for body in tail(session):
                taken.add(_new_event(taken.count + 2, body))
            return await self.store.load(workspace, new_id, taken)

    async def import_session(
        self, principal: Principal, lines: Iterable[bytes], *, new_id: bool = False
    ) -> Session:
        """A session from an exported file, all or nothing, under its own id unless `new_id`.

        Its agent comes along, unless that would start a program of the file's choice: such a
        session has the built-in agent. What was allowed in it elsewhere is asked for again here,
        and a turn that ran in it is over.
        """
        from segue.hub.sync.event_buffer import spooled
        from segue.hub.sync.imported_agents import Brought

        header, events = exchange.read(lines)
        id = ids.new_id() if new_id else header.session.id
        brought = await Brought.agents(self.records, principal.workspace, header.agents)
        with spooled(self.data_dir) as read:
            differs = header.session.turn is not None
            for event in events:
                differs = differs or isinstance(event.body, ConfigChanged)
                read.add(await brought.settled(event))
            if differs:
                for body in _arrived(projection.project(principal.workspace, id, read)):
                    read.add(_new_event(read.count + 1, body))
            if await self.store.get(principal.workspace, id) is not None:
                raise Conflict(f"session {id} exists already", session=id)
            # The agents first: a session must not name one that a crash kept from coming. Versions
            # in their order, each of which needs the one before.
            for record in brought.new:
                await self.store.put_record(record)
            session = await self.store.load(principal.workspace, id, read)
        if session.title is None and (title := header.session.title):  # a source told it apart
            return await self._info(principal, id, InfoChanged(title=title, by="auto"))
        return session

    async def retention(self, principal: Principal) -> retaining.Policy:
        return await retaining.get_policy(self.store, principal.workspace)

    async def set_retention(self, principal: Principal, policy: retaining.Policy) -> None:
        await retaining.set_policy(self.store, principal.workspace, policy)

    async def prune(
        self,
        principal: Principal,
        *,
        policy: retaining.Policy | None = None,
        dry_run: bool = False,
        now: int | None = None,
    ) -> Sequence[retaining.Step]:
        """Do what a policy says, by default the workspace's, or only tell what it would."""
        at = clock.now() if now is None else now
        policy = policy or await self.retention(principal)
        steps = await retaining.prune(self.store, principal.workspace, policy, at, dry_run=dry_run)
        if not dry_run:
            await self._discard(principal, steps)
        return steps

    async def forget(self, principal: Principal, days: int, *, now: int | None = None) -> int:
        """Purge every session that has been idle for so many days; how many that were."""
        at = clock.now() if now is None else now
        before = at - days * clock.DAY
        steps = await retaining.forget(self.store, principal.workspace, before)
        await self._discard(principal, steps)
        return len(steps)

    async def _discard(self, principal: Principal, steps: Sequence[retaining.Step]) -> None:
        for action, session in steps:
            if action == "purge":
                await self.outputs.discard(session)
                await self.mounts.discard(session)
                with suppress(Busy, NotFound):  # its tool works on it, or deleted it
                    await self._bury(principal, session.id)

    async def _bury(self, principal: Principal, id: str) -> None:
        """Put into the trash what sources have of a session whose copy here goes for good."""
        for source in await self._sources(principal):
            found = await source.get(id)
            if found is not None and found.state != "trashed":
                await self._source_info(principal, source, id, InfoChanged(deleted=True))

    async def _change(
        self, principal: Principal, id: str, decide: EventDecider
    ) -> tuple[Session, Sequence[Event]]:
        try:
            return await self.store.change(principal.workspace, id, decide)
        except NotFound:
            await self._native(principal, id)  # which says so of a source's session
            raise

    async def _info(
        self, principal: Principal, id: str, info: InfoChanged, *, resting: bool = False
    ) -> Session:
        _, source = await self._find(principal, id)
        if source is not None:
            return await self._source_info(principal, source, id, info)

        def decide(session: Session) -> list[AnyBody]:
            if resting:
                at_rest(session)
            return [info] if _changes(session, info) else []

        session, _ = await self.store.change(principal.workspace, id, decide)
        return session

    async def _source_info(
        self, principal: Principal, source: Source, id: str, info: InfoChanged
    ) -> Session:
        """Into the tool's own files where they can hold it, else into the overlay."""
        if info.metadata is not UNSET:
            raise ReadOnly(f"{source.name} sessions have no metadata; import it first", session=id)
        patch = dict((await self.store.overlays(source.workspace, source.name)).get(id, {}))
        own: dict[str, Any] = {}
        for field in ("title", "tag", "archived", "deleted"):
            value = getattr(info, field)
            if isinstance(value, UnsetType):
                continue
            if _SHADOWS.get(field) in source.can:
                own[field] = value
            elif field in ("archived", "deleted"):
                patch[f"{field}_at"] = clock.now() if value else None
            else:
                patch[field] = value
        if own:
            await source.change(id, InfoChanged(**own))
        await self.store.set_overlay(source.workspace, source.name, id, patch)
        await source.overlay(await self.store.overlays(source.workspace, source.name))
        session, _ = await self._find(principal, id)
        return session


def at_rest(session: Session) -> None:
    """Raise Busy while a session is running."""
    if session.status in ("running", "rescheduling"):
        raise Busy(
            f"session {session.id} is {session.status}; cancel its turn or wait for it to end",
            session=session.id,
            status=session.status,
        )


def _arrived(session: Session) -> list[AnyBody]:
    """What happens to a session that is imported: nobody runs its turn, nor allowed anything."""
    from segue.agents.permission import ALWAYS_ALLOWED

    bodies: list[AnyBody] = []
    if session.turn is not None:
        why = "the session was copied while this turn ran"
        bodies += [Interrupted(reason=why), *end_turn_events(session, why, "error")]
    if session.options.get(ALWAYS_ALLOWED) or session.mode in ("acceptEdits", "bypassPermissions"):
        bodies.append(ConfigChanged(mode="default", options={ALWAYS_ALLOWED: []}))
    return bodies


async def _check_place(source: Source, id: str, at: int) -> None:
    """Refuse a place in a source's file where no event begins."""
    found = await source.events(id, before=at + 1, limit=1, backward=True)
    if not found or found[0].seq != at:
        near = f"; the last one before that is {found[0].seq}" if found else ""
        raise InvalidInput(f"session {id} has no event {at}{near}")


def _changes(session: Session, info: InfoChanged) -> bool:
    """Whether a change would change anything; a no-op leaves no event."""
    event = Event(seq=session.last_seq + 1, id="", at=session.updated_at, body=info)
    after = replace(projection.apply(session, event), last_seq=session.last_seq)
    return after != session


def _checked(value: str, what: str) -> str:
    value = value.strip()
    if not value:
        raise InvalidInput(f"the {what} must not be empty")
    return value


def _new_event(seq: int, body: AnyBody) -> Event:
    return Event(seq=seq, id=ids.new_id(), at=clock.now(), body=body)


def _unless_same(real: str, given: str) -> str | None:
    return None if real == given else real
