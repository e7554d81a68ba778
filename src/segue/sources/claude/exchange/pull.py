"""Read what Claude Code appended to a session's transcripts since a position.

A pull reads the appended bytes and at most about CONTEXT_BYTES before them, not the history. The
context serves two purposes. The translation of lines to events remembers as much (the time of
lines without one, responses whose cost was counted, the boundary of a compaction), and appended
lines are compared with it to find the active branch. If the context does not decide that (see
`active_lines`), the whole file is scanned once for its tree.

A pull does not see the stored events. Its caller checks three things with them:

- Event ids are derived from the entries. Ask the store which of the drafts' ids exist, and pass
  the drafts through `event_codec.drop_used_ids`: a response's cost may have been counted before
  the context, and a line may repeat an entry.
- If such an existing event was imported (`event_codec.line_info`), a line repeats an older entry,
  which may change the active branch: compare whole transcripts, as after NeedsFullImport.
- If it was not imported, segue ran the turn itself and has the event: remove its line with
  `drop_native_lines` before making drafts.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from segue.model import codec
from segue.model.event import Draft
from segue.sources import safe_io
from segue.sources.base import NeedsFullImport
from segue.sources.claude.events.transcript_reader import active_offsets, is_complete_line
from segue.sources.claude.events.translator import CONTEXT_BYTES
from segue.sources.claude.format import subagents
from segue.sources.claude.format.jsonl import Entry

from .active_lines import active_entries
from .bundle import (
    SessionBundle,
    TranscriptLines,
    metadata_line,
    started_subagents,
    subagent_files,
)
from .event_codec import drafts_from_lines
from .import_diff import is_native_line
from .transcript_line import TranscriptLine, parse_line

TAIL_BYTES = 1024  # before the position; their hash recognises the file
MAX_APPENDED_BYTES = 64 << 20  # of one transcript, since they are held in memory


class TranscriptPosition(msgspec.Struct, frozen=True):
    """How far a transcript has been imported: the end of its last imported line.

    `mtime_ns` is the file's time if it ended there; an unchanged file need not be opened.
    """

    inode: int
    offset: int
    tail_hash: str
    mtime_ns: int = 0
    metadata_hash: str = ""  # of a subagent's .meta.json file


class SessionPosition(msgspec.Struct, frozen=True):
    """How far a session's transcripts have been imported, those of subagents by path."""

    main: TranscriptPosition
    subagents: dict[str, TranscriptPosition] = {}


class AppendedLines(NamedTuple):
    """The lines after a position, and the lines just before it."""

    lines: list[TranscriptLine]
    context: list[TranscriptLine]


class PulledLines(NamedTuple):
    """The lines appended to a session's transcripts, by path, and the new position.

    The path of the session's own transcript is empty. Transcripts without new lines are left out.
    """

    transcripts: Mapping[str, AppendedLines]
    position: SessionPosition

    def own_lines(self) -> list[TranscriptLine]:
        """Return the lines appended to the session's own transcript."""
        return self.transcripts[""].lines if "" in self.transcripts else []


def position_of(bundle: SessionBundle) -> SessionPosition:
    """Return the position after a full import of a bundle that was read from files.

    Raises UnreadableFile if a file was replaced or truncated meanwhile.
    """
    assert isinstance(bundle.lines, TranscriptLines)
    return SessionPosition(
        _position_of(bundle.lines),
        {
            path: _position_of(lines)
            for path, lines in bundle.subagents.items()
            if isinstance(lines, TranscriptLines)
        },
    )


def _position_of(lines: TranscriptLines) -> TranscriptPosition:
    with safe_io.open_for_reading(lines.path) as (descriptor, status):
        if status.st_ino != lines.inode or status.st_size < lines.size:
            raise safe_io.UnreadableFile(lines.path)
        return TranscriptPosition(
            inode=lines.inode,
            offset=lines.size,
            tail_hash=_tail_hash(descriptor, lines.size),
            mtime_ns=lines.mtime_ns,
            metadata_hash=_metadata_hash(lines.metadata),
        )


