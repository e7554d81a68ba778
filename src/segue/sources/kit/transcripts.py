"""Import a tool's sessions into the store, whole, and pull what was added since.

A stored copy has the events under the same ids as the source, so what is missing is known by id.
The events of subagents are stored as Foreign events of the tool, which other agents do not read.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.event_loop import run_in_thread
from segue.model import codec, ids
from segue.model.errors import InvalidInput, NotFound, ReadOnly
from segue.model.event import (
    AgentRef,
    AnyBody,
    Created,
    Draft,
    Event,
    Foreign,
    ForkPoint,
    InfoChanged,
    ToolCall,
)
from segue.model.session import Checkpoint, Session, Thread
from segue.sources.base import (
    Batch,
    FindEvent,
    NativeSession,
    NeedsFullImport,
    Pulled,
    ReadEvents,
)

from .files import file_lines
from .history import make_event, make_thread, readable
from .reader import (
    End,
    Item,
    Reader,
    Resume,
    Rewritten,
    SessionFacts,
    SessionRef,
    ThreadRef,
    Unreadable,
)
from .rows import (
    THREAD_ERRORS,
    Reading,
    ReadState,
    RowFold,
    creation_event,
    finish_row,
    session_id,
)

EVENTS_PER_BATCH = 200
_THREAD = "thread"  # the key of a stored subagent's event in its Foreign event


class KitTranscripts:
    """The transcripts of one tool. Sessions are imported, but not written to the tool's files."""

    can_write = False

    def __init__(self, reader: Reader, label: str) -> None:
        self._reader = reader
        self._label = label

    def read(self, reference: str) -> KitCopy:
        """Read a session by its native id or by its key, the path of its file."""
        with readable(reference):
            ref = self._reader.ref(reference) or self._reader.find(reference)
        if ref is None:
            raise NotFound(f"{self._label} has no session {reference}")
        if os.path.isfile(reference):
            with readable(reference):
                self._require_transcript(ref)
        return KitCopy(self._reader, ref)

    def _require_transcript(self, ref: SessionRef) -> None:
        """Raise InvalidInput if a file that a person named is not a transcript of the tool."""
        try:
            next(self._reader.read(ref), None)
        except Unreadable as error:
            raise InvalidInput(f"{ref.key} is not a transcript of {self._label}: {error}") from None

    def read_session(self, session: Session) -> KitCopy:
        """Read the original of a session."""
        return KitCopy(self._reader, self._find(session))

    def _find(self, session: Session) -> SessionRef:
        name = self._reader.name
        native_id = session.native_id or session.extra.get(name, {}).get("id") or session.id
        with readable(session.id):
            ref = self._reader.find(native_id)
        if ref is None or session_id(name, ref) != session.id:
            raise NotFound(f"{self._label} has no session {native_id}", session=session.id)
        return ref

    async def pull(
        self, session: Session, checkpoint: Checkpoint, find_event: FindEvent
    ) -> Pulled | None:
        """Read what was added to a session since a checkpoint."""

        def pull() -> Pulled | None:
            ref = self._find(session)
            if ref.key != checkpoint.path:
                raise NeedsFullImport(f"the session is {ref.key}, no longer {checkpoint.path}")
            state = _decode_checkpoint(checkpoint)
            if state.resume is None:
                raise NeedsFullImport("the tool's format does not show what was added")
            try:
                with readable(session.id):
                    read = SessionRead(self._reader, ref, state)
                    items = list(read)
            except Rewritten as error:
                raise NeedsFullImport(str(error)) from None
            drafts: list[AnyBody | Draft] = [*items, *read.fact_changes(session)]
            new_checkpoint = read.checkpoint()
            if not drafts and new_checkpoint == checkpoint:
                return None
            return Pulled(Batch(drafts, read.records), new_checkpoint)

        return await run_in_thread(pull)

    async def threads(self, session: Session, read_events: ReadEvents) -> dict[str, Thread]:
        """Return the subagents of a stored session by their ids."""
        refs: dict[str, ThreadRef] = {}
        events: dict[str, list[Event]] = {}
        calls: dict[str, int] = {}
        async for event in read_events(("foreign", "tool_call")):
            if isinstance(event.body, ToolCall):
                calls[event.body.call_id] = event.seq
            elif stored := _decode_thread_event(self._reader.name, event):
                refs[stored[0].id] = stored[0]
                events.setdefault(stored[0].id, []).append(stored[1])
        return {
            id: make_thread(ref, calls.get(ref.call_id or ""), events[id])
            for id, ref in refs.items()
        }

    async def thread_events(
        self, session: Session, key: str, read_events: ReadEvents
    ) -> AsyncIterator[Event]:
        """Yield the events of a subagent of a stored session."""
        seq = 0
        async for event in read_events(("foreign",)):
            stored = _decode_thread_event(self._reader.name, event)
            if stored is not None and stored[0].id == key:
                seq += 1
                yield replace(stored[1], seq=seq)

    def original_lines(self, session: Session) -> Iterable[bytes]:
        """Return the session as the tool has it."""
        with readable(session.id):
            ref = self._find(session)
            lines = self._reader.original_lines(ref)
            return file_lines(ref.key) if lines is None else lines

    async def lines(self, session: Session, read_events: ReadEvents) -> AsyncIterator[bytes]:
        """Raise ReadOnly: segue does not write this tool's format."""
        raise ReadOnly(f"segue cannot write sessions of {self._label}", session=session.id)
        yield

    async def write(
        self, session: Session, read_events: ReadEvents, scratch: Path
    ) -> NativeSession:
        """Raise ReadOnly: segue does not write this tool's format."""
        raise ReadOnly(f"segue cannot write sessions of {self._label}", session=session.id)


