"""The cost of lists and searches in PostgreSQL, and the results of each search strategy.

The plans are those of the store: made without the values, with and without statistics.
"""

import json
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.model import ids, search_text
from segue.model.event import AgentRef, Created
from segue.model.query import Order, Position, Query, position
from segue.model.session import Session
from segue.store import query_sql
from segue.store.base import Store
from segue.store.memory import MemoryStore
from segue.store.postgres import PostgresStore, lists, tsquery

from .postgres_helpers import WORKSPACE, connect, create_session, open_store, user_message

# Filters by the index that their lists use.
FILTERS: dict[str, list[dict[str, Any]]] = {
    "sessions": [{}, {"archived": "include"}, {"created_gte": 1500}, {"active_after": 1500}],
    "sessions_cwd": [{"directories": ("/3",)}, {"directories": ("/3", "/4", "/5")}],
    "sessions_agent": [{"agent_id": "a1"}],
    "sessions_version": [{"agent_id": "a1", "agent_version": 2}],
    "sessions_status": [{"statuses": ("running",)}, {"statuses": ("idle", "terminated")}],
    "sessions_deployment": [{"deployment_id": "d1"}],
    "sessions_tag": [{"tag": "t1"}],
    "sessions_source": [{"source": "segue"}],
    "links": [{"memory_store_id": "m"}],
}
ORDERS: tuple[Order, ...] = ("active", "created")
LIMIT = 20

statistics = pytest.mark.parametrize("analyzed", [False, True])