def pull_appended(path: str, position: SessionPosition) -> PulledLines:
    """Read the lines that were appended to a session's transcripts since a position.

    Raises NeedsFullImport if a transcript was replaced, truncated or rewritten, and
    UnreadableFile if the session's own transcript cannot be read.
    """
    transcripts: dict[str, AppendedLines] = {}
    appended, own_position = _pull_own(path, position.main)
    if appended.lines:
        transcripts[""] = appended
    subagent_positions = dict(position.subagents)
    known = map(subagents.agent_id_from_path, subagent_positions)
    for subpath, file in subagent_files(path, [*known, *started_subagents(appended.lines)]).items():
        try:
            appended, new = _pull_subagent(file, subagent_positions.get(subpath))
        except safe_io.UnreadableFile:
            continue
        subagent_positions[subpath] = new
        if appended.lines:
            transcripts[subpath] = appended
    return PulledLines(transcripts, SessionPosition(own_position, subagent_positions))


def drop_native_lines(pulled: PulledLines, native_ids: Container[str]) -> PulledLines:
    """Leave out the lines of the session's own transcript that segue has as its own events.

    `native_ids` are the ids of stored events that were not imported.
    """
    if "" not in pulled.transcripts:
        return pulled
    appended = pulled.transcripts[""]
    lines = [line for line in appended.lines if not is_native_line(line, native_ids)]
    transcripts = {**pulled.transcripts, "": appended._replace(lines=lines)}
    return pulled._replace(transcripts=transcripts)


def pulled_drafts(native_id: str, pulled: PulledLines, default_time: int) -> Iterator[Draft]:
    """Return the events of pulled lines, with the ids that a full import would give them.

    `default_time` is the time of lines before any line with a time.
    """
    for path, (lines, context) in pulled.transcripts.items():
        yield from drafts_from_lines(native_id, path, lines, default_time, context=context)


def _pull_own(path: str, position: TranscriptPosition) -> tuple[AppendedLines, TranscriptPosition]:
    if _is_unchanged(path, position):
        return AppendedLines([], []), position
    with safe_io.open_for_reading(path) as (descriptor, status):
        _check_continues(descriptor, status, position, path)
        offsets, appended, end = _read_appended(descriptor, position.offset)
        lines = _mark_inactive(descriptor, offsets, appended)
        new_position = _position_at(descriptor, end, "")
    return appended._replace(lines=lines), new_position


def _pull_subagent(
    path: str, position: TranscriptPosition | None
) -> tuple[AppendedLines, TranscriptPosition]:
    if position is not None and _is_unchanged(path, position):
        return AppendedLines([], []), position
    with safe_io.open_for_reading(path) as (descriptor, status):
        if position is not None:
            _check_continues(descriptor, status, position, path)
        start = 0 if position is None else position.offset
        _, appended, end = _read_appended(descriptor, start)
        metadata = subagents.read_metadata(path)
        metadata_hash = _metadata_hash(metadata)
        if metadata and (position is None or metadata_hash != position.metadata_hash):
            appended.lines.append(metadata_line(metadata))
        return appended, _position_at(descriptor, end, metadata_hash)


def _is_unchanged(path: str, position: TranscriptPosition) -> bool:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return False
    current = status.st_ino, status.st_size, status.st_mtime_ns
    return current == (position.inode, position.offset, position.mtime_ns)


def _check_continues(
    descriptor: int, status: os.stat_result, position: TranscriptPosition, path: str
) -> None:
    """Raise NeedsFullImport unless the file only grew since a position."""
    offset = position.offset
    if status.st_ino != position.inode:
        raise NeedsFullImport(f"{path}: another file has its name")
    if status.st_size < offset:
        raise NeedsFullImport(f"{path}: the file is shorter than before")
    if status.st_size - offset > MAX_APPENDED_BYTES:
        raise NeedsFullImport(f"{path}: more than {MAX_APPENDED_BYTES} bytes were appended")
    tail = _read_tail(descriptor, offset)
    if _hash(tail) != position.tail_hash:
        raise NeedsFullImport(f"{path}: its imported part was rewritten")
    # An imported last line without a newline may have been half a line.
    if tail and not tail.endswith(b"\n") and os.pread(descriptor, 1, offset) not in (b"", b"\n"):
        raise NeedsFullImport(f"{path}: its last imported line was continued")


