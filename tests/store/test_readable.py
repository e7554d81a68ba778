"""Other programs can read a store: JSON as text, and views with ids and RFC 3339 times."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from segue.model import ids
from segue.model.content import as_content
from segue.model.event import Created, Draft, UserMessage
from segue.store.base import Store
from segue.store.postgres import PostgresStore
from segue.store.sqlite import SQLiteStore

from .postgres_helpers import connect

TEXTS = ("plain", "Grüße 日本 🙂", "NUL \0", "lone surrogate \ud83d")
AT = 1_700_000_000_000_007
COLUMNS = "workspace, session_id, seq, id, at, type, body"


async def fill(store: Store) -> str:
    id = ids.new_id()
    bodies = [Created(cwd="/work"), *(UserMessage(content=as_content(text)) for text in TEXTS)]
    await store.create("here", id, [Draft(body=body, at=AT) for body in bodies])
    return id


async def make_sqlite(path: Path) -> str:
    store = SQLiteStore.open(path)
    id = await fill(store)
    await store.close()
    return id


def check_rows(id: str, rows: list[tuple[str, str, int, str, str, str, str]]) -> None:
    assert [row[:3] for row in rows] == [("here", id, seq) for seq in range(1, 6)]
    assert {row[4] for row in rows} == {"2023-11-14T22:13:20.000007Z"}
    assert [row[5] for row in rows] == ["created", *["user_message"] * 4]
    assert [json.loads(row[6])["content"][0]["text"] for row in rows[1:]] == list(TEXTS)


async def test_sqlite_shows_events_with_ids_and_rfc_3339_times(tmp_path: Path) -> None:
    id = await make_sqlite(tmp_path / "segue.db")
    with closing(sqlite3.connect(tmp_path / "segue.db")) as connection:
        sql = f"SELECT {COLUMNS} FROM events_readable WHERE session_id = ? ORDER BY seq"
        check_rows(id, connection.execute(sql, (id,)).fetchall())
        plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", (id,)).fetchall()
        assert "SEARCH e USING INTEGER PRIMARY KEY" in plan[1][3]
        sql = "SELECT workspace, id, created_at, row FROM sessions_readable"
        ((workspace, session, created_at, row),) = connection.execute(sql).fetchall()
    assert (workspace, session, created_at) == ("here", id, "2023-11-14T22:13:20.000007Z")
    assert json.loads(row)["cwd"] == "/work"


async def test_postgres_shows_events_with_ids_and_rfc_3339_times(
    migrated_database_url: str,
) -> None:
    store = await PostgresStore.open(migrated_database_url)
    id = await fill(store)
    await store.close()
    async with connect(migrated_database_url) as connection:
        sql = f"SELECT {COLUMNS} FROM events_readable WHERE session_id = $1 ORDER BY seq"
        check_rows(id, [tuple(row) for row in await connection.fetch(sql, id)])
        sql = "SELECT workspace, id, created_at, row FROM sessions_readable WHERE id = $1"
        (row,) = await connection.fetch(sql, id)
    assert tuple(row)[:3] == ("here", id, "2023-11-14T22:13:20.000007Z")
    assert json.loads(row["row"])["cwd"] == "/work"


@pytest.mark.parametrize(("table", "column"), [("events", "body"), ("sessions", "row")])
async def test_sqlite_stores_json_as_text_whatever_it_contains(
    tmp_path: Path, table: str, column: str
) -> None:
    await make_sqlite(tmp_path / "segue.db")
    with closing(sqlite3.connect(tmp_path / "segue.db")) as connection:
        sql = f"SELECT DISTINCT typeof({column}), json_valid({column}) FROM {table}"
        assert connection.execute(sql).fetchall() == [("text", 1)]


async def test_sqlite_file_names_its_application(tmp_path: Path) -> None:
    await make_sqlite(tmp_path / "segue.db")
    with closing(sqlite3.connect(tmp_path / "segue.db")) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x73656775,)
