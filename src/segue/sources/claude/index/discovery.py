"""Looking at a home: which transcripts there are, and by which keys they are known again."""

from __future__ import annotations

import marshal
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple

from segue.sources.claude.format import safe_io
from segue.sources.claude.format.paths import ClaudeHome, list_projects, session_id_from_file_name
from segue.sources.index.database import Index, Key

AGENTS = f"{os.sep}subagents"
_ROOM = re.compile(r"(\d{1,17})-([0-9a-fA-F-]{36})")


class Differences(NamedTuple):
    """What the index does not know yet: files that changed, the newest first, and those gone."""

    changed: list[tuple[str, Key]]
    gone: list[str]
    new: bool  # whether it knows nothing of those that changed
    all: bool = False  # whether these are all that there are
    # Looks that found just what was known, at this change.
    agreed: Mapping[str, bytes | None] = MappingProxyType({})
    change: int = 0


def differences(index: Index, home: ClaudeHome) -> Differences:
    """What a look at everything finds. A directory that looks as before needs no more than that."""
    change, known = index.change(), index.places()
    changed: list[tuple[str, Key]] = []
    gone: list[str] = []
    agreed: dict[str, bytes | None] = {}
    new = True
    for look in looks(home):
        digest = look.digest()
        if known.pop(look.directory, None) == digest:
            continue
        before, now = index.keys(look.directory), look.keys()
        different = [(path, key) for path, key in now.items() if before.get(path) != key]
        missing = [path for path in before if path not in now]
        if not different and not missing:
            agreed[look.directory] = digest
        new = new and not any(path in before for path, _ in different)
        changed += different
        gone += missing
    for directory in known:
        missing = list(index.keys(directory))
        if not missing:
            agreed[directory] = None
        gone += missing
    changed.sort(key=lambda one: -one[1].mtime_ns)
    return Differences(changed, gone, new, True, agreed, change)


def differences_of(index: Index, paths: Sequence[str]) -> Differences:
    """What a look at some transcripts finds."""
    changed, gone, new = [], [], True
    for path in paths:
        key, known = key_of(path), index.key(path)
        new = new and known is None
        # What lies beside a transcript that somebody names may have grown unnoticed.
        if key is not None and (key != known or key.beside_ns):
            changed.append((path, key))
        elif key is None and known is not None:
            gone.append(path)
    changed.sort(key=lambda one: -one[1].mtime_ns)
    return Differences(changed, gone, new)


class Look(NamedTuple):
    """What a look at a directory saw of the files that have the name of a transcript."""

    directory: str
    # Name, mode, and what a Key has, of one after the other: no value of its own for each.
    seen: list[Any]

    def digest(self) -> bytes:
        """All of it in a few bytes."""
        # The second format of this is the last that is the same for the same values.
        return blake2b(marshal.dumps(self.seen, 2), digest_size=16).digest()

    def keys(self) -> dict[str, Key]:
        """The transcripts, each with its key."""
        above, each = self.directory + os.sep, iter(self.seen)
        return {
            above + name: Key(inode, size, mtime_ns, beside)
            for name, mode, inode, size, mtime_ns, beside in zip(*[each] * 6, strict=True)
            if stat.S_ISREG(mode) and size and named(above + name)[0]
        }


def looks(home: ClaudeHome) -> Iterator[Look]:
    """A look at every project and every room of the trash; nothing is opened."""
    for project in list_projects(home):
        yield _look_at(project.path)
    for room in safe_io.list_directory(home.trash):
        if _ROOM.fullmatch(room.name) and (key := key_of(kept(room.path))):
            yield Look(room.path, [os.path.basename(kept(room.path)), stat.S_IFREG, *key])


def _look_at(directory: str) -> Look:
    # A list looks at every file there is, so each step counts. To go down the whole path for each
    # takes longer than all the rest: hence the directory's descriptor.
    seen: list[Any] = []
    status_of = os.stat
    with safe_io.open_directory(directory) as (descriptor, names):
        transcripts = [name for name in names if name[36:] == ".jsonl"]
        others = set(names).difference(transcripts) if len(transcripts) < len(names) else ()
        for name in transcripts:
            try:
                status = status_of(name, dir_fd=descriptor, follow_symlinks=False)
                beside = _beside(name[:36], descriptor) if others and name[:36] in others else 0
            except OSError:
                continue  # it vanished
            seen += (
                name,
                status.st_mode,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                beside,
            )
    return Look(directory, seen)


def _beside(id: str, descriptor: int) -> int:
    """The time of what lies beside a transcript, and of the agents in there."""
    beside = os.stat(id, dir_fd=descriptor, follow_symlinks=False).st_mtime_ns
    with suppress(OSError):  # most have no agents
        beside = max(beside, os.stat(f"{id}{AGENTS}", dir_fd=descriptor).st_mtime_ns)
    return beside


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
    elif os.path.lexists(os.path.join(os.path.dirname(path), "1")):
        beside = 1  # something came to the trash with it, and stays as it is
    return Key(status.st_ino, status.st_size, status.st_mtime_ns, beside)


def kept(room: str) -> str:
    """A transcript in the trash: the first thing that was moved there."""
    return os.path.join(room, "0")


def named(path: str) -> tuple[str, int | None]:
    """The session whose transcript this is, and since when it is in the trash."""
    id = session_id_from_file_name(os.path.basename(path))
    if id is not None:
        return id, None
    room = _ROOM.fullmatch(os.path.basename(os.path.dirname(path)))
    return (room[2], int(room[1])) if room else ("", None)
