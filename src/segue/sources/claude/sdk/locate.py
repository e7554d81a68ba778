"""Find a session's transcript by its id.

Several project directories may hold the same id: a project was moved while its session ran, or a
synchronised folder holds a copy. Every function then uses the copy that lists show: the newest one
that can be listed.
"""

from __future__ import annotations

import os

from segue.model.anthropic.sdk_types import SDKSessionInfo
from segue.sources import safe_io
from segue.sources.claude.format.paths import (
    ClaudeHome,
    TranscriptFile,
    is_uuid,
    list_projects,
    projects_for_directory,
)

from . import listing, quick_info


def find_copies(home: ClaudeHome, id: str, directory: str | None = None) -> list[TranscriptFile]:
    """Return the transcripts of a session that are regular and not empty, newest first."""
    if not is_uuid(id):
        return []
    projects = list_projects(home) if directory is None else projects_for_directory(home, directory)
    copies: list[tuple[int, TranscriptFile]] = []
    for project in projects:
        path = os.path.join(project.path, f"{id}.jsonl")
        if status := safe_io.nonempty_file_status(path):
            copies.append((status.st_mtime_ns, TranscriptFile(id, path, project)))
    copies.sort(key=lambda copy: copy[0], reverse=True)
    return [transcript for _, transcript in copies]


def find_transcript(
    home: ClaudeHome, id: str, directory: str | None = None
) -> TranscriptFile | None:
    """Return the transcript of a session, or None."""
    copies = find_copies(home, id, directory)
    if len(copies) > 1:
        for transcript in copies:
            if session_info(transcript) is not None:
                return transcript
    return copies[0] if copies else None


def session_info(transcript: TranscriptFile) -> SDKSessionInfo | None:
    """Return a session as lists show it; None if they leave it out."""
    facts = quick_info.read_facts(transcript.path)
    return listing.session_info(facts, transcript) if facts else None
