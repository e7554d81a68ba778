"""Files that clients upload, and skills' archives: bytes in parts in the store, a record of each.

The record is written last. Parts without one are what an upload that never ended left behind; a
process that takes its first upload drops those that are a day old.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.errors import NotFound
from segue.model.record import Record
from segue.store.base import Store

from .records import Records

KIND = "file"
ARCHIVE = "archive"
PART = 1 << 20


class Files:
    """The files of a store, scoped by workspace; `kind` is that of their records."""

    def __init__(self, store: Store, records: Records, kind: str = KIND) -> None:
        self._store = store
        self._records = records
        self._kind = kind
        self._swept = False

    async def keep(
        self, workspace: str, data: AsyncIterable[bytes], about: dict[str, Any]
    ) -> Record:
        """A new file. `about` is kept with it, beside its size and digest."""
        if not self._swept:
            self._swept = True
            await self._store.drop_unfinished_uploads(clock.now() - clock.DAY)
        id = ids.new_id()
        size, digest = 0, sha256()
        try:
            number = 0
            async for part in _parts(data):
                await self._store.put_part(workspace, id, number, part)
                digest.update(part)
                size += len(part)
                number += 1
            body = {**about, "size": size, "sha256": digest.hexdigest()}
            return await self._records.create(workspace, self._kind, body, id)
        except BaseException:
            await self._store.drop_parts(workspace, id)
            raise

    async def read(self, file: Record) -> AsyncIterator[bytes]:
        """The bytes of a file, a part at a time; NotFound if it is deleted meanwhile."""
        for number in range(-(-int(file.body["size"]) // PART)):
            part = await self._store.part(file.workspace, file.id, number)
            if part is None:
                raise NotFound(f"file {file.id} is gone")
            yield part

    async def copy(self, file: Record, about: dict[str, Any]) -> Record:
        """The same bytes as a file of its own."""
        return await self.keep(file.workspace, self.read(file), {**file.body, **about})

    async def empty(self, file: Record) -> Record:
        """Let the bytes go and keep the record."""
        await self._store.drop_parts(file.workspace, file.id)
        emptied = replace(file, body={**file.body, "gone": True})
        return await self._store.put_record(emptied, amend=True)

    async def delete(self, file: Record) -> None:
        await self._records.delete(file)
        await self._store.drop_parts(file.workspace, file.id)


async def _parts(data: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, cut into parts that are all of one size but the last."""
    held = bytearray()
    async for chunk in data:
        held += chunk
        while len(held) >= PART:
            yield bytes(held[:PART])
            del held[:PART]
    if held:
        yield bytes(held)
