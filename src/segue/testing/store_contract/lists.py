"""Contract: lists of sessions with every filter and order, pages, sweeps and stale sessions."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from segue.model import ids
from segue.model.event import AgentRef, ConfigChanged, InfoChanged
from segue.model.query import Order, Position, Query, matches, position
from segue.model.session import Session
from segue.store.base import Store
from segue.testing.helpers import ids_of

from .harness import (
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    allow_purge,
    append_events,
    at,
    create_session,
    draft,
    list_ids,
    status_change,
    tag_change,
    title_change,
    user_message,
)

ORDERS: tuple[Order, ...] = ("active", "created")

# One or two values of every filter. Each leaves out some session of `create_library`.
FILTERS: tuple[dict[str, Any], ...] = (
    {"directories": ("/a",)},
    {"directories": ("/a", "/b", "/nowhere")},
    {"agent_id": "helper"},
    {"agent_id": "helper", "agent_version": 2},
    {"created_gt": at(3)},
    {"created_gte": at(3), "created_lt": at(9)},
    {"created_lte": at(6)},
    {"active_after": at(105)},
    {"active_before": at(105)},
    {"statuses": ("idle",)},
    {"statuses": ("running", "terminated")},
    {"statuses": ("terminated",), "archived": "include", "archived_as": "terminated"},
    {"deployment_id": "d"},
    {"memory_store_id": "m"},
    {"tag": "red"},
    {"source": "claude"},
    {"source": "codex"},
    {"archived": "include"},
    {"archived": "only"},
    {"trash": True},
    {"text": "even"},
)


async def create_library(store: Store) -> list[Session]:
    """Create sessions that differ in every filter, some with equal times."""
    library = []
    for i in range(24):
        session = await create_session(
            store,
            seconds=i // 2,
            cwd="/" + "abc"[i % 3],
            agent=AgentRef(id="helper", version=1 + i % 2) if i % 4 else None,
            deployment_id="d" if i % 5 == 0 else None,
            memory_store_ids=(("m",), ("n",), ("m", "n"), ())[i % 4],
            source="claude" if i % 7 == 0 else "segue",
            origin="codex" if i % 5 == 1 else "cli",
        )
        text = "even" if i % 2 == 0 else "odd"
        session = await append_events(store, session, draft(user_message(text), 100 + (i * 7) % 12))
        if i % 3 == 1:
            session = await append_events(store, session, tag_change("red" if i % 2 else "blue"))
        if i % 6 == 2:
            session = await append_events(store, session, status_change("running"))
        if i % 8 == 3:
            session = await append_events(store, session, status_change("terminated"))
        if i % 5 == 4:
            session = await append_events(store, session, InfoChanged(archived=True))
        if i % 9 == 8:
            session = await append_events(store, session, InfoChanged(deleted=True))
        library.append(session)
    return library


async def read_all_pages(store: Store, query: Query, *, backward: bool = False) -> list[str]:
    """Return the ids of a whole list, read page by page."""
    listed_ids: list[str] = []
    after: Position | None = None
    while page := await store.page(WORKSPACE, query, after, backward=backward):
        assert len(page) <= query.limit
        listed_ids = ids_of(page) + listed_ids if backward else listed_ids + ids_of(page)
        after = position(page[0] if backward else page[-1], query.order)
    return listed_ids


def expected_ids(library: list[Session], query: Query) -> list[str]:
    """Return the ids of the same list as `model.query.matches` defines it."""
    rows = [row for row in library if matches(query, row)]
    if query.text is not None:
        rows = [row for row in rows if library.index(row) % 2 == 0]
    rows.sort(key=lambda row: position(row, query.order), reverse=query.descending)
    return ids_of(rows)


class ListContract(Contract):
    # order and paging

    async def test_list_begins_with_the_most_recently_active_session(self, store: Store) -> None:
        old = await create_session(store, seconds=0)
        new = await create_session(store, seconds=1)
        assert await list_ids(store) == [new.id, old.id]
        await append_events(store, old, draft(user_message("again"), 2))
        assert await list_ids(store) == [old.id, new.id]

    async def test_list_can_be_ordered_by_creation(self, store: Store) -> None:
        old = await create_session(store, draft(user_message("lively"), 100), seconds=0)
        new = await create_session(store, seconds=1)
        assert await list_ids(store, order="created") == [new.id, old.id]

    async def test_list_can_begin_with_the_oldest_session(self, store: Store) -> None:
        rows = [await create_session(store, seconds=i) for i in range(3)]
        assert await list_ids(store, descending=False) == ids_of(rows)

    async def test_renaming_does_not_count_as_activity(self, store: Store) -> None:
        old = await create_session(store, seconds=0)
        new = await create_session(store, seconds=1)
        await append_events(
            store, old, title_change("A"), tag_change("t"), InfoChanged(metadata={"a": "b"})
        )
        assert await list_ids(store) == [new.id, old.id]

    async def test_ids_break_ties(self, store: Store) -> None:
        names = sorted(ids.new_id() for _ in range(4))
        for name in (names[2], names[0], names[3], names[1]):
            await create_session(store, seconds=5, id=name)
        for order in ORDERS:
            assert await list_ids(store, order=order) == names[::-1]
            assert await list_ids(store, order=order, descending=False) == names
            assert await read_all_pages(store, Query(order=order, limit=1)) == names[::-1]

    async def test_page_continues_after_a_position_that_no_session_has(self, store: Store) -> None:
        rows = [await create_session(store, seconds=i) for i in range(3)]
        after = Position(at(1.5), "")
        assert ids_of(await store.page(WORKSPACE, Query(), after)) == ids_of(rows[1::-1])
        assert ids_of(await store.page(WORKSPACE, Query(), after, backward=True)) == [rows[2].id]

    async def test_backward_page_has_the_nearest_sessions_in_the_same_order(
        self, store: Store
    ) -> None:
        rows = [await create_session(store, seconds=i) for i in range(5)]
        after = position(rows[0], "active")
        page = await store.page(WORKSPACE, Query(limit=2), after, backward=True)
        assert ids_of(page) == [rows[2].id, rows[1].id]

    async def test_list_returns_complete_rows(self, store: Store) -> None:
        session = await create_session(
            store, title_change("A"), user_message("hello"), metadata={"a": "b"}
        )
        assert await store.page(WORKSPACE, Query()) == [session]

    # filters

    async def test_directories_are_compared_by_their_real_path(self, store: Store) -> None:
        linked = await create_session(store, cwd="/link", real_cwd="/real", seconds=2)
        plain = await create_session(store, cwd="/real", seconds=1)
        await create_session(store, cwd="/real/below")
        assert await list_ids(store, directories=("/real",)) == [linked.id, plain.id]
        assert await list_ids(store, directories=("/link",)) == []

    async def test_directories_with_sessions_are_returned(self, store: Store) -> None:
        long = "/" + "d" * 600
        for cwd in ("/a", "/b", "/a", long + "1", long + "2"):
            await create_session(store, cwd=cwd)
        linked = await create_session(store, cwd="/link", real_cwd="/real")
        await create_session(store, InfoChanged(archived=True), cwd="/c")
        await create_session(store, InfoChanged(deleted=True), cwd="/gone")
        await create_session(store, cwd="/theirs", workspace=OTHER_WORKSPACE)
        directories = await store.directories(WORKSPACE)
        assert directories == {"/a", "/b", "/c", "/real", long + "1", long + "2"}
        await store.purge(WORKSPACE, linked.id, allow_purge)
        assert "/real" not in await store.directories(WORKSPACE)

    async def test_several_directories_are_merged_in_order(self, store: Store) -> None:
        rows = [await create_session(store, cwd=("/a", "/b")[i % 2], seconds=i) for i in range(4)]
        assert await list_ids(store, directories=("/a", "/b")) == ids_of(rows[::-1])
        assert await list_ids(store, directories=("/b", "/a", "/b")) == ids_of(rows[::-1])

    async def test_list_can_select_thousands_of_directories(self, store: Store) -> None:
        paths = tuple(f"/tree/{n}" for n in range(3_000))
        first = await create_session(store, cwd=paths[0], seconds=1)
        last = await create_session(store, cwd=paths[-1], seconds=2)
        await create_session(store, cwd="/elsewhere")
        assert await list_ids(store, directories=paths) == [last.id, first.id]
        assert await list_ids(store, directories=paths, archived="include") == [
            last.id,
            first.id,
        ]
        assert await list_ids(store, directories=paths, source="segue") == [last.id, first.id]

    async def test_an_agent_is_matched_in_any_version_or_in_one(self, store: Store) -> None:
        version_1 = await create_session(store, agent=AgentRef(id="a", version=1), seconds=1)
        version_2 = await create_session(store, agent=AgentRef(id="a", version=2), seconds=2)
        await create_session(store, agent=AgentRef(id="b", version=1))
        await create_session(store)
        assert await list_ids(store, agent_id="a") == [version_2.id, version_1.id]
        assert await list_ids(store, agent_id="a", agent_version=1) == [version_1.id]
        assert await list_ids(store, agent_id="a", agent_version=3) == []

    async def test_a_list_follows_the_agent_that_a_session_has_now(self, store: Store) -> None:
        session = await create_session(store, agent=AgentRef(id="a"))
        await append_events(store, session, ConfigChanged(agent=AgentRef(id="b", version=7)))
        assert await list_ids(store, agent_id="a") == []
        assert await list_ids(store, agent_id="b", agent_version=7) == [session.id]

    async def test_a_list_follows_status_and_tag(self, store: Store) -> None:
        session = await create_session(store, tag_change("old"))
        await append_events(store, session, status_change("running"), tag_change("new"))
        assert await list_ids(store, statuses=("idle",)) == []
        assert await list_ids(store, statuses=("running",)) == [session.id]
        assert await list_ids(store, tag="old") == []
        assert await list_ids(store, tag="new") == [session.id]
        await append_events(store, session, tag_change(None))
        assert await list_ids(store, tag="new") == []

    async def test_a_session_is_found_by_each_of_its_memory_stores(self, store: Store) -> None:
        with_both_stores = await create_session(store, memory_store_ids=("m", "n", "m"), seconds=1)
        with_one_store = await create_session(store, memory_store_ids=("n",), seconds=2)
        assert await list_ids(store, memory_store_id="m") == [with_both_stores.id]
        assert await list_ids(store, memory_store_id="n") == [
            with_one_store.id,
            with_both_stores.id,
        ]
        await append_events(store, with_both_stores, draft(user_message("active"), 3))
        assert await list_ids(store, memory_store_id="n") == [
            with_both_stores.id,
            with_one_store.id,
        ]
        await append_events(store, with_both_stores, InfoChanged(archived=True))
        assert await list_ids(store, memory_store_id="n") == [with_one_store.id]
        assert await list_ids(store, memory_store_id="n", archived="only") == [with_both_stores.id]

    async def test_archived_sessions_are_excluded_included_or_listed_alone(
        self, store: Store
    ) -> None:
        live = await create_session(store, seconds=1)
        archived = await create_session(store, InfoChanged(archived=True), seconds=2)
        await create_session(store, InfoChanged(archived=True, deleted=True), seconds=3)
        assert await list_ids(store) == [live.id]
        assert await list_ids(store, archived="include") == [archived.id, live.id]
        assert await list_ids(store, archived="only") == [archived.id]
        await append_events(store, archived, InfoChanged(archived=False))
        assert await list_ids(store) == [archived.id, live.id]

    async def test_trash_lists_only_trashed_sessions(self, store: Store) -> None:
        await create_session(store)
        deleted = await create_session(store, InfoChanged(deleted=True), seconds=1)
        deleted_and_archived = await create_session(
            store, InfoChanged(deleted=True, archived=True), seconds=2
        )
        assert await list_ids(store, trash=True) == [deleted_and_archived.id, deleted.id]
        assert await list_ids(store, trash=True, archived="only") == [
            deleted_and_archived.id,
            deleted.id,
        ]
        await append_events(store, deleted_and_archived, InfoChanged(deleted=False))
        assert await list_ids(store, trash=True) == [deleted.id]
        assert await list_ids(store, archived="only") == [deleted_and_archived.id]

    async def test_archived_sessions_can_count_as_another_status(self, store: Store) -> None:
        ended = await create_session(store, status_change("terminated"), seconds=1)
        archived = await create_session(store, InfoChanged(archived=True), seconds=2)
        idle = await create_session(store, seconds=3)
        filters: dict[str, Any] = {"archived": "include", "archived_as": "terminated"}
        assert await list_ids(store, statuses=("terminated",), **filters) == [archived.id, ended.id]
        assert await list_ids(store, statuses=("idle",), **filters) == [idle.id]
        matching_ids = await list_ids(store, statuses=("terminated", "idle"), **filters)
        assert matching_ids == [idle.id, archived.id, ended.id]
        assert (
            await list_ids(store, statuses=("idle",), archived="only", archived_as="running") == []
        )

    async def test_creation_time_filters_include_or_exclude_their_ends(self, store: Store) -> None:
        rows = ids_of([await create_session(store, seconds=i) for i in range(5)])[::-1]
        for order in ORDERS:
            assert await list_ids(store, order=order, created_gt=at(2)) == rows[:2]
            assert await list_ids(store, order=order, created_gte=at(2)) == rows[:3]
            assert await list_ids(store, order=order, created_lt=at(2)) == rows[3:]
            assert await list_ids(store, order=order, created_lte=at(2)) == rows[2:]
            inner = await list_ids(store, order=order, created_gt=at(0), created_lt=at(4))
            assert inner == rows[1:4]
            assert await list_ids(store, order=order, created_gt=at(3), created_lt=at(2)) == []

    async def test_activity_filters_exclude_the_time_itself(self, store: Store) -> None:
        rows = [await create_session(store, draft(user_message("x"), i)) for i in range(3)]
        assert await list_ids(store, active_after=at(1)) == [rows[2].id]
        assert await list_ids(store, active_before=at(1)) == [rows[0].id]

    async def test_every_filter_pages_as_the_model_defines(self, store: Store) -> None:
        library = await create_library(store)
        for filters, order, down, limit in product(FILTERS, ORDERS, (True, False), (1, 4, 50)):
            query = Query(**filters, order=order, descending=down, limit=limit)
            rows = expected_ids(library, query)
            assert rows, f"{filters} should find something"
            assert len(rows) < len(library)
            assert await read_all_pages(store, query) == rows
            assert await read_all_pages(store, query, backward=True) == rows

    async def test_any_two_filters_page_as_the_model_defines(self, store: Store) -> None:
        library = await create_library(store)
        for (first_filter, second_filter), order in product(combinations(FILTERS, 2), ORDERS):
            query = Query(**{**first_filter, **second_filter}, order=order, limit=3)
            assert await read_all_pages(store, query) == expected_ids(library, query)

    async def test_all_filters_can_be_combined(self, store: Store) -> None:
        session = await create_session(
            store,
            tag_change("t"),
            user_message("word"),
            cwd="/a",
            agent=AgentRef(id="helper", version=2),
            deployment_id="d",
            memory_store_ids=("m",),
            source="claude",
        )
        query = Query(
            directories=("/a", "/b"),
            agent_id="helper",
            agent_version=2,
            created_gte=session.created_at,
            created_lte=session.created_at,
            active_after=session.active_at - 1,
            active_before=session.active_at + 1,
            statuses=("idle", "running"),
            deployment_id="d",
            memory_store_id="m",
            tag="t",
            source="claude",
            archived="include",
            text="word",
        )
        assert await store.page(WORKSPACE, query) == [session]
        assert await store.page(OTHER_WORKSPACE, query) == []

    async def test_source_of_a_copy_is_the_tool_that_it_was_imported_from(
        self, store: Store
    ) -> None:
        own = await create_session(store, seconds=1, origin="rest")
        copy = await create_session(store, seconds=2, origin="codex")
        assert (own.source, copy.source, copy.owner) == ("segue", "codex", "segue")
        copy = await append_events(store, copy, user_message("more"))
        for source, session in (("segue", own), ("codex", copy)):
            query = Query(source=source)
            assert await store.page(WORKSPACE, query) == [session]
            assert await store.page(WORKSPACE, query, position(session, "active")) == []
        assert await store.page(WORKSPACE, Query(source="rest")) == []

    # sweeps

    async def test_sweep_returns_older_sessions_that_changed_since(self, store: Store) -> None:
        changed, _ = await create_session(store), await create_session(store)
        point = await store.change_point(WORKSPACE)
        assert await store.sweep(WORKSPACE, Query(), point, "") == []
        changed = await append_events(store, changed, user_message("more"))
        young = await create_session(store)
        await append_events(store, young, user_message("more"))
        assert await store.sweep(WORKSPACE, Query(), point, "") == [changed]
        assert await store.sweep(WORKSPACE, Query(), await store.change_point(WORKSPACE), "") == []

    async def test_sweep_returns_any_changed_row(self, store: Store) -> None:
        rows = [await create_session(store) for _ in range(3)]
        point = await store.change_point(WORKSPACE)
        await append_events(store, rows[0], title_change("A"))
        await append_events(store, rows[1], InfoChanged(archived=True))
        await append_events(store, rows[2], InfoChanged(deleted=True))
        assert ids_of(await store.sweep(WORKSPACE, Query(), point, "")) == [rows[0].id]
        swept = await store.sweep(WORKSPACE, Query(archived="only"), point, "")
        assert ids_of(swept) == [rows[1].id]
        assert ids_of(await store.sweep(WORKSPACE, Query(trash=True), point, "")) == [rows[2].id]

    async def test_sweep_pages_continue_by_id(self, store: Store) -> None:
        rows = [await create_session(store, cwd=("/a", "/b")[i % 2]) for i in range(5)]
        point = await store.change_point(WORKSPACE)
        for row in rows[::-1]:
            await append_events(store, row, user_message("more"))
        names = sorted(ids_of(rows))
        directory_query = Query(limit=2, directories=("/b", "/a"), order="created")
        for query in (Query(limit=2), directory_query):
            assert ids_of(await store.sweep(WORKSPACE, query, point, "")) == names[:2]
            assert ids_of(await store.sweep(WORKSPACE, query, point, names[1])) == names[2:4]
            assert ids_of(await store.sweep(WORKSPACE, query, point, names[4])) == []

    async def test_sweep_applies_the_filters(self, store: Store) -> None:
        library = await create_library(store)
        point = await store.change_point(WORKSPACE)
        after = [
            await append_events(store, row, InfoChanged(metadata={"seen": "1"})) for row in library
        ]
        for filters in FILTERS:
            query = Query(**filters)
            swept = ids_of(await store.sweep(WORKSPACE, query, point, ""))
            assert swept == sorted(expected_ids(after, query))

    async def test_sweep_returns_a_loaded_session(self, store: Store) -> None:
        events = await store.events(
            OTHER_WORKSPACE, (await create_session(store, workspace=OTHER_WORKSPACE)).id
        )
        point = await store.change_point(WORKSPACE)
        loaded = await store.load(WORKSPACE, ids.new_id(), events)
        assert await store.sweep(WORKSPACE, Query(), point, "") == [loaded]

    async def test_sweep_leaves_out_a_purged_session(self, store: Store) -> None:
        session = await create_session(store)
        point = await store.change_point(WORKSPACE)
        await append_events(store, session, user_message("more"))
        await store.purge(WORKSPACE, session.id, allow_purge)
        assert await store.sweep(WORKSPACE, Query(), point, "") == []

    # stale sessions

    async def test_stale_sessions_are_returned_oldest_first(self, store: Store) -> None:
        rows = [await create_session(store, seconds=i) for i in (3, 1, 2, 9)]
        await create_session(store, workspace=OTHER_WORKSPACE)
        stale = await store.stale(WORKSPACE, "active", at(9), 10)
        assert stale == [rows[1], rows[2], rows[0]]
        assert await store.stale(WORKSPACE, "active", at(9), 2) == [rows[1], rows[2]]

    async def test_archived_and_trashed_sessions_are_stale_by_the_time_of_that_change(
        self, store: Store
    ) -> None:
        archive, trash = InfoChanged(archived=True), InfoChanged(deleted=True)
        late = await create_session(store, draft(archive, 20), seconds=0)
        early = await create_session(
            store, draft(archive, 10), draft(user_message("active"), 30), seconds=5
        )
        binned = await create_session(store, draft(archive, 1), draft(trash, 15), seconds=0)
        assert await store.stale(WORKSPACE, "archived", at(50), 10) == [early, late]
        assert await store.stale(WORKSPACE, "archived", at(20), 10) == [early]
        assert await store.stale(WORKSPACE, "trashed", at(15), 10) == []
        assert await store.stale(WORKSPACE, "trashed", at(16), 10) == [binned]
        assert await store.stale(WORKSPACE, "active", at(50), 10) == []
