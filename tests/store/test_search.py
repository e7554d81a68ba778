"""Every search strategy of a store finds what the store in memory finds."""

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

# Words with a common prefix: a store may look up a shorter prefix and must check its results.
# And common and rare words, which a store may look up in different ways.
words = st.sampled_from(
    ["alp", "alpha", "alphabet", "alpine", "alps", "東京", *["beta"] * 12, *["gamma"] * 2]
)
texts = st.lists(words, max_size=3).map(" ".join)
libraries = st.lists(st.lists(texts, max_size=4), min_size=15, max_size=40)
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
workspace_numbers = count()


async def fill(store: Store, workspace: str, library: list[list[str]]) -> None:
    async def create_session(number: int, history: list[str]) -> None:
        bodies: list[AnyBody] = [Created(cwd=("/a", "/b")[number % 2])]
        bodies += [UserMessage(content=as_content(text)) for text in history]
        drafts = [Draft(body=body, id=str(i), at=number // 2) for i, body in enumerate(bodies)]
        await store.create(workspace, ids.derived_id(str(number)), drafts)

    await asyncio.gather(
        *(create_session(number, history) for number, history in enumerate(library))
    )


async def compare(
    memory: Store, other: Store, workspace: str, query: Query, *, backward: bool
) -> None:
    matches: list[Session] = []
    while True:
        after = position(matches[-1], query.order) if matches else None
        page = await memory.page(workspace, query, after, backward=backward)
        assert await other.page(workspace, query, after, backward=backward) == page
        if not page:
            break
        matches += page[::-1] if backward else page
    hits = await other.ranked(workspace, replace(query, limit=1000))
    assert {hit.session.id for hit in hits} == {session.id for session in matches}
    terms = search_text.terms(query.text or "")
    events = await memory.newest_matches(workspace, matches, terms)
    assert await other.newest_matches(workspace, matches, terms) == events
    ever = ChangePoint(0, 1 << 60)
    swept = await memory.sweep(workspace, query, ever, "")
    assert await other.sweep(workspace, query, ever, "") == swept


def search(loop: asyncio.AbstractEventLoop, other: Store, examples: int) -> None:
    async def try_all(library: list[list[str]], requests: list[tuple[Query, bool]]) -> None:
        memory, workspace = MemoryStore(), f"workspace-{next(workspace_numbers)}"
        await fill(memory, workspace, library)
        await fill(other, workspace, library)
        for query, backward in requests:
            await compare(memory, other, workspace, query, backward=backward)
        # How often a word occurs is counted in the whole store, so it is left empty.
        rows = await memory.page(workspace, Query(limit=1000))
        await asyncio.gather(*(other.purge(workspace, row.id, lambda _: None) for row in rows))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(libraries, st.lists(st.tuples(queries, st.booleans()), min_size=3, max_size=8))
    def run(library: list[list[str]], requests: list[tuple[Query, bool]]) -> None:
        loop.run_until_complete(try_all(library, requests))

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
@pytest.mark.usefixtures("low_limits")
def test_sqlite_finds_what_memory_finds_with_low_limits(
    loop: asyncio.AbstractEventLoop, sqlite: Store, examples: int
) -> None:
    search(loop, sqlite, examples)


@depths
def test_postgres_finds_what_memory_finds(
    loop: asyncio.AbstractEventLoop, postgres: Store, examples: int
) -> None:
    search(loop, postgres, examples)


async def test_newest_matches_reuse_the_results_of_the_search(
    sqlite: SQLiteStore,
) -> None:
    await fill(sqlite, "workspace", [["alpha beta"], ["gamma"], ["alpha", "alpine"]])
    requests: list[str] = []
    matches = await sqlite.page("workspace", Query(text="alph"))
    connection = sqlite.reader.search.index.connection()
    connection.set_trace_callback(requests.append)
    events = await sqlite.newest_matches("workspace", matches, search_text.terms("alph"))
    connection.set_trace_callback(None)
    assert [search_text.searchable_text(event.body) for event in events if event] == [
        "alpha",
        "alpha beta",
    ]
    assert not [sql for sql in requests if "MATCH" in sql or "words" in sql]
    assert len(requests) == 5  # begin, the index's position, the version, the events, end


async def test_cached_search_results_are_dropped_after_a_change(sqlite: SQLiteStore) -> None:
    await fill(sqlite, "workspace", [["alpha"], ["alphabet"]])
    query, terms = Query(text="alpha"), search_text.terms("alpha")
    before = await sqlite.page("workspace", query)
    await sqlite.newest_matches("workspace", before, terms)
    message = UserMessage(content=as_content("alphas again"))
    await sqlite.change("workspace", before[1].id, lambda _: [Draft(body=message)])
    after = await sqlite.page("workspace", query)
    assert [session.id for session in after] == [before[1].id, before[0].id]
    newest, _ = await sqlite.newest_matches("workspace", after, terms)
    assert newest is not None and newest.body == message
