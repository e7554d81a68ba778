"""Move a session to the project of another working directory."""

from __future__ import annotations

import os

from segue.sources.claude.format import append, processes, sidecar
from segue.sources.claude.format.paths import (
    ClaudeHome,
    TranscriptFile,
    project_key,
    resolve_directory,
)


def relocate_session(home: ClaudeHome, transcript: TranscriptFile, directory: str) -> str:
    """Move a session to the project of `directory` and return its new path.

    The transcript gets the entry that Claude Code itself writes for a move, and is put where Claude
    Code looks for it. Raise SessionIsLive, FileExistsError or FileNotFoundError.
    """
    processes.require_not_live(home, transcript.id)
    cwd = resolve_directory(directory)
    project = os.path.join(home.projects, home.project_name or project_key(cwd))
    target = os.path.join(project, os.path.basename(transcript.path))
    target_sidecar = sidecar.sidecar_directory(target)
    moves = target != transcript.path
    if moves and (os.path.lexists(target) or os.path.lexists(target_sidecar)):
        raise FileExistsError(f"Session {transcript.id} already exists in the project of {cwd}")
    entry = append.encode_line(type="relocated", sessionId=transcript.id, relocatedCwd=cwd)
    if not append.append_lines(transcript.path, entry):
        raise FileNotFoundError(f"Session {transcript.id} not found")
    os.makedirs(project, exist_ok=True)
    # The sidecar goes first: every reader can read a session without its subagents.
    if moves:
        source_sidecar = sidecar.sidecar_directory(transcript.path)
        if os.path.lexists(source_sidecar):
            os.rename(source_sidecar, target_sidecar)
        os.rename(transcript.path, target)
    return target
