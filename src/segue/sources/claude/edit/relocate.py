"""Keeping sessions: for a project that moved, and past the day of Claude Code's cleanup."""

from __future__ import annotations

import os
import time
from typing import Any

from segue.sources.claude.format import append, jsonl, processes, safe_io, sidecar
from segue.sources.claude.format.locate import Place
from segue.sources.claude.format.paths import Home, project_key, real

CLEANUP_DAYS = 30
_DAY = 86_400


def relocate(home: Home, place: Place, directory: str) -> str:
    """Move a session to the project of another working directory; gives its new path.

    The transcript says where it went, in the entry that Claude Code itself writes, and lies where
    Claude Code looks for it. Raises SessionIsLive, FileExistsError and FileNotFoundError.
    """
    processes.refuse_live(home, place.id)
    cwd = real(directory)
    target = os.path.join(home.projects, home.project_name or project_key(cwd))
    moved = os.path.join(target, os.path.basename(place.path))
    if moved != place.path and any(map(os.path.lexists, (moved, sidecar.directory(moved)))):
        raise FileExistsError(f"Session {place.id} already exists in the project of {cwd}")
    entry = append.line(type="relocated", sessionId=place.id, relocatedCwd=cwd)
    if not append.append(place.path, entry):
        raise FileNotFoundError(f"Session {place.id} not found")
    os.makedirs(target, exist_ok=True)
    # What belongs to it first: a session without its agents is whole for every reader.
    if moved != place.path:
        if os.path.lexists(sidecar.directory(place.path)):
            os.rename(sidecar.directory(place.path), sidecar.directory(moved))
        os.rename(place.path, moved)
    return moved


def pin(home: Home, place: Place, days: int, now: float | None = None) -> int:
    """Keep a session from the cleanup for some days; gives the time until when, in milliseconds.

    The cleanup goes by the time of the file, so that is what is set: ahead, where the days are
    more than the cleanup grants anyway.
    """
    now = time.time() if now is None else now
    granted = cleanup_days(home)
    modified = now + max(0, days - granted) * _DAY
    os.utime(place.path, (now, modified), follow_symlinks=False)
    return int((modified + granted * _DAY) * 1000)


def unpin(place: Place) -> None:
    """Set a session's time back to that of its last entry."""
    with safe_io.opened(place.path) as (descriptor, status):
        last = _last_time(descriptor, status.st_size)
    if last is not None and last < status.st_mtime:
        os.utime(place.path, (status.st_atime, last), follow_symlinks=False)


def cleanup_days(home: Home) -> int:
    """After how many days Claude Code deletes a transcript, by the settings of this home."""
    data = safe_io.small(os.path.join(home.root, "settings.json"))
    days: Any = next((entry.get("cleanupPeriodDays") for entry in jsonl.entries(data or b"")), None)
    return days if isinstance(days, int) and 0 <= days < 100_000 else CLEANUP_DAYS


def _last_time(descriptor: int, size: int) -> float | None:
    for block in safe_io.backwards(descriptor, 0, size):
        for line in reversed(block.split(b"\n")):
            for entry in reversed(jsonl.entries(line)):
                if (at := jsonl.moment(entry.get("timestamp"))) is not None:
                    return at / 1e6
    return None
