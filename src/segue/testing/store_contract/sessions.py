"""Contract: sessions are created, read, changed, loaded and purged in their workspace."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from segue.model import clock, ids, projection, search_text
from segue.model.errors import Conflict, IllegalTransition, InvalidInput, NotFound
from segue.model.event import Created, Draft, Drafts, Event, InfoChanged
from segue.model.query import Query
from segue.model.session import Session
from segue.store.base import Store
from segue.testing.helpers import ids_of, message_texts

from .harness import (
    FAR_FUTURE,
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    OpenStore,
    Refused,
    agent_message,
    allow_purge,
    append_events,
    at,
    check_projection,
    create_session,
    draft,
    list_ids,
    no_events,
    read_history,
    refuse,
    search_ids,
    status_change,
    tag_change,
    title_change,
    user_message,
)


class SessionContract(Contract):
    # creation and reading

    async def test_a_new_session_can_be_read(self, store: Store) -> None:
        session = await create_session(
            store, user_message("hello"), cwd="/work/here", metadata={"a": "b"}
        )
        assert await store.get(WORKSPACE, session.id) == session
        assert (session.cwd, session.metadata, session.messages) == ("/work/here", {"a": "b"}, 1)
        await check_projection(store, session)

    async def test_unknown_session_is_none(self, store: Store) -> None:
        assert await store.get(WORKSPACE, ids.new_id()) is None

    async def test_id_of_an_existing_session_conflicts(self, store: Store) -> None:
        session = await create_session(store, user_message("first"))
        with pytest.raises(Conflict):
            await create_session(store, user_message("second"), id=session.id)
        assert await store.get(WORKSPACE, session.id) == session
        assert message_texts(await read_history(store, session)) == ["first"]
        assert await search_ids(store, "second") == set()

    async def test_the_first_event_must_be_the_creation(self, store: Store) -> None:
        id = ids.new_id()
        for drafts in ([], [user_message("hello")], [Created(cwd="/"), Created(cwd="/")]):
            with pytest.raises(InvalidInput):
                await store.create(WORKSPACE, id, drafts)
        assert await store.get(WORKSPACE, id) is None

    async def test_existing_ids_includes_sessions_in_every_state(self, store: Store) -> None:
        live = await create_session(store)
        archived = await create_session(store, InfoChanged(archived=True))
        trashed = await create_session(store, InfoChanged(deleted=True))
        known = ids_of([live, archived, trashed])
        assert await store.existing_ids(WORKSPACE, [*known, ids.new_id()]) == set(known)
        assert await store.existing_ids(WORKSPACE, []) == set()

    async def test_id_range_includes_sessions_in_every_state(self, store: Store) -> None:
        ids = [f"{digit}0000000-0000-7000-8000-000000000000" for digit in "12345"]
        await create_session(store, id=ids[3], workspace=OTHER_WORKSPACE)
        changes = [InfoChanged(archived=True), InfoChanged(deleted=True), title_change("live")]
        sessions = [
            await create_session(store, body, id=id)
            for id, body in zip(reversed(ids[:3]), changes, strict=True)
        ]
        await create_session(store, id=ids[4])
        assert await store.in_id_range(WORKSPACE, ids[0], ids[3], 10) == sessions[::-1]
        assert ids_of(await store.in_id_range(WORKSPACE, ids[0], ids[4], 2)) == ids[:2]
        assert await store.in_id_range(WORKSPACE, ids[1], ids[0], 10) == []

    async def test_check_of_an_intact_store_returns_no_problems(self, store: Store) -> None:
        await create_session(store, user_message("hello"))
        assert await store.check() == []

    async def test_reopened_store_has_the_same_sessions(
        self, store: Store, open_store: OpenStore
    ) -> None:
        session = await create_session(store, user_message("kept"))
        key = await store.cursor_key()
        again = await open_store()
        try:
            assert await again.get(WORKSPACE, session.id) == session
            assert await read_history(again, session) == await read_history(store, session)
            assert await search_ids(again, "kept") == {session.id}
            assert await again.cursor_key() == key
        finally:
            await again.close()

    # workspaces

    async def test_a_session_of_another_workspace_does_not_exist(self, store: Store) -> None:
        session = await create_session(store, user_message("secret"), workspace=OTHER_WORKSPACE)
        lease = await store.acquire(OTHER_WORKSPACE, session.id, "holder")
        assert lease is not None
        item = await store.put_inbox(OTHER_WORKSPACE, session.id, "prompt", "p", {})
        assert await store.get(WORKSPACE, session.id) is None
        assert await store.existing_ids(WORKSPACE, [session.id]) == set()
        assert await list_ids(store) == []
        assert await search_ids(store, "secret") == set()
        assert await store.ranked(WORKSPACE, Query(text="secret")) == []
        assert await store.newest_matches(WORKSPACE, [session], search_text.terms("secret")) == [
            None
        ]
        assert await store.stale(WORKSPACE, "active", FAR_FUTURE, 10) == []
        assert await store.lease_of(WORKSPACE, session.id) is None
        for call in (
            store.events(WORKSPACE, session.id),
            store.locate(WORKSPACE, session.id, ids.new_id()),
            store.change(WORKSPACE, session.id, no_events),
            store.fork(
                WORKSPACE, session.id, ids.new_id(), 1, Draft(body=Created(cwd="/")), no_events
            ),
            store.purge(WORKSPACE, session.id, allow_purge),
            store.acquire(WORKSPACE, session.id, "holder"),
            store.put_deltas(replace(lease, workspace=WORKSPACE), []),
            store.put_inbox(WORKSPACE, session.id, "prompt", "p", {}),
            store.inbox(WORKSPACE, session.id),
            store.drop_inbox(WORKSPACE, session.id, [item.number]),
            store.deltas(WORKSPACE, session.id),
        ):
            with pytest.raises(NotFound):
                await call
        await store.release(replace(lease, workspace=WORKSPACE))
        assert await store.lease_of(OTHER_WORKSPACE, session.id) == lease
        assert await store.inbox(OTHER_WORKSPACE, session.id) == [item]
        assert await store.get(OTHER_WORKSPACE, session.id) == session

    async def test_sweep_ignores_changes_in_another_workspace(self, store: Store) -> None:
        session = await create_session(store, workspace=OTHER_WORKSPACE)
        point = await store.change_point(WORKSPACE)
        await append_events(store, session, user_message("more"))
        assert await store.sweep(WORKSPACE, Query(), point, "") == []

    async def test_two_workspaces_may_have_the_same_id(self, store: Store) -> None:
        here = await create_session(store, user_message("one"))
        there = await create_session(
            store, user_message("two"), id=here.id, workspace=OTHER_WORKSPACE
        )
        there = await append_events(store, there, user_message("three"))
        assert message_texts(await read_history(store, here)) == ["one"]
        assert message_texts(await read_history(store, there)) == ["two", "three"]
        await store.purge(OTHER_WORKSPACE, there.id, allow_purge)
        assert await store.get(WORKSPACE, here.id) == here
        assert await search_ids(store, "one") == {here.id}

    # changes

    async def test_change_returns_the_new_row_and_the_new_events(self, store: Store) -> None:
        session = await create_session(store, user_message("one"))
        row, events = await store.change(
            WORKSPACE, session.id, lambda _: [agent_message("two"), title_change("A")]
        )
        assert [event.seq for event in events] == [3, 4]
        assert await store.events(WORKSPACE, session.id, after=2) == events
        assert await store.get(WORKSPACE, session.id) == row
        assert (row.title, row.messages, row.last_seq) == ("A", 2, 4)
        await check_projection(store, session)

    async def test_change_function_gets_the_current_row(self, store: Store) -> None:
        session = await create_session(store)
        await append_events(store, session, title_change("A"))

        def decide(session: Session) -> Drafts:
            return [title_change(f"{session.title}{session.last_seq}")]

        assert (await store.change(WORKSPACE, session.id, decide))[0].title == "A2"

    async def test_event_has_the_time_of_its_draft_or_the_current_time(self, store: Store) -> None:
        session = await create_session(store)
        before = clock.now()
        _, (now, then) = await store.change(
            WORKSPACE,
            session.id,
            lambda _: [user_message("now"), draft(user_message("then"), seconds=-5)],
        )
        assert before <= now.at <= clock.now()
        assert then.at == at(-5)

    async def test_change_without_events_changes_nothing(self, store: Store) -> None:
        session = await create_session(store)
        point = await store.change_point(WORKSPACE)
        assert await store.change(WORKSPACE, session.id, no_events) == (session, [])
        assert await store.sweep(WORKSPACE, Query(), point, "") == []

    async def test_change_function_that_raises_stores_nothing(self, store: Store) -> None:
        session = await create_session(store)
        item = await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        point = await store.change_point(WORKSPACE)
        with pytest.raises(Refused):
            await store.change(WORKSPACE, session.id, refuse, consume=[item.number])
        assert await store.get(WORKSPACE, session.id) == session
        assert await store.inbox(WORKSPACE, session.id) == [item]
        assert await store.sweep(WORKSPACE, Query(), point, "") == []

    async def test_illegal_transition_stores_nothing(self, store: Store) -> None:
        session = await create_session(store, status_change("terminated"))
        with pytest.raises(IllegalTransition):
            await append_events(store, session, user_message("unheard"), status_change("running"))
        assert await store.get(WORKSPACE, session.id) == session
        assert len(await read_history(store, session)) == 2
        assert await search_ids(store, "unheard") == set()

    async def test_event_with_a_stored_id_is_not_added_again(self, store: Store) -> None:
        session = await create_session(store)
        id = ids.new_id()
        first = await append_events(store, session, draft(user_message("once"), id=id))
        again, events = await store.change(
            WORKSPACE,
            session.id,
            lambda _: [draft(user_message("twice"), id=id), user_message("more")],
        )
        assert [event.seq for event in events] == [first.last_seq + 1]
        assert message_texts(await read_history(store, session)) == ["once", "more"]
        assert again.messages == 2
        await check_projection(store, session)

    async def test_event_id_that_occurs_twice_in_a_change_is_added_once(self, store: Store) -> None:
        id = ids.new_id()
        same = [draft(user_message("once"), id=id), draft(user_message("twice"), id=id)]
        session = await create_session(store, *same)
        other = await append_events(store, await create_session(store), *same)
        assert message_texts(await read_history(store, session)) == ["once"]
        assert message_texts(await read_history(store, other)) == ["once"]
        await check_projection(store, session)
        await check_projection(store, other)

    async def test_concurrent_changes_lose_no_events(self, store: Store) -> None:
        session = await create_session(store)
        await asyncio.gather(
            *(append_events(store, session, user_message(str(i))) for i in range(40))
        )
        assert sorted(message_texts(await read_history(store, session))) == sorted(
            map(str, range(40))
        )
        await check_projection(store, session)

    async def test_failed_change_does_not_affect_concurrent_changes(self, store: Store) -> None:
        session = await create_session(store)
        calls = [store.change(WORKSPACE, session.id, refuse)]
        calls += [
            store.change(WORKSPACE, session.id, lambda _: [user_message("fine")]) for _ in range(3)
        ]
        failed, *fine = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(failed, Refused)
        assert not any(isinstance(result, BaseException) for result in fine)
        assert message_texts(await read_history(store, session)) == ["fine"] * 3

    # loading

    async def test_loaded_history_has_its_original_seqs_ids_and_times(self, store: Store) -> None:
        session = await create_session(
            store, user_message("one"), draft(agent_message("two"), seconds=7), title_change("A")
        )
        events = await read_history(store, session)
        copy = await store.load(OTHER_WORKSPACE, session.id, events)
        assert await read_history(store, copy) == events
        assert (
            copy
            == projection.project(OTHER_WORKSPACE, session.id, events)
            == replace(session, workspace=OTHER_WORKSPACE)
        )
        assert await store.get(OTHER_WORKSPACE, session.id) == copy
        assert ids_of(await store.page(OTHER_WORKSPACE, Query(text="two"))) == [session.id]

    async def test_load_does_not_overwrite_a_session(self, store: Store) -> None:
        session = await create_session(store)
        with pytest.raises(Conflict):
            await store.load(WORKSPACE, session.id, await read_history(store, session))
        with pytest.raises(InvalidInput):
            await store.load(WORKSPACE, ids.new_id(), [])

    async def test_loaded_session_continues_after_its_last_event(self, store: Store) -> None:
        created = Event(seq=1, id=ids.new_id(), at=at(0), body=Created(cwd="/"))
        loaded = await store.load(WORKSPACE, ids.new_id(), [created])
        assert (await append_events(store, loaded, user_message("on"))).last_seq == 2
        await check_projection(store, loaded)

    # purging

    async def test_purge_removes_a_session_completely(self, store: Store) -> None:
        session = await create_session(
            store, user_message("word"), tag_change("t"), memory_store_ids=("m",)
        )
        await store.acquire(WORKSPACE, session.id, "holder")
        await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        point = await store.change_point(WORKSPACE)
        await store.purge(WORKSPACE, session.id, allow_purge)
        assert await store.get(WORKSPACE, session.id) is None
        assert await store.existing_ids(WORKSPACE, [session.id]) == set()
        with pytest.raises(NotFound):
            await store.events(WORKSPACE, session.id)
        for query in ({}, {"tag": "t"}, {"memory_store_id": "m"}, {"text": "word"}):
            assert await list_ids(store, **query) == []
        assert await store.ranked(WORKSPACE, Query(text="word")) == []
        assert await store.newest_matches(WORKSPACE, [session], search_text.terms("word")) == [None]
        assert await store.sweep(WORKSPACE, Query(), point, "") == []
        assert await store.stale(WORKSPACE, "active", FAR_FUTURE, 10) == []
        assert await store.lease_of(WORKSPACE, session.id) is None
        assert (await store.leases(), await store.waiting()) == ([], [])

    async def test_guard_can_prevent_a_purge(self, store: Store) -> None:
        session = await create_session(store, user_message("word"))
        with pytest.raises(Refused):
            await store.purge(WORKSPACE, session.id, refuse)
        assert await store.get(WORKSPACE, session.id) == session
        assert await search_ids(store, "word") == {session.id}

    async def test_a_replaced_history_is_that_of_the_session(self, store: Store) -> None:
        session = await create_session(
            store, user_message("old"), user_message("words"), memory_store_ids=("m",)
        )
        other = await create_session(store, user_message("other"))
        events = await store.events(WORKSPACE, session.id)
        changed = [
            replace(event, body=user_message("new")) if event.seq == 2 else event
            for event in events
        ]
        with pytest.raises(Refused):
            await store.purge(WORKSPACE, session.id, refuse, replacement=changed)
        assert await store.events(WORKSPACE, session.id) == events
        await store.purge(WORKSPACE, session.id, allow_purge, replacement=changed)
        assert await store.events(WORKSPACE, session.id) == changed
        await check_projection(store, session)
        assert await search_ids(store, "old") == set()
        assert await search_ids(store, "new") == await search_ids(store, "words") == {session.id}
        assert await list_ids(store, memory_store_id="m") == [session.id]
        assert set(await list_ids(store)) == {session.id, other.id}
        await append_events(store, session, user_message("more"))
        assert message_texts(await read_history(store, session)) == ["new", "words", "more"]

    async def test_an_id_can_be_used_again_after_a_purge(self, store: Store) -> None:
        session = await create_session(
            store, user_message("old"), user_message("words"), memory_store_ids=("m",)
        )
        lease = await store.acquire(WORKSPACE, session.id, "holder")
        assert lease is not None
        await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        await store.purge(WORKSPACE, session.id, allow_purge)
        again = await create_session(store, user_message("new"), id=session.id)
        assert message_texts(await read_history(store, again)) == ["new"]
        assert await search_ids(store, "old") == set()
        assert await search_ids(store, "new") == {session.id}
        assert await list_ids(store, memory_store_id="m") == []
        assert await store.inbox(WORKSPACE, session.id) == []
        assert await store.lease_of(WORKSPACE, session.id) is None

    async def test_a_lease_on_a_purged_session_can_still_be_released(self, store: Store) -> None:
        session = await create_session(store)
        lease = await store.acquire(WORKSPACE, session.id, "holder")
        assert lease is not None
        await store.purge(WORKSPACE, session.id, allow_purge)
        await store.release(lease)
        assert await store.renew("holder") == set()
