"""Create or migrate the tables of a PostgreSQL store.

Several processes may do this at once: the first to get the lock migrates, in one transaction, the
others wait and find nothing left to do.
"""

from __future__ import annotations

from typing import Any

from segue.model import errors
from segue.store import migrations

_LOCK = 0x5E90E  # any number that no other program locks in this database

# The next transaction to begin.
_NEXT_TRANSACTION = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_MIGRATION_SECONDS = 3600  # a migration may have many rows to change
_MIN_SERVER_VERSION = 13  # the first PostgreSQL with transaction ids that never wrap around


async def prepare(connection: Any, location: str) -> None:
    """Create the store if it does not exist, and run the migrations it lacks.

    `location` is named in errors. Raises StoreTooNew for a store that a newer segue has migrated,
    StoreTooOld for one of an unreleased segue; neither is changed.
    """
    if connection.get_server_version().major < _MIN_SERVER_VERSION:
        raise errors.StoreError(
            f"segue needs PostgreSQL {_MIN_SERVER_VERSION} or newer: {location}"
        )
    if connection.get_settings().server_encoding != "UTF8":
        raise errors.StoreError(f"the encoding must be UTF8: {location}")
    if not await _is_current(connection, location):
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = 0")
            lock = f"SELECT pg_advisory_xact_lock({_LOCK})"
            await connection.execute(lock, timeout=_MIGRATION_SECONDS)
            if not await _is_current(connection, location):
                await _migrate(connection)
    sql = f"SELECT EXISTS (SELECT FROM sessions WHERE change >= {_NEXT_TRANSACTION})"
    if await connection.fetchval(sql):
        await _reset_foreign_transaction_ids(connection)


async def _is_current(connection: Any, location: str) -> bool:
    """Return whether all migrations have run. Raises StoreTooNew if a newer segue is required."""
    if await connection.fetchval("SELECT to_regclass('migrations')") is None:
        return False
    sql = "SELECT max(number), max(compat) FROM migrations"
    version, compat = await connection.fetchrow(sql)
    if version is None:
        return False
    oldest, newest = (migrations.load("postgres")[index].number for index in (0, -1))
    if version < oldest:
        raise migrations.older_format_error("PostgreSQL", location, version)
    if compat > newest:
        raise errors.StoreTooNew(
            f"{location} was written by a newer segue (format {version}; this one knows {newest});"
            " upgrade segue to use it"
        )
    return bool(version >= newest)


async def _migrate(connection: Any) -> None:
    # Use a schema that an administrator made: creating one takes more rights than using it.
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
            await connection.execute(migration.sql, timeout=_MIGRATION_SECONDS)
            sql = "INSERT INTO migrations (number, name, compat) VALUES ($1, $2, $3)"
            await connection.execute(sql, migration.number, migration.name, migration.compat)


async def _reset_foreign_transaction_ids(connection: Any) -> None:
    """Reset transaction ids of another server, from which this database was copied.

    A row cannot have been written by a transaction that has not begun yet. Both statements use one
    snapshot, and rows that other processes change meanwhile are left alone.
    """
    async with connection.transaction(isolation="repeatable_read"):
        sql = f"UPDATE sessions SET change = 0, born = 0 WHERE change >= {_NEXT_TRANSACTION}"
        await connection.execute(sql)
        await connection.execute(f"DELETE FROM purged WHERE change >= {_NEXT_TRANSACTION}")
