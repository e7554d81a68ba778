"""Rows that belong to no session: keys, records, file parts, overlays, settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from segue.model import clock, codec, errors
from segue.model.principal import ApiKey
from segue.model.query import Position
from segue.model.record import Record
from segue.model.webhooks.notices import is_announced, record_notices
from segue.store.base import WEBHOOK_KIND, Usage, check_record_version
from segue.store.rows import TURNS, decode_any, decode_key, decode_record

from .connection import Connection, Database
from .deliveries import drop as drop_deliveries
from .deliveries import notify, subscribe


class Records:
    """Read and write keys, records, file parts, overlays and settings."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put_key(self, key: ApiKey) -> None:
        sql = """
            INSERT INTO keys (id, workspace, digest, row) VALUES ($1, $2, $3, $4)
            ON CONFLICT (id) DO UPDATE SET workspace = $2, digest = $3, row = $4
        """
        await self._database.write(sql, key.id, key.workspace, key.digest, codec.encode(key))

    async def find_key(self, digest: bytes) -> ApiKey | None:
        rows = await self._database.fetch("SELECT row FROM keys WHERE digest = $1", digest)
        return decode_key(rows[0][0]) if rows else None

    async def keys(self, workspace: str | None = None) -> list[ApiKey]:
        sql = "SELECT row FROM keys WHERE $1::text IS NULL OR workspace = $1 ORDER BY id"
        return [decode_key(row) for (row,) in await self._database.fetch(sql, workspace)]

    async def revoke_key(self, workspace: str, id: str, at: int) -> bool:
        async def revoke(connection: Connection) -> bool:
            sql = "SELECT row FROM keys WHERE workspace = $1 AND id = $2 FOR UPDATE"
            row = await connection.fetchval(sql, workspace, id)
            if row is None or (key := decode_key(row)).revoked_at is not None:
                return False
            row = codec.encode(replace(key, revoked_at=at))
            await connection.execute("UPDATE keys SET row = $2 WHERE id = $1", id, row)
            return True

        return await self._database.transact(revoke)

    async def put_record(
        self, record: Record, *, amend: bool = False, drop_earlier: bool = False
    ) -> Record:
        async def put(connection: Connection) -> None:
            await _lock(connection, [record])
            await _put(connection, record, amend=amend)
            if drop_earlier:
                sql = f"DELETE FROM records WHERE {_NAMED} AND version < $4"
                await connection.execute(sql, *_name(record), record.version)

        await self._database.transact(put)
        return record

    async def put_records(self, records: Sequence[Record], drop: Sequence[Record] = ()) -> None:
        async def put(connection: Connection) -> None:
            await _lock(connection, [*records, *drop])
            for record in records:
                await _put(connection, record, amend=False)
            for record in drop:
                await _check_newest(connection, record, record.version)
                await _announce(connection, record, None)
                await connection.execute(f"DELETE FROM records WHERE {_NAMED}", *_name(record))
                if record.kind == WEBHOOK_KIND:
                    await drop_deliveries(connection, record.workspace, record.id)

        await self._database.transact(put)

    async def put_part(self, workspace: str, file: str, number: int, data: bytes) -> None:
        sql = """
            INSERT INTO parts (workspace, file, number, at, data) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (workspace, file, number) DO UPDATE SET data = $5
        """
        await self._database.write(sql, workspace, file, number, clock.now(), data)

    async def part(self, workspace: str, file: str, number: int) -> bytes | None:
        sql = "SELECT data FROM parts WHERE workspace = $1 AND file = $2 AND number = $3"
        rows = await self._database.fetch(sql, workspace, file, number)
        return rows[0][0] if rows else None

    async def drop_parts(self, workspace: str, file: str) -> None:
        sql = "DELETE FROM parts WHERE workspace = $1 AND file = $2"
        await self._database.write(sql, workspace, file)

    async def drop_unfinished_uploads(self, before: int) -> None:
        sql = """
            DELETE FROM parts USING parts AS first
            WHERE first.number = 0 AND first.at < $1
              AND parts.workspace = first.workspace AND parts.file = first.file
              AND NOT EXISTS (SELECT FROM records AS r WHERE r.kind IN ('file', 'archive')
                              AND r.workspace = first.workspace AND r.id = first.file)
        """
        await self._database.write(sql, before)

    async def get_record(
        self, workspace: str, kind: str, id: str, version: int | None = None
    ) -> Record | None:
        sql = "SELECT row FROM records WHERE workspace = $1 AND kind = $2 AND id = $3 AND "
        args: list[Any] = [workspace, kind, id]
        if version is None:
            sql += "newest"
        else:
            sql, args = f"{sql} version = $4", [*args, version]
        rows = await self._database.fetch(sql, *args)
        return decode_record(rows[0][0]) if rows else None

    async def records(
        self,
        workspace: str,
        kind: str,
        *,
        after: Position | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[Record]:
        args: list[Any] = [workspace, kind, limit, *(after or ())]
        arms = []
        for state in ("false", "true") if archived else ("false",):
            sql = "SELECT created_at, id, row FROM records"
            sql += f" WHERE newest AND workspace = $1 AND kind = $2 AND archived = {state}"
            arms.append(f"{sql} AND (created_at, id) < ($4, $5)" if after else sql)
        sql = " UNION ALL ".join(arms) + " ORDER BY 1 DESC, 2 DESC LIMIT $3"
        return [decode_record(row) for _, _, row in await self._database.fetch(sql, *args)]

    async def usage(self, workspace: str) -> Usage:
        sums = (f"coalesce(sum({name}), 0)::bigint" for name in Usage._fields[:-1])
        sql = f"SELECT {', '.join(sums)}, ({TURNS.format('$1')}) FROM usage WHERE workspace = $1"
        (row,) = await self._database.fetch(sql, workspace)
        return Usage(*row)

    async def set_overlay(
        self, workspace: str, source: str, id: str, patch: dict[str, Any]
    ) -> None:
        sql = """
            INSERT INTO overlays (workspace, source, id, patch) VALUES ($1, $2, $3, $4)
            ON CONFLICT (workspace, source, id) DO UPDATE SET patch = $4
        """
        await self._database.write(sql, workspace, source, id, codec.encode(patch))

    async def overlays(self, workspace: str, source: str) -> dict[str, dict[str, Any]]:
        sql = "SELECT id, patch FROM overlays WHERE workspace = $1 AND source = $2"
        rows = await self._database.fetch(sql, workspace, source)
        return {id: decode_any(patch) for id, patch in rows}

    async def set_setting(self, workspace: str, name: str, value: Any) -> None:
        sql = """
            INSERT INTO settings (workspace, name, value) VALUES ($1, $2, $3)
            ON CONFLICT (workspace, name) DO UPDATE SET value = $3
        """
        await self._database.write(sql, workspace, name, codec.encode(value))

    async def settings(self, workspace: str) -> dict[str, Any]:
        sql = "SELECT name, value FROM settings WHERE workspace = $1"
        rows = await self._database.fetch(sql, workspace)
        return {name: decode_any(value) for name, value in rows}


_NAMED = "workspace = $1 AND kind = $2 AND id = $3"


def _name(record: Record) -> tuple[str, str, str]:
    return record.workspace, record.kind, record.id


async def _lock(connection: Connection, records: Iterable[Record]) -> None:
    """Lock records, so that the second of two writers reads what the first one wrote."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
    # All writers lock in the same order, so that no two wait for each other.
    for name in sorted({"\t".join(_name(record)) for record in records}):
        await connection.execute(lock, name)


async def _check_newest(connection: Connection, record: Record, expected: int) -> None:
    sql = f"SELECT coalesce(max(version), 0) FROM records WHERE {_NAMED}"
    newest = await connection.fetchval(sql, *_name(record))
    check_record_version(record, newest, expected)


async def _put(connection: Connection, record: Record, *, amend: bool) -> None:
    newest = record.version - (not amend)
    await _check_newest(connection, record, newest)
    if not amend and record.archived_at is None:
        sql = f"SELECT archived FROM records WHERE {_NAMED} AND version = $4"
        if await connection.fetchval(sql, *_name(record), newest):
            raise errors.Conflict(f"the {record.kind} is archived now; read it again")
    await _announce(connection, record, record)
    if record.kind == WEBHOOK_KIND:
        await subscribe(connection, record)
    sql = f"UPDATE records SET newest = false WHERE {_NAMED} AND newest"
    await connection.execute(sql, *_name(record))
    sql = """
        INSERT INTO records (workspace, kind, id, version, newest, archived, created_at, row)
        VALUES ($1, $2, $3, $4, true, $5, $6, $7)
        ON CONFLICT (workspace, kind, id, version) DO UPDATE SET
          newest = true, archived = $5, created_at = $6, row = $7
    """
    archived = record.archived_at is not None
    values = record.version, archived, record.created_at, codec.encode(record)
    await connection.execute(sql, *_name(record), *values)


async def _announce(connection: Connection, record: Record, after: Record | None) -> None:
    """Queue the notices of a record that is about to become `after`; None if it is deleted."""
    if not is_announced(record.kind):
        return
    sql = f"SELECT row FROM records WHERE {_NAMED} AND newest"
    row = await connection.fetchval(sql, *_name(record))
    before = None if row is None else decode_record(row)
    if before is not None or after is not None:
        await notify(connection, record.workspace, record_notices(before, after))
