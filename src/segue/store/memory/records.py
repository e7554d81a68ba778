"""Records and the parts of files, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import clock, codec, errors
from segue.model.query import Position
from segue.model.record import Record
from segue.store.base import FILE_KINDS, SHARE_KIND, check_record_version, share_record_id

from .deliveries import MemoryDeliveries

_decode_any: codec.Decoder[Any] = codec.Decoder(Any)


class MemoryRecords:
    """The versions of records by workspace, kind and id, and files as numbered parts."""

    def __init__(self, queue: MemoryDeliveries) -> None:
        self._queue = queue
        self._records: dict[tuple[str, str, str], list[Record]] = {}
        self._parts: dict[tuple[str, str], dict[int, bytes]] = {}
        self._upload_started_at: dict[tuple[str, str], int] = {}

    async def put_record(
        self, record: Record, *, amend: bool = False, drop_earlier: bool = False
    ) -> Record:
        name = record.workspace, record.kind, record.id
        versions = self._records.get(name, [])
        self._check_newest(record, record.version - (not amend))
        if not amend:
            self._check_archived(record)
        stored = replace(record, body=_decode_any(codec.encode(record.body)))
        self._queue.record_changed(versions[-1] if versions else None, stored)
        earlier = versions[:-1] if amend else versions
        self._records[name] = [*([] if drop_earlier else earlier), stored]
        return record

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        for record in records:
            self._check_newest(record, record.version - 1)
            self._check_archived(record)
        for record in drop:
            self._check_newest(record, record.version)
        for record in records:
            await self.put_record(record)
        for record in drop:
            self._queue.record_changed(record, None)
            del self._records[record.workspace, record.kind, record.id]

    def _check_newest(self, record: Record, expected: int) -> None:
        versions = self._records.get((record.workspace, record.kind, record.id))
        newest = versions[-1].version if versions else 0
        check_record_version(record, newest, expected)

    def _check_archived(self, record: Record) -> None:
        versions = self._records.get((record.workspace, record.kind, record.id))
        if versions and versions[-1].archived_at is not None and record.archived_at is None:
            raise errors.Conflict(f"the {record.kind} is archived now; read it again")

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        self._parts.setdefault((workspace, file), {})[number] = bytes(data)
        self._upload_started_at.setdefault((workspace, file), clock.now())

    async def part(self, workspace: str, file: str, number: int) -> bytes | None:
        return self._parts.get((workspace, file), {}).get(number)

    async def drop_parts(self, workspace: str, file: str) -> None:
        self._parts.pop((workspace, file), None)
        self._upload_started_at.pop((workspace, file), None)

    async def drop_unfinished_uploads(self, before: int) -> None:
        for (workspace, file), at in list(self._upload_started_at.items()):
            has_record = any((workspace, kind, file) in self._records for kind in FILE_KINDS)
            if at < before and not has_record:
                await self.drop_parts(workspace, file)

    async def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        versions = self._records.get((workspace, kind, id), [])
        versions = versions[-1:] if version is None else versions
        return next((record for record in versions if version in (None, record.version)), None)

    async def records(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[Record]:
        def position_of(record: Record) -> Position:
            return Position(record.created_at, record.id)

        records = [
            versions[-1]
            for (owner, sort, _), versions in self._records.items()
            if (owner, sort) == (workspace, kind)
            and (archived or versions[-1].archived_at is None)
            and (after is None or position_of(versions[-1]) < after)
        ]
        return sorted(records, key=position_of, reverse=True)[:limit]

    def drop_share(self, workspace: str, session: str) -> None:
        """Delete the share link of a purged session."""
        self._records.pop((workspace, SHARE_KIND, share_record_id(session)), None)

    def versions(self, workspace: str) -> list[Record]:
        """Return all versions of the records of a workspace."""
        lists = [
            versions for (owner, _, _), versions in self._records.items() if owner == workspace
        ]
        return [record for versions in lists for record in versions]

    def kinds(self, workspace: str) -> list[str]:
        """Return the kind of each record of a workspace."""
        return [kind for owner, kind, _ in self._records if owner == workspace]

    def part_bytes(self, workspace: str) -> int:
        """Return the size of all parts of files of a workspace."""
        files = (parts for (owner, _), parts in self._parts.items() if owner == workspace)
        return sum(len(part) for parts in files for part in parts.values())
