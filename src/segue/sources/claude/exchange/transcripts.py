"""Claude Code's transcripts: read into the store, pulled, and written out of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.event_loop import run_in_thread
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound, StoreError
from segue.model.event import AgentRef, AnyBody, Created, Draft, Event, Foreign, InfoChanged
from segue.model.session import Checkpoint, Session, Thread
from segue.sources import safe_io
from segue.sources.base import (
    Batch,
    FindEvent,
    NativeSession,
    NeedsFullImport,
    Pulled,
    ReadEvents,
)
from segue.sources.claude.events.translator import Translator
from segue.sources.claude.format.facts import facts_of_entries
from segue.sources.claude.format.paths import SOURCE, ClaudeHome, is_uuid
from segue.sources.claude.sdk import locate

from . import event_codec, pull, transcript_line
from .bundle import SessionBundle, TranscriptLines, read_bundle, write_bundle
from .import_diff import ImportDiff, SubagentThreads
from .transcript_line import TranscriptLine
from .transcript_writer import TranscriptWriter

LINES_PER_BATCH = 100  # a single line can be long
# The types of events that show which subagents a session started.
THREAD_EVENT_TYPES = ("tool_call", "tool_result", "foreign")


def overlay_name(project: str) -> str:
    """Return the name of the overlay that lists the stored sessions of a project."""
    return f"{SOURCE}/{project}"


def outdated_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint after which a pull compares the whole transcript.

    Lines of the transcript were stored by another way than an import or a pull.
    """
    return replace(checkpoint, inode=0)


class ClaudeTranscripts:
    """The transcripts of one Claude Code home."""

    can_write = True

    def __init__(self, home: ClaudeHome) -> None:
        self._home = home

    def read(self, reference: str) -> ClaudeCopy:
        """Read a session by its id or by the path of its transcript."""
        if is_uuid(reference) and not os.path.isfile(reference):
            return self._read_id(reference)
        return _read_file(reference, reference)

    def read_session(self, session: Session) -> ClaudeCopy:
        """Read the original of a session, even if a file in the current directory has its name."""
        return self._read_id(_native_id(session))

    def _read_id(self, native_id: str) -> ClaudeCopy:
        return _read_file(self._path(native_id), native_id)

    def _path(self, native_id: str) -> str:
        transcript = locate.find_transcript(self._home, native_id)
        if transcript is None:
            raise NotFound(f"Claude Code has no session {native_id}")
        return transcript.path

    async def pull(
        self, session: Session, checkpoint: Checkpoint, find_event: FindEvent
    ) -> Pulled | None:
        """Read the lines that Claude Code appended since a checkpoint."""
        position = _decode_position(checkpoint)

        def read() -> pull.PulledLines:
            # The copy may come from a file elsewhere, or the project was moved since.
            path = os.path.abspath(self._path(_native_id(session)))
            if path != checkpoint.path:
                raise NeedsFullImport(f"the transcript is {path}, no longer {checkpoint.path}")
            try:
                return pull.pull_appended(checkpoint.path, position)
            except safe_io.UnreadableFile:
                raise NeedsFullImport(f"{checkpoint.path} was moved or deleted") from None

        pulled = await run_in_thread(read)
        if pulled.position == position:
            return None
        native_id = event_codec.native_session_id(session)
        used_ids, native_ids = await _stored_ids(pulled, native_id, session, find_event)
        pulled = pull.drop_native_lines(pulled, native_ids)
        drafts = pull.pulled_drafts(native_id, pulled, session.active_at)
        updates = event_codec.session_updates(
            session, event_codec.project_of(session), pulled.own_lines()
        )
        lines = sum(len(appended.lines) for appended in pulled.transcripts.values())
        bodies = [*updates, *event_codec.drop_used_ids(drafts, used_ids)]
        return Pulled(Batch(bodies, lines), _encode_position(checkpoint.path, pulled.position))

    async def threads(self, session: Session, read_events: ReadEvents) -> dict[str, Thread]:
        """Return the subagents of a stored session by the paths of their transcripts."""
        threads = SubagentThreads()
        async for event in read_events(THREAD_EVENT_TYPES):
            threads.add_event(event)
        return threads.threads()

    async def thread_events(
        self, session: Session, key: str, read_events: ReadEvents
    ) -> AsyncIterator[Event]:
        """Yield the events of a subagent in the order of its transcript."""
        lines = event_codec.subagent_lines([event async for event in read_events(("foreign",))])
        translator = Translator(f"{session.id}/{key}", session.created_at)
        seq = 0
        for number, line in enumerate(lines.get(key, ())):
            is_metadata = transcript_line.is_subagent_metadata(line)
            for event in translator.translate_line(number << 16, b"", line.entries):
                if not (isinstance(event.body, Foreign) and is_metadata):
                    seq += 1
                    yield replace(event, seq=seq)

    async def lines(self, session: Session, read_events: ReadEvents) -> AsyncIterator[bytes]:
        """Yield any stored session as the lines of a transcript."""
        writer = TranscriptWriter(session)
        async for event in read_events(()):
            for line in writer.write(event):
                yield line.data() + b"\n"
        for line in writer.finish():
            yield line.data() + b"\n"

    def original_lines(self, session: Session) -> Iterable[bytes]:
        """Return the lines of the transcript that Claude Code has."""
        bundle = self.read_session(session).bundle

        def lines() -> Iterator[bytes]:
            with _readable(bundle):
                for line in bundle.lines:
                    yield line.data() + b"\n"

        return lines()

    async def write(
        self, session: Session, read_events: ReadEvents, scratch: Path
    ) -> NativeSession:
        """Write a stored session where Claude Code can resume it."""
        subagents = event_codec.subagent_lines([event async for event in read_events(("foreign",))])
        with tempfile.TemporaryDirectory(prefix=".export-", dir=scratch) as directory:
            temporary = os.path.join(directory, "transcript")
            with open(temporary, "wb") as file:
                async for data in self.lines(session, read_events):
                    file.write(data)
            native_id = event_codec.native_session_id(session)
            bundle = SessionBundle(
                event_codec.project_of(session), native_id, TranscriptLines(temporary), subagents
            )
            path = await run_in_thread(lambda: self._write(bundle, session.id))
        return NativeSession(native_id, path)

    def _write(self, bundle: SessionBundle, session_id: str) -> str:
        try:
            return write_bundle(self._home, bundle)
        except FileExistsError as error:
            raise Conflict(str(error), session=session_id) from None
        except ValueError as error:
            raise InvalidInput(str(error), session=session_id) from None
        except OSError as error:
            raise StoreError(f"the transcript cannot be written: {error}") from error


