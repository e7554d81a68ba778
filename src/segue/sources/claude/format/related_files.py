"""All that Claude Code keeps of a session, here and there in its home.

Deleting the transcript leaves most of it behind: copies of edited files, to-do lists, debug logs,
prompts in the history of the input line, rows of an index that some versions had.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from typing import Any

from segue.model import codec
from segue.sources.claude.sdk import quick_info

from . import jsonl, safe_io, sidecar
from .paths import ClaudeHome, TranscriptFile

_LARGEST_INDEX = 64 << 20


def find_related_paths(home: ClaudeHome, place: TranscriptFile) -> list[str]:
    """The files and directories that are the session's alone, its transcript first."""
    id = glob.escape(place.id)
    found = [place.path, sidecar.sidecar_directory(place.path), *_old_agents(place)]
    for pattern in (
        f"file-history/{id}",
        f"session-env/{id}",
        f"tasks/{id}",
        f"todos/{id}-agent-*.json",
        f"debug/{id}.txt",
    ):
        found += sorted(glob.glob(os.path.join(glob.escape(home.root), pattern)))
    return [path for path in found if os.path.lexists(path)]


def _old_agents(place: TranscriptFile) -> Iterator[str]:
    """Transcripts of agents that older programs wrote beside the session's."""
    pattern = os.path.join(glob.escape(os.path.dirname(place.path)), "agent-*.jsonl")
    for path in sorted(glob.glob(pattern)):
        if _session_of(path) == place.id:
            yield path


def _session_of(path: str) -> Any:
    try:
        with safe_io.open_for_reading(path) as (descriptor, _):
            head = safe_io.read_at(descriptor, 0, quick_info.WINDOW_BYTES)
    except safe_io.UnreadableFile:
        return None
    line, whole, _ = head.partition(b"\n")
    found = jsonl.parse_entries(line) if whole else []
    return found[0].get("sessionId") if found else jsonl.head_field(line, "sessionId")


def read_prompt_history(home: ClaudeHome, id: str) -> list[bytes]:
    """A session's lines in the history of the input line."""
    data = safe_io.read_small_file(_history(home), 1 << 30) or b""
    return [line for line in data.split(b"\n") if _is_of(line, id)]


def remove_prompt_history(home: ClaudeHome, id: str) -> None:
    """Take those lines out."""
    _rewrite(_history(home), lambda held: [line for line in held if not _is_of(line, id)])


def restore_prompt_history(home: ClaudeHome, lines: list[bytes]) -> None:
    """Put such lines back, each where its time belongs."""
    _rewrite(_history(home), lambda held: sorted([*held, *lines], key=_written))


def _history(home: ClaudeHome) -> str:
    return os.path.join(home.root, "history.jsonl")


def _is_of(line: bytes, id: str) -> bool:
    wanted = id.encode() in line
    return wanted and any(entry.get("sessionId") == id for entry in jsonl.parse_entries(line))


def _written(line: bytes) -> float:
    found = jsonl.parse_entries(line)
    time = found[0].get("timestamp") if found else None
    return time if isinstance(time, int | float) else 0


def _rewrite(path: str, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the lines of a shared file that others only append to."""
    try:
        with safe_io.open_file(path) as (descriptor, status):
            *held, last = safe_io.read_at(descriptor, 0, status.st_size).split(b"\n")
            changed = change(held)
            if changed == held:
                return
            data = b"".join(line + b"\n" for line in changed) + last
            temporary = _beside(path, data, status.st_mode)
            # What others appended meanwhile comes along.
            if more := safe_io.read_at(descriptor, status.st_size, safe_io.BLOCK_BYTES):
                with open(temporary, "ab") as out:
                    out.write(more)
            os.replace(temporary, path)
    except safe_io.UnreadableFile:
        return  # there is no history


def _beside(path: str, data: bytes, mode: int) -> str:
    temporary = f"{path}.segue"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | safe_io.SAFE_OPEN_FLAGS
    with os.fdopen(os.open(temporary, flags, mode & 0o777), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return temporary


def read_index_rows(place: TranscriptFile) -> list[Any]:
    """A session's rows in the index of its project."""
    return [row for row in _rows(_index(place))[1] if _is_row(row, place.id)]


def remove_index_rows(place: TranscriptFile) -> None:
    """Take those rows out."""
    _reindex(place, lambda rows: [row for row in rows if not _is_row(row, place.id)])


def restore_index_rows(place: TranscriptFile, rows: list[Any]) -> None:
    """Put such rows back."""
    _reindex(place, lambda held: [*held, *rows])


def _index(place: TranscriptFile) -> str:
    return os.path.join(os.path.dirname(place.path), "sessions-index.json")


def _is_row(row: Any, id: str) -> bool:
    return isinstance(row, dict) and row.get("sessionId") == id


def _rows(path: str) -> tuple[dict[str, Any], list[Any]]:
    index = next(
        iter(jsonl.parse_entries(safe_io.read_small_file(path, _LARGEST_INDEX) or b"")), {}
    )
    rows = index.get("entries")
    return index, rows if isinstance(rows, list) else []


def _reindex(place: TranscriptFile, change: Callable[[list[Any]], list[Any]]) -> None:
    path = _index(place)
    index, rows = _rows(path)
    if index and (changed := change(rows)) != rows:
        os.replace(_beside(path, codec.encode({**index, "entries": changed}), 0o600), path)
