"""Whether a store is whole, asked of the database itself and not of the code under test."""

import sqlite3
from collections import Counter
from pathlib import Path

from segue.model import projection, search_text
from segue.model.event import Event, decode_body
from segue.model.session import Session, decode_session
from segue.store.base import MAX_SEQ
from segue.store.query_sql import STATE_CODES, columns
from segue.store.sqlite.search_index import complete_index, index_path


def whole(session: Session, events: list[Event]) -> None:
    """A session agrees with its history, and no group of events is half there."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), session.id
    assert len({event.id for event in events}) == len(events), session.id
    assert session == projection.project(session.workspace, session.id, events)
    groups = Counter(event.body.extra.get("test", {}).get("group") for event in events)
    del groups[None]
    assert set(groups.values()) <= {3}, f"{session.id} holds a part of a change"


def sqlite_file(path: Path, *, thorough: bool = False) -> None:
    """Rows, events, search index and links of a file agree, each with each and both ways."""
    complete_index(path)
    # No waiting: the process that held a lock is dead, so there must be none.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("ATTACH ? AS fts", (str(index_path(path)),))
        connection.execute("BEGIN IMMEDIATE")
        _sessions(connection)
        _search(connection)
        _links(connection)
        for table in ("leases", "inbox", "deltas"):
            sql = f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT pk FROM sessions)"
            assert connection.execute(sql).fetchone() == (0,), f"{table} of no session"
        sql = "SELECT (SELECT max(change) FROM sessions), value FROM meta WHERE name = 'change'"
        newest, counter = connection.execute(sql).fetchone()
        assert (newest or 0) <= counter
        connection.execute("ROLLBACK")
        if thorough:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    finally:
        connection.close()


def _sessions(connection: sqlite3.Connection) -> None:
    histories: dict[int, list[Event]] = {}
    sql = "SELECT key, id, at, type, version, CAST(body AS BLOB) FROM events ORDER BY key"
    for key, id, at, type, version, body in connection.execute(sql):
        event = Event(seq=key & MAX_SEQ, id=id, at=at, body=decode_body(body, version))
        assert event.type == type
        histories.setdefault(key >> 24, []).append(event)
    cursor = connection.execute("SELECT * FROM sessions")
    names = [column[0] for column in cursor.description]
    for values in cursor:
        row = dict(zip(names, values, strict=True))
        session = decode_session(row["row"].encode())
        assert (row["workspace"], row["id"]) == (session.workspace, session.id)
        whole(session, histories.pop(row["pk"], []))
        for name, value in columns(session).items():
            assert row[name] == value, f"column {name} of {session.id}"
    assert not histories, f"events of no session: {list(histories)}"


def _search(connection: sqlite3.Connection) -> None:
    expected = set()
    sql = "SELECT key, version, CAST(body AS BLOB) FROM events"
    for key, version, body in connection.execute(sql):
        words = search_text.tokens(search_text.searchable_text(decode_body(body, version)))
        expected |= {(key, location, word) for location, word in enumerate(words)}
    for pk, row in connection.execute("SELECT pk, CAST(row AS BLOB) FROM sessions"):
        words = search_text.tokens(search_text.searchable_row(decode_session(row)))
        expected |= {(pk << 24, location, word) for location, word in enumerate(words)}
    connection.execute(
        "CREATE VIRTUAL TABLE temp.words USING fts5vocab('fts', 'search', 'instance')"
    )
    indexed = set(connection.execute("SELECT doc, offset, term FROM temp.words"))
    assert indexed == expected, f"search differs in {sorted(indexed ^ expected)[:5]}"


def _links(connection: sqlite3.Connection) -> None:
    expected = set()
    for pk, row in connection.execute("SELECT pk, CAST(row AS BLOB) FROM sessions"):
        session = decode_session(row)
        state = STATE_CODES[session.state]
        for store in session.memory_store_ids:
            times = (session.created_at, session.active_at)
            expected.add((pk, store, session.workspace, state, *times, session.id))
    assert set(connection.execute("SELECT * FROM links")) == expected


async def postgres_database(url: str) -> None:
    """The same of a database."""
    import asyncpg

    connection = await asyncpg.connect(url, server_settings={"search_path": "segue"})
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            histories: dict[int, list[Event]] = {}
            words = set()
            sql = "SELECT session, seq, id, at, type, version, body FROM events"
            for pk, seq, id, at, type, version, body in await connection.fetch(
                f"{sql} ORDER BY session, seq"
            ):
                event = Event(seq=seq, id=id, at=at, body=decode_body(body, version))
                assert event.type == type
                histories.setdefault(pk, []).append(event)
                tokens = search_text.tokens(search_text.searchable_text(event.body))
                words |= {(pk, seq, location, word) for location, word in enumerate(tokens, 1)}
            links = set()
            for row in await connection.fetch("SELECT * FROM sessions"):
                session = decode_session(row["row"])
                assert (row["workspace"], row["id"]) == (session.workspace, session.id)
                whole(session, histories.pop(row["pk"], []))
                for name, value in columns(session).items():
                    assert row[name] == value, f"column {name} of {session.id}"
                tokens = search_text.tokens(search_text.searchable_row(session))
                words |= {(row["pk"], 0, location, word) for location, word in enumerate(tokens, 1)}
                times = (session.created_at, session.active_at)
                state = STATE_CODES[session.state]
                for store in session.memory_store_ids:
                    links.add((row["pk"], store, session.workspace, state, *times, session.id))
            assert not histories, f"events of no session: {list(histories)}"
            assert set(map(tuple, await connection.fetch("SELECT * FROM links"))) == links
            sql = "SELECT session, seq, lexeme, positions FROM search, unnest(words)"
            indexed = {
                (pk, seq, location, word)
                for pk, seq, word, locations in await connection.fetch(sql)
                for location in locations
            }
            assert indexed == words, f"search differs in {sorted(indexed ^ words)[:5]}"
            for table in ("leases", "inbox", "deltas"):
                sql = f"SELECT count(*) FROM {table}"
                sql += " WHERE session NOT IN (SELECT pk FROM sessions)"
                assert await connection.fetchval(sql) == 0, f"{table} of no session"
    finally:
        await connection.close()
