"""Store the Agent SDK's transcripts as sessions of a segue store.

A transcript's key is the project of Claude Code, the session's id there and, for the transcript of
a subagent, its path below the session's directory. The session has the same id in the store, unless
that is not a UUID or a session of another project uses it.

The store's overlays list the sessions of a project, each with a cached summary up to a seq. A list
updates the cache from the events after that seq.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from segue.hub.sessions.editor import require_idle
from segue.model import clock, ids
from segue.model.errors import Conflict, NotFound
from segue.model.event import AgentRef, AnyBody, Draft, Event
from segue.model.query import Query, position
from segue.model.session import Session
from segue.sources.claude.exchange import event_codec, transcript_writer
from segue.sources.claude.exchange.transcript_line import TranscriptLine
from segue.sources.claude.exchange.transcripts import outdated_checkpoint, overlay_name
from segue.sources.claude.format.jsonl import Entry
from segue.sources.claude.format.paths import SOURCE, is_uuid, project_key
from segue.sources.claude.sdk import sdk_summary
from segue.store.base import Store

PAGE_SIZE = 100  # sessions or events per read; a single event can be long


class TranscriptKey(NamedTuple):
    """The name of a transcript; `path` is empty for a session's own."""

    project: str
    session: str
    path: str = ""


class ProjectSession(NamedTuple):
    """A session of a project, with its summary and the paths of its subagents' transcripts."""

    session: Session
    summary: dict[str, Any]
    paths: list[str]

    @property
    def native_id(self) -> str:
        """The session's id in Claude Code."""
        return event_codec.native_session_id(self.session)


class _ConcurrentChange(Exception):
    """Another process wrote between reading a session and adding to it."""


