"""Read sessions, with the names, arguments and results of `claude_agent_sdk`."""

from __future__ import annotations

import os

from segue.model.anthropic.sdk_types import SDKSessionInfo, SessionMessage
from segue.sources import safe_io
from segue.sources.claude.format import subagents
from segue.sources.claude.format.paths import ClaudeHome, project_key, resolve_directory
from segue.sources.claude.sdk import listing, locate, messages


def list_sessions(
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    include_worktrees: bool = True,
    *,
    include_programmatic: bool = True,
) -> list[SDKSessionInfo]:
    """Return sessions, newest first: of one directory and its worktrees, or of all projects.

    With a limit, titles and tags are found anywhere in a transcript; without one, in its first and
    last 64 KiB. `include_programmatic=False` leaves out sessions that programs ran.
    """
    return listing.list_sessions(
        ClaudeHome.current(),
        directory or None,
        limit,
        offset,
        include_worktrees=include_worktrees,
        include_programmatic=include_programmatic,
    )


def get_session_info(session_id: str, directory: str | None = None) -> SDKSessionInfo | None:
    """Return one session as lists show it, or None."""
    transcript = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    return transcript and locate.session_info(transcript)


def get_session_messages(
    session_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    *,
    include_system_messages: bool = False,
) -> list[SessionMessage]:
    """Return the messages of a conversation, oldest first; empty for an unknown session.

    The conversation is what the model sees on resume: after a compaction its summary and the
    messages it preserved. `get_session_tree` returns the whole history.
    """
    transcript = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if transcript is None:
        return []
    try:
        return messages.read_messages(
            transcript.path, limit, offset, include_system=include_system_messages
        )
    except safe_io.UnreadableFile:
        return []


def list_subagents(session_id: str, directory: str | None = None) -> list[str]:
    """Return the ids of the subagents that a session started."""
    transcript = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    return subagents.list_agent_ids(transcript.path) if transcript else []


def get_subagent_messages(
    session_id: str,
    agent_id: str,
    directory: str | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> list[SessionMessage]:
    """Return the messages of one subagent; empty if the session or subagent is unknown."""
    transcript = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if transcript is None or not agent_id:
        return []
    try:
        return messages.read_agent_messages(transcript.path, agent_id, limit, offset)
    except safe_io.UnreadableFile:
        return []


def project_key_for_directory(directory: str | os.PathLike[str] | None = None) -> str:
    """Return the name of the project directory that Claude Code uses for a working directory."""
    home = ClaudeHome.current()
    cwd = resolve_directory(os.curdir if directory is None else directory)
    return home.project_name or project_key(cwd)
