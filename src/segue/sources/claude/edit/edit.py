"""Apply edits of the hub to Claude Code's files, in the form that Claude Code expects."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import UNSET

from segue.model import clock
from segue.model.errors import Conflict, InvalidInput, NotFound, ReadOnly, StoreFull
from segue.model.event import InfoChanged
from segue.sources import safe_io
from segue.sources.claude.events.transcript_reader import TranscriptReader
from segue.sources.claude.events.translator import CREATED_SEQ
from segue.sources.claude.format import append, sidecar
from segue.sources.claude.format.paths import ClaudeHome, ProjectDirectory, TranscriptFile
from segue.sources.claude.index import discovery

from . import fork, relocate, trash

_EVENTS_PER_READ = 100


def apply_change(home: ClaudeHome, transcript: TranscriptFile, info: InfoChanged) -> None:
    """Change the title, the tag or the state (archived, trashed) of a session."""
    with _as_hub_errors(transcript):
        if info.title is not UNSET:
            _change_title(transcript, info.title or "")
        if info.tag is not UNSET:
            _change_tag(transcript, info.tag or "")
        is_trashed = discovery.session_of_path(transcript.path)[1] is not None
        if info.archived is not UNSET:
            if is_trashed:
                raise Conflict(f"session {transcript.id} is in the trash; restore it first")
            sidecar.write_archive_mark(transcript.path, clock.now(), archived=bool(info.archived))
        if info.deleted is not UNSET and bool(info.deleted) != is_trashed:
            if info.deleted:
                trash.move_to_trash(home, transcript)
            else:
                trash.restore_session(home, transcript.id)


def _change_title(transcript: TranscriptFile, title: str) -> None:
    clean_title = append.clean_title(title)
    if title and not clean_title:
        raise InvalidInput(f"title {title!r} has no printable character; enter a visible title")
    _append_entry(transcript, type="custom-title", customTitle=clean_title, sessionId=transcript.id)


def _change_tag(transcript: TranscriptFile, tag: str) -> None:
    clean_tag = append.clean_tag(tag)
    if tag and not clean_tag:
        raise InvalidInput(f"tag {tag!r} has no printable character; enter a visible tag")
    _append_entry(transcript, type="tag", tag=clean_tag, sessionId=transcript.id)


def delete_session(home: ClaudeHome, transcript: TranscriptFile) -> None:
    """Delete a session permanently, with everything that belongs to it."""
    with _as_hub_errors(transcript):
        if discovery.session_of_path(transcript.path)[1] is None:
            trash.move_to_trash(home, transcript)
        trash.delete_trashed(home, transcript.id)


def fork_session(
    home: ClaudeHome,
    transcript: TranscriptFile,
    id: str,
    up_to: str | None,
    cwd: str | None,
    title: str | None,
) -> str:
    """Write a fork, in the project of `cwd` if there is one. Return its path."""
    with _as_hub_errors(transcript):
        try:
            fork.fork(transcript, title, up_to, id)
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        directory = os.path.dirname(transcript.path)
        path = os.path.join(directory, f"{id}.jsonl")
        if cwd is None:
            return path
        forked = TranscriptFile(id, path, ProjectDirectory(directory))
        return relocate.relocate_session(home, forked, cwd)


def message_id_at(reader: TranscriptReader, seq: int) -> str | None:
    """Return the id of the last entry of the message tree at or before an event."""
    before = seq + 1
    while events := reader.page(
        after=CREATED_SEQ, before=before, limit=_EVENTS_PER_READ, backward=True
    ):
        for event in reversed(events):
            uuid = event.body.extra.get("claude", {}).get("uuid")
            if isinstance(uuid, str) and event.body.thread is None:
                return uuid
        before = events[0].seq
    raise InvalidInput(f"there is no message before event {seq}")


def _append_entry(transcript: TranscriptFile, **fields: str) -> None:
    if not append.append_lines(transcript.path, append.encode_line(**fields)):
        raise NotFound(f"no session {transcript.id}", session=transcript.id)


@contextmanager
def _as_hub_errors(transcript: TranscriptFile) -> Iterator[None]:
    """Convert errors of the file system to errors of the hub."""
    id = transcript.id
    try:
        yield
    except FileExistsError as error:
        raise Conflict(str(error), session=id) from error
    except (FileNotFoundError, safe_io.UnreadableFile) as error:
        raise NotFound(f"the transcript of session {id} was deleted", session=id) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(
                f"the disk is full; {transcript.path} was not changed. Free some space, try again"
            ) from error
        reason = f"session {id} cannot be changed: {error.strerror or error}"
        raise ReadOnly(reason, session=id) from error
