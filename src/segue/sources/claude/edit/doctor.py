"""What is wrong with a transcript, and a copy of it in which that is put right.

Crashes, power losses and careless writers leave lines that other readers stop at, or that make
the model's interface refuse the whole conversation. Nothing is ever changed in place: the healed
transcript is written anew beside the old one, takes its name in one step, and the old one stays
under another.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from segue.model import codec
from segue.sources.claude.format import jsonl, processes, safe_io
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile

Kind = Literal["torn", "nul", "control", "glued", "surrogate", "utf8", "json", "unterminated"]
MEANING: dict[Kind, str] = {
    "torn": "the line ends in the middle of an entry",
    "nul": "NUL bytes, as a power loss leaves them",
    "control": "control characters that JSON forbids",
    "glued": "more than one entry on the line",
    "surrogate": "half of a character, which the model's interface refuses",
    "utf8": "bytes that are not UTF-8",
    "json": "no entry at all",
    "unterminated": "the last line has no end, so the next one would be glued to it",
}
# A backslash that is itself escaped, a whole pair of surrogates, or half of one.
_ESCAPES = re.compile(rb"\\\\|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(\\u[dD][89a-fA-F]\w\w)", re.A)
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


@dataclass
class Finding:
    """One thing that is wrong with one line."""

    kind: Kind
    line: int  # counted from 1
    offset: int
    size: int

    def __str__(self) -> str:
        return f"line {self.line}: {MEANING[self.kind]}"


@dataclass
class Diagnosis:
    """What the doctor found, and did."""

    session_id: str
    path: str
    findings: list[Finding] = field(default_factory=list)
    entries: int = 0
    # Where the old transcript is kept, when it was repaired.
    backup: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def diagnose_transcript(place: TranscriptFile) -> Diagnosis:
    """Look at every line. Raises Unreadable."""
    found = Diagnosis(place.id, place.path)
    with safe_io.open_for_reading(place.path) as (descriptor, status):
        for number, offset, size, _, kinds, entries in _examined(descriptor, status.st_size):
            found.findings += [Finding(kind, number, offset, size) for kind in kinds]
            found.entries += entries
    return found


def repair_transcript(home: ClaudeHome, place: TranscriptFile) -> Diagnosis:
    """Put right what can be, beside the original. Raises SessionIsLive, Unreadable, OSError.

    A torn line is left out, and stays in the backup. What has no entry at all is left as it is.
    """
    processes.require_not_live(home, place.id)
    found = diagnose_transcript(place)
    if found.healthy or not found.entries:
        return found  # there is nothing to put right, or nothing would be left
    healed = os.path.join(os.path.dirname(place.path), f".{place.id}.healed")
    with safe_io.open_file(place.path) as (descriptor, status):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | safe_io.SAFE_OPEN_FLAGS
        with os.fdopen(os.open(healed, flags, status.st_mode & 0o777), "wb") as out:
            for _, _, _, line, _, _ in _examined(descriptor, status.st_size):
                out.write(line)
            out.flush()
            os.fsync(out.fileno())
    # Its place in lists, and in the cleanup, stays as it was.
    os.utime(healed, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = os.lstat(place.path)
    if (now.st_ino, now.st_size) != (status.st_ino, status.st_size):
        os.unlink(healed)
        raise processes.SessionIsLive(f"Session {place.id} was written to meanwhile; try again")
    found.backup = _kept(place.path)
    os.replace(healed, place.path)
    return found


def _kept(path: str) -> str:
    """Give the old transcript a second name, or another one where it can have only one."""
    stem = f"{path}.{time.strftime('%Y%m%d-%H%M%S')}"
    names = (f"{stem}{again}.bak" for again in ("", *(f"-{count}" for count in range(2, 100))))
    backup = next(name for name in names if not os.path.lexists(name))
    try:
        os.link(path, backup, follow_symlinks=False)
    except OSError:
        os.rename(path, backup)
    return backup


def _examined(descriptor: int, end: int) -> Iterator[tuple[int, int, int, bytes, list[Kind], int]]:
    """Each line: its number, place and size, what it should be, what is wrong, its entries."""
    for number, (offset, size, line) in enumerate(safe_io.read_lines(descriptor, longest=None), 1):
        healed, kinds, entries = _healed(line)
        if offset + size >= end and line and "torn" not in kinds and "json" not in kinds:
            kinds.append("unterminated")
        yield number, offset, size, healed, kinds, entries


def _healed(line: bytes) -> tuple[bytes, list[Kind], int]:
    """A line as it should be, what is wrong with it, and how many entries it holds."""
    kinds: list[Kind] = ["nul"] if b"\0" in line else []
    bare = line.strip(jsonl.BLANK_BYTES)
    if not bare:
        return b"", kinds, 0
    text = bare.decode("utf-8", "replace").encode()
    if text != bare:
        kinds.append("utf8")
    bare, text = text, _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], text)
    if text != bare:
        kinds.append("surrogate")
    found, whole = jsonl.salvage_line(text)
    if len(found) > (1 if whole else 0):
        kinds.append("glued")
    if not whole or not found:
        kinds.append("torn" if bare.startswith(b"{") else "json")
    elif _CONTROLS.search(text):
        kinds.append("control")
    if not kinds:
        return line + b"\n", kinds, 1
    if whole and len(found) == 1 and not _CONTROLS.search(text):
        return text + b"\n", kinds, 1
    return b"".join(codec.encode(entry) + b"\n" for entry in found), kinds, len(found)
