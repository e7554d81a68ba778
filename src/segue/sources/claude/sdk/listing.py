"""Lists: stat first, sort, then read only the sessions that the page needs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from segue.gc_pause import gc_paused
from segue.sources.claude.format import safe_io, sidecar
from segue.sources.claude.format.paths import (
    ClaudeHome,
    ProjectDirectory,
    belongs_to_project,
    list_projects,
    projects_for_directory,
    session_id_from_file_name,
)

from . import quick_info
from .sdk_types import SDKSessionInfo


class TranscriptCandidate(NamedTuple):
    """A transcript before it is read; they sort as lists show them, backwards."""

    modified: int  # milliseconds, rounded as the SDK does
    id: str
    path: str
    project: ProjectDirectory
    beside: bool  # whether it has a directory of its own


def list_sessions(
    home: ClaudeHome,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    worktrees: bool = True,
    programmatic: bool = True,
) -> list[SDKSessionInfo]:
    """Sessions, the newest first; `limit` and `offset` beyond the list are no error."""
    projects = list_projects(home)
    if directory is not None:
        projects = projects_for_directory(home, directory, worktrees)
    start = max(0, offset)
    with gc_paused():
        if limit is None or limit <= 0:
            return _all(projects, programmatic)[start:]
        return _first(projects, start + limit, programmatic)[start:]


def _first(
    projects: list[ProjectDirectory], count: int, programmatic: bool
) -> list[SDKSessionInfo]:
    """So many sessions; no others are read."""
    shown: list[SDKSessionInfo] = []
    seen: set[str] = set()
    for found in sorted(transcripts(projects), reverse=True):
        if len(shown) >= count:
            break
        if found.id in seen:
            continue
        if row := _row(found, thorough=True, programmatic=programmatic):
            seen.add(found.id)
            shown.append(row)
    return shown


def _all(projects: list[ProjectDirectory], programmatic: bool) -> list[SDKSessionInfo]:
    """Every session: all are read, which tells their times too, so they are sorted afterwards."""
    rows: list[SDKSessionInfo] = []
    for project in sorted(projects, key=attrgetter("path")):
        entries = safe_io.list_directory(project.path)
        names = {entry.name for entry in entries}
        for entry in entries:
            id = session_id_from_file_name(entry.name)
            if id is not None and safe_io.is_regular_file(entry):
                found = TranscriptCandidate(0, id, entry.path, project, id in names)
                if row := _row(found, thorough=False, programmatic=programmatic):
                    rows.append(row)
    rows.sort(key=attrgetter("last_modified", "session_id"))
    shown: dict[str, SDKSessionInfo] = {}
    for row in reversed(rows):
        shown.setdefault(row.session_id, row)
    return list(shown.values())


def transcripts(projects: list[ProjectDirectory]) -> Iterator[TranscriptCandidate]:
    """Every transcript in some project directories, by name and status alone."""
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
                modified = (status.st_mtime_ns + 500_000) // 1_000_000
                yield TranscriptCandidate(modified, id, entry.path, project, id in names)


def _row(found: TranscriptCandidate, thorough: bool, programmatic: bool) -> SDKSessionInfo | None:
    facts = quick_info.read_facts(found.path, thorough)
    if facts is None or (facts.programmatic and not programmatic):
        return None
    if not belongs_to_project(found.project, facts.relocated or facts.cwd):
        return None
    if facts.continued_in is not None and _went_on(facts.continued_in, found.path, found.id):
        return None
    return session_info(facts, found.id, found.path, found.project, found.beside)


def session_info(
    facts: quick_info.SessionFacts,
    id: str,
    path: str,
    project: ProjectDirectory,
    beside: bool = True,
) -> SDKSessionInfo | None:
    """A session as lists show it; None for what they leave out."""
    if facts.sidechain:
        return None
    copy = sidecar.read_title(path) if beside and not facts.custom_title else None
    title = facts.custom_title or copy or facts.ai_title or None
    prompt = facts.first_prompt or facts.command
    summary = title or facts.last_prompt or facts.recap or prompt or facts.pasted
    if not summary:
        return None
    return SDKSessionInfo(
        session_id=id,
        summary=summary,
        last_modified=(facts.mtime_ns + 500_000) // 1_000_000,
        file_size=facts.size,
        custom_title=title,
        first_prompt=prompt,
        git_branch=facts.git_branch,
        cwd=facts.relocated or facts.cwd or project.cwd,
        tag=facts.tag or None,
        created_at=facts.created_at,
        archived=sidecar.is_archived(path) if beside else None,
    )


def _went_on(successor: str | None, path: str, id: str) -> bool:
    """Whether the session goes on in another one beside it, which does not lead back here."""
    seen = {id}
    while successor is not None and session_id_from_file_name(f"{successor}.jsonl"):
        if successor in seen:
            return False
        facts = quick_info.read_facts(
            os.path.join(os.path.dirname(path), f"{successor}.jsonl"), False
        )
        if facts is None:
            break
        seen.add(successor)
        successor = facts.continued_in
    return len(seen) > 1
