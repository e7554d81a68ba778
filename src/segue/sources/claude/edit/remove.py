"""Deleting a session for good, as the SDK does: its transcript and the directory beside it."""

from __future__ import annotations

import os
import shutil

from segue.sources.claude.format import processes, sidecar
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile


def remove_session(home: ClaudeHome, place: TranscriptFile) -> None:
    """Remove a session's files. Raises SessionIsLive, and OSError when something stays behind.

    The directory goes first: should that fail, the session is still there to be deleted again.
    """
    processes.require_not_live(home, place.id)
    beside = sidecar.sidecar_directory(place.path)
    if os.path.islink(beside):
        os.unlink(beside)
    elif os.path.isdir(beside):
        shutil.rmtree(beside)
    os.unlink(place.path)
