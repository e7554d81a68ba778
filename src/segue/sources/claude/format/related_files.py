"""Find and edit everything that Claude Code keeps about a session, all over its home.

Deleting the transcript leaves most of it: copies of edited files, to-do lists, debug logs, prompts
in the input history, and rows of an index that some versions had.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from typing import Any

from segue.model import codec
from segue.sources import safe_io

from . import jsonl, sidecar
from .paths import ClaudeHome, TranscriptFile

_MAX_INDEX_BYTES = 64 << 20
_MAX_HISTORY_BYTES = 1 << 30
_FIRST_LINE_BYTES = 1 << 16


def find_related_paths(home: ClaudeHome, transcript: TranscriptFile) -> list[str]:
    """Return the files and directories that belong to one session, its transcript first."""
    id = glob.escape(transcript.id)
    paths = [
        transcript.path,
        sidecar.sidecar_directory(transcript.path),
        *_legacy_agent_transcripts(transcript),
    ]
    for pattern in (
        f"file-history/{id}",
        f"session-env/{id}",
        f"tasks/{id}",
        f"todos/{id}-agent-*.json",
        f"debug/{id}.txt",
    ):
        paths += sorted(glob.glob(os.path.join(glob.escape(home.root), pattern)))
    return [path for path in paths if os.path.lexists(path)]


def _legacy_agent_transcripts(transcript: TranscriptFile) -> Iterator[str]:
    """Yield the subagent transcripts that older versions wrote next to the session's own."""
    pattern = os.path.join(glob.escape(os.path.dirname(transcript.path)), "agent-*.jsonl")
    for path in sorted(glob.glob(pattern)):
        if _session_id_in_first_line(path) == transcript.id:
            yield path


def _session_id_in_first_line(path: str) -> Any:
    try:
        with safe_io.open_for_reading(path) as (descriptor, _):
            head = safe_io.read_at(descriptor, 0, _FIRST_LINE_BYTES)
    except safe_io.UnreadableFile:
        return None
    line, newline, _ = head.partition(b"\n")
    entries = jsonl.parse_entries(line) if newline else []
    return entries[0].get("sessionId") if entries else jsonl.head_field(line, "sessionId")


def read_prompt_history(home: ClaudeHome, id: str) -> list[bytes]:
    """Return a session's lines in the input history."""
    data = safe_io.read_small_file(_history_path(home), _MAX_HISTORY_BYTES) or b""
    return [line for line in data.split(b"\n") if _is_history_of(line, id)]


def remove_prompt_history(home: ClaudeHome, id: str) -> None:
    """Remove a session's lines from the input history."""
    _rewrite_lines(
        _history_path(home), lambda lines: [line for line in lines if not _is_history_of(line, id)]
    )


def restore_prompt_history(home: ClaudeHome, lines: list[bytes]) -> None:
    """Insert lines into the input history, sorted by time."""
    _rewrite_lines(
        _history_path(home), lambda existing: sorted([*existing, *lines], key=_history_time)
    )


def _history_path(home: ClaudeHome) -> str:
    return os.path.join(home.root, "history.jsonl")


def _is_history_of(line: bytes, id: str) -> bool:
    # The substring test spares parsing almost every line.
    return id.encode() in line and any(
        entry.get("sessionId") == id for entry in jsonl.parse_entries(line)
    )


def _history_time(line: bytes) -> float:
    entries = jsonl.parse_entries(line)
    time = entries[0].get("timestamp") if entries else None
    return time if isinstance(time, int | float) else 0


def _rewrite_lines(path: str, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of a file to which Claude Code may append at the same time."""
    try:
        with safe_io.open_file(path) as (descriptor, status):
            *lines, last = safe_io.read_at(descriptor, 0, status.st_size).split(b"\n")
            changed = change(lines)
            if changed == lines:
                return
            data = b"".join(line + b"\n" for line in changed) + last
            temporary = _write_temporary(path, data, status.st_mode)
            # Copy what another process has appended since the read.
            if added := safe_io.read_at(descriptor, status.st_size, safe_io.BLOCK_BYTES):
                with open(temporary, "ab") as out:
                    out.write(added)
            os.replace(temporary, path)
    except safe_io.UnreadableFile:
        return  # there is no history


def _write_temporary(path: str, data: bytes, mode: int) -> str:
    temporary = f"{path}.segue"
    safe_io.write_file(temporary, [data], mode & 0o777, replace=True)
    return temporary


def read_index_rows(transcript: TranscriptFile) -> list[Any]:
    """Return a session's rows in its project's index."""
    _, rows = _read_index(_index_path(transcript))
    return [row for row in rows if _is_row_of(row, transcript.id)]


def remove_index_rows(transcript: TranscriptFile) -> None:
    """Remove a session's rows from its project's index."""
    _rewrite_index(
        transcript, lambda rows: [row for row in rows if not _is_row_of(row, transcript.id)]
    )


def restore_index_rows(transcript: TranscriptFile, rows: list[Any]) -> None:
    """Append rows to the project's index."""
    _rewrite_index(transcript, lambda existing: [*existing, *rows])


def _index_path(transcript: TranscriptFile) -> str:
    return os.path.join(os.path.dirname(transcript.path), "sessions-index.json")


def _is_row_of(row: Any, id: str) -> bool:
    return isinstance(row, dict) and row.get("sessionId") == id


def _read_index(path: str) -> tuple[dict[str, Any], list[Any]]:
    index = jsonl.read_object(path, _MAX_INDEX_BYTES)
    rows = index.get("entries")
    return index, rows if isinstance(rows, list) else []


def _rewrite_index(transcript: TranscriptFile, change: Callable[[list[Any]], list[Any]]) -> None:
    path = _index_path(transcript)
    index, rows = _read_index(path)
    if index and (changed := change(rows)) != rows:
        data = codec.encode({**index, "entries": changed})
        os.replace(_write_temporary(path, data, 0o600), path)
