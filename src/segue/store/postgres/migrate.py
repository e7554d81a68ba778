"""Bringing a database up to date.

Several processes may do this at once: the first to get the lock migrates, in one transaction, the
others wait and find nothing left to do. A store that a newer program has closed to us is refused.
"""

from __future__ import annotations

from typing import Any

from segue.model import errors
from segue.store import migrations

_LOCK = 0x5E90E  # any number that no other program locks in this database

# The next transaction to begin.
_NEXT = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_PATIENCE = 3600  # seconds; a migration may have much to do
_OLDEST = 13  # the first PostgreSQL with transaction ids that never wrap around


async def prepare(connection: Any, place: str) -> None:
    """Make the store if it is not there, and bring it up to date. `place` is named in errors."""
    if connection.get_server_version().major < _OLDEST:
        raise errors.StoreError(f"segue needs PostgreSQL {_OLDEST} or newer: {place}")
    if connection.get_settings().server_encoding != "UTF8":
        raise errors.StoreError(f"the encoding must be UTF8: {place}")
    if not await _current(connection, place):
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = 0")
            lock = f"SELECT pg_advisory_xact_lock({_LOCK})"
            await connection.execute(lock, timeout=_PATIENCE)
            if not await _current(connection, place):
                await _migrate(connection)
    if await connection.fetchval(f"SELECT EXISTS (SELECT FROM sessions WHERE change >= {_NEXT})"):
        await _adopt(connection)


async def _current(connection: Any, place: str) -> bool:
    """Whether every migration we know is in. Raises StoreTooNew for a store closed to us."""
    if await connection.fetchval("SELECT to_regclass('migrations')") is None:
        return False
    sql = "SELECT max(number), max(compat) FROM migrations"
    version, compat = await connection.fetchrow(sql)
    newest = migrations.load("postgres")[-1].number
    if compat > newest:
        raise errors.StoreTooNew(
            f"{place} was written by a newer segue (format {version}; this one knows {newest});"
            " upgrade segue to use it"
        )
    return bool(version >= newest)


async def _migrate(connection: Any) -> None:
    # A schema that somebody made for us will do; making one takes more rights than using it.
    if await connection.fetchval("SELECT to_regnamespace('segue')") is None:
        await connection.execute("CREATE SCHEMA segue")
    await connection.execute("""
        CREATE TABLE IF NOT EXISTS migrations (
          number integer PRIMARY KEY,
          name text NOT NULL,
          compat integer NOT NULL,
          at timestamptz NOT NULL DEFAULT now()
        )
    """)
    version = await connection.fetchval("SELECT coalesce(max(number), 0) FROM migrations")
    for migration in migrations.load("postgres"):
        if migration.number > version:
            await connection.execute(migration.sql, timeout=_PATIENCE)
            sql = "INSERT INTO migrations (number, name, compat) VALUES ($1, $2, $3)"
            await connection.execute(sql, migration.number, migration.name, migration.compat)


async def _adopt(connection: Any) -> None:
    """Forget transaction ids of another server, from which this database was copied.

    No row that we see can have been written by a transaction that has not begun yet. One snapshot
    for both statements, and none of the rows changed meanwhile: others may be at work already.
    """
    async with connection.transaction(isolation="repeatable_read"):
        sql = f"UPDATE sessions SET change = 0, born = 0 WHERE change >= {_NEXT}"
        await connection.execute(sql)
        await connection.execute(f"DELETE FROM purged WHERE change >= {_NEXT}")
