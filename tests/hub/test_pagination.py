"""Page through sessions of the store and a source while they change."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.hub import Hub
from segue.model import cursor as cursors
from segue.model import ids
from segue.model.content import as_content
from segue.model.errors import InvalidCursor, InvalidInput
from segue.model.event import AgentRef, Created, Draft, InfoChanged, UserMessage
from segue.model.principal import LOCAL, Principal
from segue.model.query import Query, matches, position
from segue.model.session import Session
from segue.store.base import Store
from segue.store.memory import MemoryStore
from segue.store.sqlite import SQLiteStore
from segue.testing.source import MemorySource

times = st.integers(1, 4)  # few values, so that many sessions have the same time
rows = st.fixed_dictionaries(
    {
        "at": times,
        "cwd": st.sampled_from(["/a", "/b"]),
        "tag": st.sampled_from([None, "t"]),
        "agent": st.sampled_from(["x", "y"]),
        "archived": st.booleans(),
        "in_source": st.booleans(),
    }
)
plain = st.builds(Query, limit=st.integers(1, 4), archived=st.just("include"))
queries = plain | st.builds(
    Query,
    limit=st.integers(1, 4),
    order=st.sampled_from(["active", "created"]),
    descending=st.booleans(),
    archived=st.sampled_from(["exclude", "include", "only"]),
    tag=st.sampled_from([None, None, "t"]),
    agent_id=st.sampled_from([None, None, "x"]),
    directories=st.sampled_from([(), (), ("/a",), ("/a", "/b")]),
    text=st.sampled_from([None, None, "word"]),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["touch", "touch", "touch", "new", "archive", "trash", "tag", "copy"]),
        st.integers(0, 30),
        times,
    ),
    min_size=1,
    max_size=3,
)


class PagedHub:
    """A hub, and the state of each session after the last step."""

    def __init__(self, store: Store) -> None:
        self.source = MemorySource()
        self.hub = Hub(store, Path("/nowhere"), sources=[self.source])
        self.store = store
        self.sessions: dict[str, Session] = {}
        self.touched: set[str] = set()

    async def create(self, row: dict[str, Any]) -> None:
        id = ids.new_id()
        created = Created(cwd=row["cwd"], agent=AgentRef(id=row["agent"]))
        drafts = [
            Draft(body=created, at=row["at"]),
            Draft(body=UserMessage(content=as_content("a word")), at=row["at"]),
            Draft(body=InfoChanged(tag=row["tag"], archived=row["archived"]), at=row["at"]),
        ]
        if row["in_source"]:
            self.sessions[id] = await self.source.create(id, drafts)
        else:
            self.sessions[id] = await self.store.create("local", id, drafts)

    async def step(self, kind: str, index: int, at: int) -> None:
        if kind == "new" or not self.sessions:
            row = {"at": at, "cwd": "/a", "tag": "t", "agent": "x", "archived": False}
            await self.create({**row, "in_source": index % 2 == 0})
            return
        id = sorted(self.sessions)[index % len(self.sessions)]
        self.touched.add(id)
        bodies = {
            "touch": UserMessage(content=as_content("again")),
            "archive": InfoChanged(archived=True),
            "trash": InfoChanged(deleted=True),
            "tag": InfoChanged(tag="t"),
        }
        stored = await self.store.get("local", id)
        if kind == "copy":
            if stored is None:
                events = await self.source.events(id)
                self.sessions[id] = await self.store.load("local", id, events)
            return
        draft = Draft(body=bodies[kind], at=at + 2)
        if stored is None:
            self.sessions[id] = await self.source.append(id, [draft])
        else:
            self.sessions[id], _ = await self.store.change("local", id, lambda _: [draft])

    def matching_ids(self, query: Query) -> set[str]:
        return {id for id, session in self.sessions.items() if matches(query, session)}


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        ("memory", 100),
        ("sqlite", 40),
        pytest.param("memory", 1000, marks=pytest.mark.full),
        pytest.param("sqlite", 200, marks=pytest.mark.full),
    ],
)
def test_session_that_always_matches_is_on_one_of_the_pages(kind: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(rows, min_size=4, max_size=14), queries, st.lists(steps, min_size=2, max_size=8)
    )
    def run(
        start: list[dict[str, Any]], query: Query, steps_between_pages: list[list[Any]]
    ) -> None:
        asyncio.run(_page_through(kind, start, query, steps_between_pages))

    run()


async def _page_through(
    kind: str, start: list[dict[str, Any]], query: Query, steps_between_pages: list[list[Any]]
) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as directory:
        store: Store = MemoryStore()
        if kind == "sqlite":
            store = SQLiteStore.open(Path(directory) / "segue.db")
        paged = PagedHub(store)
        try:
            for row in start:
                await paged.create(row)
            always_matching = paged.matching_ids(query)
            seen: list[str] = []
            token: str | None = None
            for number in range(200):
                page = await paged.hub.sessions.list(LOCAL, query, token)
                assert len(page.sessions) <= query.limit
                assert page.sessions or page.next is None, "an empty page must be the last"
                seen += [session.id for session in page.sessions]
                token = page.next
                if token is None:
                    break
                if number < len(steps_between_pages):
                    for step in steps_between_pages[number]:
                        await paged.step(*step)
                        always_matching &= paged.matching_ids(query)
            else:
                pytest.fail("paging did not end")
            assert always_matching <= set(seen)
            repeated = {id for id in seen if seen.count(id) > 1}
            assert repeated <= paged.touched
        finally:
            await paged.hub.close()


async def _hub_with_sessions(count: int, **options: Any) -> tuple[Hub, list[Session]]:
    hub = Hub(MemoryStore(), Path("/nowhere"), **options)
    sessions = [
        await hub.store.create("local", ids.new_id(), [Draft(body=Created(cwd="/a"), at=at)])
        for at in range(1, count + 1)
    ]
    return hub, sessions


async def test_previous_page_is_the_same_page_with_the_same_next_cursor() -> None:
    hub, _ = await _hub_with_sessions(10)
    query = Query(order="created", limit=3)
    first = await hub.sessions.list(LOCAL, query, bind_filters=False)
    second = await hub.sessions.list(LOCAL, query, first.next, bind_filters=False)
    assert first.prev is None
    first_again = await hub.sessions.list(LOCAL, query, second.prev, bind_filters=False)
    assert first_again == first._replace(prev=None)
    third = await hub.sessions.list(LOCAL, query, second.next, bind_filters=False)
    assert (await hub.sessions.list(LOCAL, query, third.prev, bind_filters=False)).sessions == (
        second.sessions
    )


async def test_pages_include_every_session_and_the_last_has_no_next_cursor() -> None:
    hub, sessions = await _hub_with_sessions(7)
    query = Query(order="created", descending=False, limit=3)
    seen, token = [], None
    for expected in (3, 3, 1):
        page = await hub.sessions.list(LOCAL, query, token)
        assert len(page.sessions) == expected
        seen += page.sessions
        token = page.next
    assert token is None
    assert seen == sessions


async def test_full_last_page_has_no_next_cursor() -> None:
    hub, _ = await _hub_with_sessions(3)
    assert (await hub.sessions.list(LOCAL, Query(limit=3))).next is None


async def test_bound_cursor_is_valid_for_its_workspace_order_and_filters_only() -> None:
    hub, _ = await _hub_with_sessions(5)
    query = Query(limit=2)
    token = (await hub.sessions.list(LOCAL, query)).next
    assert token is not None
    with pytest.raises(InvalidCursor):
        await hub.sessions.list(Principal(workspace="other"), query, token)
    with pytest.raises(InvalidCursor):
        await hub.sessions.list(LOCAL, Query(limit=2, order="created"), token)
    with pytest.raises(InvalidCursor):
        await hub.sessions.list(LOCAL, Query(limit=2, tag="t"), token)
    assert (await hub.sessions.list(LOCAL, Query(limit=3), token)).sessions


async def test_unbound_cursor_allows_other_filters_that_include_its_position() -> None:
    hub, _ = await _hub_with_sessions(5)
    query = Query(order="created", limit=2)
    token = (await hub.sessions.list(LOCAL, query, bind_filters=False)).next
    other = Query(order="created", limit=3, source="segue")
    assert (await hub.sessions.list(LOCAL, other, token, bind_filters=False)).sessions
    later = Query(order="created", limit=2, created_gt=4)
    with pytest.raises(InvalidCursor):
        await hub.sessions.list(LOCAL, later, token, bind_filters=False)


@pytest.mark.parametrize("token", ["", "x", "page", "é", "AAAA", "=" * 9, "A" * 400])
async def test_malformed_cursor_is_rejected(token: str) -> None:
    hub, _ = await _hub_with_sessions(2)
    with pytest.raises(InvalidCursor):
        await hub.sessions.list(LOCAL, Query(), token)


async def test_cursor_of_another_store_is_rejected() -> None:
    hub, _ = await _hub_with_sessions(5)
    other, _ = await _hub_with_sessions(5)
    token = (await hub.sessions.list(LOCAL, Query(limit=1))).next
    with pytest.raises(InvalidCursor):
        await other.sessions.list(LOCAL, Query(limit=1), token)


async def test_cursors_of_successive_pages_differ() -> None:
    hub, _ = await _hub_with_sessions(9)
    tokens, token = set(), None
    while True:
        page = await hub.sessions.list(LOCAL, Query(limit=2), token)
        token = page.next
        if token is None:
            break
        assert token not in tokens
        tokens.add(token)


async def test_limit_above_the_maximum_is_rejected() -> None:
    hub, _ = await _hub_with_sessions(1)
    with pytest.raises(InvalidInput):
        await hub.sessions.list(LOCAL, Query(limit=1001))


async def test_imported_copy_is_listed_instead_of_the_source_session() -> None:
    source = MemorySource()
    hub = Hub(MemoryStore(), Path("/nowhere"), sources=[source])
    id = ids.new_id()
    await source.create(id, [Draft(body=Created(cwd="/a", source="memory"), at=1)])
    await source.append(id, [InfoChanged(title="in the source")])
    await hub.store.load("local", id, await source.events(id))
    await hub.editor.set_title(LOCAL, id, "in the store")
    listed = (await hub.sessions.list(LOCAL, Query())).sessions
    assert [session.title for session in listed] == ["in the store"]
    assert (await source.get(id)).title == "in the source"


class CountingSource(MemorySource):
    """Counts the rows that are read of its lists."""

    rows_read = 0
    refreshes = 0

    async def refresh(self, cwd: str | None = None) -> None:
        self.refreshes += 1

    async def page(self, *args: Any, **options: Any) -> list[Session]:
        rows = await super().page(*args, **options)
        self.rows_read += len(rows)
        return rows


async def _sources_with_sessions(shares: list[int]) -> tuple[Hub, list[CountingSource]]:
    """Create sources; their shares are repeated so that 240 sessions alternate between them."""
    sources = [CountingSource(name=f"tool{number}") for number in range(max(shares) + 1)]
    for number in range(240):
        source = sources[shares[number % len(shares)]]
        created = Created(cwd="/a", source=source.name)
        await source.create(ids.new_id(), [Draft(body=created, at=1 + number // 2)])
    return Hub(MemoryStore(), Path("/nowhere"), sources=sources), sources


async def test_page_reads_few_rows_of_each_of_many_sources() -> None:
    hub, sources = await _sources_with_sessions([*range(8)])
    page = await hub.sessions.list(LOCAL, Query(limit=50))
    assert len(page.sessions) == 50
    assert sum(source.rows_read for source in sources) <= 2 * 51


async def test_list_of_one_source_refreshes_no_other() -> None:
    hub, sources = await _sources_with_sessions([*range(8)])
    page = await hub.sessions.list(LOCAL, Query(source="tool3"))
    assert len(page.sessions) == 30
    assert [source.refreshes for source in sources] == [0, 0, 0, 1, 0, 0, 0, 0]


async def test_count_after_a_list_compares_no_files_again() -> None:
    hub, sources = await _sources_with_sessions([*range(8)])
    assert (await hub.sessions.list(LOCAL, Query(limit=5))).next is not None
    assert await hub.sessions.count(LOCAL, Query(limit=5)) == 240
    assert await hub.sessions.count(LOCAL, Query(source="tool3")) == 30
    assert [source.refreshes for source in sources] == [1] * 8


async def test_more_sessions_than_a_page_can_have_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segue.hub.sessions.pagination.MAX_PAGE_SIZE", 100)
    hub, sources = await _sources_with_sessions([0, 1, 2])
    assert await hub.sessions.count(LOCAL, Query()) is None
    assert [source.rows_read for source in sources] == [80, 80, 0]


@pytest.mark.parametrize("order", ["active", "created"])
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("limit", [1, 7, 50, 300])
async def test_pages_of_many_sources_have_every_session_once_and_in_order(
    order: Any, descending: bool, limit: int
) -> None:
    # One source has most sessions, so that its share of a page is read in several steps.
    hub, _ = await _sources_with_sessions([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 3, 4, 5, 6, 7])
    query = Query(order=order, descending=descending, limit=limit)
    pages = [await hub.sessions.list(LOCAL, query)]
    while token := pages[-1].next:
        pages.append(await hub.sessions.list(LOCAL, query, token))
    listed = [session for page in pages for session in page.sessions]
    assert len(listed) == 240
    positions = [position(session, order) for session in listed]
    assert positions == sorted(set(positions), reverse=descending)
    if len(pages) > 1:
        before = await hub.sessions.list(LOCAL, query, pages[-1].prev)
        assert before.sessions == pages[-2].sessions


async def test_source_of_another_workspace_is_not_listed() -> None:
    source = MemorySource(workspace="other")
    hub = Hub(MemoryStore(), Path("/nowhere"), sources=[source])
    await source.create(ids.new_id(), [Created(cwd="/a")])
    assert (await hub.sessions.list(LOCAL, Query())).sessions == []
    assert len((await hub.sessions.list(Principal(workspace="other"), Query())).sessions) == 1


def test_filter_fingerprint_ignores_page_size_and_order() -> None:
    fingerprint = cursors.fingerprint(Query(tag="t", limit=3))
    assert fingerprint == cursors.fingerprint(Query(tag="t", limit=4, order="created"))
    assert fingerprint != cursors.fingerprint(Query(tag="u"))
