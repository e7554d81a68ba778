"""Diagnose damaged transcripts and repair them in a copy.

Crashes, power losses and careless programs leave lines at which other readers stop, or for which
the model API refuses the whole conversation. A repair changes nothing in place: it writes a new
transcript, which replaces the old one in one step. The old transcript gets another name.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from segue.model import codec
from segue.sources import safe_io
from segue.sources.claude.format import jsonl, processes
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile

Kind = Literal["torn", "nul", "control", "glued", "surrogate", "utf8", "json", "unterminated"]
MEANING: dict[Kind, str] = {
    "torn": "the line ends in the middle of an entry",
    "nul": "NUL bytes, as a power loss leaves them",
    "control": "control characters that JSON forbids",
    "glued": "more than one entry on the line",
    "surrogate": "half of a character, which the model API refuses",
    "utf8": "bytes that are not UTF-8",
    "json": "the line does not contain an entry",
    "unterminated": "the last line has no newline, so the next one would be joined to it",
}
# An escaped backslash, a pair of surrogates, or (captured) a lone surrogate.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)", re.A
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_MAX_BACKUPS_PER_SECOND = 100


@dataclass
class Finding:
    """One problem with one line."""

    kind: Kind
    line: int  # counted from 1
    offset: int
    size: int

    def __str__(self) -> str:
        return f"line {self.line}: {MEANING[self.kind]}"


@dataclass
class Diagnosis:
    """The problems of a transcript, and what was done about them."""

    session_id: str
    path: str
    findings: list[Finding] = field(default_factory=list)
    entries: int = 0
    # Where the old transcript is, if it was repaired.
    backup: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether there are no problems."""
        return not self.findings


class _RepairedLine(NamedTuple):
    data: bytes  # what the line should be
    problems: list[Kind]
    entries: int


def diagnose_transcript(transcript: TranscriptFile) -> Diagnosis:
    """Return the problems of a transcript's lines. Raises UnreadableFile if it cannot be read."""
    diagnosis = Diagnosis(transcript.id, transcript.path)
    with safe_io.open_for_reading(transcript.path) as (descriptor, status):
        for number, offset, size, line in _check_lines(descriptor, status.st_size):
            diagnosis.findings += [Finding(kind, number, offset, size) for kind in line.problems]
            diagnosis.entries += line.entries
    return diagnosis


def repair_transcript(home: ClaudeHome, transcript: TranscriptFile) -> Diagnosis:
    """Replace a transcript by a repaired copy. Raise SessionIsLive, UnreadableFile or OSError.

    A torn line is left out; the backup has it. A line without any entry stays as it is.
    """
    processes.require_not_live(home, transcript.id)
    diagnosis = diagnose_transcript(transcript)
    if diagnosis.healthy or not diagnosis.entries:
        return diagnosis  # there is nothing to repair, or nothing would remain
    repaired = os.path.join(os.path.dirname(transcript.path), f".{transcript.id}.healed")
    with safe_io.open_file(transcript.path) as (descriptor, status):
        lines = (line.data for *_, line in _check_lines(descriptor, status.st_size))
        safe_io.write_file(repaired, lines, status.st_mode & 0o777, replace=True)
    # Lists and the cleanup go by this time.
    os.utime(repaired, ns=(status.st_atime_ns, status.st_mtime_ns))
    current = os.lstat(transcript.path)
    if (current.st_ino, current.st_size) != (status.st_ino, status.st_size):
        os.unlink(repaired)
        raise processes.SessionIsLive(
            f"Session {transcript.id} was written during the repair; try again"
        )
    diagnosis.backup = _create_backup(transcript.path)
    os.replace(repaired, transcript.path)
    return diagnosis


def _create_backup(path: str) -> str:
    """Link the old transcript to a second name, or rename it where links are not supported."""
    stem = f"{path}.{time.strftime('%Y%m%d-%H%M%S')}"
    suffixes = ("", *(f"-{count}" for count in range(2, _MAX_BACKUPS_PER_SECOND)))
    names = (f"{stem}{suffix}.bak" for suffix in suffixes)
    backup = next(name for name in names if not os.path.lexists(name))
    try:
        os.link(path, backup, follow_symlinks=False)
    except OSError:
        os.rename(path, backup)
    return backup


def _check_lines(descriptor: int, end: int) -> Iterator[tuple[int, int, int, _RepairedLine]]:
    """Yield the number, offset and size of each line, and the line repaired."""
    lines = safe_io.read_lines(descriptor, max_bytes=None)
    for number, (offset, size, data) in enumerate(lines, 1):
        line = _repair_line(data)
        is_last = offset + size >= end
        if is_last and data and "torn" not in line.problems and "json" not in line.problems:
            line.problems.append("unterminated")
        yield number, offset, size, line


def _repair_line(line: bytes) -> _RepairedLine:
    problems: list[Kind] = ["nul"] if b"\0" in line else []
    stripped = line.strip(jsonl.BLANK_BYTES)
    if not stripped:
        return _RepairedLine(b"", problems, 0)
    decoded = stripped.decode("utf-8", "replace").encode()
    if decoded != stripped:
        problems.append("utf8")
    text = _SURROGATES.sub(lambda match: rb"\ufffd" if match[1] else match[0], decoded)
    if text != decoded:
        problems.append("surrogate")
    entries, is_complete = jsonl.salvage_line(text)
    if len(entries) > (1 if is_complete else 0):
        problems.append("glued")
    if not is_complete or not entries:
        problems.append("torn" if decoded.startswith(b"{") else "json")
    elif _CONTROLS.search(text):
        problems.append("control")
    if not problems:
        return _RepairedLine(line + b"\n", problems, 1)
    if is_complete and len(entries) == 1 and not _CONTROLS.search(text):
        return _RepairedLine(text + b"\n", problems, 1)
    data = b"".join(codec.encode(entry) + b"\n" for entry in entries)
    return _RepairedLine(data, problems, len(entries))
