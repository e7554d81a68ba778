"""Looking at a home: which transcripts there are, and by which keys they are known again."""

from __future__ import annotations

import os
import re
import stat

from ..index import Key
from . import files, trash
from .layout import Home, every_project, session_id

_ROOM = re.compile(r"(\d{1,17})-([0-9a-fA-F-]{36})")


def look(home: Home) -> dict[str, Key]:
    """Every transcript with its key, those in the trash too; nothing is opened."""
    found: dict[str, Key] = {}
    for project in every_project(home):
        look_at(project.path, found)
    for room in files.names(trash.directory(home)):
        if _ROOM.fullmatch(room.name) and (key := key_of(path := kept(room.path))):
            found[path] = key
    return found


def look_at(directory: str, found: dict[str, Key]) -> None:
    """The same of one project."""
    entries = files.names(directory)
    names = {entry.name: entry for entry in entries}
    for entry in entries:
        id = session_id(entry.name)
        if id is None:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                beside = names[id].stat(follow_symlinks=False).st_mtime_ns if id in names else 0
                found[entry.path] = Key(status.st_ino, status.st_size, status.st_mtime_ns, beside)
        except OSError:
            continue  # it vanished


def key_of(path: str) -> Key | None:
    """One transcript's key; None when there is none."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return None
    beside = 0
    if path.endswith(".jsonl"):
        try:
            beside = os.lstat(path.removesuffix(".jsonl")).st_mtime_ns
        except OSError:
            beside = 0  # most have nothing beside them
    return Key(status.st_ino, status.st_size, status.st_mtime_ns, beside)


def kept(room: str) -> str:
    """A transcript in the trash: the first thing that was moved there."""
    return os.path.join(room, "0")


def named(path: str) -> tuple[str, int | None]:
    """The session whose transcript this is, and since when it is in the trash."""
    id = session_id(os.path.basename(path))
    if id is not None:
        return id, None
    room = _ROOM.fullmatch(os.path.basename(os.path.dirname(path)))
    return (room[2], int(room[1])) if room else ("", None)
