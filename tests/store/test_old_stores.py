"""Stores of unreleased versions are refused and not changed."""

import shutil
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from segue.model import errors
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore

OLD_STORES = Path(__file__).with_name("old_stores")
STEPS = r"check out commit 778b382, run `segue export .*` there, then `segue import"


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of all files in a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def make_old_store(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript((OLD_STORES / "sqlite_4.sql").read_text())
    return connection


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_sqlite_refuses_an_old_store_and_leaves_its_bytes_unchanged(
    tmp_path: Path, writable: bool
) -> None:
    path = tmp_path / "segue.db"
    make_old_store(path).close()
    path.chmod(0o600 if writable else 0o400)
    before = files_of(tmp_path)
    message = rf"segue.db is a SQLite store of an unreleased segue \(format 4\).*{STEPS}"
    with pytest.raises(errors.StoreTooOld, match=message):
        SQLiteStore.open(path)
    assert files_of(tmp_path) == before


def test_sqlite_refuses_an_old_store_whose_changes_are_still_in_its_log(tmp_path: Path) -> None:
    path = tmp_path / "segue.db"
    connection = make_old_store(path)
    before = files_of(tmp_path)
    assert before["segue.db-wal"]
    with pytest.raises(errors.StoreTooOld, match="SQLite store of an unreleased segue"):
        SQLiteStore.open(path)
    after = files_of(tmp_path)
    assert (after["segue.db"], after["segue.db-wal"]) == (
        before["segue.db"],
        before["segue.db-wal"],
    )
    connection.close()


def test_sqlite_leaves_an_old_store_unchanged_that_is_entirely_in_its_log(tmp_path: Path) -> None:
    """A process ended before it moved the format from the log into the file."""
    connection = make_old_store(tmp_path / "segue.db")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("segue.db", "segue.db-wal"):
        shutil.copy(tmp_path / name, crashed)
    connection.close()
    before = files_of(crashed)
    with pytest.raises(errors.StoreTooOld, match="SQLite store of an unreleased segue"):
        SQLiteStore.open(crashed / "segue.db")
    after = files_of(crashed)
    after.pop("segue.db-shm", None)
    assert after == before


async def test_postgres_migrates_a_database_with_an_empty_migrations_table(
    fresh_database_url: str,
) -> None:
    connection = await asyncpg.connect(fresh_database_url)
    try:
        await connection.execute(
            "CREATE SCHEMA segue; CREATE TABLE segue.migrations (number integer PRIMARY KEY,"
            " name text NOT NULL, compat integer NOT NULL, at timestamptz NOT NULL DEFAULT now())"
        )
    finally:
        await connection.close()
    store = await PostgresStore.open(fresh_database_url)
    await store.close()


async def test_postgres_refuses_an_old_store_and_leaves_its_rows_unchanged(
    fresh_database_url: str,
) -> None:
    connection = await asyncpg.connect(fresh_database_url)
    tables = """
        SELECT table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema = 'segue' ORDER BY 1, 2
    """
    rows = "SELECT xmin, s.* FROM segue.sessions s"
    try:
        await connection.execute((OLD_STORES / "postgres_5.sql").read_text())
        before = await connection.fetch(tables), await connection.fetch(rows)
        message = rf"is a PostgreSQL store of an unreleased segue \(format 5\).*{STEPS}"
        with pytest.raises(errors.StoreTooOld, match=message):
            await PostgresStore.open(fresh_database_url)
        assert (await connection.fetch(tables), await connection.fetch(rows)) == before
    finally:
        await connection.close()
