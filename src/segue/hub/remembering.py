"""A memory store as files: both sides are compared with what they last had in common.

What changed on one side goes to the other. What changed on both is taken from the files, and the
other text stays among the memory's versions; what was deleted on one side and changed on the other
is kept. Links are never followed, and a file is written beside its place and then put there.
"""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from ..agents.tools.roots import DRAFT, Roots, ToolError
from ..model.errors import Conflict, InvalidInput, NotFound
from ..store.base import Record
from .memories import MAX_BYTES, Actor, Memories

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCKED = 0o444


class Kept(msgspec.Struct, kw_only=True):
    """What files and store last had in common, path → digest; and files that cannot be kept."""

    common: dict[str, str] = {}
    refused: dict[str, str] = {}


Told = list[tuple[str, str]]


class Mounted:
    """A directory below a session's; no link leads out of that one."""

    def __init__(self, root: Path, mount_path: str) -> None:
        self._roots = Roots([str(root)], strict=False)
        self._top = str(root / mount_path.lstrip("/"))

    def scan(self) -> dict[str, bytes] | None:
        """The regular files in it by their paths; None if it was not there, and is now.

        Of one that is too long for a memory, a little more than a memory is read.
        """
        found: dict[str, bytes] = {}
        try:
            fresh = not os.path.lexists(self._top)
            with self._roots.directory(self._roots.resolve(self._top), create=True) as top:
                for above, _, names, handle in os.fwalk(".", dir_fd=top):
                    for name in names:
                        with suppress(OSError):
                            data = _regular(name, handle)
                            if data is not None:
                                found[f"{above[1:]}/{name}"] = data
        except ToolError:  # something else is in its place: writing will say so
            return None
        return None if fresh else found

    def write(self, path: str, data: bytes, mode: int | None) -> None:
        self._roots.replace(self._top + path, data, mode=mode)

    def remove(self, path: str) -> None:
        """Take a file away, and the directories that are empty without it."""
        place = self._roots.resolve(self._top + path)
        kept = len(self._roots.resolve(self._top).names)
        for depth in range(len(place.names), kept, -1):
            *names, last = place.names[:depth]
            take = os.unlink if depth == len(place.names) else os.rmdir
            above = place._replace(names=tuple(names))
            with self._roots.directory(above) as handle, suppress(OSError):
                take(last, dir_fd=handle)


def _regular(name: str, above: int) -> bytes | None:
    if name.startswith(DRAFT):
        return None
    with open(os.open(name, _READ, dir_fd=above), "rb") as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(MAX_BYTES + 1) if regular else None


async def remember(
    memories: Memories, store: Record, place: Mounted, kept: Kept, by: Actor
) -> tuple[Kept, Told]:
    """Bring both sides together; what they have in common then, and what cannot be kept and why.

    Without `by` the store is not written: the files follow it.
    """
    files = await asyncio.to_thread(place.scan)
    if files is None:  # new, or taken away whole: that is no wish to forget everything
        files, kept = {}, Kept()
    stored = {memory.body["path"]: memory async for memory in memories.all(store)}
    after = Kept(common={}, refused={})
    told: Told = []
    for path in sorted(files.keys() | stored.keys()):
        data, memory = files.get(path), stored.get(path)
        here = None if data is None else sha256(data).hexdigest()
        there = None if memory is None else memory.body["sha256"]
        common = kept.common.get(path)
        try:
            if here == there:
                agreed = here
            elif here == common or (here is None and there != common):
                agreed = await _take(memories, place, path, memory, locked=by is None)
            elif by is not None:
                agreed = await _give(memories, store, path, data, memory, by)
            elif memory is not None:  # somebody wrote where nothing is to be written
                agreed = await _take(memories, place, path, memory, locked=True)
            else:
                agreed = None
        except (Conflict, NotFound):  # changed this very moment: the next turn sees to it
            agreed = common
        except (InvalidInput, ToolError) as error:
            agreed = common
            after.refused[path] = here or there or ""
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
        memory = await memories.create(store, path, text, by)
    else:
        memory = await memories.update(store, memory, by, content=text)
    digest: str = memory.body["sha256"]
    return digest
