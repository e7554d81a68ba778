"""Reading sessions, with the names, arguments and answers of `claude_agent_sdk`."""

from __future__ import annotations

import os

from segue.sources.claude.format import safe_io, subagents
from segue.sources.claude.format.paths import ClaudeHome, project_key, resolve_directory
from segue.sources.claude.sdk import listing, locate
from segue.sources.claude.sdk import messages as reading
from segue.sources.claude.sdk.sdk_types import SDKSessionInfo, SessionMessage


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    *,
    include_programmatic: bool = True,
) -> list[SDKSessionInfo]:
    """Sessions, the newest first: of one directory and its worktrees, or of all projects.

    With a limit, titles and tags are found wherever in a transcript they stand; without one,
    in its first and last 64 KiB. `include_programmatic=False` leaves out sessions of programs.
    """
    home = ClaudeHome.current()
    return listing.list_sessions(
        home, directory or None, limit, offset, include_worktrees, include_programmatic
    )


def get_session_info(session_id: str, directory: str | None = None) -> SDKSessionInfo | None:
    """What lists say of one session, or None."""
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    return place and locate.session_info(place)


def get_session_messages(
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    include_system_messages: bool = False,
) -> list[SessionMessage]:
    """The messages of a session's conversation, oldest first; empty for an unknown session.

    The conversation is what the model would see on resume: after a compaction its summary and
    the messages it kept. `get_session_tree` has all of the history.
    """
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if place is None:
        return []
    try:
        return reading.read_messages(place.path, limit, offset, include_system_messages)
    except safe_io.UnreadableFile:
        return []


def list_subagents(session_id: str, directory: str | None = None) -> list[str]:
    """The ids of the agents that a session started."""
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    return subagents.list_agent_ids(place.path) if place else []


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """The messages of one agent of a session; empty when there is none of that id."""
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if place is None or not agent_id:
        return []
    try:
        return reading.read_agent_messages(place.path, agent_id, limit, offset)
    except safe_io.UnreadableFile:
        return []


def project_key_for_directory(directory: str | os.PathLike[str] | None = None) -> str:
    """The name under which Claude Code keeps the sessions of a working directory."""
    home = ClaudeHome.current()
    return home.project_name or project_key(
        resolve_directory(os.curdir if directory is None else directory)
    )
