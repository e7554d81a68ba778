"""Looking at a home: which transcripts there are, and by which keys they are known again."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress

from ..index import Key
from . import files, trash
from .layout import Home, every_project, session_id

AGENTS = f"{os.sep}subagents"
_ROOM = re.compile(r"(\d{1,17})-([0-9a-fA-F-]{36})")


def look(home: Home, known: Mapping[str, Key]) -> dict[str, Key]:
    """Every transcript with its key, those in the trash too; nothing is opened.

    What is `known` already has the name of a transcript.
    """
    found: dict[str, Key] = {}
    for project in every_project(home):
        _look_at(project.path, known, found)
    for room in files.names(trash.directory(home)):
        if _ROOM.fullmatch(room.name) and (key := key_of(path := kept(room.path))):
            found[path] = key
    return found


def _look_at(directory: str, known: Mapping[str, Key], found: dict[str, Key]) -> None:
    # A list looks at every file there is, so each step counts. To go down the whole path for each
    # takes longer than all the rest: hence the directory's descriptor.
    status_of, above = os.stat, directory + os.sep
    with files.directory(directory) as (descriptor, names):
        there = set(names)
        for name in names:
            path = above + name
            before = known.get(path)
            if before is None and session_id(name) is None:
                continue
            try:
                status = status_of(name, dir_fd=descriptor, follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) or not status.st_size:
                    continue
                beside = 0
                if (id := name[:-6]) in there:
                    beside = status_of(id, dir_fd=descriptor, follow_symlinks=False).st_mtime_ns
                    with suppress(OSError):  # most have no agents
                        agents = f"{id}{AGENTS}"
                        beside = max(beside, status_of(agents, dir_fd=descriptor).st_mtime_ns)
            except OSError:
                continue  # it vanished
            key = (status.st_ino, status.st_size, status.st_mtime_ns, beside)
            found[path] = before if before == key else Key._make(key)


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
            above = path.removesuffix(".jsonl")
            beside = os.lstat(above).st_mtime_ns
            beside = max(beside, os.stat(above + AGENTS).st_mtime_ns)
        except OSError:
            pass  # most have nothing beside them
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