class TranscriptMirror:
    """The transcripts of one workspace; new sessions begin with `agent`."""

    def __init__(self, store: Store, workspace: str, agent: AgentRef | None = None) -> None:
        self._store = store
        self._workspace = workspace
        self._agent = agent

    async def append(self, key: TranscriptKey, entries: Sequence[Entry], cwd: str = "/") -> None:
        """Append entries to a transcript, except those whose uuid it has already.

        `cwd` is the directory of a new session whose entries do not name one.
        """
        lines = [TranscriptLine((entry,)) for entry in entries]
        while lines:
            session = await self._find(key)
            try:
                if session is None:
                    await self._create(key, lines, cwd)
                elif new := await self._without_inherited(session, key, lines):
                    await self._extend(session.id, key, new)
                return
            except _ConcurrentChange:
                continue

    async def load(self, key: TranscriptKey) -> list[Entry] | None:
        """Return all entries of a transcript in order; None if there are none."""
        session = await self._find_untrashed(key)
        if session is None:
            return None
        events = [event async for event in self._events(session)]
        lines = (
            event_codec.subagent_lines(events).get(key.path, [])
            if key.path
            else transcript_writer.transcript_lines(session, events)
        )
        return [entry for line in lines for entry in line.entries] or None

    async def sessions(self, project: str) -> list[ProjectSession]:
        """Return the sessions of a project that have a summary, whichever client created them."""
        overlays = await self._store.overlays(self._workspace, overlay_name(project))
        rows = {id: await self._store.get(self._workspace, id) for id in overlays}
        async for row in self._in_directories_of(project):
            rows.setdefault(row.id, row)
        sessions = []
        for id, session in rows.items():
            if session is None or session.state == "trashed":
                continue
            if event_codec.project_of(session) == project:
                summarised = await self._summarise(session, overlays.get(id, {}))
                if summarised.summary:
                    sessions.append(summarised)
        return sessions

    async def paths(self, key: TranscriptKey) -> list[str]:
        """Return the paths of a session's subagents."""
        session = await self._find_untrashed(key)
        if session is None:
            return []
        overlays = await self._store.overlays(self._workspace, overlay_name(key.project))
        return (await self._summarise(session, overlays.get(session.id, {}))).paths

    async def delete(self, key: TranscriptKey) -> None:
        """Delete a session with its subagents' transcripts, or one of those.

        Raises Busy while the session is running.
        """
        session = await self._find(key)
        if session is None:
            return
        if key.path:
            if key.path in await self.paths(key):
                marker = event_codec.deletion_marker(key.path)
                await self._store.change(self._workspace, session.id, lambda _: [marker])
            return
        await self._store.purge(self._workspace, session.id, require_idle)
        overlay = overlay_name(key.project)
        await self._store.set_overlay(self._workspace, overlay, session.id, {})

    # One attempt each; they raise _ConcurrentChange if another process was faster.

    async def _create(self, key: TranscriptKey, lines: Sequence[TranscriptLine], cwd: str) -> None:
        own_lines = [] if key.path else lines
        drafts = event_codec.creation_drafts(key.project, key.session, own_lines, cwd, self._agent)
        created_at = drafts[0].at or clock.now()
        drafts += event_codec.drafts_from_lines(key.session, key.path, lines, created_at)
        id = await self._reserve_id(key)
        try:
            await self._store.create(self._workspace, id, drafts)
        except Conflict:
            raise _ConcurrentChange from None

    async def _extend(self, id: str, key: TranscriptKey, lines: Sequence[TranscriptLine]) -> None:
        drafts = list(event_codec.drafts_from_lines(key.session, key.path, lines, clock.now()))

        def decide(row: Session) -> list[AnyBody | Draft]:
            updates = [] if key.path else event_codec.session_updates(row, key.project, lines)
            return [*updates, *drafts]

        checkpoint = await self._store.checkpoint(self._workspace, id)
        if checkpoint is not None:
            # The session was imported. A pull from here would add lines without an id again.
            checkpoint = outdated_checkpoint(checkpoint)
        try:
            await self._store.change(self._workspace, id, decide, checkpoint=checkpoint)
        except NotFound:
            raise _ConcurrentChange from None

    async def _without_inherited(
        self, session: Session, key: TranscriptKey, lines: Sequence[TranscriptLine]
    ) -> Sequence[TranscriptLine]:
        """Return the lines whose events a fork does not have from its parent already."""
        if session.fork is None or key.path:
            return lines
        new = []
        for line in lines:
            id = event_codec.line_event_id(line)
            if id is None or await self._store.locate(self._workspace, session.id, id) is None:
                new.append(line)
        return new

    async def _reserve_id(self, key: TranscriptKey) -> str:
        """Return the id for a new session, and list it under its project."""
        for id in _possible_ids(key):
            session = await self._store.get(self._workspace, id)
            if session is None:
                overlay = overlay_name(key.project)
                await self._store.set_overlay(self._workspace, overlay, id, {"seq": 0})
                return id
            if _has_key(session, key):
                break
        raise _ConcurrentChange

    # Lookups.

    async def _find(self, key: TranscriptKey) -> Session | None:
        for id in _possible_ids(key):
            session = await self._store.get(self._workspace, id)
            if session is not None and _has_key(session, key):
                return session
        return None

    async def _find_untrashed(self, key: TranscriptKey) -> Session | None:
        session = await self._find(key)
        return None if session is None or session.state == "trashed" else session

    async def _in_directories_of(self, project: str) -> AsyncIterator[Session]:
        """Yield the sessions in the directories whose project key is this one."""
        known = await self._store.directories(self._workspace)
        matching = tuple(path for path in known if project_key(path) == project)
        if not matching:
            return
        query = Query(directories=matching, archived="include", limit=PAGE_SIZE)
        after = None
        while page := await self._store.page(self._workspace, query, after):
            for session in page:
                yield session
            after = position(page[-1], query.order)

    async def _summarise(self, session: Session, cached: dict[str, Any]) -> ProjectSession:
        """Return a session's summary; update the cached one from the events after it."""
        summary, paths = dict(cached.get("summary", {})), list(cached.get("paths", ()))
        seq = cached.get("seq", 0)
        if seq < session.last_seq:
            events = [event async for event in self._events(session, seq)]
            lines = transcript_writer.transcript_lines(session, events)
            sdk_summary.fold_entries(summary, (entry for line in lines for entry in line.entries))
            paths = event_codec.subagent_paths(events, paths)
            cache = {"seq": events[-1].seq, "summary": summary, "paths": paths}
            overlay = overlay_name(event_codec.project_of(session))
            await self._store.set_overlay(self._workspace, overlay, session.id, cache)
        return ProjectSession(session, summary, paths)

    async def _events(self, session: Session, after: int = 0) -> AsyncIterator[Event]:
        while True:
            batch = await self._store.events(
                self._workspace, session.id, after=after, limit=PAGE_SIZE
            )
            for event in batch:
                yield event
            if len(batch) < PAGE_SIZE:
                return
            after = batch[-1].seq


def _possible_ids(key: TranscriptKey) -> list[str]:
    """Return the ids that the session of a key may have in the store, the preferred one first."""
    native_ids = [key.session.lower()] if is_uuid(key.session) else []
    return [*native_ids, ids.derived_id(SOURCE, key.project, key.session)]


def _has_key(session: Session, key: TranscriptKey) -> bool:
    session_key = event_codec.project_of(session), event_codec.native_session_id(session)
    return session_key == key[:2]
