"""Sync a memory store with a directory of files, as a three-way merge.

Both sides are compared with the content that they had in common after the last sync:

- A change on one side is copied to the other.
- If both sides changed, the file wins. The memory's text stays in its older versions.
- If one side was deleted and the other changed, the change wins.
- A file that exists but cannot be read does not count as deleted.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from segue.agents.tools.path_guard import ToolError
from segue.hub.resources.memories import MAX_BYTES, Actor, Memories, MemoryBody
from segue.model.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from segue.model.principal import Principal
from segue.model.record import Record

from .mounted_directory import DirectoryScan, MountedDirectory

_READ_ONLY_MODE = 0o444
# One byte more than a memory may have shows that a file is too long.
_MAX_READ_BYTES = MAX_BYTES + 1


class SyncState(msgspec.Struct, kw_only=True):
    """The result of the last sync of one memory store with one directory."""

    base: dict[str, str] = {}  # path → digest of the content that both sides have
    rejected: dict[str, str] = {}  # path → digest of the file, or why it cannot be read


class Rejection(NamedTuple):
    """A path that could not be synced, and why."""

    path: str
    reason: str


class Action(Enum):
    """What a sync does at one path."""

    NOTHING = auto()  # both sides are equal
    UPDATE_FILE = auto()  # write or delete the file to match the store
    UPDATE_MEMORY = auto()  # write or delete the memory to match the file
    IGNORE_FILE = auto()  # leave a file alone that a read-only store does not have


def choose_action(
    *, file: str | None, memory: str | None, base: str | None, writable: bool
) -> Action:
    """Choose what to do at a path from the digests of its file, its memory and the last sync.

    A digest is None if that side does not have the path. The store only changes if it is writable.
    """
    if file == memory:
        return Action.NOTHING
    file_unchanged = file == base
    file_deleted_but_memory_changed = file is None and memory != base
    if file_unchanged or file_deleted_but_memory_changed:
        return Action.UPDATE_FILE
    if writable:
        return Action.UPDATE_MEMORY
    return Action.IGNORE_FILE if memory is None else Action.UPDATE_FILE


class _Path(NamedTuple):
    """Both sides of one path."""

    path: str
    file_digest: str | None
    memory: Record | None

    @property
    def memory_digest(self) -> str | None:
        return None if self.memory is None else MemoryBody.of(self.memory).sha256


class MemorySync:
    """Sync one memory store with one directory.

    Without an actor, only the files change, and programs cannot write to the directory.
    """

    def __init__(
        self,
        memories: Memories,
        principal: Principal,
        store: Record,
        directory: MountedDirectory,
        actor: Actor,
    ) -> None:
        self._memories = memories
        self._principal = principal
        self._store = store
        self._directory = directory
        self._actor = actor
        self._memory_count = 0

    async def run(self, last: SyncState) -> tuple[SyncState, list[Rejection]]:
        """Sync every path. Return the new state, and the rejections that `last` does not have."""
        if self._actor is not None:
            return await self._sync_all(last)
        await asyncio.to_thread(self._directory.set_writable, writable=True)
        try:
            return await self._sync_all(last)
        finally:
            await asyncio.to_thread(self._directory.set_writable, writable=False)

    async def _sync_all(self, last: SyncState) -> tuple[SyncState, list[Rejection]]:
        memories = {
            MemoryBody.of(memory).path: memory async for memory in self._memories.all(self._store)
        }
        self._memory_count = len(memories)
        expected_paths = memories.keys() | last.base.keys()
        scan = await asyncio.to_thread(
            self._directory.scan_or_create, expected_paths, _MAX_READ_BYTES
        )
        if scan is None:  # The whole directory is missing: the agent did not delete each memory.
            scan, last = DirectoryScan({}, {}), SyncState(rejected=last.rejected)
        state = SyncState(base={}, rejected={})
        rejections = []
        for path in sorted(scan.digests.keys() | scan.unreadable.keys() | memories.keys()):
            sides = _Path(path, scan.digests.get(path), memories.get(path))
            base = last.base.get(path)
            unreadable = scan.unreadable.get(path)
            try:
                if unreadable is not None:
                    raise InvalidInput(unreadable)
                base = await self._sync_path(sides, base)
            except (Conflict, NotFound):
                pass  # The store changed during this sync; the next one sees both changes.
            except (InvalidInput, QuotaExceeded, ToolError) as error:
                cause = unreadable or sides.file_digest or sides.memory_digest or ""
                state.rejected[path] = cause
                if last.rejected.get(path) != cause:
                    rejections.append(Rejection(path, str(error)))
            if base is not None:
                state.base[path] = base
        return state, rejections

    async def _sync_path(self, sides: _Path, base: str | None) -> str | None:
        """Sync one path and return the digest that both sides then have, if any."""
        action = choose_action(
            file=sides.file_digest,
            memory=sides.memory_digest,
            base=base,
            writable=self._actor is not None,
        )
        if action is Action.NOTHING:
            return sides.memory_digest
        if action is Action.IGNORE_FILE:
            return None
        if action is Action.UPDATE_FILE:
            return await self._update_file(sides)
        return await self._update_memory(sides)

    async def _update_file(self, sides: _Path) -> str | None:
        if sides.memory is None:
            await asyncio.to_thread(self._directory.remove, sides.path)
            return None
        data = (await self._memories.content(sides.memory)).encode()
        mode = _READ_ONLY_MODE if self._actor is None else None
        await asyncio.to_thread(self._directory.write, sides.path, data, mode=mode)
        return sides.memory_digest

    async def _update_memory(self, sides: _Path) -> str | None:
        path, file_digest, memory = sides
        if file_digest is None:
            if memory is not None:
                await self._memories.delete(self._store, memory, self._actor)
                self._memory_count -= 1
            return None
        # Read again, so that a scan does not hold all files in memory.
        text = _decode(await asyncio.to_thread(self._directory.read, path, _MAX_READ_BYTES))
        if memory is None:
            memory = await self._memories.create(
                self._principal, self._store, path, text, self._actor, count=self._memory_count
            )
            self._memory_count += 1
        else:
            memory = await self._memories.update(
                self._principal, self._store, memory, self._actor, content=text
            )
        return MemoryBody.of(memory).sha256


def _decode(data: bytes) -> str:
    """Return the text of a file. Raises InvalidInput if it cannot be a memory."""
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"a memory may have at most {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("a memory must be UTF-8 text") from None
