"""A store of an older format is migrated when it is opened."""

import asyncio
import sqlite3
from pathlib import Path

import asyncpg

from segue.model import ids
from segue.model.event import Created, Draft, InfoChanged
from segue.model.query import Query
from segue.model.session import Checkpoint
from segue.store.base import Store
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore

WORKSPACE = "local"
CHECKPOINT = Checkpoint(source="codex", path="/a", inode=1, offset=2, tail_hash="aa")
ODD_TITLES = ("plain", "with \0", "with \ud83d", 'with "origin":"claude"')


async def create_sessions(store: Store) -> None:
    """Create a session of an interface and copies of a tool's sessions, one with odd metadata."""
    created = Created(cwd="/a", origin="cli", metadata={"origin": "claude"})
    await store.create(WORKSPACE, ids.new_id(), [Draft(body=created)])
    for title in ODD_TITLES:
        drafts = [
            Draft(body=Created(cwd="/a", origin="codex", metadata={"origin": "claude"})),
            Draft(body=InfoChanged(title=title)),
        ]
        session = await store.create(WORKSPACE, ids.new_id(), drafts)
        await store.change(WORKSPACE, session.id, lambda _: [], checkpoint=CHECKPOINT)
    await store.close()


async def count_by_source(store: Store) -> dict[str, int]:
    """Return how many sessions a list of each source has, and close the store."""
    sources = ("segue", "codex", "claude", "cli")
    counts = {source: len(await store.page(WORKSPACE, Query(source=source))) for source in sources}
    await store.close()
    return counts


# Format 13 wrote 'segue' as the source of every session of the store.
EXPECTED = {"segue": 1, "codex": len(ODD_TITLES), "claude": 0, "cli": 0}


def test_sqlite_store_of_format_13_lists_copies_by_their_tool(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "segue.db"
        await create_sessions(SQLiteStore.open(path))
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("UPDATE sessions SET source = 'segue'")
        connection.execute("UPDATE meta SET value = 13 WHERE name = 'compat'")
        connection.execute("PRAGMA user_version = 13")
        connection.close()
        assert await count_by_source(SQLiteStore.open(path)) == EXPECTED

    asyncio.run(main())


def test_postgres_store_of_format_13_lists_copies_by_their_tool(
    migrated_database_url: str,
) -> None:
    async def main() -> None:
        await create_sessions(await PostgresStore.open(migrated_database_url))
        connection = await asyncpg.connect(migrated_database_url)
        await connection.execute("SET segue.format = 14")
        await connection.execute("UPDATE segue.sessions SET source = 'segue'")
        await connection.execute("DELETE FROM segue.migrations WHERE number > 13")
        await connection.close()
        assert await count_by_source(await PostgresStore.open(migrated_database_url)) == EXPECTED

    asyncio.run(main())
