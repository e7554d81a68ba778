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

from segue.hub.access.quotas import Quotas
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody

from .record_ids import parent_id
from .records import Records, new

MAX_MEMORIES = 2000  # in a store
MAX_BYTES = 102_400
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")

# The API key or session that changes a memory, as the API shows it.
Actor = Mapping[str, Any] | None


class MemoryStoreBody(RecordBody, frozen=True):
    """The body of a memory store's record."""

    name: str
    description: str | None
    metadata: dict[str, str]


class MemoryBody(RecordBody, frozen=True):
    """The body of a memory's record. `version` is the id of its current version."""

    path: str
    sha256: str
    size: int
    version: str


class MemoryVersionBody(RecordBody, frozen=True):
    """The body of a version's record. A deleted or redacted version has no content."""

    memory: str
    operation: str
    by: Mapping[str, Any] | None
    path: str | None = None
    sha256: str | None = None
    size: int | None = None
    content: str | None = None
    redacted_at: int | None = None
    redacted_by: Mapping[str, Any] | None = None


class PathBody(RecordBody, frozen=True):
    """The body of the record that reserves a path for a memory."""

    memory: str


def kind(store: str) -> str:
    """Return the kind of the records of a store's memories."""
    return f"memory:{store}"


def versions(store: str) -> str:
    """Return the kind of the records of the versions of a store's memories."""
    return f"memory_version:{store}"


def _path_kind(store: str) -> str:
    return f"memory_path:{store}"


class Memories:
    """Create, read, change and delete the memories of memory stores."""

    def __init__(self, records: Records, quotas: Quotas) -> None:
        self._records = records
        self._quotas = quotas

    def all(self, store: Record) -> AsyncIterator[Record]:
        """Yield the memories of a store, newest first."""
        return self._records.all(store.workspace, kind(store.id))

    async def content(self, memory: Record) -> str:
        """Return the text of a memory."""
        store_id = memory.kind.partition(":")[2]
        version = await self._records.get(
            memory.workspace, versions(store_id), MemoryBody.of(memory).version
        )
        return MemoryVersionBody.of(version).content or ""

    async def create(
        self,
        principal: Principal,
        store: Record,
        path: str,
        content: str,
        by: Actor,
        *,
        count: int | None = None,
    ) -> Record:
        """Create a memory. `count` is the number of memories in the store, if it is known."""
        check_path(path)
        _, size = _measure(content)
        if count is None:
            count = len(
                await self._records.list(store.workspace, kind(store.id), limit=MAX_MEMORIES)
            )
        if count >= MAX_MEMORIES:
            raise InvalidInput(f"a memory store holds at most {MAX_MEMORIES} memories")
        id = ids.new_id()
        claim = await self._claim(store, path, id)
        version, body = _write(store, id, "created", by, path, content)
        memory = new(store.workspace, kind(store.id), body.encode(), id)
        async with self._quotas.reserve(principal, files=1, bytes=size):
            await self._records.put(claim, memory, version)
        return memory

    async def update(
        self,
        principal: Principal,
        store: Record,
        memory: Record,
        by: Actor,
        *,
        path: str | None = None,
        content: str | None = None,
    ) -> Record:
        """Change the path or the text of a memory. Does nothing if both stay the same."""
        before = MemoryBody.of(memory)
        path = before.path if path is None else check_path(path)
        content = await self.content(memory) if content is None else content
        version, body = _write(store, memory.id, "modified", by, path, content)
        if (path, body.sha256) == (before.path, before.sha256):
            return memory
        after = replace(
            memory,
            body=body.encode(),
            version=memory.version + 1,
            updated_at=version.created_at,
        )
        records, dropped = [after, version], []
        if path != before.path:
            dropped.append(await self._find_claim(store, before.path))
            records.append(await self._claim(store, path, memory.id))
        async with self._quotas.reserve(principal, bytes=body.size):
            await self._records.put(*records, drop=dropped)
        return after

    async def delete(self, store: Record, memory: Record, by: Actor) -> None:
        """Delete a memory but not its versions."""
        path = MemoryBody.of(memory).path
        body = MemoryVersionBody(memory=memory.id, operation="deleted", by=by, path=path)
        claim = await self._find_claim(store, path)
        await self._records.put(_new_version(store, body), drop=[memory, claim])

    async def redact(self, version: Record, by: Actor) -> Record:
        """Delete the path and the text of a version. Does nothing if it is redacted already.

        Raises InvalidInput for the current version of a memory.
        """
        body = MemoryVersionBody.of(version)
        if body.redacted_at is not None:
            return version
        memory = await self._records.find(version.workspace, kind(parent_id(version)), body.memory)
        if memory is not None and MemoryBody.of(memory).version == version.id:
            raise InvalidInput(
                "the version is the memory's current one; change or delete the memory first"
            )
        redacted = MemoryVersionBody(
            memory=body.memory,
            operation=body.operation,
            by=body.by,
            redacted_at=clock.now(),
            redacted_by=by,
        )
        return await self._records.amend(replace(version, body=redacted.encode()))

    async def delete_all(self, store: Record) -> None:
        """Delete all memories and versions of a memory store."""
        for record_kind in (kind(store.id), _path_kind(store.id), versions(store.id)):
            async for record in self._records.all(store.workspace, record_kind):
                await self._records.delete(record)

    async def _claim(self, store: Record, path: str, memory_id: str) -> Record:
        """Return a record that reserves a path for a memory. Raises Conflict if it is in use."""
        try:
            claim = await self._find_claim(store, path)
        except NotFound:
            id = ids.derived_id(store.id, path)
            body = PathBody(memory=memory_id)
            return new(store.workspace, _path_kind(store.id), body.encode(), id)
        other = ids.format_id("mem", PathBody.of(claim).memory)
        raise Conflict(f"path: {path} is taken by {other}")

    async def _find_claim(self, store: Record, path: str) -> Record:
        """Return the record that reserves a path. Raises NotFound if the path is free."""
        id = ids.derived_id(store.id, path)
        return await self._records.get(store.workspace, _path_kind(store.id), id)


def _write(
    store: Record, memory_id: str, operation: str, by: Actor, path: str, content: str
) -> tuple[Record, MemoryBody]:
    """Return a new version of a memory and the memory's new body. Neither is stored yet."""
    digest, size = _measure(content)
    version = MemoryVersionBody(
        memory=memory_id,
        operation=operation,
        by=by,
        path=path,
        sha256=digest,
        size=size,
        content=content,
    )
    record = _new_version(store, version)
    return record, MemoryBody(path=path, sha256=digest, size=size, version=record.id)


def _new_version(store: Record, body: MemoryVersionBody) -> Record:
    return new(store.workspace, versions(store.id), body.encode())


def check_path(path: str) -> str:
    """Return the path of a memory. Raises InvalidInput if it is not valid."""
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


def _measure(content: str) -> tuple[str, int]:
    """Return the digest and the size of a text. Raises InvalidInput if it is too long."""
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise InvalidInput("content: must be Unicode text") from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"content: at most {MAX_BYTES} bytes")
    return sha256(data).hexdigest(), len(data)
