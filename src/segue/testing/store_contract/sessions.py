"""Sessions: made, read, changed, loaded and purged, each workspace for itself."""

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

from .harness import (
    FAR,
    HERE,
    MINUTE,
    THERE,
    Contract,
    OpenStore,
    Refused,
    add,
    agent,
    anyway,
    at,
    check_fold,
    draft,
    found,
    history,
    ids_of,
    listed,
    make,
    nothing,
    refuse,
    status,
    tagged,
    texts,
    titled,
    user,
)


class SessionContract(Contract):
    # created and read

    async def test_a_new_session_can_be_read(self, store: Store) -> None:
        made = await make(store, user("hello"), cwd="/work/here", metadata={"a": "b"})
        assert await store.get(HERE, made.id) == made
        assert (made.cwd, made.metadata, made.messages) == ("/work/here", {"a": "b"}, 1)
        await check_fold(store, made)

    async def test_a_session_that_nobody_made_is_none(self, store: Store) -> None:
        assert await store.get(HERE, ids.new_id()) is None

    async def test_an_id_is_taken_once(self, store: Store) -> None:
        made = await make(store, user("first"))
        with pytest.raises(Conflict):
            await make(store, user("second"), id=made.id)
        assert await store.get(HERE, made.id) == made
        assert texts(await history(store, made)) == ["first"]
        assert await found(store, "second") == set()

    async def test_the_first_event_must_be_the_creation(self, store: Store) -> None:
        id = ids.new_id()
        for drafts in ([], [user("hello")], [Created(cwd="/"), Created(cwd="/")]):
            with pytest.raises(InvalidInput):
                await store.create(HERE, id, drafts)
        assert await store.get(HERE, id) is None

    async def test_held_says_which_ids_there_are_on_any_shelf(self, store: Store) -> None:
        live = await make(store)
        archived = await make(store, InfoChanged(archived=True))
        trashed = await make(store, InfoChanged(deleted=True))
        known = ids_of([live, archived, trashed])
        assert await store.existing_ids(HERE, [*known, ids.new_id()]) == set(known)
        assert await store.existing_ids(HERE, []) == set()

    async def test_between_gives_the_sessions_of_a_range_of_ids_on_any_shelf(
        self, store: Store
    ) -> None:
        ids = [f"{digit}0000000-0000-7000-8000-000000000000" for digit in "12345"]
        await make(store, id=ids[3], workspace=THERE)
        shelved = [InfoChanged(archived=True), InfoChanged(deleted=True), titled("live")]
        made = [
            await make(store, body, id=id)
            for id, body in zip(reversed(ids[:3]), shelved, strict=True)
        ]
        await make(store, id=ids[4])
        assert await store.in_id_range(HERE, ids[0], ids[3], 10) == made[::-1]
        assert ids_of(await store.in_id_range(HERE, ids[0], ids[4], 2)) == ids[:2]
        assert await store.in_id_range(HERE, ids[1], ids[0], 10) == []

    async def test_a_store_in_order_has_nothing_wrong(self, store: Store) -> None:
        await make(store, user("hello"))
        assert await store.check() == []

    async def test_what_was_kept_is_there_when_the_store_is_opened_again(
        self, store: Store, open_store: OpenStore
    ) -> None:
        made = await make(store, user("kept"))
        key = await store.cursor_key()
        again = await open_store()
        try:
            assert await again.get(HERE, made.id) == made
            assert await history(again, made) == await history(store, made)
            assert await found(again, "kept") == {made.id}
            assert await again.cursor_key() == key
        finally:
            await again.close()

    # workspaces

    async def test_a_session_of_another_workspace_does_not_exist(self, store: Store) -> None:
        made = await make(store, user("secret"), workspace=THERE)
        lease = await store.acquire(THERE, made.id, "holder", MINUTE)
        assert lease is not None
        item = await store.put_inbox(THERE, made.id, "prompt", "p", {})
        assert await store.get(HERE, made.id) is None
        assert await store.existing_ids(HERE, [made.id]) == set()
        assert await listed(store) == []
        assert await found(store, "secret") == set()
        assert await store.ranked(HERE, Query(text="secret")) == []
        assert await store.newest_matches(HERE, [made], search_text.terms("secret")) == [None]
        assert await store.stale(HERE, "active", FAR, 10) == []
        assert await store.lease_of(HERE, made.id) is None
        for call in (
            store.events(HERE, made.id),
            store.locate(HERE, made.id, ids.new_id()),
            store.change(HERE, made.id, nothing),
            store.fork(HERE, made.id, ids.new_id(), 1, Draft(body=Created(cwd="/")), nothing),
            store.purge(HERE, made.id, anyway),
            store.acquire(HERE, made.id, "holder", MINUTE),
            store.put_deltas(replace(lease, workspace=HERE), []),
            store.put_inbox(HERE, made.id, "prompt", "p", {}),
            store.inbox(HERE, made.id),
            store.drop_inbox(HERE, made.id, [item.number]),
            store.deltas(HERE, made.id),
        ):
            with pytest.raises(NotFound):
                await call
        await store.release(replace(lease, workspace=HERE))
        assert await store.lease_of(THERE, made.id) == lease
        assert await store.inbox(THERE, made.id) == [item]
        assert await store.get(THERE, made.id) == made

    async def test_changes_elsewhere_are_not_swept_here(self, store: Store) -> None:
        made = await make(store, workspace=THERE)
        mark = await store.change_point(HERE)
        await add(store, made, user("more"))
        assert await store.sweep(HERE, Query(), mark, "") == []

    async def test_two_workspaces_may_have_the_same_id(self, store: Store) -> None:
        here = await make(store, user("one"))
        there = await make(store, user("two"), id=here.id, workspace=THERE)
        there = await add(store, there, user("three"))
        assert texts(await history(store, here)) == ["one"]
        assert texts(await history(store, there)) == ["two", "three"]
        await store.purge(THERE, there.id, anyway)
        assert await store.get(HERE, here.id) == here
        assert await found(store, "one") == {here.id}

    # changed

    async def test_a_change_gives_the_new_row_and_the_new_events(self, store: Store) -> None:
        made = await make(store, user("one"))
        row, events = await store.change(HERE, made.id, lambda _: [agent("two"), titled("A")])
        assert [event.seq for event in events] == [3, 4]
        assert await store.events(HERE, made.id, after=2) == events
        assert await store.get(HERE, made.id) == row
        assert (row.title, row.messages, row.last_seq) == ("A", 2, 4)
        await check_fold(store, made)

    async def test_a_change_decides_on_the_row_as_it_is(self, store: Store) -> None:
        made = await make(store)
        await add(store, made, titled("A"))

        def decide(session: Session) -> Drafts:
            return [titled(f"{session.title}{session.last_seq}")]

        assert (await store.change(HERE, made.id, decide))[0].title == "A2"

    async def test_an_event_has_the_time_it_was_given_or_the_present(self, store: Store) -> None:
        made = await make(store)
        before = clock.now()
        _, (now, then) = await store.change(
            HERE, made.id, lambda _: [user("now"), draft(user("then"), seconds=-5)]
        )
        assert before <= now.at <= clock.now()
        assert then.at == at(-5)

    async def test_a_change_of_nothing_changes_nothing(self, store: Store) -> None:
        made = await make(store)
        mark = await store.change_point(HERE)
        assert await store.change(HERE, made.id, nothing) == (made, [])
        assert await store.sweep(HERE, Query(), mark, "") == []

    async def test_a_decision_that_fails_leaves_nothing(self, store: Store) -> None:
        made = await make(store)
        item = await store.put_inbox(HERE, made.id, "prompt", "p", {})
        mark = await store.change_point(HERE)
        with pytest.raises(Refused):
            await store.change(HERE, made.id, refuse, consume=[item.number])
        assert await store.get(HERE, made.id) == made
        assert await store.inbox(HERE, made.id) == [item]
        assert await store.sweep(HERE, Query(), mark, "") == []

    async def test_a_step_that_the_lifecycle_forbids_leaves_nothing(self, store: Store) -> None:
        made = await make(store, status("terminated"))
        with pytest.raises(IllegalTransition):
            await add(store, made, user("unheard"), status("running"))
        assert await store.get(HERE, made.id) == made
        assert len(await history(store, made)) == 2
        assert await found(store, "unheard") == set()

    async def test_an_id_that_the_session_holds_is_not_added_twice(self, store: Store) -> None:
        made = await make(store)
        id = ids.new_id()
        first = await add(store, made, draft(user("once"), id=id))
        again, events = await store.change(
            HERE, made.id, lambda _: [draft(user("twice"), id=id), user("more")]
        )
        assert [event.seq for event in events] == [first.last_seq + 1]
        assert texts(await history(store, made)) == ["once", "more"]
        assert again.messages == 2
        await check_fold(store, made)

    async def test_an_id_that_is_given_twice_is_added_once(self, store: Store) -> None:
        id = ids.new_id()
        same = [draft(user("once"), id=id), draft(user("twice"), id=id)]
        made = await make(store, *same)
        other = await add(store, await make(store), *same)
        assert texts(await history(store, made)) == ["once"]
        assert texts(await history(store, other)) == ["once"]
        await check_fold(store, made)
        await check_fold(store, other)

    async def test_changes_at_the_same_time_lose_nothing(self, store: Store) -> None:
        made = await make(store)
        await asyncio.gather(*(add(store, made, user(str(i))) for i in range(40)))
        assert sorted(texts(await history(store, made))) == sorted(map(str, range(40)))
        await check_fold(store, made)

    async def test_one_of_many_changes_at_once_fails_alone(self, store: Store) -> None:
        made = await make(store)
        calls = [store.change(HERE, made.id, refuse)]
        calls += [store.change(HERE, made.id, lambda _: [user("fine")]) for _ in range(3)]
        failed, *fine = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(failed, Refused)
        assert not any(isinstance(result, BaseException) for result in fine)
        assert texts(await history(store, made)) == ["fine"] * 3

    # loaded

    async def test_a_loaded_history_keeps_places_ids_and_times(self, store: Store) -> None:
        made = await make(store, user("one"), draft(agent("two"), seconds=7), titled("A"))
        events = await history(store, made)
        copy = await store.load(THERE, made.id, events)
        assert await history(store, copy) == events
        assert copy == projection.project(THERE, made.id, events) == replace(made, workspace=THERE)
        assert await store.get(THERE, made.id) == copy
        assert ids_of(await store.page(THERE, Query(text="two"))) == [made.id]

    async def test_a_history_is_not_loaded_over_another(self, store: Store) -> None:
        made = await make(store)
        with pytest.raises(Conflict):
            await store.load(HERE, made.id, await history(store, made))
        with pytest.raises(InvalidInput):
            await store.load(HERE, ids.new_id(), [])

    async def test_a_loaded_session_goes_on_where_it_was(self, store: Store) -> None:
        created = Event(seq=1, id=ids.new_id(), at=at(0), body=Created(cwd="/"))
        loaded = await store.load(HERE, ids.new_id(), [created])
        assert (await add(store, loaded, user("on"))).last_seq == 2
        await check_fold(store, loaded)

    # purged

    async def test_a_purged_session_is_gone_from_everywhere(self, store: Store) -> None:
        made = await make(store, user("word"), tagged("t"), memory_store_ids=("m",))
        await store.acquire(HERE, made.id, "holder", 0)
        await store.put_inbox(HERE, made.id, "prompt", "p", {})
        mark = await store.change_point(HERE)
        await store.purge(HERE, made.id, anyway)
        assert await store.get(HERE, made.id) is None
        assert await store.existing_ids(HERE, [made.id]) == set()
        with pytest.raises(NotFound):
            await store.events(HERE, made.id)
        for query in ({}, {"tag": "t"}, {"memory_store_id": "m"}, {"text": "word"}):
            assert await listed(store, **query) == []
        assert await store.ranked(HERE, Query(text="word")) == []
        assert await store.newest_matches(HERE, [made], search_text.terms("word")) == [None]
        assert await store.sweep(HERE, Query(), mark, "") == []
        assert await store.stale(HERE, "active", FAR, 10) == []
        assert await store.lease_of(HERE, made.id) is None
        assert (await store.expired_leases(), await store.waiting_prompts(FAR)) == ([], [])

    async def test_a_guard_can_keep_a_session_from_being_purged(self, store: Store) -> None:
        made = await make(store, user("word"))
        with pytest.raises(Refused):
            await store.purge(HERE, made.id, refuse)
        assert await store.get(HERE, made.id) == made
        assert await found(store, "word") == {made.id}

    async def test_an_id_can_be_used_again_after_a_purge(self, store: Store) -> None:
        made = await make(store, user("old"), user("words"), memory_store_ids=("m",))
        lease = await store.acquire(HERE, made.id, "holder", MINUTE)
        assert lease is not None
        await store.put_inbox(HERE, made.id, "prompt", "p", {})
        await store.purge(HERE, made.id, anyway)
        again = await make(store, user("new"), id=made.id)
        assert texts(await history(store, again)) == ["new"]
        assert await found(store, "old") == set()
        assert await found(store, "new") == {made.id}
        assert await listed(store, memory_store_id="m") == []
        assert await store.inbox(HERE, made.id) == []
        assert await store.lease_of(HERE, made.id) is None

    async def test_a_lease_on_a_purged_session_can_still_be_released(self, store: Store) -> None:
        made = await make(store)
        lease = await store.acquire(HERE, made.id, "holder", MINUTE)
        assert lease is not None
        await store.purge(HERE, made.id, anyway)
        await store.release(lease)
        assert await store.renew("holder", MINUTE) == set()
