"""Read and write the small files in the directory named like a transcript.

`custom-title.json` is a copy of the title, for when the title in the transcript is out of reach.
`archived.json` marks an archived session. A prompt that a person sends later unarchives the
session, so the time of the mark is compared with the conversation.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, NamedTuple

import msgspec

from segue.model import codec
from segue.sources import safe_io

from . import jsonl
from .prompt import parse_prompt

TITLE_FILE = "custom-title.json"
ARCHIVE_FILE = "archived.json"
TRASH_MANIFEST = "manifest.json"  # lists what was moved to a directory of the trash, and from where
MAX_MANIFEST_BYTES = 1 << 30


def sidecar_directory(transcript: str) -> str:
    """Return the directory of a session's other files, which is named like its transcript."""
    if transcript.endswith(".jsonl"):
        return transcript.removesuffix(".jsonl")
    return _path_in_trash(transcript, None) or transcript


def adjacent_file(transcript: str, name: str) -> str:
    """Return the path of a file in the directory of a transcript."""
    path = os.path.join(os.path.dirname(transcript), name)
    return path if transcript.endswith(".jsonl") else _path_in_trash(transcript, name) or path


def _path_in_trash(transcript: str, name: str | None) -> str | None:
    """Return where a file that was adjacent to a trashed transcript is now.

    Without a name, return where its sidecar directory is. None if it was not moved to the trash.
    """
    directory = os.path.dirname(transcript)
    manifest = jsonl.read_object(os.path.join(directory, TRASH_MANIFEST), MAX_MANIFEST_BYTES)
    original, moved = manifest.get("transcript"), manifest.get("moved")
    if not isinstance(original, str) or not isinstance(moved, list):
        return None
    original_path = (
        os.path.join(os.path.dirname(original), name) if name else original.removesuffix(".jsonl")
    )
    return (
        os.path.join(directory, str(moved.index(original_path))) if original_path in moved else None
    )


def read_title(transcript: str) -> str | None:
    """Return the title in the copy, or None."""
    path = os.path.join(sidecar_directory(transcript), TITLE_FILE)
    return jsonl.parse_text(jsonl.read_object(path).get("customTitle"))


class ArchiveMark(NamedTuple):
    """Whether and when a session was last archived or unarchived."""

    archived: bool
    at: int


def read_archive_mark(transcript: str) -> ArchiveMark | None:
    """Return the last mark, or None if the session was never archived."""
    mark = jsonl.read_object(os.path.join(sidecar_directory(transcript), ARCHIVE_FILE))
    archived, at = mark.get("archived"), jsonl.parse_timestamp(mark.get("at"))
    return ArchiveMark(archived, at) if isinstance(archived, bool) and at is not None else None


def is_archived(transcript: str) -> bool | None:
    """Return whether the session is archived; None if it never was."""
    mark = read_archive_mark(transcript)
    return mark and mark.archived and not _prompted_since(transcript, mark.at)


def write_archive_mark(transcript: str, now: int, *, archived: bool) -> None:
    """Write the mark atomically."""
    directory = sidecar_directory(transcript)
    os.makedirs(directory, 0o700, exist_ok=True)
    mark = {"archived": archived, "at": jsonl.format_timestamp(now), "by": "sdk"}
    descriptor, temporary = tempfile.mkstemp(prefix=".archived-", dir=directory)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(codec.encode(mark))
        os.replace(temporary, os.path.join(directory, ARCHIVE_FILE))
    except BaseException:
        os.unlink(temporary)
        raise


class _PromptFields(msgspec.Struct):
    """The fields that decide whether an entry is a person's prompt."""

    type: Any = None
    timestamp: Any = None
    isMeta: Any = None
    isCompactSummary: Any = None
    isSidechain: Any = None
    origin: Any = None
    attachment: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()


_decoder = jsonl.FieldDecoder(_PromptFields)


def _prompted_since(transcript: str, at: int) -> bool:
    """Return whether a person prompted after a time. Reads backwards up to the last prompt."""
    try:
        with safe_io.open_for_reading(transcript) as (descriptor, status):
            for block in safe_io.read_blocks_backwards(descriptor, 0, status.st_size):
                for line in reversed(block.split(b"\n")):
                    if b'"user"' not in line and b'"queued_command"' not in line:
                        continue
                    for fields in _decoder.decode_line(line):
                        prompted_at = jsonl.parse_timestamp(fields.timestamp)
                        if prompted_at is not None and _is_human_prompt(fields):
                            return prompted_at > at
    except safe_io.UnreadableFile:
        pass
    return False


def is_human_prompt(entry: jsonl.Entry) -> bool:
    """Return whether an entry is a prompt that a person sent."""
    return _is_human_prompt(_decoder.from_entry(entry))


def _is_human_prompt(fields: _PromptFields) -> bool:
    if fields.isMeta or fields.isSidechain or fields.isCompactSummary:
        return False
    if isinstance(fields.origin, dict) and fields.origin.get("kind", "human") != "human":
        return False
    if fields.type == "user":
        prompt = parse_prompt(jsonl.decode_raw(fields.message))
        return bool(prompt.text or prompt.pasted)
    attachment = jsonl.decode_raw(fields.attachment) if fields.type == "attachment" else None
    return isinstance(attachment, dict) and attachment.get("type") == "queued_command"