class _CheckpointState(msgspec.Struct, kw_only=True, omit_defaults=True):
    resume: Resume | None = None
    threads: dict[str, Resume] = {}
    title: str | None = None
    archived: bool = False


class SessionRead:
    """One read of a session and its threads, as drafts of the store's events."""

    def __init__(self, reader: Reader, ref: SessionRef, state: _CheckpointState) -> None:
        self._reader = reader
        self._ref = ref
        self._state = state
        self._id = session_id(reader.name, ref)
        self.records = 0
        self.end = End(None)
        self._thread_resumes = dict(state.threads)
        self._fold = RowFold(reader.name, self._id, "", ReadState())
        self.last_inherited = 0  # the number of the last inherited event

    def __iter__(self) -> Iterator[Draft]:
        reading = Reading(self._reader.read(self._ref, self._state.resume))
        inline: list[Item] = []
        for number, item in enumerate(reading, 1):
            self.records += 1
            if item.inherited:
                self.last_inherited = number
            if item.body.thread is not None:
                inline.append(item)
            else:
                self._fold.add(item)
                event = make_event(self._reader.name, self._id, item)
                yield Draft(body=event.body, id=event.id, at=event.at)
        self.end = reading.end
        refs = {} if self.facts is None else {ref.id: ref for ref in self.facts.threads}
        for item in inline:
            thread = item.body.thread or ""
            yield self._thread_draft(refs.get(thread) or ThreadRef(id=thread), item)
        for thread_ref in refs.values():
            yield from self._read_thread(thread_ref)

    @property
    def facts(self) -> SessionFacts | None:
        """The facts of the session, after the last event."""
        return self.end.facts

    def _read_thread(self, thread: ThreadRef) -> Iterator[Draft]:
        """Return what was added to a thread that has records of its own."""
        ref = None if thread.key is None else self._reader.ref(thread.key)
        if ref is None:
            return
        reading = Reading(self._reader.read(ref, self._thread_resumes.get(thread.id)))
        try:
            for item in reading:
                self.records += 1
                yield self._thread_draft(thread, item)
        except THREAD_ERRORS:
            return  # `segue doctor` names it
        if reading.end.resume is not None:
            self._thread_resumes[thread.id] = reading.end.resume

    def _thread_draft(self, thread: ThreadRef, item: Item) -> Draft:
        event = make_event(self._reader.name, self._id, item, thread.id)
        raw = {_THREAD: msgspec.to_builtins(thread), "event": msgspec.to_builtins(event.body)}
        return Draft(body=Foreign(dialect=self._reader.name, raw=raw), id=event.id, at=event.at)

    def row(self) -> Session | None:
        """Return the row of the session, after the last event."""
        if self.facts is None:
            return None
        return finish_row(self._reader.name, self._ref, self._fold, self.facts)

    def fact_changes(self, session: Session) -> list[AnyBody]:
        """Return the title and the state if the tool changed them since the checkpoint.

        A title that no person chose does not replace a person's, as in the lists of the source.
        """
        facts, changes = self.facts, list[AnyBody]()
        if facts is None:
            return changes
        is_new = facts.title is not None and facts.title != self._state.title
        if is_new and (facts.title_by == "person" or session.title_by != "person"):
            changes.append(InfoChanged(title=facts.title, by=facts.title_by))
        is_archived = facts.archived_at is not None
        if is_archived != self._state.archived:
            changes.append(InfoChanged(archived=is_archived))
        return changes

    def checkpoint(self) -> Checkpoint:
        """Return how far the session was read."""
        facts, resume = self.end
        resume = resume if self._reader.resumes else None
        extra: dict[str, Any] = {"fingerprint": list(self._ref.fingerprint)}
        if resume is None:
            return Checkpoint(source=self._reader.name, path=self._ref.key, extra=extra)
        state = _CheckpointState(
            resume=resume,
            threads=self._thread_resumes,
            title=None if facts is None else facts.title,
            archived=facts is not None and facts.archived_at is not None,
        )
        return Checkpoint(
            source=self._reader.name,
            path=self._ref.key,
            inode=resume.inode,
            offset=resume.offset,
            tail_hash=resume.tail_hash,
            extra={"state": msgspec.to_builtins(state)},
        )


