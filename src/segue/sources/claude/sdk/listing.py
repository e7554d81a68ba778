"""List sessions: stat all transcripts, sort them, then read only those that the page needs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from segue.gc_pause import gc_paused
from segue.model.anthropic.sdk_types import SDKSessionInfo, page_slice
from segue.sources import safe_io
from segue.sources.claude.format import sidecar
from segue.sources.claude.format.facts import SessionFacts
from segue.sources.claude.format.paths import (
    ClaudeHome,
    ProjectDirectory,
    TranscriptFile,
    belongs_to_project,
    list_projects,
    projects_for_directory,
    session_id_from_file_name,
)

from . import quick_info
from .sdk_summary import info_from_facts


class TranscriptCandidate(NamedTuple):
    """A transcript that has not been read. Candidates sort in the reverse order of lists."""

    modified_ms: int
    id: str
    path: str
    project: ProjectDirectory
    has_sidecar: bool


def list_sessions(
    home: ClaudeHome,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    include_worktrees: bool = True,
    include_programmatic: bool = True,
) -> list[SDKSessionInfo]:
    """Return sessions, newest first. `limit` and `offset` may be beyond the end of the list."""
    projects = list_projects(home)
    if directory is not None:
        projects = projects_for_directory(home, directory, include_worktrees=include_worktrees)
    page = page_slice(limit, offset)
    with gc_paused():
        if page.stop is None:
            return _list_all(projects, include_programmatic=include_programmatic)[page]
        return _list_first(projects, page.stop, include_programmatic=include_programmatic)[page]


def _list_first(
    projects: list[ProjectDirectory], count: int, *, include_programmatic: bool
) -> list[SDKSessionInfo]:
    """Return the first `count` sessions. Read no other transcript."""
    sessions: list[SDKSessionInfo] = []
    seen: set[str] = set()
    for candidate in sorted(find_candidates(projects), reverse=True):
        if len(sessions) >= count:
            break
        if candidate.id in seen:
            continue
        session = _read_session(candidate, thorough=True, include_programmatic=include_programmatic)
        if session:
            seen.add(candidate.id)
            sessions.append(session)
    return sessions


def _list_all(
    projects: list[ProjectDirectory], *, include_programmatic: bool
) -> list[SDKSessionInfo]:
    """Return every session. Sort after reading, since reading returns the times as well."""
    sessions: list[SDKSessionInfo] = []
    for project in sorted(projects, key=attrgetter("path")):
        entries = safe_io.list_directory(project.path)
        names = {entry.name for entry in entries}
        for entry in entries:
            id = session_id_from_file_name(entry.name)
            if id is not None and safe_io.is_regular_file(entry):
                candidate = TranscriptCandidate(0, id, entry.path, project, id in names)
                session = _read_session(
                    candidate, thorough=False, include_programmatic=include_programmatic
                )
                if session:
                    sessions.append(session)
    sessions.sort(key=attrgetter("last_modified", "session_id"))
    newest: dict[str, SDKSessionInfo] = {}
    for session in reversed(sessions):
        newest.setdefault(session.session_id, session)
    return list(newest.values())


def find_candidates(projects: list[ProjectDirectory]) -> Iterator[TranscriptCandidate]:
    """Yield every transcript in some project directories, by name and status alone."""
    for project in projects:
        entries = safe_io.list_directory(project.path)
        names = {entry.name for entry in entries}
        for entry in entries:
            id = session_id_from_file_name(entry.name)
            if id is None:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it vanished
            if stat.S_ISREG(status.st_mode) and status.st_size:
                modified = _to_milliseconds(status.st_mtime_ns)
                yield TranscriptCandidate(modified, id, entry.path, project, id in names)


def _to_milliseconds(nanoseconds: int) -> int:
    """Return milliseconds, rounded as the SDK rounds them."""
    return (nanoseconds + 500_000) // 1_000_000


def _read_session(
    candidate: TranscriptCandidate, *, thorough: bool, include_programmatic: bool
) -> SDKSessionInfo | None:
    """Return a session; None if the list leaves it out."""
    facts = quick_info.read_facts(candidate.path, thorough=thorough)
    if facts is None or (facts.is_programmatic and not include_programmatic):
        return None
    if not belongs_to_project(candidate.project, facts.directory):
        return None
    if facts.continued_in is not None and _is_continued(candidate, facts.continued_in):
        return None
    transcript = TranscriptFile(candidate.id, candidate.path, candidate.project)
    return session_info(facts, transcript, has_sidecar=candidate.has_sidecar)


def session_info(
    facts: SessionFacts, transcript: TranscriptFile, *, has_sidecar: bool = True
) -> SDKSessionInfo | None:
    """Return a session as lists show it; None if they leave it out."""
    path = transcript.path
    info = info_from_facts(
        facts,
        transcript.id,
        _to_milliseconds(facts.mtime_ns),
        directory=transcript.project.cwd,
        title_copy=sidecar.read_title(path) if has_sidecar and not facts.custom_title else None,
        file_size=facts.size,
    )
    if info and has_sidecar:
        info.archived = sidecar.is_archived(path)
    return info


def _is_continued(candidate: TranscriptCandidate, successor: str | None) -> bool:
    """Return whether another session in the same directory continues this one, without a circle."""
    directory, seen = os.path.dirname(candidate.path), {candidate.id}
    while successor is not None and session_id_from_file_name(f"{successor}.jsonl"):
        if successor in seen:
            return False
        path = os.path.join(directory, f"{successor}.jsonl")
        facts = quick_info.read_facts(path, thorough=False)
        if facts is None:
            break
        seen.add(successor)
        successor = facts.continued_in
    return len(seen) > 1
