"""A memory store as files: both sides are compared with what they last had in common.

What changed on one side goes to the other. What changed on both is taken from the files, and the
other text stays among the memory's versions; what was deleted on one side and changed on the other
is kept. Links are never followed, and a file is written beside its place and then put there. What
is there and cannot be read does not count as deleted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from segue.agents.tools.path_guard import TEMP_PREFIX, PathGuard, ToolError
from segue.hub.resources.memories import MAX_BYTES, Actor, Memories
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.record import Record

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCKED = 0o444


class Kept(msgspec.Struct, kw_only=True):
    """What files and store last had in common, path → digest; and files that cannot be kept."""

    common: dict[str, str] = {}
    refused: dict[str, str] = {}  # path → digest, or why it cannot be read


Told = list[tuple[str, str]]


class Found(NamedTuple):
    """Files by their paths; and why others, which are there, cannot be read."""

    files: dict[str, bytes]
    unread: dict[str, str]


class Mounted:
    """A directory below a session's; no link leads out of that one."""

    def __init__(self, root: Path, mount_path: str) -> None:
        self._roots = PathGuard([str(root)], strict=False)
        self._top = str(root / mount_path.lstrip("/"))

    def scan(self, expected: Iterable[str]) -> Found | None:
        """What is in it, at `expected` paths too; None if it was not there, and is now.

        Of a file that is too long for a memory, a little more than a memory is read.
        """
        found = Found({}, {})
        try:
            fresh = not os.path.lexists(self._top)
            with self._roots.open_directory(self._roots.resolve(self._top), create=True) as top:
                for above, _, names, handle in os.fwalk(".", dir_fd=top):
                    for name in names:
                        if not name.startswith(TEMP_PREFIX):
                            _look(f"{above[1:]}/{name}", name, handle, found)
        except ToolError:  # something else is in its place: writing will say so
            return None
        for path in expected:
            if path not in found.files and (why := self._hidden(path)):
                found.unread.setdefault(path, why)
        return None if fresh else found

    def _hidden(self, path: str) -> str | None:
        """Why a file that was not found may be there; None if it is not."""
        place = self._top
        names = path.split("/")[1:]
        for depth, name in enumerate(names, 1):
            place = f"{place}/{name}"
            try:
                mode = os.lstat(place).st_mode
            except FileNotFoundError:
                return None
            except OSError as error:
                return str(error.strerror)
            if stat.S_ISLNK(mode):
                return "a link is in its place, or on the way"
            if not stat.S_ISDIR(mode):
                return "it cannot be read" if depth == len(names) else None
        return None  # a directory, in which there may be others

    def write(self, path: str, data: bytes, mode: int | None) -> None:
        self._roots.replace_file(self._top + path, data, mode=mode)

    def remove(self, path: str) -> None:
        """Take a file away, and the directories that are empty without it."""
        top = self._roots.resolve(self._top)
        names = (*top.names, *path.split("/")[1:])
        for depth in range(len(names), len(top.names), -1):
            take = os.unlink if depth == len(names) else os.rmdir
            last, above = names[depth - 1], top._replace(names=names[: depth - 1])
            with self._roots.open_directory(above) as handle, suppress(OSError):
                take(last, dir_fd=handle)


def _look(path: str, name: str, above: int, found: Found) -> None:
    """Read a file, if it can be a memory's."""
    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
    if shown != path:
        found.unread[shown] = "its name is not UTF-8"
        return
    try:
        with open(os.open(name, _READ, dir_fd=above), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                found.unread[path] = "it is no regular file"
            elif status.st_nlink > 1:
                found.unread[path] = "it has a second name, which may be outside"
            else:
                found.files[path] = file.read(MAX_BYTES + 1)
    except FileNotFoundError:  # gone this very moment
        return
    except OSError as error:
        link = error.errno == errno.ELOOP
        found.unread[path] = "it is a link, and not followed" if link else str(error.strerror)


async def remember(
    memories: Memories, store: Record, place: Mounted, kept: Kept, by: Actor
) -> tuple[Kept, Told]:
    """Bring both sides together; what they have in common then, and what cannot be kept and why.

    Without `by` the store is not written: the files follow it.
    """
    stored = {memory.body["path"]: memory async for memory in memories.all(store)}
    found = await asyncio.to_thread(place.scan, stored.keys() | kept.common.keys())
    if found is None:  # new, or taken away whole: that is no wish to forget everything
        found, kept = Found({}, {}), Kept()
    files, unread = found
    held = len(stored)
    after = Kept(common={}, refused={})
    told: Told = []
    for path in sorted(files.keys() | unread.keys() | stored.keys()):
        data, memory = files.get(path), stored.get(path)
        here = None if data is None else sha256(data).hexdigest()
        there = None if memory is None else memory.body["sha256"]
        common = kept.common.get(path)
        try:
            if path in unread:
                raise InvalidInput(unread[path])
            elif here == there:
                agreed = here
            elif here == common or (here is None and there != common):
                agreed = await _take(memories, place, path, memory, locked=by is None)
            elif by is not None:
                agreed = await _give(memories, store, path, data, memory, by, held)
                held += (agreed is not None) - (memory is not None)
            elif memory is not None:  # somebody wrote where nothing is to be written
                agreed = await _take(memories, place, path, memory, locked=True)
            else:
                agreed = None
        except (Conflict, NotFound):  # changed this very moment: the next turn sees to it
            agreed = common
        except (InvalidInput, ToolError) as error:
            agreed = common
            after.refused[path] = unread.get(path) or here or there or ""
            if kept.refused.get(path) != after.refused[path]:
                told.append((path, str(error)))
        if agreed is not None:
            after.common[path] = agreed
    return after, told


async def _take(
    memories: Memories, place: Mounted, path: str, memory: Record | None, locked: bool
) -> str | None:
    """Have the file as the store has it."""
    if memory is None:
        await asyncio.to_thread(place.remove, path)
        return None
    data = (await memories.content(memory)).encode()
    await asyncio.to_thread(place.write, path, data, _LOCKED if locked else None)
    digest: str = memory.body["sha256"]
    return digest


async def _give(
    memories: Memories,
    store: Record,
    path: str,
    data: bytes | None,
    memory: Record | None,
    by: Actor,
    held: int,
) -> str | None:
    """Have the store as the file is."""
    if data is None:
        if memory is not None:
            await memories.delete(store, memory, by)
        return None
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"a memory has at most {MAX_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("a memory is text in UTF-8") from None
    if memory is None:
        memory = await memories.create(store, path, text, by, held=held)
    else:
        memory = await memories.update(store, memory, by, content=text)
    digest: str = memory.body["sha256"]
    return digest
