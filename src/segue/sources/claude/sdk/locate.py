"""A session's transcript by its id.

The same id may lie in several project directories: a project was moved while its session ran, or
a synchronised folder holds a copy. Every function then means the copy that lists show, which is
the newest one that can be listed at all.
"""

from __future__ import annotations

import os
import stat

from segue.sources.claude.format.paths import (
    ClaudeHome,
    TranscriptFile,
    is_uuid,
    list_projects,
    projects_for_directory,
)

from . import listing, quick_info
from .sdk_types import SDKSessionInfo


def find_copies(home: ClaudeHome, id: str, directory: str | None = None) -> list[TranscriptFile]:
    """All transcripts of a session that are regular files with something in them, newest first."""
    if not is_uuid(id):
        return []
    found: list[tuple[int, TranscriptFile]] = []
    for project in (
        list_projects(home) if directory is None else projects_for_directory(home, directory)
    ):
        path = os.path.join(project.path, f"{id}.jsonl")
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size:
            found.append((status.st_mtime_ns, TranscriptFile(id, path, project)))
    found.sort(key=lambda copy: copy[0], reverse=True)
    return [place for _, place in found]


def find_transcript(
    home: ClaudeHome, id: str, directory: str | None = None
) -> TranscriptFile | None:
    """The transcript of a session, or None."""
    places = find_copies(home, id, directory)
    if len(places) > 1:
        for place in places:
            if session_info(place) is not None:
                return place
    return places[0] if places else None


def session_info(place: TranscriptFile) -> SDKSessionInfo | None:
    """What lists say of a session; None for what they leave out."""
    facts = quick_info.read_facts(place.path)
    return listing.session_info(facts, place.id, place.path, place.project) if facts else None
