"""Claude Code's transcripts as sessions of the store: mirrored, imported, written out again.

A transcript's key is the project that Claude Code counts it to, the session's id there and, for
the transcript of an agent, its path below the session. The session has the same id here, unless
that is no UUID or is the session of another project's.

Which sessions a project has is in the store's overlays, with what lists want to know of each, up
to a seq. That part is a cache: whoever lists brings it up to date from the events behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from segue.hub.sessions.editor import require_idle
from segue.model import clock, ids
from segue.model.errors import Busy, Conflict, NotFound
from segue.model.event import AgentRef, AnyBody, Created, Draft, Drafts, Event, Foreign, InfoChanged
from segue.model.query import Query, position
from segue.model.session import Session, Thread
from segue.sources.claude.events.translator import Translator
from segue.sources.claude.exchange import (
    event_codec,
    import_diff,
    transcript_line,
    transcript_writer,
)
from segue.sources.claude.exchange.bundle import SessionBundle
from segue.sources.claude.exchange.transcript_line import TranscriptLine
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import is_uuid, project_key
from segue.sources.claude.sdk import sdk_summary
from segue.store.base import Store

_TELLING = ("tool_call", "tool_result", "foreign")  # what tells of agents
_CHUNK = 100  # events or lines at a time; some are long


class Key(NamedTuple):
    """What names a transcript; `path` is empty for a session's own."""

    project: str
    session: str
    path: str = ""


class Known(NamedTuple):
    """A session of a project, the summary of its transcript and the paths of its agents'."""

    session: Session
    summary: dict[str, Any]
    paths: list[str]

    @property
    def name(self) -> str:
        """The session's id as Claude Code has it."""
        return event_codec.native_session_id(self.session)


class _Moved(Exception):
    """Somebody else wrote between reading a history and adding to it."""


class _History:
    """A session's history as its files tell it, anew each time: it need not fit into memory."""

    def __init__(self, bundle: SessionBundle, author: AgentRef | None) -> None:
        self.lines = 0
        self._bundle = bundle
        self._begin = event_codec.creation_drafts(
            bundle.project, bundle.native_id, bundle.lines, "/", author
        )
        self._begun = self._begin[0].at or clock.now()
        self._begin[0] = self._forked(self._begin[0])

    def __iter__(self) -> Iterator[Event]:
        for seq, draft in enumerate(self._drafts(), 1):
            at = self._begun if draft.at is None else draft.at
            yield Event(seq=seq, id=draft.id or ids.new_id(), at=at, body=draft.body)

    def _drafts(self) -> Iterator[Draft]:
        yield from self._begin
        self.lines, taken, bundle = 0, set[str](), self._bundle
        for path, lines in bundle.transcripts().items():
            yield from event_codec.drafts_from_lines(
                bundle.native_id, path, self._counted(lines), self._begun, taken
            )
        if bundle.archived:
            yield Draft(body=InfoChanged(archived=True, extra=event_codec.DERIVED))

    def _forked(self, created: Draft) -> Draft:
        """The creation with how much of what follows was taken over from another session."""
        body = created.body
        if not isinstance(body, Created) or body.fork is None:
            return created
        upto, inherits = 1, False
        for seq, draft in enumerate(self._drafts(), 1):
            told = event_codec.is_inherited(draft.body)
            inherits = inherits if told is None else told
            upto = seq if inherits else upto
        return replace(created, body=replace(body, fork=replace(body.fork, seq=upto)))

    def _counted(self, lines: Iterable[TranscriptLine]) -> Iterator[TranscriptLine]:
        for line in lines:
            self.lines += 1
            yield line


