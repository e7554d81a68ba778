"""Lists: every filter and order, paging from any place, and what changed meanwhile."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

from segue.model import ids
from segue.model.event import AgentRef, ConfigChanged, InfoChanged
from segue.model.query import Order, Position, Query, matches, position
from segue.model.session import Session
from segue.store.base import Store

from .harness import (
    HERE,
    THERE,
    Contract,
    add,
    anyway,
    at,
    draft,
    ids_of,
    listed,
    make,
    status,
    tagged,
    titled,
    user,
)

ORDERS: tuple[Order, ...] = ("active", "created")

# One or two questions for every filter, none of which the sessions of `a_library` all pass.
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"directories": ("/a",)},
    {"directories": ("/a", "/b", "/nowhere")},
    {"agent_id": "helper"},
    {"agent_id": "helper", "agent_version": 2},
    {"created_gt": at(3)},
    {"created_gte": at(3), "created_lt": at(9)},
    {"created_lte": at(6)},
    {"active_after": at(105)},
    {"statuses": ("idle",)},
    {"statuses": ("running", "terminated")},
    {"statuses": ("terminated",), "archived": "include", "archived_as": "terminated"},
    {"deployment_id": "d"},
    {"memory_store_id": "m"},
    {"tag": "red"},
    {"source": "claude"},
    {"archived": "include"},
    {"archived": "only"},
    {"trash": True},
    {"text": "even"},
)


async def a_library(store: Store) -> list[Session]:
    """Sessions of all sorts, with ties in both times."""
    made = []
    for i in range(24):
        session = await make(
            store,
            seconds=i // 2,
            cwd="/" + "abc"[i % 3],
            agent=AgentRef(id="helper", version=1 + i % 2) if i % 4 else None,
            deployment_id="d" if i % 5 == 0 else None,
            memory_store_ids=(("m",), ("n",), ("m", "n"), ())[i % 4],
            source="claude" if i % 7 == 0 else "segue",
        )
        says = "even" if i % 2 == 0 else "odd"
        session = await add(store, session, draft(user(says), 100 + (i * 7) % 12))
        if i % 3 == 1:
            session = await add(store, session, tagged("red" if i % 2 else "blue"))
        if i % 6 == 2:
            session = await add(store, session, status("running"))
        if i % 8 == 3:
            session = await add(store, session, status("terminated"))
        if i % 5 == 4:
            session = await add(store, session, InfoChanged(archived=True))
        if i % 9 == 8:
            session = await add(store, session, InfoChanged(deleted=True))
        made.append(session)
    return made


async def walk(store: Store, query: Query, backward: bool = False) -> list[str]:
    """A whole list, page by page."""
    places: list[str] = []
    after: Position | None = None
    while page := await store.page(HERE, query, after, backward=backward):
        assert len(page) <= query.limit
        places = ids_of(page) + places if backward else places + ids_of(page)
        after = position(page[0] if backward else page[-1], query.order)
    return places


def expected(library: list[Session], query: Query) -> list[str]:
    """What the model says of the same list."""
    rows = [row for row in library if matches(query, row)]
    if query.text is not None:
        rows = [row for row in rows if library.index(row) % 2 == 0]
    rows.sort(key=lambda row: position(row, query.order), reverse=query.descending)
    return ids_of(rows)


class ListContract(Contract):
    # order and paging

    async def test_a_list_is_of_the_last_activity_newest_first(self, store: Store) -> None:
        old = await make(store, seconds=0)
        new = await make(store, seconds=1)
        assert await listed(store) == [new.id, old.id]
        await add(store, old, draft(user("again"), 2))
        assert await listed(store) == [old.id, new.id]

    async def test_a_list_can_be_of_creation(self, store: Store) -> None:
        old = await make(store, draft(user("lively"), 100), seconds=0)
        new = await make(store, seconds=1)
        assert await listed(store, order="created") == [new.id, old.id]

    async def test_a_list_can_be_oldest_first(self, store: Store) -> None:
        rows = [await make(store, seconds=i) for i in range(3)]
        assert await listed(store, descending=False) == ids_of(rows)

    async def test_renaming_is_no_activity(self, store: Store) -> None:
        old = await make(store, seconds=0)
        new = await make(store, seconds=1)
        await add(store, old, titled("A"), tagged("t"), InfoChanged(metadata={"a": "b"}))
        assert await listed(store) == [new.id, old.id]

    async def test_ids_break_ties(self, store: Store) -> None:
        names = sorted(ids.new_id() for _ in range(4))
        for name in (names[2], names[0], names[3], names[1]):
            await make(store, seconds=5, id=name)
        for order in ORDERS:
            assert await listed(store, order=order) == names[::-1]
            assert await listed(store, order=order, descending=False) == names
            assert await walk(store, Query(order=order, limit=1)) == names[::-1]

    async def test_a_page_follows_a_position_that_nobody_is_at(self, store: Store) -> None:
        rows = [await make(store, seconds=i) for i in range(3)]
        after = Position(at(1.5), "")
        assert ids_of(await store.page(HERE, Query(), after)) == ids_of(rows[1::-1])
        assert ids_of(await store.page(HERE, Query(), after, backward=True)) == [rows[2].id]

    async def test_a_page_before_a_position_is_the_nearest_in_the_same_order(
        self, store: Store
    ) -> None:
        rows = [await make(store, seconds=i) for i in range(5)]
        after = position(rows[0], "active")
        page = await store.page(HERE, Query(limit=2), after, backward=True)
        assert ids_of(page) == [rows[2].id, rows[1].id]

    async def test_a_list_is_given_as_whole_rows(self, store: Store) -> None:
        made = await make(store, titled("A"), user("hello"), metadata={"a": "b"})
        assert await store.page(HERE, Query()) == [made]

    # filters

    async def test_directories_are_compared_by_their_real_path(self, store: Store) -> None:
        linked = await make(store, cwd="/link", real_cwd="/real", seconds=2)
        plain = await make(store, cwd="/real", seconds=1)
        await make(store, cwd="/real/below")
        assert await listed(store, directories=("/real",)) == [linked.id, plain.id]
        assert await listed(store, directories=("/link",)) == []

    async def test_the_directories_that_have_sessions_are_told(self, store: Store) -> None:
        long = "/" + "d" * 600
        for cwd in ("/a", "/b", "/a", long + "1", long + "2"):
            await make(store, cwd=cwd)
        linked = await make(store, cwd="/link", real_cwd="/real")
        await make(store, InfoChanged(archived=True), cwd="/c")
        await make(store, InfoChanged(deleted=True), cwd="/gone")
        await make(store, cwd="/theirs", workspace=THERE)
        told = await store.directories(HERE)
        assert told == {"/a", "/b", "/c", "/real", long + "1", long + "2"}
        await store.purge(HERE, linked.id, anyway)
        assert "/real" not in await store.directories(HERE)

    async def test_several_directories_are_merged_in_order(self, store: Store) -> None:
        rows = [await make(store, cwd=("/a", "/b")[i % 2], seconds=i) for i in range(4)]
        assert await listed(store, directories=("/a", "/b")) == ids_of(rows[::-1])
        assert await listed(store, directories=("/b", "/a", "/b")) == ids_of(rows[::-1])

    async def test_thousands_of_directories_are_asked_for_at_once(self, store: Store) -> None:
        places = tuple(f"/tree/{n}" for n in range(3_000))
        first = await make(store, cwd=places[0], seconds=1)
        last = await make(store, cwd=places[-1], seconds=2)
        await make(store, cwd="/elsewhere")
        assert await listed(store, directories=places) == [last.id, first.id]
        assert await listed(store, directories=places, archived="include") == [last.id, first.id]
        assert await listed(store, directories=places, source="segue") == [last.id, first.id]

    async def test_an_agent_is_matched_in_any_version_or_in_one(self, store: Store) -> None:
        one = await make(store, agent=AgentRef(id="a", version=1), seconds=1)
        two = await make(store, agent=AgentRef(id="a", version=2), seconds=2)
        await make(store, agent=AgentRef(id="b", version=1))
        await make(store)
        assert await listed(store, agent_id="a") == [two.id, one.id]
        assert await listed(store, agent_id="a", agent_version=1) == [one.id]
        assert await listed(store, agent_id="a", agent_version=3) == []

    async def test_a_list_follows_the_agent_that_a_session_has_now(self, store: Store) -> None:
        made = await make(store, agent=AgentRef(id="a"))
        await add(store, made, ConfigChanged(agent=AgentRef(id="b", version=7)))
        assert await listed(store, agent_id="a") == []
        assert await listed(store, agent_id="b", agent_version=7) == [made.id]

    async def test_a_list_follows_status_and_tag(self, store: Store) -> None:
        made = await make(store, tagged("old"))
        await add(store, made, status("running"), tagged("new"))
        assert await listed(store, statuses=("idle",)) == []
        assert await listed(store, statuses=("running",)) == [made.id]
        assert await listed(store, tag="old") == []
        assert await listed(store, tag="new") == [made.id]
        await add(store, made, tagged(None))
        assert await listed(store, tag="new") == []

    async def test_a_session_is_found_by_each_of_its_memory_stores(self, store: Store) -> None:
        both = await make(store, memory_store_ids=("m", "n", "m"), seconds=1)
        one = await make(store, memory_store_ids=("n",), seconds=2)
        assert await listed(store, memory_store_id="m") == [both.id]
        assert await listed(store, memory_store_id="n") == [one.id, both.id]
        await add(store, both, draft(user("active"), 3))
        assert await listed(store, memory_store_id="n") == [both.id, one.id]
        await add(store, both, InfoChanged(archived=True))
        assert await listed(store, memory_store_id="n") == [one.id]
        assert await listed(store, memory_store_id="n", archived="only") == [both.id]

    async def test_archived_sessions_are_left_out_or_in_or_alone(self, store: Store) -> None:
        live = await make(store, seconds=1)
        archived = await make(store, InfoChanged(archived=True), seconds=2)
        await make(store, InfoChanged(archived=True, deleted=True), seconds=3)
        assert await listed(store) == [live.id]
        assert await listed(store, archived="include") == [archived.id, live.id]
        assert await listed(store, archived="only") == [archived.id]
        await add(store, archived, InfoChanged(archived=False))
        assert await listed(store) == [archived.id, live.id]

    async def test_the_trash_has_what_was_deleted_and_nothing_else(self, store: Store) -> None:
        await make(store)
        deleted = await make(store, InfoChanged(deleted=True), seconds=1)
        both = await make(store, InfoChanged(deleted=True, archived=True), seconds=2)
        assert await listed(store, trash=True) == [both.id, deleted.id]
        assert await listed(store, trash=True, archived="only") == [both.id, deleted.id]
        await add(store, both, InfoChanged(deleted=False))
        assert await listed(store, trash=True) == [deleted.id]
        assert await listed(store, archived="only") == [both.id]

    async def test_archived_sessions_can_count_as_another_status(self, store: Store) -> None:
        ended = await make(store, status("terminated"), seconds=1)
        archived = await make(store, InfoChanged(archived=True), seconds=2)
        idle = await make(store, seconds=3)
        asked: dict[str, Any] = {"archived": "include", "archived_as": "terminated"}
        assert await listed(store, statuses=("terminated",), **asked) == [archived.id, ended.id]
        assert await listed(store, statuses=("idle",), **asked) == [idle.id]
        whole = await listed(store, statuses=("terminated", "idle"), **asked)
        assert whole == [idle.id, archived.id, ended.id]
        assert await listed(store, statuses=("idle",), archived="only", archived_as="running") == []

    async def test_a_created_window_has_open_or_closed_ends(self, store: Store) -> None:
        rows = ids_of([await make(store, seconds=i) for i in range(5)])[::-1]
        for order in ORDERS:
            assert await listed(store, order=order, created_gt=at(2)) == rows[:2]
            assert await listed(store, order=order, created_gte=at(2)) == rows[:3]
            assert await listed(store, order=order, created_lt=at(2)) == rows[3:]
            assert await listed(store, order=order, created_lte=at(2)) == rows[2:]
            inner = await listed(store, order=order, created_gt=at(0), created_lt=at(4))
            assert inner == rows[1:4]
            assert await listed(store, order=order, created_gt=at(3), created_lt=at(2)) == []

    async def test_activity_after_a_time_leaves_out_the_time_itself(self, store: Store) -> None:
        rows = [await make(store, draft(user("x"), i)) for i in range(3)]
        assert await listed(store, active_after=at(1)) == [rows[2].id]

    async def test_every_question_pages_as_the_model_says(self, store: Store) -> None:
        library = await a_library(store)
        for asked, order, down, limit in product(QUESTIONS, ORDERS, (True, False), (1, 4, 50)):
            query = Query(**asked, order=order, descending=down, limit=limit)
            rows = expected(library, query)
            assert rows, f"{asked} should find something"
            assert len(rows) < len(library)
            assert await walk(store, query) == rows
            assert await walk(store, query, backward=True) == rows

    async def test_any_two_questions_page_as_the_model_says(self, store: Store) -> None:
        library = await a_library(store)
        for (one, two), order in product(combinations(QUESTIONS, 2), ORDERS):
            query = Query(**{**one, **two}, order=order, limit=3)
            assert await walk(store, query) == expected(library, query)

    async def test_all_filters_can_be_asked_at_once(self, store: Store) -> None:
        made = await make(
            store,
            tagged("t"),
            user("word"),
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
            created_gte=made.created_at,
            created_lte=made.created_at,
            active_after=made.active_at - 1,
            statuses=("idle", "running"),
            deployment_id="d",
            memory_store_id="m",
            tag="t",
            source="claude",
            archived="include",
            text="word",
        )
        assert await store.page(HERE, query) == [made]
        assert await store.page(THERE, query) == []

    # what changed meanwhile

    async def test_a_sweep_has_the_older_sessions_that_changed_since(self, store: Store) -> None:
        changed, _ = await make(store), await make(store)
        mark = await store.change_point(HERE)
        assert await store.sweep(HERE, Query(), mark, "") == []
        changed = await add(store, changed, user("more"))
        young = await make(store)
        await add(store, young, user("more"))
        assert await store.sweep(HERE, Query(), mark, "") == [changed]
        assert await store.sweep(HERE, Query(), await store.change_point(HERE), "") == []

    async def test_any_change_of_a_row_is_swept(self, store: Store) -> None:
        rows = [await make(store) for _ in range(3)]
        mark = await store.change_point(HERE)
        await add(store, rows[0], titled("A"))
        await add(store, rows[1], InfoChanged(archived=True))
        await add(store, rows[2], InfoChanged(deleted=True))
        assert ids_of(await store.sweep(HERE, Query(), mark, "")) == [rows[0].id]
        swept = await store.sweep(HERE, Query(archived="only"), mark, "")
        assert ids_of(swept) == [rows[1].id]
        assert ids_of(await store.sweep(HERE, Query(trash=True), mark, "")) == [rows[2].id]

    async def test_a_sweep_goes_on_by_id_page_by_page(self, store: Store) -> None:
        rows = [await make(store, cwd=("/a", "/b")[i % 2]) for i in range(5)]
        mark = await store.change_point(HERE)
        for row in rows[::-1]:
            await add(store, row, user("more"))
        names = sorted(ids_of(rows))
        both = Query(limit=2, directories=("/b", "/a"), order="created")
        for query in (Query(limit=2), both):
            assert ids_of(await store.sweep(HERE, query, mark, "")) == names[:2]
            assert ids_of(await store.sweep(HERE, query, mark, names[1])) == names[2:4]
            assert ids_of(await store.sweep(HERE, query, mark, names[4])) == []

    async def test_a_sweep_keeps_to_its_filters(self, store: Store) -> None:
        library = await a_library(store)
        mark = await store.change_point(HERE)
        after = [await add(store, row, InfoChanged(metadata={"seen": "1"})) for row in library]
        for asked in QUESTIONS:
            query = Query(**asked)
            swept = ids_of(await store.sweep(HERE, query, mark, ""))
            assert swept == sorted(expected(after, query))

    async def test_a_loaded_session_is_swept_as_if_it_were_old(self, store: Store) -> None:
        events = await store.events(THERE, (await make(store, workspace=THERE)).id)
        mark = await store.change_point(HERE)
        loaded = await store.load(HERE, ids.new_id(), events)
        assert await store.sweep(HERE, Query(), mark, "") == [loaded]

    async def test_a_purged_session_is_not_swept(self, store: Store) -> None:
        made = await make(store)
        mark = await store.change_point(HERE)
        await add(store, made, user("more"))
        await store.purge(HERE, made.id, anyway)
        assert await store.sweep(HERE, Query(), mark, "") == []

    # left alone

    async def test_stale_sessions_come_oldest_first(self, store: Store) -> None:
        rows = [await make(store, seconds=i) for i in (3, 1, 2, 9)]
        await make(store, workspace=THERE)
        stale = await store.stale(HERE, "active", at(9), 10)
        assert stale == [rows[1], rows[2], rows[0]]
        assert await store.stale(HERE, "active", at(9), 2) == [rows[1], rows[2]]

    async def test_shelved_sessions_are_stale_by_the_time_on_their_shelf(
        self, store: Store
    ) -> None:
        archive, trash = InfoChanged(archived=True), InfoChanged(deleted=True)
        late = await make(store, draft(archive, 20), seconds=0)
        early = await make(store, draft(archive, 10), draft(user("active"), 30), seconds=5)
        binned = await make(store, draft(archive, 1), draft(trash, 15), seconds=0)
        assert await store.stale(HERE, "archived", at(50), 10) == [early, late]
        assert await store.stale(HERE, "archived", at(20), 10) == [early]
        assert await store.stale(HERE, "trashed", at(15), 10) == []
        assert await store.stale(HERE, "trashed", at(16), 10) == [binned]
        assert await store.stale(HERE, "active", at(50), 10) == []