class ClaudeCopy:
    """A session that was read from Claude Code's files."""

    derived_extra: Mapping[str, Any] = event_codec.DERIVED

    def __init__(self, path: str, bundle: SessionBundle) -> None:
        """Keep the position of a copy. Raises UnreadableFile if its file was replaced meanwhile."""
        self.bundle = bundle
        self.id = ids.parse(bundle.native_id) or bundle.native_id.lower()
        self.checkpoint = _encode_position(path, pull.position_of(bundle))
        self.overlay = (overlay_name(bundle.project), {"seq": 0})

    def events(self, agent: AgentRef | None) -> ClaudeHistory:
        """Return the session's whole history."""
        with _readable(self.bundle):
            return ClaudeHistory(self.bundle, agent)

    def is_copy(self, session: Session) -> bool:
        """Return whether a stored session has the same project and id, or was relocated here."""
        if event_codec.native_session_id(session) != self.bundle.native_id:
            return False
        if event_codec.project_of(session) == self.bundle.project:
            return True
        entries = (entry for line in self.bundle.lines for entry in line.entries)
        with _readable(self.bundle):
            return bool(session.extra and facts_of_entries(entries).relocated_cwd)

    def compare(self, session: Session) -> ClaudeComparison:
        """Return a comparison with a stored copy."""
        return ClaudeComparison(self.bundle, session)


class ClaudeHistory:
    """A session's events, made from its files at each iteration: they need not fit in memory."""

    def __init__(self, bundle: SessionBundle, agent: AgentRef | None) -> None:
        self.lines = 0
        self._bundle = bundle
        self._creation = event_codec.creation_drafts(
            bundle.project, bundle.native_id, bundle.lines, "/", agent
        )
        self._created_at = self._creation[0].at or clock.now()
        self._creation[0] = self._with_fork_point(self._creation[0])

    def __iter__(self) -> Iterator[Event]:
        with _readable(self._bundle):
            for seq, draft in enumerate(self._drafts(), 1):
                at = self._created_at if draft.at is None else draft.at
                yield Event(seq=seq, id=draft.id or ids.new_id(), at=at, body=draft.body)

    def _drafts(self) -> Iterator[Draft]:
        yield from self._creation
        self.lines = 0
        used_ids: set[str] = set()
        for path, lines in self._bundle.transcripts().items():
            yield from event_codec.drafts_from_lines(
                self._bundle.native_id, path, self._counted(lines), self._created_at, used_ids
            )
        if self._bundle.archived:
            yield Draft(body=InfoChanged(archived=True, extra=event_codec.DERIVED))

    def _with_fork_point(self, created: Draft) -> Draft:
        """Return the creation with the seq up to which a fork inherited its history."""
        body = created.body
        if not isinstance(body, Created) or body.fork is None:
            return created
        last_inherited, inherits = 1, False
        for seq, draft in enumerate(self._drafts(), 1):
            inherited = event_codec.is_inherited(draft.body)
            inherits = inherits if inherited is None else inherited
            last_inherited = seq if inherits else last_inherited
        return replace(created, body=replace(body, fork=replace(body.fork, seq=last_inherited)))

    def _counted(self, lines: Iterable[TranscriptLine]) -> Iterator[TranscriptLine]:
        for line in lines:
            self.lines += 1
            yield line


