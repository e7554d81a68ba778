"""Change sessions, with the names, arguments and errors of `claude_agent_sdk`."""

from __future__ import annotations

import os

from segue.model import clock
from segue.model.anthropic.sdk_types import ForkSessionResult
from segue.sources import safe_io
from segue.sources.claude.edit import fork, remove
from segue.sources.claude.format import append, sidecar
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile, is_uuid
from segue.sources.claude.sdk import locate

_ANYWHERE = " in any project directory"


def rename_session(session_id: str, title: str, directory: str | None = None) -> None:
    """Set a session's title, reduced to one printable line."""
    check_session_id(session_id)
    clean_title = check_title(title)
    _append_entry(
        session_id, directory, type="custom-title", customTitle=clean_title, sessionId=session_id
    )


def tag_session(session_id: str, tag: str | None, directory: str | None = None) -> None:
    """Set a session's tag; None removes it."""
    check_session_id(session_id)
    _append_entry(session_id, directory, type="tag", tag=check_tag(tag), sessionId=session_id)


def archive_session(session_id: str, directory: str | None = None) -> None:
    """Mark a session as archived. Lists still include it; a later prompt unarchives it."""
    _mark_archived(session_id, directory, archived=True)


def unarchive_session(session_id: str, directory: str | None = None) -> None:
    """Remove the archive mark."""
    _mark_archived(session_id, directory, archived=False)


def delete_session(session_id: str, directory: str | None = None) -> None:
    """Delete a session's transcript and its sidecar directory permanently.

    Raise SessionIsLive while a process has the session open: the process would write it again.
    Use `trash_session` for a deletion that can be undone.
    """
    transcript = require_transcript(session_id, directory)
    remove.remove_session(ClaudeHome.current(), transcript)


def fork_session(
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a conversation, complete or up to a message, into a new session."""
    check_fork(session_id, up_to_message_id)
    transcript = require_transcript(session_id, directory)
    try:
        return ForkSessionResult(fork.fork(transcript, title, up_to_message_id))
    except safe_io.UnreadableFile:
        raise _not_found(session_id, directory) from None


def check_session_id(session_id: str) -> None:
    """Raise ValueError if this is not a session id."""
    if not is_uuid(session_id):
        raise ValueError(f"Invalid session_id: {session_id}")


def check_title(title: str) -> str:
    """Return a title as it is stored. Raise ValueError if it has no printable character."""
    if not (clean_title := append.clean_title(title)):
        raise ValueError("title must be non-empty")
    return clean_title


def check_tag(tag: str | None) -> str:
    """Return a tag as it is stored, empty for None. Raise ValueError if it has no character."""
    clean_tag = "" if tag is None else append.clean_tag(tag)
    if tag is not None and not clean_tag:
        raise ValueError("tag must be non-empty (use None to clear)")
    return clean_tag


def check_fork(session_id: str, up_to_message_id: str | None) -> None:
    """Raise ValueError if one of a fork's ids is invalid."""
    check_session_id(session_id)
    if up_to_message_id is not None and not is_uuid(up_to_message_id):
        raise ValueError(f"Invalid up_to_message_id: {up_to_message_id}")


def _append_entry(session_id: str, directory: str | None, **fields: str) -> None:
    transcript = require_transcript(session_id, directory, _ANYWHERE)
    if not append.append_lines(transcript.path, append.encode_line(**fields)):
        raise _not_found(session_id, directory, _ANYWHERE)


def _mark_archived(session_id: str, directory: str | None, *, archived: bool) -> None:
    transcript = require_transcript(session_id, directory, _ANYWHERE)
    sidecar.write_archive_mark(transcript.path, clock.now(), archived=archived)


def require_transcript(session_id: str, directory: str | None, where: str = "") -> TranscriptFile:
    """Return a session's transcript. Raise ValueError or FileNotFoundError.

    `where` ends the message of the error if the caller names no directory.
    """
    check_session_id(session_id)
    transcript = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if transcript is None:
        raise _not_found(session_id, directory, where)
    return transcript


def _not_found(session_id: str, directory: str | None, where: str = "") -> FileNotFoundError:
    """Return the error that the SDK raises. `where` is its text without a directory."""
    if directory is not None:
        where = f" in project directory for {directory}"
    elif where and not os.path.isdir(ClaudeHome.current().projects):
        where = " (no projects directory)"
    return FileNotFoundError(f"Session {session_id} not found{where}")
