"""Uploaded files and archives of skills: a record for each, and its bytes in parts.

The record is stored last. Parts without a record are from an upload that did not end. At its first
upload, a process deletes such parts that are a day old.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from segue.hub.access.quotas import Quotas
from segue.model import clock, ids
from segue.model.errors import NotFound
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.store.base import Store

from .records import Records

KIND = "file"
ARCHIVE = "archive"
PART_BYTES = 1 << 20


class FileBody(RecordBody, frozen=True):
    """The body of a file's record. Archives have no name and no type.

    `scope` is the session that the file belongs to. `gone` says that its bytes were deleted.
    """

    size: int
    sha256: str
    filename: str | None = None
    mime_type: str | None = None
    scope: str | None = None
    expires_at: int | None = None
    gone: bool = False


class Files:
    """Store, read and delete files, scoped by workspace. `kind` is the kind of their records."""

    def __init__(self, store: Store, records: Records, quotas: Quotas, kind: str = KIND) -> None:
        self._store = store
        self._records = records
        self._quotas = quotas
        self._kind = kind
        self._swept = False

    async def store(
        self, principal: Principal, data: AsyncIterable[bytes], fields: Mapping[str, Any]
    ) -> Record:
        """Store a file. Its record has some fields of FileBody, and its size and digest.

        Raises QuotaExceeded, and stores nothing, if the workspace has too many files or bytes.
        """
        workspace = principal.workspace
        await self._quotas.check(principal, files=1, bytes=1)
        if not self._swept:
            self._swept = True
            await self._store.drop_unfinished_uploads(clock.now() - clock.DAY)
        id = ids.new_id()
        size, digest = 0, sha256()
        try:
            number = 0
            async for part in _parts(data):
                async with self._quotas.reserve(principal, bytes=len(part)):
                    await self._store.put_part(workspace, id, number, part)
                digest.update(part)
                size += len(part)
                number += 1
            body = FileBody(**{**fields, "size": size, "sha256": digest.hexdigest()})
            async with self._quotas.reserve(principal, files=1):
                return await self._records.create(workspace, self._kind, body.encode(), id)
        except BaseException:
            await self._store.drop_parts(workspace, id)
            raise

    async def read(self, file: Record) -> AsyncIterator[bytes]:
        """Yield the parts of a file. Raises NotFound if it is deleted during the read."""
        for number in range(-(-FileBody.of(file).size // PART_BYTES)):
            part = await self._store.part(file.workspace, file.id, number)
            if part is None:
                raise NotFound(f"file {file.id} was deleted")
            yield part

    async def copy(self, principal: Principal, file: Record, changes: Mapping[str, Any]) -> Record:
        """Store a copy of a file in its workspace, with some fields changed."""
        return await self.store(principal, self.read(file), {**file.body, **changes})

    async def delete_content(self, file: Record) -> Record:
        """Delete the bytes of a file but not its record."""
        await self._store.drop_parts(file.workspace, file.id)
        body = replace(FileBody.of(file), gone=True)
        emptied = replace(file, body=body.encode())
        return await self._store.put_record(emptied, amend=True)

    async def delete(self, file: Record) -> None:
        """Delete a file and its record."""
        await self._records.delete(file)
        await self._store.drop_parts(file.workspace, file.id)


async def _parts(data: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield bytes in parts of PART_BYTES bytes; the last part may be shorter."""
    buffer = bytearray()
    async for chunk in data:
        buffer += chunk
        while len(buffer) >= PART_BYTES:
            yield bytes(buffer[:PART_BYTES])
            del buffer[:PART_BYTES]
    if buffer:
        yield bytes(buffer)
