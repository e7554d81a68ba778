"""A store from before usage was counted is counted when it is opened."""

import sqlite3
from pathlib import Path

from segue.model import ids
from segue.model.event import Created, StatusChanged
from segue.model.record import Record
from segue.store.base import Store
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore

from .postgres_helpers import WORKSPACE, connect, create_session, user_message

TRIGGERS = [
    f"usage_{table}_{event}"
    for table, events in {
        "session": ("added", "changed", "deleted"),
        "record": ("added", "changed", "deleted"),
        "part": ("added", "changed", "deleted"),
    }.items()
    for event in events
]
REMOVE_COLUMNS = """
    DROP TABLE usage;
    DROP INDEX sessions_in_turn;
    DROP INDEX inbox_prompts;
    ALTER TABLE sessions DROP COLUMN bytes;
    ALTER TABLE sessions DROP COLUMN in_turn;
    ALTER TABLE inbox DROP COLUMN workspace;
"""
REMOVE_FUNCTIONS = """
    DROP FUNCTION count_session() CASCADE;
    DROP FUNCTION count_record() CASCADE;
    DROP FUNCTION count_part() CASCADE;
    DROP FUNCTION add_usage;
    DROP FUNCTION is_counted_file;
    DELETE FROM migrations WHERE number >= 11;
"""


async def fill(store: Store) -> None:
    """Store some of everything that is counted."""
    first = await create_session(store, user_message("hello " * 500))
    await create_session(store, StatusChanged(status="running", turn="t"))
    await store.create("elsewhere", ids.new_id(), [Created(cwd="/")])
    await store.put_inbox(WORKSPACE, first.id, "prompt", ids.new_id(), {})
    await store.put_inbox(WORKSPACE, first.id, "cancel", ids.new_id(), {})
    for kind in ("file", "memory:x", "schedule", "agent"):
        record = Record(
            workspace=WORKSPACE,
            kind=kind,
            id=ids.new_id(),
            version=1,
            created_at=1,
            updated_at=1,
            body={"text": kind * 9},
        )
        await store.put_record(record)
    await store.put_part(WORKSPACE, "f", 0, b"x" * 5000)


async def test_sqlite_store_is_counted_when_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    store = SQLiteStore.open(path)
    await fill(store)
    expected = [await store.usage(name) for name in (WORKSPACE, "elsewhere")]
    await store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    for trigger in TRIGGERS:
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.executescript(REMOVE_COLUMNS)
    connection.execute("UPDATE meta SET value = 10 WHERE name = 'compat'")
    connection.execute("PRAGMA user_version = 10")
    connection.close()
    store = SQLiteStore.open(path)
    assert [await store.usage(name) for name in (WORKSPACE, "elsewhere")] == expected
    assert (expected[0].turns, expected[0].files) == (2, 2)
    await fill(store)
    assert (await store.usage(WORKSPACE)).sessions == 4
    await store.close()


async def test_postgres_store_is_counted_when_it_is_migrated(migrated_database_url: str) -> None:
    store = await PostgresStore.open(migrated_database_url)
    await fill(store)
    expected = [await store.usage(name) for name in (WORKSPACE, "elsewhere")]
    await store.close()
    async with connect(migrated_database_url) as connection:
        await connection.execute(REMOVE_FUNCTIONS)
        await connection.execute(REMOVE_COLUMNS)
    store = await PostgresStore.open(migrated_database_url)
    assert [await store.usage(name) for name in (WORKSPACE, "elsewhere")] == expected
    assert (expected[0].turns, expected[0].files) == (2, 2)
    await fill(store)
    assert (await store.usage(WORKSPACE)).sessions == 4
    await store.close()
