"""Write a session's events as the lines of a transcript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from segue.model.anthropic.content_blocks import DIALECT
from segue.model.event import Event
from segue.model.session import Session
from segue.sources.claude.format.facts import SessionFacts
from segue.sources.claude.format.jsonl import parse_text
from segue.sources.claude.format.paths import resolve_directory

from .event_codec import line_info, native_session_id, restore_line
from .jsonl_writer import EntryComposer
from .transcript_line import TranscriptLine, line_uuid


class TranscriptWriter:
    """Write a session's own transcript: imported lines as they were, other events composed.

    Claude Code does not know the events that were added here, so its next line has an older line
    as its parent. With `relink`, the parent becomes the last line before it; without, the events
    that were added here are an inactive branch. A transcript that is not `resumable` is for
    people to read.
    """

    def __init__(self, session: Session, *, relink: bool = True, resumable: bool = True) -> None:
        self._native_id = native_session_id(session)
        # A fork that segue made. The lines of Claude Code's own forks need no change.
        self._is_fork = session.fork is not None and DIALECT not in session.extra
        self._fork_seq = session.fork.seq if session.fork is not None and self._is_fork else 0
        self._new_uuids: dict[str, str] = {}  # of inherited entries, by their uuid in the parent
        # A compaction's boundary names later entries, so it waits for their new uuids.
        self._delayed: TranscriptLine | None = None
        self._relink = relink
        self._composer = EntryComposer(
            self._native_id, session.cwd, session.git_branch, resumable=resumable
        )
        self._directory = session.directory
        self._facts = SessionFacts()  # of the lines so far
        self._pending: list[Event] = []  # events that were not imported
        # The uuid of an imported entry: that of the last entry composed after it.
        self._successors: dict[str, str] = {}

    def write(self, event: Event) -> Iterator[TranscriptLine]:
        """Return the lines that this event completes."""
        info = line_info(event)
        if info is None:
            self._pending.append(event)
        elif not info.keys() & {"path", "more", "glued"}:
            yield from self._write_imported(event, restore_line(event.body, info))

    def finish(self) -> Iterator[TranscriptLine]:
        """Return the remaining lines, after the last event."""
        yield from self._flush_delayed()
        yield from self._flush_pending()
        cwd = self._facts.directory
        if self._is_fork and cwd and resolve_directory(cwd) != self._directory:
            entry = {
                "type": "relocated",
                "sessionId": self._native_id,
                "relocatedCwd": self._directory,
            }
            yield TranscriptLine((entry,))

    def _write_imported(self, event: Event, line: TranscriptLine) -> Iterator[TranscriptLine]:
        uuid = line_uuid(line) if event.seq <= self._fork_seq else None
        if uuid is not None:
            self._new_uuids[uuid] = event.id
        yield from self._flush_delayed()
        before = self._composer.last_uuid
        yield from self._flush_pending()
        after = self._composer.last_uuid
        if before and after and before != after:
            self._successors[before] = after
        if uuid is not None and "compactMetadata" in line.entries[0]:
            self._delayed = line
        else:
            yield self._adapt(line)

    def _flush_delayed(self) -> Iterator[TranscriptLine]:
        line, self._delayed = self._delayed, None
        if line is not None:
            yield self._adapt(line)

    def _flush_pending(self) -> Iterator[TranscriptLine]:
        """Compose the lines of events that were not imported."""
        events, self._pending = self._pending, []
        return (TranscriptLine((entry,)) for entry in self._composer.compose(events))

    def _adapt(self, line: TranscriptLine) -> TranscriptLine:
        """Return an imported line with the ids and the parent that it has in this transcript."""
        if line_uuid(line) in self._new_uuids:
            line = self._with_new_uuids(line)
        if self._relink and self._successors:
            line = _with_last_parent(line, self._successors)
        if self._is_fork:
            line = _with_session_id(line, self._native_id)
        for entry in line.entries:
            self._composer.continue_after(entry)
            self._facts.learn_entry(entry)
        return line

    def _with_new_uuids(self, line: TranscriptLine) -> TranscriptLine:
        """Return an inherited line with the uuids that its entries have in the fork."""
        (entry,) = line.entries
        parent = parse_text(entry.get("parentUuid"))
        if parent is not None and parent not in self._new_uuids:
            # The parent was composed for another fork in between.
            entry = {**entry, "parentUuid": self._composer.last_uuid}
        return TranscriptLine(
            ({key: _replace_ids(value, self._new_uuids) for key, value in entry.items()},)
        )


def transcript_lines(
    session: Session, events: Iterable[Event], *, resumable: bool = True
) -> Iterator[TranscriptLine]:
    """Return the lines of a session's own transcript."""
    writer = TranscriptWriter(session, resumable=resumable)
    for event in events:
        yield from writer.write(event)
    yield from writer.finish()


def _with_session_id(line: TranscriptLine, native_id: str) -> TranscriptLine:
    """Return an inherited line with the fork's session id."""
    entries = [
        {**entry, "sessionId": native_id} if "sessionId" in entry else entry
        for entry in line.entries
    ]
    return TranscriptLine(tuple(entries)) if len(entries) == 1 else line


def _replace_ids(value: Any, new_ids: Mapping[str, str]) -> Any:
    """Return a JSON value with every string that is an old id replaced by the new one."""
    if isinstance(value, str):
        return new_ids.get(value, value)
    if isinstance(value, dict):
        return {key: _replace_ids(item, new_ids) for key, item in value.items()}
    return [_replace_ids(item, new_ids) for item in value] if isinstance(value, list) else value


def _with_last_parent(line: TranscriptLine, successors: Mapping[str, str]) -> TranscriptLine:
    """Return a line whose parent is the last entry that was composed after its own parent."""
    parent = parse_text(line.entries[0].get("parentUuid")) if len(line.entries) == 1 else None
    if parent is None or parent not in successors:
        return line
    while parent in successors:
        parent = successors[parent]
    return TranscriptLine(({**line.entries[0], "parentUuid": parent},))
