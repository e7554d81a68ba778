"""Changes of a session, written into Claude Code's files as it expects them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import UNSET

from segue.model import clock
from segue.model.errors import Conflict, InvalidInput, NotFound, ReadOnly, StoreFull
from segue.model.event import InfoChanged
from segue.sources.claude.events.transcript_reader import Reader
from segue.sources.claude.events.translator import FIRST
from segue.sources.claude.format import append, safe_io, sidecar
from segue.sources.claude.format.paths import ClaudeHome, ProjectDirectory, TranscriptFile
from segue.sources.claude.index import discovery

from . import fork as forking
from . import relocate, trash


def apply_change(home: ClaudeHome, place: TranscriptFile, info: InfoChanged) -> None:
    """Title, tag, archive and trash; `place` is where the transcript is now."""
    trashed = discovery.named(place.path)[1] is not None
    with _failures(place):
        if info.title is not UNSET:
            title = append.clean_title(info.title or "")
            if info.title and not title:
                raise InvalidInput("the title has no printable character")
            _append(place, type="custom-title", customTitle=title, sessionId=place.id)
        if info.tag is not UNSET:
            tag = append.clean_tag(info.tag or "")
            if info.tag and not tag:
                raise InvalidInput("the tag has no printable character")
            _append(place, type="tag", tag=tag, sessionId=place.id)
        if info.archived is not UNSET:
            if trashed:
                raise Conflict(f"session {place.id} is in the trash; restore it first")
            sidecar.write_archive_mark(place.path, bool(info.archived), clock.now())
        if info.deleted is not UNSET and bool(info.deleted) != trashed:
            if info.deleted:
                trash.move_to_trash(home, place)
            else:
                trash.restore_session(home, place.id)


def delete_session(home: ClaudeHome, place: TranscriptFile) -> None:
    """Delete a session for good, with all that belongs to it."""
    with _failures(place):
        if discovery.named(place.path)[1] is None:
            trash.move_to_trash(home, place)
        trash.delete_trashed(home, place.id)


def fork_session(
    home: ClaudeHome,
    place: TranscriptFile,
    id: str,
    up_to: str | None,
    cwd: str | None,
    title: str | None,
) -> str:
    """Write a fork, in the project of another directory if one is named; gives its path."""
    with _failures(place):
        try:
            forking.fork(place, title, up_to, id)
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        directory = os.path.dirname(place.path)
        path = os.path.join(directory, f"{id}.jsonl")
        if cwd is None:
            return path
        return relocate.relocate_session(
            home, TranscriptFile(id, path, ProjectDirectory(directory)), cwd
        )


def message_id_at(reader: Reader, at: int) -> str | None:
    """The id of the last entry of the conversation's tree at or before a seq."""
    before = at + 1
    while found := reader.page(after=FIRST, before=before, limit=100, backward=True):
        for event in reversed(found):
            uuid = event.body.extra.get("claude", {}).get("uuid")
            if isinstance(uuid, str) and event.body.thread is None:
                return uuid
        before = found[0].seq
    raise InvalidInput(f"there is no message before event {at}")


def _append(place: TranscriptFile, **fields: str) -> None:
    if not append.append_lines(place.path, append.encode_line(**fields)):
        raise NotFound(f"no session {place.id}", session=place.id)


@contextmanager
def _failures(place: TranscriptFile) -> Iterator[None]:
    """What the file system says, as an error that a caller of the hub knows."""
    try:
        yield
    except FileExistsError as error:
        raise Conflict(str(error), session=place.id) from error
    except (FileNotFoundError, safe_io.UnreadableFile) as error:
        raise NotFound(f"session {place.id} is gone", session=place.id) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"the disk is full: {place.path} is as it was") from error
        why = f"session {place.id} cannot be changed: {error.strerror or error}"
        raise ReadOnly(why, session=place.id) from error