def _read_appended(descriptor: int, start: int) -> tuple[list[int], AppendedLines, int]:
    """Read the complete lines from `start` on: their offsets, the lines, and where they end.

    Raises NeedsFullImport if the file was truncated meanwhile.
    """
    offsets: list[int] = []
    lines: list[TranscriptLine] = []
    end, file_size = start, os.fstat(descriptor).st_size
    for offset, size, data in safe_io.read_lines(descriptor, start, max_bytes=None):
        is_last = offset + size >= file_size
        if is_last and not is_complete_line(descriptor, offset, size, data):
            break
        end = offset + size + 1
        if data.strip():
            offsets.append(offset)
            lines.append(parse_line(data))
    file_size = os.fstat(descriptor).st_size
    if file_size < max(start, end - 1):  # the last line may lack its newline
        raise NeedsFullImport("the file became shorter while it was read")
    end = min(end, file_size)
    context = _read_context(descriptor, start) if lines else []
    return offsets, AppendedLines(lines, context), end


def _read_context(descriptor: int, end: int) -> list[TranscriptLine]:
    """Read the last lines before a position: CONTEXT_BYTES of them, or one longer line."""
    size = min(CONTEXT_BYTES, end)
    block = safe_io.read_at(descriptor, end - size, size)
    while size < end and b"\n" not in block[:-1]:
        size = min(4 * size, end)
        block = safe_io.read_at(descriptor, end - size, size)
    if size < end:
        block = block[block.index(b"\n") + 1 :]
    return [parse_line(data) for data in block.split(b"\n") if data.strip()]


def _mark_inactive(
    descriptor: int, offsets: list[int], appended: AppendedLines
) -> list[TranscriptLine]:
    """Return the appended lines, with those marked that are not on the active branch."""
    if not any("uuid" in entry for line in appended.lines for entry in line.entries):
        return appended.lines
    active = _active_lines(appended)
    if active is None:
        on_branch = set(active_offsets(descriptor))
        active = {index for index, offset in enumerate(offsets) if offset in on_branch}
    return [
        line._replace(
            inactive=index not in active and any("uuid" in entry for entry in line.entries)
        )
        for index, line in enumerate(appended.lines)
    ]


def _active_lines(appended: AppendedLines) -> set[int] | None:
    """Return the indexes of the active lines; None if the context does not decide it."""
    context = [entry for line in appended.context for entry in line.entries]
    entries: list[Entry] = []
    line_indexes: list[int] = []
    for index, line in enumerate(appended.lines):
        entries += line.entries
        line_indexes += [index] * len(line.entries)
    active = active_entries(context, entries)
    return None if active is None else {line_indexes[number] for number in active}


def _position_at(descriptor: int, offset: int, metadata_hash: str) -> TranscriptPosition:
    status = os.fstat(descriptor)
    return TranscriptPosition(
        inode=status.st_ino,
        offset=offset,
        tail_hash=_tail_hash(descriptor, offset),
        mtime_ns=status.st_mtime_ns,
        metadata_hash=metadata_hash,
    )


def _tail_hash(descriptor: int, offset: int) -> str:
    return _hash(_read_tail(descriptor, offset))


def _read_tail(descriptor: int, offset: int) -> bytes:
    size = min(TAIL_BYTES, offset)
    return safe_io.read_at(descriptor, offset - size, size)


def _metadata_hash(metadata: Entry | None) -> str:
    return _hash(codec.encode(metadata)) if metadata else ""


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
