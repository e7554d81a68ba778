"""Changing sessions, with the names, arguments and errors of `claude_agent_sdk`."""

from __future__ import annotations

import os

from segue.model import clock
from segue.sources.claude.edit import fork, remove
from segue.sources.claude.format import append, safe_io, sidecar
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile, is_uuid
from segue.sources.claude.sdk import locate
from segue.sources.claude.sdk.sdk_types import ForkSessionResult


def rename_session(session_id: str, title: str, directory: str | None = None) -> None:
    """Give a session a title. It is kept as one printable line."""
    checked_id(session_id)
    clean = checked_title(title)
    _append(session_id, directory, type="custom-title", customTitle=clean, sessionId=session_id)


def tag_session(session_id: str, tag: str | None, directory: str | None = None) -> None:
    """Give a session a tag; None takes it away."""
    checked_id(session_id)
    _append(session_id, directory, type="tag", tag=checked_tag(tag), sessionId=session_id)


def archive_session(session_id: str, directory: str | None = None) -> None:
    """Mark a session as archived. Lists still have it; a later prompt takes the mark off."""
    _mark(session_id, directory, archived=True)


def unarchive_session(session_id: str, directory: str | None = None) -> None:
    """Take the archive mark off."""
    _mark(session_id, directory, archived=False)


def delete_session(session_id: str, directory: str | None = None) -> None:
    """Delete a session's transcript and what lies in the directory beside it, for good.

    Refuses with SessionIsLive while a process has the session open: it would write it anew.
    `trash_session` is the way to delete that can be taken back.
    """
    place = _found(session_id, directory, everywhere="")
    remove.remove_session(ClaudeHome.current(), place)


def fork_session(
    session_id: str,
    directory: str | None = None,
    up_to_message_id: str | None = None,
    title: str | None = None,
) -> ForkSessionResult:
    """Copy a conversation, whole or up to a message, into a session of its own."""
    checked_fork(session_id, up_to_message_id)
    place = _found(session_id, directory, everywhere="")
    try:
        return ForkSessionResult(fork.fork(place, title, up_to_message_id))
    except safe_io.UnreadableFile:
        raise _not_found(session_id, directory, "") from None


def checked_id(session_id: str) -> None:
    """Raise ValueError for what is no session's id."""
    if not is_uuid(session_id):
        raise ValueError(f"Invalid session_id: {session_id}")


def checked_title(title: str) -> str:
    """A title as it is kept."""
    if not (clean := append.clean_title(title)):
        raise ValueError("title must be non-empty")
    return clean


def checked_tag(tag: str | None) -> str:
    """A tag as it is kept: empty when it is taken away."""
    clean = "" if tag is None else append.clean_tag(tag)
    if tag is not None and not clean:
        raise ValueError("tag must be non-empty (use None to clear)")
    return clean


def checked_fork(session_id: str, up_to_message_id: str | None) -> None:
    """Raise ValueError for ids that a fork cannot go by."""
    checked_id(session_id)
    if up_to_message_id is not None and not is_uuid(up_to_message_id):
        raise ValueError(f"Invalid up_to_message_id: {up_to_message_id}")


def _append(session_id: str, directory: str | None, **fields: str) -> None:
    place = _found(session_id, directory)
    if not append.append_lines(place.path, append.encode_line(**fields)):
        raise _not_found(session_id, directory)


def _mark(session_id: str, directory: str | None, archived: bool) -> None:
    place = _found(session_id, directory)
    sidecar.write_archive_mark(place.path, archived, clock.now())


def _found(
    session_id: str, directory: str | None, everywhere: str = " in any project directory"
) -> TranscriptFile:
    checked_id(session_id)
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if place is None:
        raise _not_found(session_id, directory, everywhere)
    return place


def _not_found(
    session_id: str, directory: str | None, everywhere: str = " in any project directory"
) -> FileNotFoundError:
    where = everywhere
    if directory is not None:
        where = f" in project directory for {directory}"
    elif everywhere and not os.path.isdir(ClaudeHome.current().projects):
        where = " (no projects directory)"
    return FileNotFoundError(f"Session {session_id} not found{where}")
