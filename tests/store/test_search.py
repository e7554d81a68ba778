"""A search finds what memory says, whichever of its ways a store takes."""

import asyncio
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.model import ids, search_text
from segue.model.content import as_content
from segue.model.cursor import ChangePoint
from segue.model.event import AnyBody, Created, Draft, UserMessage
from segue.model.query import Query, position
from segue.model.session import Session
from segue.store.base import Store
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore

# Words that begin alike: a store may find what is begun by fewer letters, and must check. And
# words of which one is common and another rare: a store may look them up in different ways.
words = st.sampled_from(
    ["alp", "alpha", "alphabet", "alpine", "alps", "東京", *["beta"] * 12, *["gamma"] * 2]
)
sayings = st.lists(words, max_size=3).map(" ".join)
libraries = st.lists(st.lists(sayings, max_size=4), min_size=15, max_size=40)
queries = st.builds(
    Query,
    text=st.sampled_from(
        ("alph", "alphab", "alpha ", "alpi beta", "beta gamma", '"alpha beta"', "gamma 東", "x")
    ),
    directories=st.sampled_from(((), ("/a",), ("/a", "/b"))),
    order=st.sampled_from(("active", "created")),
    descending=st.booleans(),
    limit=st.integers(1, 5),
)
rooms = count()


async def fill(store: Store, workspace: str, library: list[list[str]]) -> None:
    async def make(number: int, history: list[str]) -> None:
        bodies: list[AnyBody] = [Created(cwd=("/a", "/b")[number % 2])]
        bodies += [UserMessage(content=as_content(said)) for said in history]
        drafts = [Draft(body=body, id=str(i), at=number // 2) for i, body in enumerate(bodies)]
        await store.create(workspace, ids.derived_id(str(number)), drafts)

    await asyncio.gather(*(make(number, history) for number, history in enumerate(library)))


async def compare(memory: Store, other: Store, workspace: str, query: Query, back: bool) -> None:
    found: list[Session] = []
    while True:
        after = position(found[-1], query.order) if found else None
        page = await memory.page(workspace, query, after, backward=back)
        assert await other.page(workspace, query, after, backward=back) == page
        if not page:
            break
        found += page[::-1] if back else page
    hits = await other.ranked(workspace, replace(query, limit=1000))
    assert {hit.session.id for hit in hits} == {session.id for session in found}
    terms = search_text.terms(query.text or "")
    shown = await memory.newest_matches(workspace, found, terms)
    assert await other.newest_matches(workspace, found, terms) == shown
    ever = ChangePoint(0, 1 << 60)
    swept = await memory.sweep(workspace, query, ever, "")
    assert await other.sweep(workspace, query, ever, "") == swept


def search(loop: asyncio.AbstractEventLoop, other: Store, examples: int) -> None:
    async def try_all(library: list[list[str]], asked: list[tuple[Query, bool]]) -> None:
        memory, workspace = MemoryStore(), f"room-{next(rooms)}"
        await fill(memory, workspace, library)
        await fill(other, workspace, library)
        for query, back in asked:
            await compare(memory, other, workspace, query, back)
        # How often a word occurs is counted in the whole store, so it is left empty.
        rows = await memory.page(workspace, Query(limit=1000))
        await asyncio.gather(*(other.purge(workspace, row.id, lambda _: None) for row in rows))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(libraries, st.lists(st.tuples(queries, st.booleans()), min_size=3, max_size=8))
    def run(library: list[list[str]], asked: list[tuple[Query, bool]]) -> None:
        loop.run_until_complete(try_all(library, asked))

    run()


depths = pytest.mark.parametrize(
    "examples", [pytest.param(12), pytest.param(500, marks=pytest.mark.full)]
)


@depths
def test_sqlite_finds_what_memory_finds(
    loop: asyncio.AbstractEventLoop, sqlite: Store, examples: int
) -> None:
    search(loop, sqlite, examples)


@depths
@pytest.mark.usefixtures("few_are_many")
def test_sqlite_finds_what_memory_finds_among_many(
    loop: asyncio.AbstractEventLoop, sqlite: Store, examples: int
) -> None:
    search(loop, sqlite, examples)


@depths
def test_postgres_finds_what_memory_finds(
    loop: asyncio.AbstractEventLoop, postgres: Store, examples: int
) -> None:
    search(loop, postgres, examples)


async def test_snippets_ask_the_index_for_nothing_that_the_search_knew(
    sqlite: SQLiteStore,
) -> None:
    await fill(sqlite, "room", [["alpha beta"], ["gamma"], ["alpha", "alpine"]])
    asked: list[str] = []
    found = await sqlite.page("room", Query(text="alph"))
    sqlite.reader._connection.set_trace_callback(asked.append)
    shown = await sqlite.newest_matches("room", found, search_text.terms("alph"))
    sqlite.reader._connection.set_trace_callback(None)
    assert [search_text.searchable_text(event.body) for event in shown if event] == [
        "alpha",
        "alpha beta",
    ]
    assert not [sql for sql in asked if "MATCH" in sql or "words" in sql]
    assert len(asked) == 4  # begin, the version, the events, end


async def test_what_a_search_knew_is_forgotten_at_a_change(sqlite: SQLiteStore) -> None:
    await fill(sqlite, "room", [["alpha"], ["alphabet"]])
    query, terms = Query(text="alpha"), search_text.terms("alpha")
    before = await sqlite.page("room", query)
    await sqlite.newest_matches("room", before, terms)
    said = UserMessage(content=as_content("alphas again"))
    await sqlite.change("room", before[1].id, lambda _: [Draft(body=said)])
    after = await sqlite.page("room", query)
    assert [each.id for each in after] == [before[1].id, before[0].id]
    newest, _ = await sqlite.newest_matches("room", after, terms)
    assert newest is not None and newest.body == said
