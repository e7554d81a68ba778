"""Stores of unreleased versions are refused and not changed."""

import shutil
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from segue.model import errors
from segue.store import migrations
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore

OLD_STORES = Path(__file__).with_name("old_stores")
STEPS = r"check out commit {}, run `segue export .*` there, then `segue import"

# A store of each older format that differs, and the last commit that opens it.
sqlite_formats = pytest.mark.parametrize(
    ("version", "commit"), [(4, "778b382"), (12, "b72ed9a"), (13, "bd86d0b")]
)
postgres_formats = pytest.mark.parametrize(
    ("version", "commit"), [(5, "778b382"), (12, "b72ed9a"), (13, "bd86d0b")]
)


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of all files in a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def make_old_store(path: Path, version: int = 12) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript((OLD_STORES / f"sqlite_{version}.sql").read_text())
    return connection


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_older_format_has_a_commit_that_opens_it(database: str) -> None:
    for version in range(1, migrations.load(database)[0].number):
        assert "check out commit" in str(migrations.older_format_error(database, "x", version))


@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
@sqlite_formats
def test_sqlite_refuses_an_old_store_and_leaves_its_bytes_unchanged(
    tmp_path: Path, version: int, commit: str, writable: bool
) -> None:
    path = tmp_path / "segue.db"
    make_old_store(path, version).close()
    path.chmod(0o600 if writable else 0o400)
    before = files_of(tmp_path)
    message = rf"is a SQLite store of an unreleased segue \(format {version}\)"
    message = f"segue.db {message}.*{STEPS.format(commit)}"
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


@postgres_formats
async def test_postgres_refuses_an_old_store_and_leaves_its_rows_unchanged(
    fresh_database_url: str, version: int, commit: str
) -> None:
    connection = await asyncpg.connect(fresh_database_url)
    tables = """
        SELECT table_name, column_name, data_type FROM information_schema.columns
        WHERE table_schema = 'segue' ORDER BY 1, 2
    """
    rows = "SELECT xmin, s.* FROM segue.sessions s"
    try:
        await connection.execute((OLD_STORES / f"postgres_{version}.sql").read_text())
        before = await connection.fetch(tables), await connection.fetch(rows)
        message = rf"is a PostgreSQL store of an unreleased segue \(format {version}\)"
        with pytest.raises(errors.StoreTooOld, match=f"{message}.*{STEPS.format(commit)}"):
            await PostgresStore.open(fresh_database_url)
        assert (await connection.fetch(tables), await connection.fetch(rows)) == before
    finally:
        await connection.close()
