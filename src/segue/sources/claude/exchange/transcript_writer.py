"""Write a session's events as the lines of a transcript."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from segue.model.event import Event
from segue.model.session import Session
from segue.sources.claude.format.paths import resolve_directory

from .event_codec import line_info, native_session_id, restore_line
from .jsonl_writer import DIALECT, Composer
from .transcript_line import RELOCATED, TranscriptLine, line_uuid, nonempty_text, relocated_cwd


class TranscriptWriter:
    """A session's own transcript, line by line as its events are taken.

    Claude Code does not know what was said here since it wrote a line, and goes on behind that
    line. `joined` it goes on behind what was said here: else that would be a branch that was left.
    """

    def __init__(self, session: Session, *, joined: bool = True, read: bool = False) -> None:
        self._name = native_session_id(session)
        # A fork of ours; one of Claude Code's own has its lines already.
        self._forked = session.fork is not None and DIALECT not in session.extra
        self._inherited = session.fork.seq if session.fork is not None and self._forked else 0
        self._ids: dict[str, str] = {}  # of inherited entries: what they are here
        self._held: TranscriptLine | None = (
            None  # a compaction's boundary, until its summary is known
        )
        self._joined = joined
        self._composer = Composer(self._name, session.cwd, session.git_branch, read=read)
        self._directory = session.directory
        self._told = self._moved = ""  # where the lines say that the session is
        self._native: list[Event] = []
        # Entries behind which something was said here, and the last of that.
        self._followed: dict[str, str] = {}

    def write(self, event: Event) -> Iterator[TranscriptLine]:
        """The lines that are complete with an event."""
        told = line_info(event)
        if told is None:
            self._native.append(event)
        elif not told.keys() & {"path", "more", "glued"}:
            kept = restore_line(event.body, told)
            uuid = line_uuid(kept) if event.seq <= self._inherited else None
            if uuid is not None:
                self._ids[uuid] = event.id
            yield from self._let_go()
            before = self._composer.last
            yield from self._composed()
            if before and self._composer.last and before != self._composer.last:
                self._followed[before] = self._composer.last
            if uuid is not None and "compactMetadata" in kept.entries[0]:
                self._held = kept
            else:
                yield self._passed(kept)

    def finish(self) -> Iterator[TranscriptLine]:
        """The lines that nothing more can be told of, when all events are taken."""
        yield from self._let_go()
        yield from self._composed()
        told = self._moved or self._told
        if self._forked and told and resolve_directory(told) != self._directory:
            entry = {"type": RELOCATED, "sessionId": self._name, "relocatedCwd": self._directory}
            yield TranscriptLine((entry,))

    def _let_go(self) -> Iterator[TranscriptLine]:
        held, self._held = self._held, None
        if held is not None:
            yield self._passed(held)

    def _composed(self) -> Iterator[TranscriptLine]:
        """The lines of what did not come from a transcript."""
        native, self._native = self._native, []
        return (TranscriptLine((entry,)) for entry in self._composer.entries(native))

    def _passed(self, line: TranscriptLine) -> TranscriptLine:
        """A line as it stands here."""
        if line_uuid(line) in self._ids:
            line = self._fresh(line)
        if self._joined and self._followed:
            line = _behind(line, self._followed)
        if self._forked:
            line = _renamed(line, self._name)
        for entry in line.entries:
            self._composer.passed(entry)
            self._told = self._told or nonempty_text(entry.get("cwd")) or ""
            self._moved = relocated_cwd(entry) or self._moved
        return line

    def _fresh(self, line: TranscriptLine) -> TranscriptLine:
        """A line that a fork took over, with the ids that are the fork's own."""
        (entry,) = line.entries
        parent = nonempty_text(entry.get("parentUuid"))
        if parent is not None and parent not in self._ids:  # known to a fork in between alone
            entry = {**entry, "parentUuid": self._composer.last}
        return TranscriptLine(
            ({key: _exchanged(value, self._ids) for key, value in entry.items()},)
        )


def transcript_lines(
    session: Session, events: Iterable[Event], *, read: bool = False
) -> Iterator[TranscriptLine]:
    """The lines of a session's own transcript, to go on with or only to be `read`."""
    writer = TranscriptWriter(session, read=read)
    for event in events:
        yield from writer.write(event)
    yield from writer.finish()


def _renamed(line: TranscriptLine, session: str) -> TranscriptLine:
    """A line that a fork took over, with the fork's id."""
    entries = [
        {**entry, "sessionId": session} if "sessionId" in entry else entry for entry in line.entries
    ]
    return TranscriptLine(tuple(entries)) if len(entries) == 1 else line


def _exchanged(value: Any, ids: Mapping[str, str]) -> Any:
    """A value with the ids in it that stand for others."""
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, dict):
        return {key: _exchanged(each, ids) for key, each in value.items()}
    return [_exchanged(each, ids) for each in value] if isinstance(value, list) else value


def _behind(line: TranscriptLine, followed: Mapping[str, str]) -> TranscriptLine:
    """A line that goes on behind an entry, behind what followed that."""
    parent = nonempty_text(line.entries[0].get("parentUuid")) if len(line.entries) == 1 else None
    if parent is None or parent not in followed:
        return line
    while parent in followed:
        parent = followed[parent]
    return TranscriptLine(({**line.entries[0], "parentUuid": parent},))
