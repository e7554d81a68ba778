"""Which sessions are open in a running Claude Code: it keeps a small file a process.

A transcript must not be moved or removed under such a process: it opens the file anew for every
write, and would make a second, headless one in its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from segue.model import clock
from segue.model.errors import Busy

from . import jsonl, safe_io
from .jsonl import Entry
from .paths import ClaudeHome


class SessionIsLive(Busy):
    """A running Claude Code still writes this session; end that process first."""


def open_sessions(home: ClaudeHome) -> dict[str, int]:
    """The sessions that are open now, each with the process that has it."""
    return {id: process for id, process, _ in _open(home)}


def busy_sessions(home: ClaudeHome) -> dict[str, int]:
    """The sessions in which an answer is being given now, each with the time since when."""
    return {id: _since(entry) for id, _, entry in _open(home) if entry.get("status") == "busy"}


def process_files_directory(home: ClaudeHome) -> str:
    """Where the small files are."""
    return os.path.join(home.root, "sessions")


def _open(home: ClaudeHome) -> Iterator[tuple[str, int, Entry]]:
    try:
        names = os.listdir(process_files_directory(home))
    except OSError:
        return
    for name in names:
        for entry in jsonl.parse_entries(
            safe_io.read_small_file(os.path.join(process_files_directory(home), name)) or b""
        ):
            id, process = entry.get("sessionId"), entry.get("pid")
            if isinstance(id, str) and isinstance(process, int) and _runs(process, entry):
                yield id.lower(), process, entry


def _since(entry: Entry) -> int:
    """When a status began, in microseconds."""
    for name in ("statusUpdatedAt", "updatedAt", "startedAt"):
        at = entry.get(name)
        if isinstance(at, int | float) and 0 < at < 1 << 50:
            return int(at * clock.SECOND) // 1000
    return 0


def require_not_live(home: ClaudeHome, id: str) -> None:
    """Raise SessionIsLive when a process has the session open."""
    process = open_sessions(home).get(id.lower())
    if process is not None:
        raise SessionIsLive(f"Session {id} is open in process {process}; end it first", id=id)


def _runs(process: int, entry: Entry) -> bool:
    if not 0 < process < 1 << 31:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's process runs too
    begun = _began(process)
    noted = entry.get("procStart")
    # The number may have gone to another process since; then it began at another time.
    same = isinstance(noted, str | int) and str(noted).isdigit() and begun is not None
    return not same or str(noted) == begun


def _began(process: int) -> str | None:
    """When a process began, as Linux counts it."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name in parentheses may hold anything, spaces too.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None
