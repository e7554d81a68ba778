"""Session functions that the SDKs lack: history, relocation, pins, repair, export and trash."""

from __future__ import annotations

import os

from segue.sources import safe_io
from segue.sources.claude.conversation import tree
from segue.sources.claude.conversation.tree import SessionTree
from segue.sources.claude.edit import doctor as transcript_doctor
from segue.sources.claude.edit import pin, relocate, trash
from segue.sources.claude.edit.doctor import Diagnosis
from segue.sources.claude.edit.trash import TrashedSession
from segue.sources.claude.format.paths import ClaudeHome
from segue.sources.claude.sdk import locate

from .changes import require_transcript


def get_session_tree(session_id: str, directory: str | None = None) -> SessionTree | None:
    """Return a session's whole history: each branch, and the messages before each compaction.

    tree = get_session_tree(session_id)
    for entry in tree.path():      # the conversation from its first message
        print(entry.type, entry.message)
    """
    transcript = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    try:
        return transcript and tree.read_session_tree(transcript.path, transcript.id)
    except safe_io.UnreadableFile:
        return None


def relocate_session(session_id: str, new_directory: str, directory: str | None = None) -> None:
    """Move a session to the project of `new_directory`, for a project that was moved.

    Raise NotADirectoryError if there is no such directory, SessionIsLive while a process has the
    session open, and FileExistsError if the other project has a session with that id.
    """
    if not os.path.isdir(new_directory):
        raise NotADirectoryError(f"there is no directory {new_directory}")
    transcript = require_transcript(session_id, directory)
    relocate.relocate_session(ClaudeHome.current(), transcript, new_directory)


def pin_session(session_id: str, directory: str | None = None, *, days: int = 365) -> int:
    """Protect a session from Claude Code's cleanup. Return the end of protection in milliseconds.

    The cleanup goes by the age of the file, so a pin sets its time to the future, and a pinned
    session is first in lists. The next prompt resets that time: pin the session again.
    """
    return pin.pin_session(ClaudeHome.current(), require_transcript(session_id, directory), days)


def unpin_session(session_id: str, directory: str | None = None) -> None:
    """Remove a pin: the session gets the time of its last entry."""
    pin.unpin_session(require_transcript(session_id, directory))


def doctor(session_id: str, directory: str | None = None, *, repair: bool = False) -> Diagnosis:
    """Find lines that are torn, padded with NULs, joined together or have broken characters.

    With `repair`, a repaired transcript replaces the old one, which stays in the same directory
    as `Diagnosis.backup`. Raise SessionIsLive while a process has the session open.
    """
    transcript = require_transcript(session_id, directory)
    if repair:
        return transcript_doctor.repair_transcript(ClaudeHome.current(), transcript)
    return transcript_doctor.diagnose_transcript(transcript)


def export_markdown(session_id: str, directory: str | None = None) -> str:
    """Return a session's conversation as a Markdown document."""
    from . import export  # late: rendering loads libraries that other functions do not need

    return export.export_markdown(require_transcript(session_id, directory))


def export_html(session_id: str, directory: str | None = None) -> str:
    """Return a session's conversation as one HTML page that needs no other file or script."""
    from . import export  # late: rendering loads libraries that other functions do not need

    return export.export_html(require_transcript(session_id, directory))


def trash_session(session_id: str, directory: str | None = None) -> TrashedSession:
    """Move a session, with everything that belongs to it, to the trash.

    Raise SessionIsLive while a process has the session open: the process would write it again.
    """
    return trash.move_to_trash(ClaudeHome.current(), require_transcript(session_id, directory))


def restore_session(session_id: str) -> None:
    """Restore a session from the trash."""
    trash.restore_session(ClaudeHome.current(), session_id)


def list_trash() -> list[TrashedSession]:
    """Return the sessions in the trash, newest first."""
    return trash.list_trash(ClaudeHome.current())


def empty_trash(older_than_days: float = 0) -> int:
    """Delete the sessions that were trashed longer ago than that. Return how many."""
    return trash.empty_trash(ClaudeHome.current(), older_than_days)
