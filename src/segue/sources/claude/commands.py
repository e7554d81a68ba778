"""The commands of `segue claude`, which maintain Claude Code's own session files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from segue.model import clock
from segue.model.errors import Conflict, InvalidInput
from segue.model.session import Session
from segue.model.source_command import (
    CommandArgument,
    CommandOption,
    CommandOutput,
    Conversation,
    DocumentCommand,
    Note,
    SourceCommand,
    SourceCommands,
    TranscriptChanged,
)
from segue.sources import safe_io

from .edit import doctor, pin, relocate
from .edit.doctor import Diagnosis
from .exchange import event_codec
from .format import paths
from .format.paths import ClaudeHome, TranscriptFile
from .format.processes import SessionIsLive
from .sdk import locate

_MAX_SHOWN_FINDINGS = 5


def diagnose(session: Session | None, *, repair: bool) -> Iterator[CommandOutput]:
    """Report the damaged lines of one transcript or of all, and repair them if asked."""
    home = ClaudeHome.current()
    checked = damaged = 0
    transcripts = _all_transcripts(home) if session is None else [_transcript(home, session)]
    for transcript in transcripts:
        try:
            with _readable_errors():
                diagnosis = (
                    doctor.repair_transcript(home, transcript)
                    if repair
                    else doctor.diagnose_transcript(transcript)
                )
        except SessionIsLive as error:
            yield f"{transcript.id}  {error.message}"
            damaged += 1
            continue
        checked += 1
        if not diagnosis.healthy:
            yield _describe_damage(diagnosis)
            if diagnosis.backup is None:
                damaged += 1
            else:
                yield f"      repaired; backup: {diagnosis.backup}"
    result = "" if damaged else ", no damage left"
    yield Note(f"{checked} transcript{'s' * (checked != 1)} checked{result}", problem=damaged > 0)
    if damaged and not repair:
        yield Note("Use --repair to repair them; a backup of each is kept.")


def pin_session(session: Session, *, days: int, off: bool) -> Iterator[CommandOutput]:
    """Protect a session from the cleanup for some days, or remove the protection."""
    home = ClaudeHome.current()
    transcript = _transcript(home, session)
    with _readable_errors():
        if off:
            pin.unpin_session(transcript)
            return
        until = pin.pin_session(home, transcript, days)
    yield f"Pinned until {clock.to_rfc3339(until * 1000)[:10]}"


def relocate_session(session: Session, directory: str) -> Iterator[CommandOutput]:
    """Move a session to the project of another directory."""
    home = ClaudeHome.current()
    transcript = _transcript(home, session)
    with _readable_errors():
        relocate.relocate_session(home, transcript, directory)
    yield TranscriptChanged(transcript.id)


def read_conversation(session: Session) -> Conversation:
    """Return a session's conversation."""
    from .exchange import document

    with _readable_errors():
        return document.read_conversation(_transcript(ClaudeHome.current(), session))


def _describe_damage(diagnosis: Diagnosis) -> str:
    findings = diagnosis.findings[:_MAX_SHOWN_FINDINGS]
    kinds = ", ".join(f"line {finding.line} {finding.kind}" for finding in findings)
    hidden = len(diagnosis.findings) - len(findings)
    return f"{diagnosis.session_id}  {kinds}{f' and {hidden} more' if hidden else ''}"


def _all_transcripts(home: ClaudeHome) -> Iterator[TranscriptFile]:
    """Return the transcripts of all sessions, including imported ones."""
    file_names = (
        entry.name
        for project in paths.list_projects(home)
        for entry in safe_io.list_directory(project.path)
    )
    ids = {id for name in file_names if (id := paths.session_id_from_file_name(name)) is not None}
    for id in sorted(ids):
        if (transcript := locate.find_transcript(home, id)) is not None:
            yield transcript


def _transcript(home: ClaudeHome, session: Session) -> TranscriptFile:
    """Return the transcript of a session. Raises InvalidInput if it has none."""
    native_id = session.native_id or event_codec.native_session_id(session)
    transcript = locate.find_transcript(home, native_id)
    if transcript is None:
        raise InvalidInput(f"session {session.id} has no Claude Code transcript")
    return transcript


@contextmanager
def _readable_errors() -> Iterator[None]:
    """Turn errors of the file system and of bad values into those that people can read."""
    try:
        yield
    except FileExistsError as error:
        raise Conflict(str(error)) from None
    except (OSError, ValueError, safe_io.UnreadableFile) as error:
        raise InvalidInput(str(error)) from None


_SESSION = CommandArgument("session")

COMMANDS = SourceCommands(
    """Maintain Claude Code's session files: check, repair, pin and relocate them.

    Example: segue claude doctor
    """,
    (
        SourceCommand(
            "doctor",
            """Find damaged lines (torn, NUL-padded, joined) in one transcript or in all.

            Changes nothing without --repair. The exit code is 1 if damage remains.

            Example: segue claude doctor --repair 5f1c9a52
            """,
            diagnose,
            arguments=(CommandArgument("session", required=False),),
            options=(CommandOption("repair", "Repair transcripts; keep a backup of each."),),
        ),
        SourceCommand(
            "pin",
            """Protect a session from Claude Code's cleanup, which deletes files after 30 days.

            The cleanup looks at the age of the file, so a pin sets its time to the future. The
            next prompt in the session resets the time: then pin it again.

            Example: segue claude pin 5f1c9a52 --days 90
            """,
            pin_session,
            arguments=(_SESSION,),
            options=(
                CommandOption("days", "For how many days.", default=365),
                CommandOption("off", "Remove the pin."),
            ),
        ),
        SourceCommand(
            "relocate",
            """Move a session to another project directory: DIRECTORY is where the project is now.

            Example: segue claude relocate 5f1c9a52 ~/work/renamed
            """,
            relocate_session,
            arguments=(_SESSION, CommandArgument("directory")),
        ),
        DocumentCommand(
            "export",
            """Export a session's conversation as a document.

            Example: segue claude export 5f1c9a52 --html -o session.html
            """,
            read_conversation,
        ),
    ),
)