class ClaudeComparison:
    """Finds the lines of a session's transcripts that a stored copy lacks."""

    def __init__(self, bundle: SessionBundle, session: Session) -> None:
        self._bundle = bundle
        self._session = session
        self._diff = ImportDiff(session)

    def add_event(self, event: Event) -> None:
        """Add the next stored event."""
        self._diff.add_event(event)

    def missing(self) -> Iterator[Batch]:
        """Yield the missing lines as events, the changes of the session's facts first."""
        self._diff.finish()
        with _readable(self._bundle):
            yield from self._missing()

    def _missing(self) -> Iterator[Batch]:
        bundle, is_first = self._bundle, True
        for path, lines in bundle.transcripts().items():
            missing = self._diff.missing_lines(path, lines)
            while batch := list(islice(missing, LINES_PER_BATCH)):
                drafts: list[AnyBody | Draft] = []
                if is_first:
                    drafts += event_codec.session_updates(
                        self._session, bundle.project, bundle.lines
                    )
                drafts += event_codec.drafts_from_lines(
                    bundle.native_id, path, batch, self._session.active_at, self._diff.event_ids
                )
                is_first = False
                yield Batch(drafts, len(batch))


@contextmanager
def _readable(bundle: SessionBundle) -> Iterator[None]:
    """Raise NotFound in place of UnreadableFile.

    The files were replaced, truncated or deleted after the bundle was made.
    """
    try:
        yield
    except safe_io.UnreadableFile:
        raise NotFound(
            f"the transcript of {bundle.native_id} changed while it was read; try again"
        ) from None


def _native_id(session: Session) -> str:
    return session.native_id or event_codec.native_session_id(session)


def _read_file(path: str, reference: str) -> ClaudeCopy:
    try:
        return ClaudeCopy(path, read_bundle(path))
    except safe_io.UnreadableFile:
        raise NotFound(f"there is no file {reference} to read") from None
    except ValueError as error:
        raise InvalidInput(f"{reference}: {error}") from None


async def _stored_ids(
    pulled: pull.PulledLines, native_id: str, session: Session, find_event: FindEvent
) -> tuple[set[str], set[str]]:
    """Return the ids of pulled events that are stored, and those that were not imported.

    Raises NeedsFullImport if a line repeats an imported entry, which may change the active branch.
    """
    used_ids: set[str] = set()
    native_ids: set[str] = set()
    for draft in pull.pulled_drafts(native_id, pulled, session.active_at):
        if draft.id is None or draft.id in used_ids:
            continue
        event = await find_event(draft.id)
        if event is None:
            continue
        used_ids.add(draft.id)
        if event_codec.line_info(event) is None:
            native_ids.add(draft.id)
        elif draft.id == _entry_id(draft):
            raise NeedsFullImport(f"session {session.id}: an imported entry was repeated")
    return used_ids, native_ids


def _entry_id(draft: Draft) -> str | None:
    """Return the id of the entry that a draft carries, if it carries one."""
    info = event_codec.line_info(Event(seq=1, id=draft.id or "", at=0, body=draft.body))
    return draft.id if info and not info.get("more") else None


def _encode_position(path: str, position: pull.SessionPosition) -> Checkpoint:
    main = position.main
    return Checkpoint(
        source=SOURCE,
        path=os.path.abspath(path),
        inode=main.inode,
        offset=main.offset,
        tail_hash=main.tail_hash,
        extra={
            "mtime_ns": main.mtime_ns,
            "subagents": msgspec.to_builtins(position.subagents),
        },
    )


def _decode_position(checkpoint: Checkpoint) -> pull.SessionPosition:
    main = pull.TranscriptPosition(
        inode=checkpoint.inode,
        offset=checkpoint.offset,
        tail_hash=checkpoint.tail_hash,
        mtime_ns=checkpoint.extra.get("mtime_ns", 0),
    )
    subagents = msgspec.convert(
        checkpoint.extra.get("subagents", {}), dict[str, pull.TranscriptPosition]
    )
    return pull.SessionPosition(main, subagents)
