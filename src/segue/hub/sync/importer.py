"""Import sessions of other tools into the store, keep the copies current, and write them back."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from segue.hub.resources.records import Records
from segue.hub.sessions.lookup import SessionLookup, SourceSet
from segue.model.errors import (
    Busy,
    Conflict,
    InvalidInput,
    NotFound,
    SegueError,
    StoreError,
    Unauthorized,
)
from segue.model.event import Draft, InfoChanged, ModelCalled, Usage
from segue.model.principal import Principal
from segue.model.session import Session
from segue.store.base import Store

if TYPE_CHECKING:
    from segue.sources.claude.exchange.bundle import SessionBundle

    from .mirror import Mirror

log = logging.getLogger("segue.sync")

CLAUDE = "claude"
T = TypeVar("T")


class SourceSync:
    """Copy sessions between the store and the files of other tools."""

    def __init__(
        self,
        store: Store,
        data_dir: Path,
        sources: SourceSet,
        lookup: SessionLookup,
        records: Records,
    ) -> None:
        self._store = store
        self._data_dir = data_dir
        self._sources = sources
        self._lookup = lookup
        self._records = records
        # The last seq in the source when an imported session was last compared with it.
        self._synced_seq: dict[tuple[str, str], int] = {}

    async def ensure_current(self, principal: Principal, id: str) -> None:
        """Pull what a tool has added to an imported session.

        Does nothing for a session without a source, or while a turn runs in it.
        """
        session = await self._store.get(principal.workspace, id)
        if session is not None:
            await self.pull(principal, session)

    async def import_if_listed_only(self, principal: Principal, id: str) -> Session:
        """Return a session; import it first if its agent lists it without its history."""
        from .acp_source import OtherAgent

        session, source = await self._lookup.find(principal, id)
        return await source.take_in(session) if isinstance(source, OtherAgent) else session

    def mirror(self, principal: Principal, row: Session | None = None) -> Mirror:
        """The transcripts of the principal's workspace; `row` is what a source says of one."""
        from .mirror import Mirror

        author = self._records.author(principal.workspace, CLAUDE)
        if author is not None and row is not None and row.agent is not None:
            author = replace(author, overrides={**row.agent.overrides, **author.overrides})
        return Mirror(self._store, principal.workspace, author)

    async def import_claude(self, principal: Principal, named: str) -> tuple[Session, int]:
        """A session of Claude Code's, by its id or its file, whole; and how many lines were new.

        It keeps its id, so what is in the store stands before the files from now on. Importing
        it again adds what the files have beyond that.
        """
        _local(principal)
        return await self._take(principal, named, lambda: _read(named))

    async def import_again(
        self, principal: Principal, session: Session, *, require_idle: bool = False
    ) -> Session:
        """The same for a session of a source, which whoever sees it there may have copied."""
        taken, _ = await self._take(
            principal, session.id, lambda: _of(session), require_idle=require_idle
        )
        return taken

    async def pull(self, principal: Principal, session: Session) -> Session:
        """A copy with what Claude Code said in the session since; not while either is at work."""
        copied = session.origin == CLAUDE != session.source and session.state != "trashed"
        if not copied or session.turn is not None:
            return session
        name = session.workspace, session.id
        for source in await self._sources.in_workspace(principal.workspace):
            there = await source.get(session.id) if source.name == CLAUDE else None
            if there is None or there.status != "idle" or there.state == "trashed":
                continue
            if self._synced_seq.get(name) == there.last_seq:
                continue
            last = there.active_at
            if not await self._store.events(*name, since=last, until=last, limit=1, backward=True):
                try:
                    session = await self.import_again(principal, session, require_idle=True)
                except Busy:  # since a moment ago
                    continue
                except SegueError as error:
                    log.info("session %s: its file was not read: %s", session.id, error.message)
            # Whatever came of it, once is enough. Only now: who asks meanwhile, or after one who
            # went away, must have what is there.
            self._synced_seq[name] = there.last_seq
        return session

    async def _take(
        self,
        principal: Principal,
        named: str,
        read: Callable[[], SessionBundle],
        *,
        require_idle: bool = False,
    ) -> tuple[Session, int]:
        from segue.sources.claude.format.safe_io import UnreadableFile

        row = await self._row_there(principal, named)
        try:
            bundle = await _aside(read)
            session, new = await self.mirror(principal, row).take(bundle, require_idle=require_idle)
        except UnreadableFile:
            raise NotFound(f"the file of {named} went while it was read") from None
        return session if row is None else await self._told_apart(row, session), new

    async def _row_there(self, principal: Principal, id: str) -> Session | None:
        """The row of a session that only a source has."""
        try:
            session, source = await self._lookup.find(principal, id)
        except NotFound:
            return None
        return None if source is None else session

    async def _told_apart(self, row: Session, copy: Session) -> Session:
        """A new copy with what its source knew from elsewhere than the lines of its history.

        That is a title, what the session's agents used, and what all of it cost.
        """
        from segue.sources.claude.exchange.event_codec import DERIVED

        drafts: list[Draft] = []
        if row.title != copy.title:
            by = row.title_by or "auto"
            drafts.append(Draft(body=InfoChanged(title=row.title, by=by, extra=DERIVED)))
        for model, used in row.models.items():
            rest = used - copy.models.get(model, Usage())
            if rest != Usage():
                called = ModelCalled(model=model, usage=rest, extra=DERIVED)
                drafts.append(Draft(at=row.active_at, body=called))
        if drafts:
            copy, _ = await self._store.change(copy.workspace, copy.id, lambda _: drafts)
        return copy

    async def export_claude(self, principal: Principal, id: str) -> str:
        """Write a session so that Claude Code can resume it; gives the transcript's path.

        Conflict when Claude Code has a session of that id: nothing is written over.
        """
        import tempfile

        _local(principal)
        session = await self._stored(principal, id)
        mirror = self.mirror(principal)
        agents = await mirror.agents(session)
        # Beside the data, where there is room for it: it need not fit into memory.
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=self._data_dir) as room:
            path = os.path.join(room, "transcript")
            with open(path, "wb") as file:
                async for line in mirror.lines(session):
                    file.write(line.data() + b"\n")

            def write() -> str:
                from segue.sources.claude.exchange import bundle, event_codec
                from segue.sources.claude.format.paths import ClaudeHome

                made = bundle.SessionBundle(
                    event_codec.project_of(session),
                    event_codec.native_session_id(session),
                    bundle.TranscriptLines(path),
                    agents,
                )
                try:
                    return bundle.write_bundle(ClaudeHome.current(), made)
                except FileExistsError as error:
                    raise Conflict(str(error), session=id) from None
                except ValueError as error:
                    raise InvalidInput(str(error), session=id) from None
                except OSError as error:
                    raise StoreError(f"the transcript cannot be written: {error}") from error

            return await _aside(write)

    async def claude_transcript(self, principal: Principal, id: str) -> AsyncIterator[bytes]:
        """The lines of the transcript that `export_claude` would write, or that Claude Code has."""
        found, source = await self._lookup.find(principal, id)
        if source is not None and source.name == CLAUDE:
            for line in (await _aside(lambda: _of(found))).lines:
                yield line.data() + b"\n"
            return
        session = await self._stored(principal, id)
        async for line in self.mirror(principal).lines(session):
            yield line.data() + b"\n"

    async def _stored(self, principal: Principal, id: str) -> Session:
        session, source = await self._lookup.find(principal, id)
        if source is not None:
            raise Conflict(f"session {id} is in the files of {source.name} already", session=id)
        return session