def _decode_checkpoint(checkpoint: Checkpoint) -> _CheckpointState:
    return msgspec.convert(checkpoint.extra.get("state", {}), _CheckpointState)


def _decode_thread_event(source: str, event: Event) -> tuple[ThreadRef, Event] | None:
    """Return the thread and the event of a subagent that a Foreign event holds."""
    body = event.body
    if not isinstance(body, Foreign) or body.dialect != source:
        return None
    if not isinstance(body.raw, dict) or _THREAD not in body.raw:
        return None
    ref = msgspec.convert(body.raw[_THREAD], ThreadRef)
    decoded: AnyBody = codec.convert(body.raw["event"], AnyBody)
    return ref, replace(event, body=decoded)


class KitCopy:
    """A session that was read from a tool's files."""

    overlay: tuple[str, Mapping[str, Any]] | None = None
    derived_extra: Mapping[str, Any] = {}

    def __init__(self, reader: Reader, ref: SessionRef) -> None:
        self._reader = reader
        self._ref = ref
        self.id = session_id(reader.name, ref)
        with readable(self.id):
            read = SessionRead(reader, ref, _CheckpointState())
            for _ in read:
                pass
        row = read.row()
        if row is None:
            message = f"{ref.key} is not a session that can be imported"
            raise InvalidInput(message, session=self.id)
        self._row = row
        self._last_inherited = read.last_inherited
        self.checkpoint = read.checkpoint()

    def events(self, agent: AgentRef | None) -> KitEvents:
        """Return the whole history."""
        return KitEvents(self._reader, self._ref, self._created(agent), self._row)

    def _created(self, agent: AgentRef | None) -> Event:
        event = creation_event(self._row)
        assert isinstance(event.body, Created)
        fork = event.body.fork
        if fork is not None:
            fork = ForkPoint(session=fork.session, seq=1 + self._last_inherited)
        name = self._reader.name
        facts = {"id": self._ref.native_id, **self._row.extra.get(name, {})}
        body = replace(
            event.body, source="segue", origin=name, agent=agent, fork=fork, extra={name: facts}
        )
        return replace(event, body=body)

    def is_copy(self, session: Session) -> bool:
        """Return whether a stored session was imported from this one."""
        facts = session.extra.get(self._reader.name)
        return isinstance(facts, dict) and facts.get("id") == self._ref.native_id

    def compare(self, session: Session) -> KitComparison:
        """Return a comparison with a stored session."""
        return KitComparison(self._reader, self._ref)


class KitEvents:
    """A session's events for the store, read at each iteration: they need not fit in memory."""

    def __init__(self, reader: Reader, ref: SessionRef, created: Event, row: Session) -> None:
        self.lines = 0
        self._reader = reader
        self._ref = ref
        self._created = created
        self._row = row

    def __iter__(self) -> Iterator[Event]:
        row = self._row
        yield self._created
        seq = 1
        with readable(row.id):
            read = SessionRead(self._reader, self._ref, _CheckpointState())
            for seq, draft in enumerate(read, 2):
                at = row.created_at if draft.at is None else draft.at
                yield Event(seq=seq, id=draft.id or ids.new_id(), at=at, body=draft.body)
            self.lines = read.records
        for fact in _row_facts(row):
            seq += 1
            yield Event(seq=seq, id=ids.new_id(), at=fact.at or row.updated_at, body=fact.body)


def _row_facts(row: Session) -> list[Draft]:
    """Return the title and the state of a session as events."""
    drafts = []
    if row.title is not None:
        drafts.append(Draft(body=InfoChanged(title=row.title, by=row.title_by or "auto")))
    if row.archived_at is not None:
        drafts.append(Draft(body=InfoChanged(archived=True), at=row.archived_at))
    return drafts


class KitComparison:
    """Finds the events of a session that a stored copy lacks, by their ids."""

    def __init__(self, reader: Reader, ref: SessionRef) -> None:
        self._reader = reader
        self._ref = ref
        self._stored: set[str] = set()

    def add_event(self, event: Event) -> None:
        """Add the next stored event."""
        self._stored.add(event.id)

    def missing(self) -> Iterator[Batch]:
        """Yield the missing events."""
        batch: list[AnyBody | Draft] = []
        with readable(session_id(self._reader.name, self._ref)):
            for draft in SessionRead(self._reader, self._ref, _CheckpointState()):
                if draft.id in self._stored:
                    continue
                batch.append(draft)
                if len(batch) == EVENTS_PER_BATCH:
                    yield Batch(batch, len(batch))
                    batch = []
        if batch:
            yield Batch(batch, len(batch))