class Mirror:
    """The transcripts of one workspace; `author` is the agent that sessions begin with."""

    def __init__(self, store: Store, workspace: str, author: AgentRef | None = None) -> None:
        self._store = store
        self._workspace = workspace
        self._author = author

    async def append(self, key: Key, entries: Sequence[Entry], cwd: str = "/") -> None:
        """Add entries to a transcript; one whose uuid is there already is not added again.

        `cwd` is the directory of a session that begins with entries that do not say.
        """
        lines = [TranscriptLine((entry,)) for entry in entries]
        while lines:
            session = await self._find(key)
            try:
                if session is None:
                    await self._begin(key, lines, cwd)
                elif new := await self._unknown(session, key, lines):
                    await self._extend(session.id, key, new)
                return
            except _Moved:
                continue

    async def load(self, key: Key) -> list[Entry] | None:
        """All entries of a transcript, as they were added; None when there are none."""
        session = await self._shown(key)
        if session is None:
            return None
        events = [event async for event in self._events(session)]
        lines = (
            event_codec.subagent_lines(events).get(key.path, [])
            if key.path
            else transcript_writer.transcript_lines(session, events)
        )
        return [entry for line in lines for entry in line.entries] or None

    async def sessions(self, project: str) -> list[Known]:
        """The sessions of a project in which anything was said, wherever they began."""
        overlays = await self._store.overlays(self._workspace, _shelf(project))
        rows = {id: await self._store.get(self._workspace, id) for id in overlays}
        async for row in self._within(project):
            rows.setdefault(row.id, row)
        found = []
        for id, session in rows.items():
            if (
                session
                and session.state != "trashed"
                and event_codec.project_of(session) == project
            ):
                known = await self._known(session, overlays.get(id, {}))
                if known.summary:
                    found.append(known)
        return found

    async def paths(self, key: Key) -> list[str]:
        """The paths of a session's agents."""
        session = await self._shown(key)
        if session is None:
            return []
        overlays = await self._store.overlays(self._workspace, _shelf(key.project))
        return (await self._known(session, overlays.get(session.id, {}))).paths

    async def threads(self, session: Session) -> dict[str, Thread]:
        """The agents that a session started, by the paths of their transcripts."""
        threads = import_diff.SubagentThreads()
        if await self.paths(_key(session)):
            async for event in self._events(session, types=_TELLING):
                threads.add_event(event)
        return threads.threads()

    async def thread(self, session: Session, path: str) -> AsyncIterator[Event]:
        """What one of them did, in the order in which it did it."""
        agents = await self.agents(session)
        translator = Translator(f"{session.id}/{path}", session.created_at)
        seq = 0
        for number, line in enumerate(agents.get(path, ())):
            for event in translator.translate_line(number << 16, b"", line.entries):
                if not (
                    isinstance(event.body, Foreign) and transcript_line.is_subagent_metadata(line)
                ):
                    seq += 1
                    yield replace(event, seq=seq)

    async def delete(self, key: Key) -> None:
        """Remove a session with its agents' transcripts, or one of those. Busy while it runs."""
        session = await self._find(key)
        if session is None:
            return
        if key.path:
            if key.path in await self.paths(key):
                gone = event_codec.deletion_marker(key.path)
                await self._store.change(self._workspace, session.id, lambda _: [gone])
            return
        await self._store.purge(self._workspace, session.id, require_idle)
        await self._store.set_overlay(self._workspace, _shelf(key.project), session.id, {})

    async def take(
        self, bundle: SessionBundle, *, require_idle: bool = False
    ) -> tuple[Session, int]:
        """Import a session, or what its files have beyond what is here; how many lines that are.

        Raises Conflict if another session has its id, or if it is in the trash; Busy with
        `require_idle` while a turn runs here.
        """
        while True:
            key = Key(bundle.project, bundle.native_id)
            session = await self._find(key) or await self._left(key, bundle)
            if require_idle and session is not None and session.turn is not None:
                raise Busy(f"session {session.id} is in the middle of a turn", session=session.id)
            try:
                if session is None:
                    return await self._take_all(bundle)
                return await self._take_rest(session, bundle)
            except _Moved:
                continue

    async def lines(self, session: Session) -> AsyncIterator[TranscriptLine]:
        """The transcript of a session of any make, as Claude Code would keep it."""
        writer = transcript_writer.TranscriptWriter(session)
        async for event in self._events(session):
            for line in writer.write(event):
                yield line
        for line in writer.finish():
            yield line

    async def agents(self, session: Session) -> dict[str, list[TranscriptLine]]:
        """Those of its agents, by path."""
        return event_codec.subagent_lines(
            [event async for event in self._events(session, types=("foreign",))]
        )

    # One attempt each: _Moved when another process was faster.

    async def _begin(self, key: Key, lines: Sequence[TranscriptLine], cwd: str) -> None:
        said = [] if key.path else lines
        drafts = event_codec.creation_drafts(key.project, key.session, said, cwd, self._author)
        begun = drafts[0].at or clock.now()
        drafts += event_codec.drafts_from_lines(key.session, key.path, lines, begun)
        id = await self._enter(key)
        try:
            await self._store.create(self._workspace, id, drafts)
        except Conflict:
            raise _Moved from None

    async def _extend(self, id: str, key: Key, lines: Sequence[TranscriptLine]) -> None:
        added = list(event_codec.drafts_from_lines(key.session, key.path, lines, clock.now()))

        def decide(row: Session) -> list[AnyBody | Draft]:
            return [
                *([] if key.path else event_codec.session_updates(row, key.project, lines)),
                *added,
            ]

        try:
            await self._store.change(self._workspace, id, decide)
        except NotFound:
            raise _Moved from None

    async def _unknown(
        self, session: Session, key: Key, lines: Sequence[TranscriptLine]
    ) -> Sequence[TranscriptLine]:
        """The lines that a fork did not take over, under the ids that they have in it."""
        if session.fork is None or key.path:
            return lines
        found = []
        for line in lines:
            id = event_codec.line_event_id(line)
            if id is None or await self._store.locate(self._workspace, session.id, id) is None:
                found.append(line)
        return found

    async def _take_all(self, bundle: SessionBundle) -> tuple[Session, int]:
        key = Key(bundle.project, bundle.native_id)
        # It reads a fork to its end.
        history = await asyncio.to_thread(_History, bundle, self._author)
        id = await self._enter(key)
        if id != ids.parse(bundle.native_id):
            raise Conflict(f"there is another session {bundle.native_id} already", session=id)
        try:
            session = await self._store.load(self._workspace, id, history)
        except Conflict:
            raise _Moved from None
        return session, history.lines

    async def _take_rest(self, session: Session, bundle: SessionBundle) -> tuple[Session, int]:
        if session.state == "trashed":
            raise Conflict(
                f"session {session.id} is in the trash; restore it first", session=session.id
            )
        diff = import_diff.ImportDiff(session)
        async for event in self._events(session):
            diff.add_event(event)
        diff.finish()
        noted, count = list[AnyBody](), 0
        for path, lines in bundle.transcripts().items():
            missing = diff.missing_lines(path, lines)
            while some := list(islice(missing, _CHUNK)):
                if not count:
                    noted = event_codec.session_updates(session, bundle.project, bundle.lines)
                new = event_codec.drafts_from_lines(
                    bundle.native_id, path, some, session.active_at, diff.event_ids
                )
                session = await self._add(session, [*noted, *new])
                noted, count = [], count + len(some)
        return session, count

    async def _add(self, session: Session, drafts: Drafts) -> Session:
        """The session with more events; _Moved if it is not as it was."""

        def decide(row: Session) -> Drafts:
            if row.last_seq != session.last_seq:
                raise _Moved
            return drafts

        try:
            after, _ = await self._store.change(self._workspace, session.id, decide)
        except NotFound:
            raise _Moved from None
        return after

    # Finding.

    async def _find(self, key: Key) -> Session | None:
        """The session of a key, on whatever shelf it is."""
        for id in _ids(key):
            session = await self._store.get(self._workspace, id)
            if session is not None and _is_of(session, key):
                return session
        return None

    async def _left(self, key: Key, bundle: SessionBundle) -> Session | None:
        """The session that was of another project until its files moved to that of the key."""
        row = await self._store.get(self._workspace, _ids(key)[0])
        if row is None or not row.extra or event_codec.native_session_id(row) != key.session:
            return None
        entries = (entry for line in bundle.lines for entry in line.entries)
        return row if any(map(transcript_line.relocated_cwd, entries)) else None

    async def _shown(self, key: Key) -> Session | None:
        session = await self._find(key)
        return None if session is None or session.state == "trashed" else session

    async def _enter(self, key: Key) -> str:
        """The id for a new session of that key, which its project knows from now on."""
        for id in _ids(key):
            session = await self._store.get(self._workspace, id)
            if session is None:
                shelf = _shelf(key.project)
                await self._store.set_overlay(self._workspace, shelf, id, {"seq": 0})
                return id
            if _is_of(session, key):
                break
        raise _Moved

    async def _within(self, project: str) -> AsyncIterator[Session]:
        """The sessions of the directories that a project may be named after."""
        known = await self._store.directories(self._workspace)
        named = tuple(path for path in known if project_key(path) == project)
        if not named:
            return
        query, after = Query(directories=named, archived="include", limit=_CHUNK), None
        while page := await self._store.page(self._workspace, query, after):
            for session in page:
                yield session
            after = position(page[-1], query.order)

    async def _known(self, session: Session, cached: dict[str, Any]) -> Known:
        """What the cache says, brought up to date."""
        data, paths = dict(cached.get("summary", {})), list(cached.get("paths", ()))
        seq = cached.get("seq", 0)
        if seq < session.last_seq:
            events = [event async for event in self._events(session, seq)]
            lines = transcript_writer.transcript_lines(session, events)
            sdk_summary.fold_entries(data, (entry for line in lines for entry in line.entries))
            paths = event_codec.subagent_paths(events, paths)
            cache = {"seq": events[-1].seq, "summary": data, "paths": paths}
            shelf = _shelf(event_codec.project_of(session))
            await self._store.set_overlay(self._workspace, shelf, session.id, cache)
        return Known(session, data, paths)

    async def _events(
        self, session: Session, after: int = 0, types: Sequence[str] = ()
    ) -> AsyncIterator[Event]:
        while True:
            batch = await self._store.events(
                self._workspace, session.id, after=after, types=types, limit=_CHUNK
            )
            for event in batch:
                yield event
            if len(batch) < _CHUNK:
                return
            after = batch[-1].seq


def _shelf(project: str) -> str:
    """The name of a project's part of the overlays."""
    return f"claude/{project}"


def _ids(key: Key) -> list[str]:
    """The ids that the session of a key may have here, the best first."""
    own = [key.session.lower()] if is_uuid(key.session) else []
    return [*own, ids.derived_id("claude", key.project, key.session)]


def _key(session: Session) -> Key:
    return Key(event_codec.project_of(session), event_codec.native_session_id(session))


def _is_of(session: Session, key: Key) -> bool:
    return _key(session)[:2] == key[:2]
