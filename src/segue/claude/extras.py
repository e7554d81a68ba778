"""What people ask for and the SDKs do not offer: the whole history, moving, keeping, healing."""

from __future__ import annotations

import os

from segue.sources.claude.conversation import tree
from segue.sources.claude.conversation.tree import SessionTree
from segue.sources.claude.edit import doctor as healing
from segue.sources.claude.edit import relocate, trash
from segue.sources.claude.edit.doctor import Diagnosis
from segue.sources.claude.edit.trash import TrashedSession
from segue.sources.claude.format import safe_io
from segue.sources.claude.format.paths import ClaudeHome, TranscriptFile, is_uuid
from segue.sources.claude.sdk import export, locate
from segue.sources.claude.sdk import messages as reading
from segue.sources.claude.sdk.sdk_types import SDKSessionInfo


def get_session_tree(session_id: str, directory: str | None = None) -> SessionTree | None:
    """All of a session's history: each branch, and what was said before each compaction.

    tree = get_session_tree(session_id)
    for entry in tree.path():      # the conversation from its very beginning
        print(entry.type, entry.message)
    """
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    try:
        return place and tree.read_session_tree(place.path, place.id)
    except safe_io.UnreadableFile:
        return None


def relocate_session(session_id: str, new_directory: str, directory: str | None = None) -> None:
    """Let a session follow its project: `new_directory` is where the project is now.

    It must be there: NotADirectoryError. Refuses with SessionIsLive while a process has it open,
    and with FileExistsError when the other project has a session of that id.
    """
    if not os.path.isdir(new_directory):
        raise NotADirectoryError(f"there is no directory {new_directory}")
    relocate.relocate_session(ClaudeHome.current(), _found(session_id, directory), new_directory)


def pin_session(session_id: str, directory: str | None = None, *, days: int = 365) -> int:
    """Keep a session from Claude Code's cleanup; gives the time until when, in milliseconds.

    The cleanup goes by the age of the file, so a pin dates it ahead, and a pinned session stands
    first in lists. The next prompt in the session dates it back to then: pin it again.
    """
    if days <= 0:
        raise ValueError("days must be positive")
    return relocate.pin_session(ClaudeHome.current(), _found(session_id, directory), days)


def unpin_session(session_id: str, directory: str | None = None) -> None:
    """Take a pin off: the session has the time of its last entry again."""
    relocate.unpin_session(_found(session_id, directory))


def doctor(session_id: str, directory: str | None = None, *, repair: bool = False) -> Diagnosis:
    """Find lines that are torn, padded with NULs, glued together or hold broken characters.

    With `repair`, a healed transcript takes the place of the old one, which stays beside it
    under the name in `Diagnosis.backup`. Refuses with SessionIsLive while a process has it open.
    """
    place = _found(session_id, directory)
    return (
        healing.repair_transcript(ClaudeHome.current(), place)
        if repair
        else healing.diagnose_transcript(place)
    )


def export_markdown(session_id: str, directory: str | None = None) -> str:
    """A session's conversation as a Markdown document."""
    place = _found(session_id, directory)
    return export.markdown(_about(place), reading.read_messages(place.path))


def export_html(session_id: str, directory: str | None = None) -> str:
    """A session's conversation as one HTML page that needs no other file and runs no script."""
    place = _found(session_id, directory)
    return export.html(_about(place), reading.read_messages(place.path))


def trash_session(session_id: str, directory: str | None = None) -> TrashedSession:
    """Delete a session so that it can be restored, with all that belongs to it.

    Refuses with SessionIsLive while a process has it open: it would write the session anew.
    """
    return trash.move_to_trash(ClaudeHome.current(), _found(session_id, directory))


def restore_session(session_id: str) -> None:
    """Put a session from the trash back where it was."""
    trash.restore_session(ClaudeHome.current(), session_id)


def list_trash() -> list[TrashedSession]:
    """The sessions in the trash, the newest first."""
    return trash.list_trash(ClaudeHome.current())


def empty_trash(older_than_days: float = 0) -> int:
    """Delete for good what is in the trash for longer than that; gives how many sessions."""
    return trash.empty_trash(ClaudeHome.current(), older_than_days)


def _found(session_id: str, directory: str | None) -> TranscriptFile:
    if not is_uuid(session_id):
        raise ValueError(f"Invalid session_id: {session_id}")
    place = locate.find_transcript(ClaudeHome.current(), session_id, directory)
    if place is None:
        raise FileNotFoundError(f"Session {session_id} not found")
    return place


def _about(place: TranscriptFile) -> SDKSessionInfo:
    found = locate.session_info(place)
    return found or SDKSessionInfo(session_id=place.id, summary=place.id, last_modified=0)
