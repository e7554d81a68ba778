"""The small files that Claude Code keeps in a directory beside a transcript.

`custom-title.json` is a copy of the title for when the transcript's own is out of reach.
`archived.json` is the mark of an archived session; a prompt that a person sends later takes the
session out again, so the mark's time is compared with the conversation.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, NamedTuple

import msgspec

from segue.model import clock

from . import jsonl, safe_io
from .prompt import parse_prompt

TITLE_FILE = "custom-title.json"
ARCHIVE_FILE = "archived.json"
TRASH_MANIFEST = "manifest.json"  # of what was moved to a room of the trash, and from where
_MAX_MANIFEST_BYTES = 1 << 30


def sidecar_directory(transcript: str) -> str:
    """The directory of what belongs to a session, named like its transcript."""
    if transcript.endswith(".jsonl"):
        return transcript.removesuffix(".jsonl")
    return _path_in_trash(transcript, None) or transcript


def adjacent_file(transcript: str, name: str) -> str:
    """A file beside a transcript."""
    there = os.path.join(os.path.dirname(transcript), name)
    return there if transcript.endswith(".jsonl") else _path_in_trash(transcript, name) or there


def _path_in_trash(transcript: str, name: str | None) -> str | None:
    """Where something of that name, or of its own, is that went to the trash with a transcript."""
    room = os.path.dirname(transcript)
    told = _read_object(os.path.join(room, TRASH_MANIFEST), _MAX_MANIFEST_BYTES)
    was, moved = told.get("transcript"), told.get("moved")
    if not isinstance(was, str) or not isinstance(moved, list):
        return None
    beside = os.path.join(os.path.dirname(was), name) if name else was.removesuffix(".jsonl")
    return os.path.join(room, str(moved.index(beside))) if beside in moved else None


def read_title(transcript: str) -> str | None:
    """The title that the copy holds."""
    held = _read_object(os.path.join(sidecar_directory(transcript), TITLE_FILE)).get("customTitle")
    return held if isinstance(held, str) and held else None


class ArchiveMark(NamedTuple):
    """Whether somebody archived the session, or took it out again, and when."""

    archived: bool
    at: int


def read_archive_mark(transcript: str) -> ArchiveMark | None:
    """The last mark; None when it never was archived."""
    found = _read_object(os.path.join(sidecar_directory(transcript), ARCHIVE_FILE))
    held, at = found.get("archived"), jsonl.parse_timestamp(found.get("at"))
    return ArchiveMark(held, at) if isinstance(held, bool) and at is not None else None


def is_archived(transcript: str) -> bool | None:
    """Whether the session is archived; None when it never was."""
    found = read_archive_mark(transcript)
    return found and found.archived and not _prompted_since(transcript, found.at)


def write_archive_mark(transcript: str, archived: bool, now: int) -> None:
    """Write the mark, whole or not at all."""
    beside = sidecar_directory(transcript)
    os.makedirs(beside, 0o700, exist_ok=True)
    at = clock.to_rfc3339(now)[:-4] + "Z"  # milliseconds, as the command line tool writes them
    body = json.dumps({"archived": archived, "at": at, "by": "sdk"}, separators=(",", ":"))
    descriptor, temporary = tempfile.mkstemp(prefix=".archived-", dir=beside)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(body)
        os.replace(temporary, os.path.join(beside, ARCHIVE_FILE))
    except BaseException:
        os.unlink(temporary)
        raise


class _Line(msgspec.Struct):
    type: Any = None
    timestamp: Any = None
    isMeta: Any = None
    isCompactSummary: Any = None
    isSidechain: Any = None
    origin: Any = None
    attachment: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()


_pick = jsonl.FieldDecoder(_Line)


def _prompted_since(transcript: str, at: int) -> bool:
    """Whether a person prompted after the mark; the newest lines are asked first."""
    try:
        with safe_io.open_for_reading(transcript) as (descriptor, status):
            for block in safe_io.read_blocks_backwards(descriptor, 0, status.st_size):
                for line in reversed(block.split(b"\n")):
                    if b'"user"' not in line and b'"queued_command"' not in line:
                        continue
                    for entry in _pick(line):
                        when = jsonl.parse_timestamp(entry.timestamp)
                        if when is not None and _is_prompt(entry):
                            return when > at
    except safe_io.UnreadableFile:
        pass
    return False


def is_human_prompt(entry: jsonl.Entry) -> bool:
    """Whether an entry is a prompt that a person sent."""
    return _is_prompt(_pick.pick(entry))


def _is_prompt(line: _Line) -> bool:
    if line.isMeta or line.isSidechain or line.isCompactSummary:
        return False
    if isinstance(line.origin, dict) and line.origin.get("kind", "human") != "human":
        return False
    if line.type == "user":
        said = parse_prompt(jsonl.decode_raw(line.message))
        return bool(said.text or said.pasted)
    attached = jsonl.decode_raw(line.attachment) if line.type == "attachment" else None
    return isinstance(attached, dict) and attached.get("type") == "queued_command"


def _read_object(path: str, limit: int = safe_io.BLOCK_BYTES) -> dict[str, Any]:
    found = jsonl.parse_entries(safe_io.read_small_file(path, limit) or b"")
    return found[0] if found else {}
