"""Delete a session permanently, as the Agent SDK does: its transcript and sidecar directory."""

from __future__ import annotations

import os
import shutil

from segue.sources.claude.format import processes, sidecar
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile


def remove_session(home: ClaudeHome, transcript: TranscriptFile) -> None:
    """Remove a session's files. Raise SessionIsLive, or OSError if a file cannot be removed.

    The directory is removed first: if that fails, the session is still there to be deleted again.
    """
    processes.require_not_live(home, transcript.id)
    directory = sidecar.sidecar_directory(transcript.path)
    if os.path.islink(directory):
        os.unlink(directory)
    elif os.path.isdir(directory):
        shutil.rmtree(directory)
    os.unlink(transcript.path)
