"""Find the sessions that running Claude Code processes have open.

Claude Code keeps one small file per process. A transcript must not be moved or removed while a
process has it open: the process reopens the file for every write, so it would create a second
transcript that lacks the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from segue.model import clock
from segue.model.errors import Busy

from . import jsonl
from .jsonl import Entry
from .paths import ClaudeHome


class SessionIsLive(Busy):
    """A running Claude Code process has this session open. End that process first."""


def open_sessions(home: ClaudeHome) -> dict[str, int]:
    """Return the ids of open sessions, each with its process id."""
    return {id: process_id for id, process_id, _ in _open_entries(home)}


def busy_sessions(home: ClaudeHome) -> dict[str, int]:
    """Return the ids of sessions that are answering, each with the time since when."""
    return {
        id: _status_time(entry)
        for id, _, entry in _open_entries(home)
        if entry.get("status") == "busy"
    }


def process_files_directory(home: ClaudeHome) -> str:
    """Return the directory of the files that Claude Code keeps per process."""
    return os.path.join(home.root, "sessions")


def _open_entries(home: ClaudeHome) -> Iterator[tuple[str, int, Entry]]:
    try:
        names = os.listdir(process_files_directory(home))
    except OSError:
        return
    for name in names:
        entry = jsonl.read_object(os.path.join(process_files_directory(home), name))
        id, process_id = entry.get("sessionId"), entry.get("pid")
        if isinstance(id, str) and isinstance(process_id, int) and _is_running(process_id, entry):
            yield id.lower(), process_id, entry


def _status_time(entry: Entry) -> int:
    """Return when a status began, in microseconds."""
    for name in ("statusUpdatedAt", "updatedAt", "startedAt"):
        at = entry.get(name)
        if isinstance(at, int | float) and 0 < at < 1 << 50:
            return int(at * clock.SECOND) // 1000
    return 0


def require_not_live(home: ClaudeHome, id: str) -> None:
    """Raise SessionIsLive if a process has the session open."""
    process_id = open_sessions(home).get(id.lower())
    if process_id is not None:
        raise SessionIsLive(f"Session {id} is open in process {process_id}; end it first", id=id)


def _is_running(process_id: int, entry: Entry) -> bool:
    from segue.sources.kit.processes import is_alive  # most lists do not need it

    if not is_alive(process_id):
        return False
    actual_start, recorded_start = _start_time(process_id), entry.get("procStart")
    # The id may belong to another process by now; that one started at another time.
    is_recorded = isinstance(recorded_start, str | int) and str(recorded_start).isdigit()
    return not is_recorded or actual_start is None or str(recorded_start) == actual_start


def _start_time(process_id: int) -> str | None:
    """Return the start time of a process in Linux clock ticks."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as file:
            # The name in parentheses may contain anything, spaces included.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
