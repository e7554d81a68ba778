"""Keeping sessions: for a project that moved, and past the day of Claude Code's cleanup."""

from __future__ import annotations

import os
import time
from typing import Any

from segue.sources.claude.format import append, jsonl, processes, safe_io, sidecar
from segue.sources.claude.format.paths import (
    ClaudeHome,
    TranscriptFile,
    project_key,
    resolve_directory,
)

CLEANUP_DAYS = 30
_DAY = 86_400


def relocate_session(home: ClaudeHome, place: TranscriptFile, directory: str) -> str:
    """Move a session to the project of another working directory; gives its new path.

    The transcript says where it went, in the entry that Claude Code itself writes, and lies where
    Claude Code looks for it. Raises SessionIsLive, FileExistsError and FileNotFoundError.
    """
    processes.require_not_live(home, place.id)
    cwd = resolve_directory(directory)
    target = os.path.join(home.projects, home.project_name or project_key(cwd))
    moved = os.path.join(target, os.path.basename(place.path))
    if moved != place.path and any(map(os.path.lexists, (moved, sidecar.sidecar_directory(moved)))):
        raise FileExistsError(f"Session {place.id} already exists in the project of {cwd}")
    entry = append.encode_line(type="relocated", sessionId=place.id, relocatedCwd=cwd)
    if not append.append_lines(place.path, entry):
        raise FileNotFoundError(f"Session {place.id} not found")
    os.makedirs(target, exist_ok=True)
    # What belongs to it first: a session without its agents is whole for every reader.
    if moved != place.path:
        if os.path.lexists(sidecar.sidecar_directory(place.path)):
            os.rename(sidecar.sidecar_directory(place.path), sidecar.sidecar_directory(moved))
        os.rename(place.path, moved)
    return moved


def pin_session(
    home: ClaudeHome, place: TranscriptFile, days: int, now: float | None = None
) -> int:
    """Keep a session from the cleanup for some days; gives the time until when, in milliseconds.

    The cleanup goes by the time of the file, so that is what is set: ahead, where the days are
    more than the cleanup grants anyway.
    """
    now = time.time() if now is None else now
    granted = cleanup_days(home)
    modified = now + max(0, days - granted) * _DAY
    os.utime(place.path, (now, modified), follow_symlinks=False)
    return int((modified + granted * _DAY) * 1000)


def unpin_session(place: TranscriptFile) -> None:
    """Set a session's time back to that of its last entry."""
    with safe_io.open_for_reading(place.path) as (descriptor, status):
        last = _last_time(descriptor, status.st_size)
    if last is not None and last < status.st_mtime:
        os.utime(place.path, (status.st_atime, last), follow_symlinks=False)


def cleanup_days(home: ClaudeHome) -> int:
    """After how many days Claude Code deletes a transcript, by the settings of this home."""
    data = safe_io.read_small_file(os.path.join(home.root, "settings.json"))
    days: Any = next(
        (entry.get("cleanupPeriodDays") for entry in jsonl.parse_entries(data or b"")), None
    )
    return days if isinstance(days, int) and 0 <= days < 100_000 else CLEANUP_DAYS


def _last_time(descriptor: int, size: int) -> float | None:
    for block in safe_io.read_blocks_backwards(descriptor, 0, size):
        for line in reversed(block.split(b"\n")):
            for entry in reversed(jsonl.parse_entries(line)):
                if (at := jsonl.parse_timestamp(entry.get("timestamp"))) is not None:
                    return at / 1e6
    return None
