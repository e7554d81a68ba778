"""Which sessions are open in a running Claude Code: it keeps a small file a process.

A transcript must not be moved or removed under such a process: it opens the file anew for every
write, and would make a second, headless one in its place.
"""

from __future__ import annotations

import os
from typing import Any

from ...model.errors import Busy
from . import files, read
from .layout import Home


class SessionIsLive(Busy):
    """A running Claude Code still writes this session; end that process first."""


def live(home: Home) -> dict[str, int]:
    """The sessions that are open now, each with the process that has it."""
    directory = os.path.join(home.root, "sessions")
    try:
        names = os.listdir(directory)
    except OSError:
        return {}
    found = {}
    for name in names:
        for entry in read.entries(files.small(os.path.join(directory, name)) or b""):
            id, process = entry.get("sessionId"), entry.get("pid")
            if isinstance(id, str) and isinstance(process, int) and _runs(process, entry):
                found[id.lower()] = process
    return found


def refuse_live(home: Home, id: str) -> None:
    """Raise SessionIsLive when a process has the session open."""
    process = live(home).get(id.lower())
    if process is not None:
        raise SessionIsLive(f"Session {id} is open in process {process}; end it first", id=id)


def _runs(process: int, entry: dict[str, Any]) -> bool:
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