def _local(principal: Principal) -> None:
    if not principal.local:
        raise Unauthorized("only the user of this machine may have its files read and written")


def _read(named: str) -> SessionBundle:
    """A session by its id or its file."""
    from segue.sources.claude.format.paths import is_uuid

    is_id = is_uuid(named) and not os.path.isfile(named)
    return _at_home(named) if is_id else _in(named, named)


def _of(session: Session) -> SessionBundle:
    """A session by the name that Claude Code has for it, whatever lies in the current directory."""
    from segue.sources.claude.exchange import event_codec

    return _at_home(session.native_id or event_codec.native_session_id(session))


def _at_home(name: str) -> SessionBundle:
    from segue.sources.claude.format.paths import ClaudeHome
    from segue.sources.claude.sdk import locate

    place = locate.find_transcript(ClaudeHome.current(), name)
    if place is None:
        raise NotFound(f"Claude Code has no session {name}")
    return _in(place.path, name)


def _in(path: str, named: str) -> SessionBundle:
    from segue.sources.claude.exchange import bundle
    from segue.sources.claude.format import safe_io

    try:
        return bundle.read_bundle(path)
    except safe_io.UnreadableFile:
        raise NotFound(f"there is no file {named} to read") from None
    except ValueError as error:
        raise InvalidInput(f"{named}: {error}") from None


async def _aside(work: Callable[[], T]) -> T:
    """Do what waits for files beside the event loop."""
    import asyncio

    return await asyncio.to_thread(work)
