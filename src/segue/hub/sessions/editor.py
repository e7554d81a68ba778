"""Create, edit, archive, trash and purge sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from segue.hub.access.shares import Shares
from segue.hub.resources.records import built_in_environment
from segue.hub.session_deps import SessionDeps
from segue.hub.workdir.isolation import remove_temporary_files
from segue.hub.workdir.mounts import WORK, Mounts
from segue.hub.workdir.outputs import Outputs
from segue.model import clock, ids, projection
from segue.model.errors import Busy, InvalidInput, NotFound, ReadOnly
from segue.model.event import AgentRef, AnyBody, ConfigChanged, Created, Draft, Event, InfoChanged
from segue.model.principal import Principal
from segue.model.session import Session
from segue.sources.base import Edit, OverlayOnly, Source
from segue.store.base import EventDecider

from . import directories
from .fork import ForkRequest, SessionForker
from .interrupted import as_read

# The longest texts that people may give a session, by field.
MAX_CHARACTERS = {"title": 1_000, "tag": 256}
# The edit of a source that each field of InfoChanged needs.
_EDIT_OF_FIELD: dict[str, Edit] = {
    "title": "title",
    "tag": "tag",
    "archived": "archive",
    "deleted": "trash",
}


class SessionEditor:
    """Change sessions outside of turns."""

    def __init__(self, deps: SessionDeps, mounts: Mounts, outputs: Outputs, shares: Shares) -> None:
        self._store = deps.store
        self._data_dir = deps.data_dir
        self._sources = deps.sources
        self._lookup = deps.lookup
        self._records = deps.records
        self._quotas = deps.quotas
        self._mounts = mounts
        self._outputs = outputs
        self._shares = shares
        self._forker = SessionForker(deps)

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
        **created_fields: Any,
    ) -> Session:
        """Create a session. Without `cwd` it gets a new directory under the data directory.

        `created_fields` are further fields of the Created event: roots, metadata, origin … Raises
        QuotaExceeded if the workspace has too many sessions or bytes.
        """
        session_id = id or ids.new_id()
        needs_directory = cwd is None
        if cwd is None:
            cwd = str(self._data_dir / WORK / session_id)
        else:
            created_fields.setdefault("git_branch", directories.branch(cwd))
        workspace = principal.workspace
        real_cwd = directories.real(cwd)
        agent = agent or await self._records.built_in_agent(workspace)
        built_in = built_in_environment(workspace)
        await self._records.store_built_in(workspace, agent, environment_id)
        created = Created(
            cwd=directories.absolute(cwd),
            real_cwd=None if real_cwd == cwd else real_cwd,
            agent=agent,
            environment_id=None if environment_id == built_in else environment_id,
            by_key=not principal.local,
            **created_fields,
        )
        drafts = [created, *_first_info(title, tag)]
        async with self._quotas.reserve(principal, sessions=1, bytes=1):
            if needs_directory:
                os.makedirs(cwd, mode=0o700, exist_ok=True)
            return await self._store.create(workspace, session_id, drafts)

    async def append(
        self, principal: Principal, id: str, *bodies: AnyBody | Draft
    ) -> Sequence[Event]:
        """Append events from outside a turn."""
        _, events = await self.change(principal, id, lambda _: bodies)
        return events

    async def change(
        self, principal: Principal, id: str, decide: EventDecider
    ) -> tuple[Session, Sequence[Event]]:
        """Append the events that `decide` returns for the current row, in one transaction.

        Raises ReadOnly if a source owns the session.
        """
        try:
            return await self._store.change(principal.workspace, id, decide)
        except NotFound:
            await self._lookup.find_stored(principal, id)
            raise

    async def set_title(self, principal: Principal, id: str, title: str | None) -> Session:
        """Set or clear a title. An automatic title never replaces one that a person set."""
        title = None if title is None else not_empty(title, "title")
        return await self.set_info(principal, id, InfoChanged(title=title))

    async def set_tag(self, principal: Principal, id: str, tag: str | None) -> Session:
        """Set or clear a tag."""
        tag = None if tag is None else not_empty(tag, "tag")
        return await self.set_info(principal, id, InfoChanged(tag=tag))

    async def set_metadata(
        self, principal: Principal, id: str, patch: dict[str, str | None]
    ) -> Session:
        """Set the keys of `patch`, and remove those whose value is None."""
        return await self.set_info(principal, id, InfoChanged(metadata=patch))

    async def set_resources(
        self,
        principal: Principal,
        id: str,
        edit: Callable[[tuple[dict[str, Any], ...]], tuple[dict[str, Any], ...]],
    ) -> Session:
        """Replace a session's resources with what `edit` returns for the current ones."""
        await self._lookup.find_stored(principal, id)

        def decide(session: Session) -> list[AnyBody]:
            resources = edit(session.resources)
            return [] if resources == session.resources else [ConfigChanged(resources=resources)]

        session, _ = await self._store.change(principal.workspace, id, decide)
        return session

    async def configure(self, principal: Principal, id: str, change: ConfigChanged) -> Session:
        """Change a session's mode, options, roots or agent.

        What an API key changes does not apply to the local user's turns.
        """
        change = replace(change, by_key=not principal.local)
        if isinstance(change.agent, AgentRef):
            await self._records.store_built_in(principal.workspace, change.agent)
        session, _ = await self.change(principal, id, lambda _: [change])
        return session

    async def archive(self, principal: Principal, id: str) -> Session:
        """Move a session to the archive. Raises Busy while it is running."""
        return await self.set_info(principal, id, InfoChanged(archived=True), idle_only=True)

    async def unarchive(self, principal: Principal, id: str) -> Session:
        """Move a session from the archive to the normal list."""
        return await self.set_info(principal, id, InfoChanged(archived=False))

    async def trash(self, principal: Principal, id: str) -> Session:
        """Move a session to the trash. Raises Busy while it is running."""
        return await self.set_info(principal, id, InfoChanged(deleted=True), idle_only=True)

    async def restore(self, principal: Principal, id: str) -> Session:
        """Move a session out of the trash. Its tool may give it a new id."""
        return await self.set_info(principal, id, InfoChanged(deleted=False))

    async def purge(self, principal: Principal, id: str) -> None:
        """Delete a session permanently. Raises Busy while it is running.

        If a source still has the original of an imported session, the original goes to the
        source's trash, because the session would appear in lists again otherwise.
        """
        session, source = await self._lookup.find(principal, id)
        if source is not None:
            if "delete" not in source.edits:
                raise ReadOnly(
                    f"segue cannot delete sessions of {source.label} permanently: only the program "
                    f"of {source.label} could, and it is not installed or cannot do it",
                    session=id,
                )
            await source.delete(id)
            await self._shares.delete(principal, id)
            return
        guard = await self._idle_guard(session)
        guard(session)
        await self.trash_originals(principal, id)
        await self._store.purge(principal.workspace, id, guard)
        await self.discard_files(session)

    async def discard_files(self, session: Session) -> None:
        """Delete the files that segue keeps for a purged session."""
        await self._outputs.discard(session)
        await self._mounts.discard(session)
        await remove_temporary_files(session.id)

    async def trash_originals(self, principal: Principal, id: str) -> None:
        """Move the originals of an imported session to their sources' trash."""
        for source in await self._sources.in_workspace(principal.workspace):
            session = await source.get(id)
            if session is not None and session.state != "trashed":
                await self._edit_in_source(principal, source, id, InfoChanged(deleted=True))

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
        in_store: bool = False,
    ) -> Session:
        """Create a session with the history of another, up to the event `at` or all of it.

        A tool call or turn that is open at that point is closed in the fork. The fork of a
        source's session belongs to that source if it can fork; with `in_store` the fork is
        always a session of the store.
        """
        title = None if title is None else not_empty(title, "title")
        request = ForkRequest(new_id or ids.new_id(), at, cwd, title, origin, in_store)
        return await self._forker.fork(principal, id, request)

    async def set_info(
        self, principal: Principal, id: str, info: InfoChanged, *, idle_only: bool = False
    ) -> Session:
        """Change several of title, tag, metadata, archived and deleted in one event.

        A change that changes nothing appends no event. With `idle_only`, raises Busy while the
        session is running.
        """
        for field, text in (("title", info.title), ("tag", info.tag)):
            if isinstance(text, str):
                not_too_long(text, field)
        session, source = await self._lookup.find(principal, id)
        if source is not None:
            return await self._edit_in_source(principal, source, id, info)
        guard = await self._idle_guard(session) if idle_only else None

        def decide(session: Session) -> list[AnyBody]:
            if guard is not None:
                guard(session)
            return [info] if _has_effect(session, info) else []

        session, _ = await self._store.change(principal.workspace, id, decide)
        return session

    async def _idle_guard(self, session: Session) -> Callable[[Session], None]:
        """Return a function that raises Busy while a session is running.

        A session whose process died does not run, unless another process has changed it since.
        """
        (read,) = await as_read(self._store, [session])
        interrupted_at = session.last_seq if read is not session else None

        def guard(current: Session) -> None:
            if current.last_seq != interrupted_at:
                require_idle(current)

        return guard

    async def _edit_in_source(
        self, principal: Principal, source: Source, id: str, info: InfoChanged
    ) -> Session:
        """Write an edit to the tool's own files if they can hold it, else to the overlay."""
        if info.metadata is not UNSET:
            raise ReadOnly(
                f"sessions of {source.label} have no metadata; import session {id} first",
                session=id,
            )
        overlay = dict((await self._store.overlays(source.workspace, source.name)).get(id, {}))
        fields = {
            field: value
            for field in _EDIT_OF_FIELD
            if not isinstance(value := getattr(info, field), UnsetType)
        }
        native = {field: fields[field] for field in fields if _EDIT_OF_FIELD[field] in source.edits}
        new_id = id
        if native:
            try:
                new_id = await source.change(id, InfoChanged(**native))
            except OverlayOnly:
                native = {}
        for field, value in fields.items():
            is_state = field in ("archived", "deleted")
            overlay_field = f"{field}_at" if is_state else field
            if field in native:
                overlay.pop(overlay_field, None)  # from a time without the tool's program
            elif is_state:
                overlay[overlay_field] = clock.now() if value else None
            else:
                overlay[overlay_field] = value
        if new_id != id:
            await self._store.set_overlay(source.workspace, source.name, id, {})
        await self._store.set_overlay(source.workspace, source.name, new_id, overlay)
        await self._sources.apply_overlay(source)
        session, _ = await self._lookup.find(principal, new_id)
        return session