@pytest.fixture
def url(migrated_database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(lists, "decode_session", decode_row)
    return migrated_database_url


def decode_row(row: bytes) -> Any:
    """Decode a session's row; the rows that `fill` inserts are empty."""
    return row if row == b"{}" else lists_decode(row)


lists_decode = lists.decode_session


async def fill(connection: Any, *, analyzed: bool) -> None:
    """Insert many sessions directly into the tables."""
    await connection.execute(f"""
        INSERT INTO sessions (workspace, id, state, status, cwd, agent, version, deployment, tag,
          source, created_at, active_at, inactive_since, change, born, row)
        SELECT '{WORKSPACE}', lpad(i::text, 8, '0'), (i % 10 = 0)::int,
          CASE i % 1000 WHEN 1 THEN 'running' ELSE 'idle' END, convert_to('/' || i % 50, 'UTF8'),
          'a' || i % 7, i % 300, 'd' || i % 20, convert_to('t' || i % 30, 'UTF8'), 'segue',
          1000 + i, 1000 + i, CASE i % 10 WHEN 0 THEN 1000 + i END, 1, 1, '{{}}'
        FROM generate_series(1, 4000) AS i;
        INSERT INTO links (session, store, workspace, state, created_at, active_at, id)
        SELECT pk, 'm', workspace, state, created_at, active_at, id FROM sessions WHERE pk % 9 = 0;
        INSERT INTO leases (session, holder, epoch, renewals) SELECT pk, '', 1, 0 FROM sessions;
        INSERT INTO events (session, seq, id, at, type, version, body)
        SELECT pk, seq, 'event ' || seq, seq, 'interrupted', 1, '{{"type":"interrupted"}}'
        FROM sessions, generate_series(101, 103) AS seq;
        INSERT INTO search (session, seq, part, words)
        SELECT pk, seq, 0, ('''common'':1 ''word' || pk || ''':2')::tsvector
        FROM sessions, generate_series(101, 102) AS seq;
        {"ANALYZE;" if analyzed else ""}
        -- Without values for its parameters, a statement is planned as the store's are.
        CREATE FUNCTION pg_temp.plan(sql text) RETURNS json LANGUAGE plpgsql AS $$
        DECLARE
          found json;
        BEGIN
          EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || sql INTO found;
          RETURN found;
        END
        $$;
    """)


async def plan(store: PostgresStore, connection: Any, call: Awaitable[Any]) -> list[dict[str, Any]]:
    """Return the nodes of the plan of the last statement that a call runs."""
    queries: list[str] = []
    fetch = store._database.fetch

    async def spy(sql: str, *args: Any) -> list[Any]:
        queries.append(sql)
        return await fetch(sql, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._database, "fetch", spy)
        await call
    explained = await connection.fetchval("SELECT pg_temp.plan($1)", queries[-1])
    return list(nodes(json.loads(explained)[0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def indexes(matches: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in matches if "Index Name" in node}


def kinds(matches: list[dict[str, Any]]) -> set[str]:
    return {node["Node Type"] for node in matches}


@statistics
async def test_every_list_walks_its_own_index(url: str, analyzed: bool) -> None:
    async with open_store(url) as store, connect(url) as connection:
        await fill(connection, analyzed=analyzed)
        for index, choices in FILTERS.items():
            for filters in choices:
                for order in ORDERS:
                    for backward in (False, True):
                        query = Query(order=order, **filters)
                        call = store.page(WORKSPACE, query, Position(3000, "x"), backward=backward)
                        matches = await plan(store, connection, call)
                        assert not {"Sort", "Incremental Sort", "Seq Scan"} & kinds(matches)
                        assert indexes(matches) - {"sessions_pkey"} == {f"{index}_{order}"}


async def test_a_deep_page_reads_no_more_rows_than_the_first(url: str) -> None:
    async with open_store(url), connect(url) as connection:
        await fill(connection, analyzed=False)
        for filters in (filters for choices in FILTERS.values() for filters in choices):
            query = Query(limit=LIMIT, **filters)
            ranges = query_sql.index_ranges(query)
            for after in (None, Position(3500, "x"), Position(1500, "x")):
                spec = query_sql.PageSpec(WORKSPACE, query, after, limit=LIMIT)
                sql, args = lists._build.page(ranges, spec)
                statement = await connection.prepare(sql)
                (explained,) = await statement.explain(*args, analyze=True)
                read = [
                    node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    for node in nodes(explained["Plan"])
                    if indexes([node]) - {"sessions_pkey"}
                ]
                assert sum(read) <= LIMIT + len(ranges)


@statistics
async def test_most_selective_filter_chooses_the_index(url: str, analyzed: bool) -> None:
    async with open_store(url) as store, connect(url) as connection:
        await fill(connection, analyzed=analyzed)
        for index, filters in (
            ("sessions_status_active", {"agent_id": "a1", "statuses": ("running",)}),
            ("sessions_agent_active", {"agent_id": "none", "tag": "t1"}),
            ("links_active", {"source": "segue", "memory_store_id": "none"}),
        ):
            matches = await plan(store, connection, store.page(WORKSPACE, Query(**filters)))
            assert "Sort" not in kinds(matches)
            assert indexes(matches) - {"sessions_pkey"} == {index}


@statistics
async def test_other_reads_use_indexes_too(url: str, analyzed: bool) -> None:
    async with open_store(url) as store, connect(url) as connection:
        session = await create_session(store, user_message("hello"))
        await fill(connection, analyzed=analyzed)
        rows = "sessions_pkey", "search_pkey"
        for call, expected in (
            (
                store.sweep(WORKSPACE, Query(), await store.change_point(WORKSPACE), ""),
                {"sessions_change", *rows},
            ),
            (store.stale(WORKSPACE, "active", 2000, 5), {"sessions_active"}),
            (store.stale(WORKSPACE, "archived", 2000, 5), {"sessions_inactive"}),
            (store.events(WORKSPACE, session.id, after=1), {"sessions_id", "events_pkey"}),
            (
                store.newest_matches(WORKSPACE, [session], search_text.terms("hello")),
                {"sessions_id", "search_pkey", "events_pkey"},
            ),
            (store.page(WORKSPACE, Query(text="word7 ")), {*rows}),
            (
                store.ranked(WORKSPACE, Query(text="hello")),
                {"search_words", "search_pkey", "events_pkey", *rows[:1]},
            ),
            (store.leases(), {"leases_holder", "sessions_pkey"}),
        ):
            matches = await plan(store, connection, call)
            assert "Seq Scan" not in kinds(matches)
            assert indexes(matches) == expected


# Text.


@given(st.lists(st.sampled_from("ab") | st.text("abcdefgh", min_size=1), max_size=700))
def test_vectors_of_a_long_text_have_all_its_words(tokens: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("MAX_POSITIONS", 60),
            ("MAX_REPEATS", 20),
            ("MAX_VECTOR_BYTES", 900),
            ("OVERLAP_TOKENS", 5),
        ):
            patch.setattr(tsquery, name, value)
        parts = [words_of_vector(vector) for vector in tsquery.vectors(tokens)]
    whole: list[str] = []
    for part in parts:
        assert len(part) <= 60
        assert max(map(part.count, part)) <= 20
        assert sum(len(token) * 4 for token in set(part)) <= 900
        shared = min(5, len(whole))
        assert whole[len(whole) - shared :] == part[:shared]
        whole += part[shared:]
    assert whole == tokens


def words_of_vector(vector: str) -> list[str]:
    """Return the words of a tsvector in order."""
    matches: dict[int, str] = {}
    for entry in vector.split():
        token, _, places = entry.rpartition(":")
        matches |= dict.fromkeys(map(int, places.split(",")), token.strip("'"))
    assert sorted(matches) == list(range(1, len(matches) + 1))
    return [matches[index] for index in sorted(matches)]


@pytest.mark.parametrize(
    ("long", "phrase"),
    [
        (" ".join(f"word{i}" for i in range(25_000)), "word24000 word24001"),
        ("the " * 3000 + "end of it", "the end of it"),
        ("x " * 120_000, "x x x"),
        (" ".join(f"{'w' * 58}{i}" for i in range(4000)), "w" * 58 + "3998"),
        (
            " ".join(chr(0x10428 + i % 40) * 60 + str(i) for i in range(4000)),
            chr(0x10428) * 60 + "0",
        ),
    ],
    ids=["many words", "one word often", "nothing but one word", "long words", "long letters"],
)
async def test_text_that_is_too_long_for_one_tsvector_is_searchable(
    url: str, long: str, phrase: str
) -> None:
    async with open_store(url) as store:
        session = await create_session(store, user_message(long))
        matches = await store.page(WORKSPACE, Query(text=f'"{phrase}"'))
        assert [session.id for session in matches] == [session.id]


# Constants of lists.py that make searches run in one way, and a part of its last statement.
WAYS: dict[str, tuple[dict[str, float], str]] = {
    "tested": ({"TEST_COST": 0, "TEXT_COST": 0}, "(true) IS TRUE"),
    "given up, then scanned": (
        {
            "TEST_COST": 0,
            "TEXT_COST": 0,
            "MIN_SCANNED_SESSIONS": 3,
            "MARGIN": 0,
            "LOOKUP_COST": 1e9,
        },
        "c.pk IN",
    ),
    "scanned": ({"TEST_COST": 1e9, "LOOKUP_COST": 1e9}, "c.pk IN"),
    "given up, then looked up": (
        {"TEST_COST": 1e9, "LOOKUP_COST": 1e9, "MIN_SCANNED_SESSIONS": 3, "MARGIN": 0},
        "= ANY(",
    ),
    "looked up": ({"TEST_COST": 1e9, "LOOKUP_COST": 0, "BULK_TEXT_COST": 1e9}, "= ANY("),
    "in bulk": ({"BULK_TEXT_COST": -1e9}, "= ANY (ARRAY"),
    "in bulk, several times": ({"BULK_TEXT_COST": -1e9, "BULK_MARGIN": 0.1}, "= ANY (ARRAY"),
    "in bulk, given up": ({"BULK_TEXT_COST": -1e9, "BULK_MARGIN": 0}, "FROM search WHERE words @@"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_of_a_search_has_the_same_results(
    url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants, part = WAYS[way]
    for name, value in constants.items():
        monkeypatch.setattr(lists, name, value)
    memory = MemoryStore()
    async with open_store(url) as store, connect(url) as connection:
        for number in range(60):
            bodies = [user_message("common"), user_message(f"third{number % 3} tenth{number % 10}")]
            session = await create_session(store, *bodies, agent=AgentRef(id=f"a{number % 2}"))
            await memory.load(WORKSPACE, session.id, await store.events(WORKSPACE, session.id))
        await connection.execute("ANALYZE")
        statements = spy_on(store, monkeypatch)
        for queries in ("common", "third1 ", "tenth3 common ", '"third1 tenth4"', "tent", "none"):
            for agent in (None, "a1"):
                for down in (True, False):
                    query = Query(text=queries, limit=4, agent_id=agent, descending=down)
                    assert await pages(store, query) == await pages(memory, query)
        assert any(part in statement for statement in statements)


async def rows_of_search_read(connection: Any, sql: str, args: tuple[Any, ...]) -> int:
    """Run a statement again, and return how many rows of the search index it reads."""
    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *args)
    scans = [
        node
        for node in nodes(json.loads(explained)[0]["Plan"])
        if node.get("Relation Name") == "search"
    ]
    assert scans
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in scans
    )


async def test_ranked_search_for_a_common_word_reads_the_newest_sessions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_RANKED_HITS", 200)
    calls: list[tuple[str, tuple[Any, ...]]] = []
    async with open_store(url) as store, connect(url) as connection:
        await fill(connection, analyzed=False)
        await connection.execute("""
            UPDATE search SET words = words || '''usual'':3'::tsvector WHERE session % 10 < 8;
            UPDATE search SET words = words || '''rare'':4'::tsvector WHERE session % 1000 = 1;
            UPDATE search SET words = words || '''seldom'':5'::tsvector
            WHERE session % 10 = 1 AND seq = 101;
            ANALYZE;
        """)
        fetch = store._database.fetch

        async def spy(sql: str, *args: Any) -> list[Any]:
            calls.append((sql, args))
            return await fetch(sql, *args)

        monkeypatch.setattr(store._database, "fetch", spy)
        for text, most_rows in (("common ", 300), ("common usual ", 600), ("common rare ", 30)):
            calls.clear()
            hits = await store.ranked(WORKSPACE, Query(text=text, limit=LIMIT))
            assert len(hits) == (4 if "rare" in text else LIMIT)
            rows = [
                await rows_of_search_read(connection, sql, args)
                for sql, args in calls
                if "ts_rank" in sql
            ]
            assert sum(rows) <= most_rows
        # Sessions with many texts: to look up 400 hits costs less than to read 600 texts.
        monkeypatch.setattr(lists, "MAX_RANKED_HITS", 30)
        calls.clear()
        assert len(await store.ranked(WORKSPACE, Query(text="seldom ", limit=LIMIT))) == LIMIT
        assert await rows_of_search_read(connection, *calls[-1]) < 500
        # The newest sessions are in another workspace, so all are ranked.
        await connection.execute("UPDATE sessions SET workspace = 'other' WHERE pk > 1000")
        assert len(await store.ranked(WORKSPACE, Query(text="common ", limit=LIMIT))) == LIMIT


@pytest.mark.parametrize("most", [1, 10_000])
async def test_ranked_search_matches_the_sessions_that_a_list_matches(
    url: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MAX_RANKED_HITS", most)
    async with open_store(url) as store, connect(url) as connection:
        for number in range(40):
            bodies = [user_message("common"), user_message(f"third{number % 3} tenth{number % 10}")]
            await create_session(store, *bodies)
        await connection.execute("ANALYZE")
        for text in (
            "common",
            "common common ",
            "common third1 ",
            '"third1 tenth4" common',
            "tent",
        ):
            query = Query(text=text, limit=100)
            listed = {session.id for session in await store.page(WORKSPACE, query)}
            hits = await store.ranked(WORKSPACE, query)
            assert listed
            assert len(hits) == len(listed)
            assert {hit.session.id for hit in hits} == listed
            assert all(hit.event is not None for hit in hits)


def spy_on(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every statement is added that the store runs."""
    statements: list[str] = []
    fetch = store._database.fetch

    async def spy(sql: str, *args: Any) -> list[Any]:
        statements.append(sql)
        return await fetch(sql, *args)

    monkeypatch.setattr(store._database, "fetch", spy)
    return statements


async def test_scan_for_a_word_reads_no_row_of_other_sessions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants, _ = WAYS["scanned"]
    for name, value in constants.items():
        monkeypatch.setattr(lists, name, value)
    async with open_store(url) as store, connect(url) as connection:
        await fill(connection, analyzed=True)
        for order in ORDERS:
            query = Query(text="common", limit=LIMIT, order=order)
            matches = await plan(store, connection, store.page(WORKSPACE, query))
            read = {node.get("Index Name"): node["Node Type"] for node in matches}
            assert read[f"sessions_{order}"] == "Index Only Scan"


async def test_scan_in_bulk_reads_only_the_sessions_that_should_fill_the_page(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = []
    async with open_store(url) as store, connect(url) as connection:
        await fill(connection, analyzed=False)
        await connection.execute("""
            UPDATE search SET words = words || '''tenth'':3'::tsvector
            WHERE session % 10 = 1 AND seq = 101;
            UPDATE search SET words = words || '''half'':4'::tsvector
            WHERE session % 2 = 1 AND seq = 102;
            ANALYZE;
        """)
        fetch = store._database.fetch

        async def spy(sql: str, *args: Any) -> list[Any]:
            calls.append((sql, args))
            return await fetch(sql, *args)

        monkeypatch.setattr(store._database, "fetch", spy)
        for text in ("tenth ", "half tenth "):
            calls.clear()
            assert len(await store.page(WORKSPACE, Query(text=text, limit=5))) == 5
            assert not [sql for sql, _ in calls if "FROM search WHERE words @@" in sql]
            (scan,) = [(sql, args) for sql, args in calls if "= ANY (ARRAY" in sql]
            # 76 or 151 of 4,000 sessions, each with two texts.
            assert await rows_of_search_read(connection, *scan) == 2 * scan[1][-2]
            assert scan[1][-2] < 200
            (explained,) = await (await connection.prepare(scan[0])).explain(*scan[1])
            assert indexes([*nodes(explained["Plan"])]) == {"sessions_active", "search_pkey"}


async def test_frequent_words_are_not_looked_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each occurs in so many sessions that those with all of them are soon met."""
    async with open_store(url) as store, connect(url) as connection:
        await fill(connection, analyzed=False)
        await connection.execute("""
            UPDATE search SET words = words || '''half'':3'::tsvector WHERE session % 2 = 0;
            UPDATE search SET words = words || '''third'':3'::tsvector WHERE session % 3 = 0;
            ANALYZE;
        """)
        statements = spy_on(store, monkeypatch)
        for text in ("common", "half", "common half", "half third"):
            assert len(await store.page(WORKSPACE, Query(text=text, limit=LIMIT))) == LIMIT
        assert not [sql for sql in statements if "FROM search WHERE words @@" in sql]


async def pages(store: Store, query: Query) -> list[str]:
    matches: list[Session] = []
    while page := await store.page(
        WORKSPACE, query, position(matches[-1], "active") if matches else None
    ):
        matches += page
    return [session.id for session in matches]


async def test_search_that_scanned_every_session_queries_no_index(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(url) as store:
        session = await create_session(store, user_message("zebra"))
        await create_session(store, user_message("lion"))
        statements = spy_on(store, monkeypatch)
        assert [row.id for row in await store.page(WORKSPACE, Query(text="zebra"))] == [session.id]
        assert not [sql for sql in statements if "FROM search WHERE words @@" in sql]


async def test_a_search_may_have_hundreds_of_rare_words(url: str) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    async with open_store(url) as store, connect(url) as connection:
        for number in range(20):
            await create_session(store, user_message(f"word{number}"))
        session = await create_session(store, user_message(words))
        await connection.execute("ANALYZE")
        assert [row.id for row in await store.page(WORKSPACE, Query(text=words))] == [session.id]
        assert await store.page(WORKSPACE, Query(text=f"{words} missing")) == []


async def test_matches_in_other_workspaces_do_not_hide_a_ranked_session(url: str) -> None:
    async with open_store(url) as store:
        for _ in range(30):
            await store.create(
                "there", ids.new_id(), [Created(cwd="/"), user_message("zebra " * 9)]
            )
        session = await create_session(store, user_message("a zebra"), user_message("a lion"))
        await create_session(store, user_message("a zebra"))
        (hit,) = await store.ranked(WORKSPACE, Query(text="zebra lion"))
        assert hit.session.id == session.id
