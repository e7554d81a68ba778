"""Memories: texts at paths in a memory store, with a version for each change.

The record of a memory has its path and the id of its current version, which has the text. A record
for each path, changed in the same transaction, keeps two memories from using one path.
"""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from segue.model import ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.record import Record

from .records import Records, new

MAX_MEMORIES = 2000  # in a store
MAX_BYTES = 102_400
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")

# The API key or session that changes a memory, as the API shows it.
Actor = Mapping[str, Any] | None


def kind(store: str) -> str:
    return f"memory:{store}"


def versions(store: str) -> str:
    return f"memory_version:{store}"


class Memories:
    """Create, read, change and delete the memories of memory stores."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def all(self, store: Record) -> AsyncIterator[Record]:
        return self._records.all(store.workspace, kind(store.id))

    async def content(self, memory: Record) -> str:
        store = memory.kind.partition(":")[2]
        current = memory.body["version"]
        version = await self._records.get(memory.workspace, versions(store), current)
        text: str = version.body["content"]
        return text

    async def create(
        self, store: Record, path: str, content: str, by: Actor, *, count: int | None = None
    ) -> Record:
        """Create a memory. `count` is the number of memories in the store, if it is known."""
        about = {"path": check_path(path), **measured(content)}
        if count is None:
            count = len(
                await self._records.list(store.workspace, kind(store.id), limit=MAX_MEMORIES)
            )
        if count >= MAX_MEMORIES:
            raise InvalidInput(f"a memory store holds at most {MAX_MEMORIES} memories")
        id = ids.new_id()
        claim = await self._claim(store, path, id)
        version = _version(store, id, "created", by, content=content, **about)
        body = {**about, "version": version.id}
        memory = new(store.workspace, kind(store.id), body, id)
        await self._records.put(claim, memory, version)
        return memory

    async def update(
        self,
        store: Record,
        memory: Record,
        by: Actor,
        *,
        path: str | None = None,
        content: str | None = None,
    ) -> Record:
        """Change the path or the text of a memory. Does nothing if both stay the same."""
        before = memory.body
        path = before["path"] if path is None else check_path(path)
        content = await self.content(memory) if content is None else content
        about = {"path": path, **measured(content)}
        if about == {name: before[name] for name in about}:
            return memory
        version = _version(store, memory.id, "modified", by, content=content, **about)
        after = replace(
            memory,
            body={**about, "version": version.id},
            version=memory.version + 1,
            updated_at=version.created_at,
        )
        if path == before["path"]:
            await self._records.put(after, version)
        else:
            left = await self._claimed(store, before["path"])
            claim = await self._claim(store, path, memory.id)
            await self._records.put(after, version, claim, drop=[left])
        return after

    async def delete(self, store: Record, memory: Record, by: Actor) -> None:
        """Delete a memory but not its versions."""
        path = memory.body["path"]
        version = _version(store, memory.id, "deleted", by, path=path)
        left = await self._claimed(store, path)
        await self._records.put(version, drop=[memory, left])

    async def delete_all(self, store: Record) -> None:
        """Delete all memories and versions of a memory store."""
        for sort in ("memory", "memory_path", "memory_version"):
            async for record in self._records.all(store.workspace, f"{sort}:{store.id}"):
                await self._records.delete(record)

    async def _claim(self, store: Record, path: str, memory_id: str) -> Record:
        """Return a record that reserves a path for a memory. Raises Conflict if it is in use."""
        try:
            taken = await self._claimed(store, path)
        except NotFound:
            id = ids.derived_id(store.id, path)
            return new(store.workspace, f"memory_path:{store.id}", {"memory": memory_id}, id)
        other = ids.format_id("mem", taken.body["memory"])
        raise Conflict(f"path: {path} is taken by {other}")

    async def _claimed(self, store: Record, path: str) -> Record:
        id = ids.derived_id(store.id, path)
        return await self._records.get(store.workspace, f"memory_path:{store.id}", id)


def _version(store: Record, memory_id: str, operation: str, by: Actor, **body: Any) -> Record:
    about = {"memory": memory_id, "operation": operation, "by": by, **body}
    return new(store.workspace, versions(store.id), about)


def check_path(path: str) -> str:
    parts = path.split("/")
    if parts[0] or not 1 <= len(parts) - 1 <= 20 or not all(parts[1:]):
        raise InvalidInput("path: must begin with / and have 1 to 20 segments, none of them empty")
    if {".", ".."} & set(parts):
        raise InvalidInput("path: no segment may be . or ..")
    if any(unicodedata.category(char) in _CONTROLS for char in path):
        raise InvalidInput("path: must have no control or format characters")
    if not unicodedata.is_normalized("NFC", path) or len(path.encode()) > 1024:
        raise InvalidInput("path: must be in normalization form C and at most 1024 bytes long")
    return path


def measured(content: str) -> dict[str, Any]:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise InvalidInput("content: must be Unicode text") from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"content: at most {MAX_BYTES} bytes")
    return {"sha256": sha256(data).hexdigest(), "size": len(data)}