def _first_info(title: str | None, tag: str | None) -> list[AnyBody]:
    """Return the event that sets a new session's title and tag, if it has one of them."""
    if title is None and tag is None:
        return []
    return [
        InfoChanged(
            title=UNSET if title is None else not_empty(title, "title"),
            tag=UNSET if tag is None else not_empty(tag, "tag"),
        )
    ]


def require_idle(session: Session) -> None:
    """Raise Busy while a session is running."""
    if session.status in ("running", "rescheduling"):
        raise Busy(
            f"session {session.id} is {session.status}; cancel its turn or wait for it to end",
            session=session.id,
            status=session.status,
        )


def not_empty(value: str, field: str) -> str:
    """Return the value without surrounding white space.

    Raises InvalidInput if nothing is left, or if it is longer than the field's limit.
    """
    value = value.strip()
    if not value:
        raise InvalidInput(f"the {field} must not be empty")
    return not_too_long(value, field)


def not_too_long(value: str, field: str) -> str:
    """Return the value; raises InvalidInput if it is longer than the field's limit."""
    if len(value) > MAX_CHARACTERS[field]:
        raise InvalidInput(
            f"{field}: it has {len(value)} characters; at most {MAX_CHARACTERS[field]} are allowed"
        )
    return value


def _has_effect(session: Session, info: InfoChanged) -> bool:
    event = Event(seq=session.last_seq + 1, id="", at=session.updated_at, body=info)
    after = replace(projection.apply(session, event), last_seq=session.last_seq)
    return after != session
