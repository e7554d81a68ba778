"""Import sessions of other tools into the store, keep the copies current, and write them back."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import astuple, replace

from segue.event_loop import is_loop_running, run_in_thread
from segue.hub.session_deps import SessionDeps
from segue.model import clock, ids
from segue.model.errors import (
    Busy,
    Conflict,
    InvalidInput,
    NotFound,
    SegueError,
    Unauthorized,
)
from segue.model.event import (
    AgentRef,
    AnyBody,
    Created,
    Draft,
    Drafts,
    Event,
    ForkPoint,
    InfoChanged,
    ModelCalled,
    Usage,
)
from segue.model.principal import Principal
from segue.model.session import OWN, Checkpoint, Session
from segue.sources import registry
from segue.sources.base import (
    ListsOnly,
    NativeSession,
    NeedsFullImport,
    ReadEvents,
    ResumeCommand,
    SessionCopy,
    Source,
    SourceDefinition,
    Transcripts,
)

from .agent_turns import answers_in_files, turn_periods, without_turns
from .overlay_edits import overlay_edits

log = logging.getLogger("segue.sync")


NEW_SECONDS = 60  # within which a tool has created a session that counts as new
FORK = "fork"  # the field of an overlay that has a ForkLink


class ForkLink(msgspec.Struct, frozen=True, kw_only=True):
    """The original of a session that segue wrote for a tool.

    The events up to `seq` are the original's conversation. In a copy that is imported into the
    store, they are those up to `imported_seq`. `made_at` is the session's age in lists: its
    messages can be much older.
    """

    session: str
    seq: int
    imported_seq: int
    made_at: int = 0


class ImportResult(NamedTuple):
    """An imported session, and how many lines of its transcript were new."""

    session: Session
    new_lines: int


class MissingOriginal(NamedTuple):
    """A tool that does not have the original of a copy.

    It had it if the copy was imported from the tool's files, and not from an export.
    """

    tool: str
    was_here: bool


class _ConcurrentChange(Exception):
    """The session changed between reading it and adding to it."""


class SourceSync:
    """Import sessions from sources and keep imported copies current.

    A checkpoint per imported session records how far its transcript has been read, so a pull
    costs what was added, not the whole history.
    """

    def __init__(self, deps: SessionDeps) -> None:
        self._store = deps.store
        self._data_dir = deps.data_dir
        self._sources = deps.sources
        self._lookup = deps.lookup
        self._records = deps.records
        self._quotas = deps.quotas
        self._pull_locks: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()

    async def ensure_current(self, principal: Principal, id: str) -> None:
        """Pull what a tool has added to an imported session since its checkpoint.

        Does nothing for a session without a source, while a turn runs in it, while the tool works
        on it, or on a read-only store. A transcript that cannot be read is logged.
        """
        session = await self._store.get(principal.workspace, id)
        if session is not None:
            await self.pull(principal, session)

    async def pull(self, principal: Principal, session: Session) -> Session:
        """Return an imported session after a pull; see `ensure_current`.

        Concurrent pulls of a session run one after the other: the later ones find nothing new.
        """
        if not self._can_pull(session):
            return session
        source = await self._source_of_copy(principal, session)
        original = None if source is None else await source.get(session.id)
        if source is None or original is None:
            return session
        if original.status != "idle" or original.state == "trashed":
            return session
        async with self._pull_lock(session):
            current = await self._store.get(session.workspace, session.id)
            if current is None or not self._can_pull(current):
                return current or session
            try:
                return await self._pull(current, source)
            except Busy:  # a turn began a moment ago
                return current
            except SegueError as error:
                log.info("session %s: no pull from %s: %s", session.id, source.name, error.message)
                return current

    def _can_pull(self, session: Session) -> bool:
        return session.turn is None and session.state != "trashed" and not self._store.read_only

    def _pull_lock(self, session: Session) -> AbstractAsyncContextManager[Any]:
        """Return the lock of a session's pulls; without an event loop no other pull can run."""
        if not is_loop_running():
            return nullcontext()
        import asyncio

        name = (session.workspace, session.id)
        lock: asyncio.Lock = self._pull_locks.setdefault(name, asyncio.Lock())
        return lock

    async def import_session(
        self, principal: Principal, reference: str, source: str
    ) -> ImportResult:
        """Import a session by its native id or by the path of its transcript.

        The session keeps its id, so the copy hides the source's session from then on. A repeated
        import adds what is new. Raises NotFound if the source has no such session, Conflict if
        another session uses its id.
        """
        require_local(principal)
        transcripts = registry.get(source).transcripts()
        return await self._import(principal, reference, source, lambda: transcripts.read(reference))

    async def import_from_source(
        self, principal: Principal, session: Session, answering: SourceDefinition | None = None
    ) -> Session:
        """Import a session of a source, or again what its tool has added to the copy.

        `answering` is the source in whose files the session's agent answers, which need not be
        open. Without it, the source owns the session or the session was imported from it. Raises
        NotFound if no source has the session.
        """
        if answering is None:
            source = await self._open_source(principal, session.source)
        else:
            source = await self._open_source(principal, answering.name)
        definition = source or answering
        transcripts = _transcripts(source, answering)
        if definition is None or transcripts is None:
            raise NotFound(f"no source has session {session.id}", session=session.id)
        imported = await self._import(
            principal, session.id, definition.name, lambda: transcripts.read_session(session)
        )
        return imported.session

    async def import_if_listed_only(self, principal: Principal, id: str) -> Session:
        """Return a session. If its source lists it without a history, import it first."""
        session, source = await self._lookup.find(principal, id)
        return await source.import_session(session) if isinstance(source, ListsOnly) else session

    async def write(self, principal: Principal, id: str, source: str) -> NativeSession:
        """Write a session of the store to a tool's files, so that the tool can resume it.

        Raises Conflict if this or another tool has a session with this id: nothing is overwritten.
        """
        require_local(principal)
        session, owner = await self._lookup.find(principal, id)
        if owner is not None:
            already = " already" if owner.name == source else ""
            raise Conflict(f"session {id} is in the files of {owner.label}{already}", session=id)
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        transcripts = registry.get(source).transcripts()
        return await transcripts.write(session, self._reader(session), self._data_dir)

    async def transcript(
        self, principal: Principal, id: str, source: str, *, mask: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the lines of the transcript that `write` would write, or that the tool has.

        With `mask`, messages over which a secret is split have masks. Other secrets of the tool's
        own lines are the caller's to mask.
        """
        session, owner = await self._lookup.find(principal, id)
        transcripts = registry.get(source).transcripts()
        if owner is not None and owner.name == source:
            for line in await run_in_thread(lambda: transcripts.original_lines(session)):
                yield line
            return
        read = self._reader(session, owner)
        lines = transcripts.lines(session, read)
        if mask:
            from segue.secrets.events import mask_session, mask_stream

            shown = mask_session(session)
            lines = transcripts.lines(shown, lambda types: mask_stream(read(types)))
        async for line in lines:
            yield line

    async def resume_command(self, principal: Principal, session: Session) -> ResumeCommand | None:
        """Return how to continue a session in its tool; None if segue itself resumes it."""
        tool = registry.find(await self.resuming_tool(principal, session))
        return None if tool is None else tool.resume_command(session, local=principal.local)

    async def resuming_tool(self, principal: Principal, session: Session) -> str | None:
        """Return the name of the tool that resumes a session; None if segue itself does.

        An import does not change that, while the tool has the original.
        """
        definition = registry.resuming(session)
        if definition is None:
            return None
        source = await self._open_source(principal, definition.name)
        original = None if source is None else await source.get(session.id)
        is_there = original is not None and (session.owner != OWN or original.state != "trashed")
        return definition.name if is_there else None

    async def missing_original(
        self, principal: Principal, session: Session
    ) -> MissingOriginal | None:
        """Return the tool of an imported session that does not have the original; None otherwise.

        A tool may have deleted it in its own cleanup. An original in the tool's trash is not
        missing.
        """
        definition = registry.resuming(session)
        if definition is None or session.owner != OWN:
            return None
        source = await self._open_source(principal, definition.name)
        if source is not None and await source.get(session.id) is not None:
            return None
        checkpoint = await self._store.checkpoint(session.workspace, session.id)
        return MissingOriginal(definition.name, was_here=checkpoint is not None)

    async def find_new(self, principal: Principal, native_id: str, directory: str) -> str | None:
        """Return the id of a session that a tool has just created, None if its source has none."""
        for source in await self._sources.in_workspace(principal.workspace):
            if source.transcripts is not None and os.sep not in native_id:
                find = partial(_find_new, source.transcripts, native_id, directory)
                if (id := await run_in_thread(find)) is not None:
                    return id
        return None

    def label(self, source: str) -> str:
        """Return the name of a source as people read it."""
        open_labels = {opened.name: opened.label for opened in self._sources}
        return open_labels.get(source) or registry.label(source)

    # Importing.

    async def _import(
        self, principal: Principal, id: str, source: str, read: Callable[[], SessionCopy]
    ) -> ImportResult:
        """Import what `read` returns; `id` is the session's id, or the path of its transcript."""
        original = await self._original(principal, id)
        agent = self._records.author(principal.workspace, source)
        if agent is not None and original is not None and original.agent is not None:
            agent = replace(agent, overrides={**original.agent.overrides, **agent.overrides})
        session_id = ids.parse(id)
        while True:
            # The row is read before the files: they then have every line that it has, and a line
            # that another process stores later changes the row.
            stored = None
            if session_id is not None:
                stored = await self._store.get(principal.workspace, session_id)
            copy = await run_in_thread(read)
            session_id = copy.id
            current = await self._stored_copy(principal.workspace, copy)
            try:
                if current is None:
                    async with self._quotas.reserve(principal, sessions=1, bytes=1):
                        result = await self._load(principal.workspace, copy, agent)
                elif stored is None:  # the id was not known, or the copy is new
                    continue
                else:
                    result = await self._add_missing(stored, copy, during_turn=True)
                break
            except _ConcurrentChange:
                continue
        if original is None:
            return result
        return result._replace(session=await self._add_facts(original, result.session, copy))

    async def _stored_copy(self, workspace: str, copy: SessionCopy) -> Session | None:
        """Return the stored copy of a session.

        Raises Conflict if another session uses its id, or if the copy is in the trash.
        """
        session = await self._store.get(workspace, copy.id)
        if session is None:
            return None
        if not copy.is_copy(session):
            raise Conflict(f"another session uses the id {copy.id}", session=copy.id)
        if session.state == "trashed":
            raise Conflict(f"session {copy.id} is in the trash; restore it first", session=copy.id)
        return session

    async def _load(
        self, workspace: str, copy: SessionCopy, agent: AgentRef | None
    ) -> ImportResult:
        """Store a session's whole history; the session begins with `agent`."""
        events = await run_in_thread(lambda: copy.events(agent))
        await self._register(workspace, copy)
        overlays = await self._store.overlays(workspace, copy.checkpoint.source)
        overlay = overlays.get(copy.id)
        history = _OverlaidEvents(events, overlay) if overlay else events
        try:
            session = await self._store.load(
                workspace, copy.id, history, checkpoint=copy.checkpoint
            )
        except Conflict:
            if await self._stored_copy(workspace, copy) is None:
                raise
            raise _ConcurrentChange from None
        return ImportResult(session, events.lines)

    async def _register(self, workspace: str, copy: SessionCopy) -> None:
        if copy.overlay is not None:
            name, patch = copy.overlay
            await self._store.set_overlay(workspace, name, copy.id, dict(patch))

    async def _add_missing(
        self, session: Session, copy: SessionCopy, *, during_turn: bool
    ) -> ImportResult:
        """Compare a stored copy with its whole transcript, and add what is missing.

        The transcript was read after the session's row.
        """
        comparison = copy.compare(session)
        async for event in self._reader(session)(()):
            comparison.add_event(event)
        new_lines = 0
        for batch in comparison.missing():
            drafts = await self._without_stored_turns(session, batch.drafts)
            session = await self._append(session, drafts, during_turn=during_turn)
            new_lines += batch.lines
        session = await self._append(session, [], copy.checkpoint, during_turn=during_turn)
        return ImportResult(session, new_lines)

    async def _add_facts(self, original: Session, stored: Session, copy: SessionCopy) -> Session:
        """Add what the source's row knows and no line of the transcript says.

        That is a title, and the usage and cost that the tool records elsewhere.
        """
        extra = dict(copy.derived_extra)
        drafts: list[Draft] = []
        if original.title != stored.title:
            by = original.title_by or "auto"
            drafts.append(Draft(body=InfoChanged(title=original.title, by=by, extra=extra)))
        for model, usage in original.models.items():
            new_usage = usage - stored.models.get(model, Usage())
            if any(astuple(new_usage)):
                called = ModelCalled(model=model, usage=new_usage, extra=extra)
                drafts.append(Draft(at=original.active_at, body=called))
        if drafts:
            stored, _ = await self._store.change(stored.workspace, stored.id, lambda _: drafts)
        return stored

    # Pulling.

    async def _pull(self, session: Session, source: Source) -> Session:
        transcripts = source.transcripts
        if transcripts is None:
            return session
        compare_all = False
        while True:
            checkpoint = await self._store.checkpoint(session.workspace, session.id)
            try:
                if checkpoint is None or compare_all:
                    return await self._pull_whole(session, transcripts)
                return await self._pull_added(session, checkpoint, transcripts)
            except NeedsFullImport as error:
                # Unless a concurrent pull was faster: then the next try finds nothing new.
                if await self._store.checkpoint(session.workspace, session.id) == checkpoint:
                    log.info("session %s: comparing the whole transcript: %s", session.id, error)
                    compare_all = True
            except _ConcurrentChange:
                pass
            current = await self._store.get(session.workspace, session.id)
            if current is None or current.turn is not None:
                return current or session
            session = current

    async def _pull_added(
        self, session: Session, checkpoint: Checkpoint, transcripts: Transcripts
    ) -> Session:
        async def find_event(event_id: str) -> Event | None:
            seq = await self._store.locate(session.workspace, session.id, event_id)
            if seq is None:
                return None
            events = await self._store.events(
                session.workspace, session.id, after=seq - 1, before=seq + 1, limit=1
            )
            return events[0] if events else None

        pulled = await transcripts.pull(session, checkpoint, find_event)
        if pulled is None:
            return session
        drafts = await self._without_stored_turns(session, pulled.batch.drafts)
        return await self._append(session, drafts, pulled.checkpoint, during_turn=False)

    async def _without_stored_turns(
        self, session: Session, drafts: list[AnyBody | Draft]
    ) -> list[AnyBody | Draft]:
        """Return the events that a tool has added, without turns that segue has stored itself."""
        if not drafts or not answers_in_files(session):
            return drafts
        return without_turns(drafts, await turn_periods(self._reader(session)))

    async def _pull_whole(self, session: Session, transcripts: Transcripts) -> Session:
        copy = await run_in_thread(lambda: transcripts.read_session(session))
        if not copy.is_copy(session):
            raise Conflict(f"another session uses the id {copy.id}", session=copy.id)
        return (await self._add_missing(session, copy, during_turn=False)).session

    async def _append(
        self,
        session: Session,
        drafts: Drafts,
        checkpoint: Checkpoint | None = None,
        *,
        during_turn: bool,
    ) -> Session:
        """Append events and store the checkpoint, unless the session changed in between.

        Raises Busy while a turn runs, unless `during_turn` is set.
        """

        def decide(row: Session) -> Drafts:
            if row.turn is not None and not during_turn:
                message = f"session {row.id} is running; wait for the end of its turn"
                raise Busy(message, session=row.id)
            if row.last_seq != session.last_seq:
                raise _ConcurrentChange
            return drafts

        try:
            after, _ = await self._store.change(
                session.workspace, session.id, decide, checkpoint=checkpoint
            )
        except NotFound:
            raise _ConcurrentChange from None
        return after

    # Lookups.

    async def _original(self, principal: Principal, id: str) -> Session | None:
        """Return the row of a session that only a source has."""
        try:
            session, source = await self._lookup.find(principal, id)
        except NotFound:
            return None
        return None if source is None else session

    async def _source_of_copy(self, principal: Principal, session: Session) -> Source | None:
        """Return the open source that a stored session was imported from."""
        if session.owner != OWN:
            return None
        return await self._open_source(principal, session.source)

    async def _open_source(self, principal: Principal, name: str | None) -> Source | None:
        sources = await self._sources.in_workspace(principal.workspace)
        return next((source for source in sources if source.name == name), None)

    def _reader(self, session: Session, owner: Source | None = None) -> ReadEvents:
        return lambda types: self._lookup.read(session.workspace, session.id, owner, types=types)


class _OverlaidEvents:
    """A history with what the store's overlay has of the session.

    That is the original that segue wrote the session from, and the user's edits at the end.
    """

    def __init__(self, events: Iterable[Event], overlay: Mapping[str, Any]) -> None:
        self._events = events
        link = overlay.get(FORK)
        self._link = None if link is None else msgspec.convert(link, ForkLink)
        self._edits = [
            Event(seq=0, id=ids.new_id(), at=draft.at or clock.now(), body=draft.body)
            for draft in overlay_edits(overlay)
        ]

    def __iter__(self) -> Iterator[Event]:
        seq = 0
        for event in self._events:
            seq = event.seq
            yield event if self._link is None else _linked(event, self._link)
        for number, edit in enumerate(self._edits, seq + 1):
            yield replace(edit, seq=number)


def _linked(event: Event, link: ForkLink) -> Event:
    """Return an event of a history whose session is a fork of the link's original."""
    if not isinstance(event.body, Created) or event.body.fork is not None:
        return event
    point = ForkPoint(session=link.session, seq=link.imported_seq)
    body = replace(event.body, fork=point)
    return replace(event, body=body, at=max(event.at, link.made_at))


def _transcripts(source: Source | None, definition: SourceDefinition | None) -> Transcripts | None:
    """Return a source's transcripts, even if the source has not been opened."""
    if source is not None:
        return source.transcripts
    return None if definition is None else definition.transcripts()


def _find_new(transcripts: Transcripts, native_id: str, directory: str) -> str | None:
    """Return the id of a session that a tool has just created in a directory, or None."""
    try:
        copy = transcripts.read(native_id)
        created = next(iter(copy.events(None)))
    except InvalidInput as error:  # it has no messages yet
        id = error.data.get("session")
        return id if isinstance(id, str) else None
    except SegueError:
        return None
    is_new = created.at >= clock.now() - NEW_SECONDS * clock.SECOND
    return copy.id if is_new and getattr(created.body, "cwd", None) == directory else None


def require_local(principal: Principal) -> None:
    """Raise Unauthorized unless the caller is the user of this machine."""
    if not principal.local:
        raise Unauthorized("only the user of this machine may read and write its files")
