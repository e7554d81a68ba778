"""Changes of a session, written into Claude Code's files as it expects them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import UNSET

from ...model import clock
from ...model.errors import Conflict, InvalidInput, NotFound, ReadOnly, StoreFull
from ...model.event import InfoChanged
from . import files, gather, keep, sidecar, trash, write
from . import fork as forking
from .events import FIRST
from .history import Reader
from .layout import Home, Project
from .locate import Place


def change(home: Home, place: Place, info: InfoChanged) -> None:
    """Title, tag, archive and trash; `place` is where the transcript is now."""
    trashed = gather.named(place.path)[1] is not None
    with _failures(place):
        if info.title is not UNSET:
            title = write.clean_title(info.title or "")
            if info.title and not title:
                raise InvalidInput("the title has no printable character")
            _append(place, type="custom-title", customTitle=title, sessionId=place.id)
        if info.tag is not UNSET:
            tag = write.clean_tag(info.tag or "")
            if info.tag and not tag:
                raise InvalidInput("the tag has no printable character")
            _append(place, type="tag", tag=tag, sessionId=place.id)
        if info.archived is not UNSET:
            if trashed:
                raise Conflict(f"session {place.id} is in the trash; restore it first")
            sidecar.mark_archived(place.path, bool(info.archived), clock.now())
        if info.deleted is not UNSET and bool(info.deleted) != trashed:
            if info.deleted:
                trash.trash(home, place)
            else:
                trash.restore(home, place.id)


def delete(home: Home, place: Place) -> None:
    """Delete a session for good, with all that belongs to it."""
    with _failures(place):
        if gather.named(place.path)[1] is None:
            trash.trash(home, place)
        trash.discard(home, place.id)


def fork(
    home: Home, place: Place, id: str, up_to: str | None, cwd: str | None, title: str | None
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
        return keep.relocate(home, Place(id, path, Project(directory)), cwd)


def message_at(reader: Reader, at: int) -> str | None:
    """The id of the last entry of the conversation's tree at or before a seq."""
    before = at + 1
    while found := reader.page(after=FIRST, before=before, limit=100, backward=True):
        for event in reversed(found):
            uuid = event.body.extra.get("claude", {}).get("uuid")
            if isinstance(uuid, str) and event.body.thread is None:
                return uuid
        before = found[0].seq
    raise InvalidInput(f"there is no message before event {at}")


def _append(place: Place, **fields: str) -> None:
    if not write.append(place.path, write.line(**fields)):
        raise NotFound(f"no session {place.id}", session=place.id)


@contextmanager
def _failures(place: Place) -> Iterator[None]:
    """What the file system says, as an error that a caller of the hub knows."""
    try:
        yield
    except FileExistsError as error:
        raise Conflict(str(error), session=place.id) from error
    except (FileNotFoundError, files.Unreadable) as error:
        raise NotFound(f"session {place.id} is gone", session=place.id) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"the disk is full: {place.path} is as it was") from error
        why = f"session {place.id} cannot be changed: {error.strerror or error}"
        raise ReadOnly(why, session=place.id) from error
