"""Contract: leases, the inbox, deltas and acknowledgements, which turns need."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from segue.model import clock, ids
from segue.model.errors import Conflict, LeaseLost, NotFound
from segue.model.event import Delta, Draft, ModelCalled, Usage
from segue.model.session import Session
from segue.store.base import ENDED_HOLDER, InboxKind, Lease, Signal, Store
from segue.testing.helpers import message_texts

from .harness import (
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    OpenStore,
    agent_message,
    allow_purge,
    append_events,
    create_session,
    no_events,
    read_history,
    user_message,
)


async def acquire_lease(store: Store, session: Session, holder: str = "one") -> Lease:
    lease = await store.acquire(session.workspace, session.id, holder)
    assert lease is not None
    return lease


async def take_over(store: Store, lease: Lease, holder: str) -> Lease:
    """Take a lease over from a holder that does not renew it."""
    taken = await store.acquire(lease.workspace, lease.session, holder, over=lease)
    assert taken is not None
    return taken


async def write_message(store: Store, lease: Lease, text: str = "word") -> None:
    await store.change(lease.workspace, lease.session, lambda _: [agent_message(text)], lease=lease)


def make_delta(session: Session, message: str, offset: int, text: str) -> Delta:
    return Delta(session=session.id, message=message, kind="message", offset=offset, text=text)


class TurnContract(Contract):
    # leases

    async def test_lease_has_its_holder(self, store: Store) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session, "one")
        assert (lease.workspace, lease.session, lease.holder) == (WORKSPACE, session.id, "one")
        assert await store.lease_of(WORKSPACE, session.id) == lease

    async def test_session_without_a_holder_has_no_lease(self, store: Store) -> None:
        session = await create_session(store)
        assert await store.lease_of(WORKSPACE, session.id) is None
        await store.release(await acquire_lease(store, session))
        assert await store.lease_of(WORKSPACE, session.id) is None
        assert await store.lease_of(OTHER_WORKSPACE, session.id) is None
        assert await store.lease_of(WORKSPACE, ids.new_id()) is None

    async def test_held_lease_is_refused_to_others_and_returned_to_its_holder(
        self, store: Store
    ) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session, "one")
        assert await store.acquire(WORKSPACE, session.id, "two") is None
        assert await acquire_lease(store, session, "one") == lease

    async def test_one_of_many_concurrent_callers_gets_the_lease(self, store: Store) -> None:
        session = await create_session(store)
        holders = [f"holder {number}" for number in range(20)]
        results = await asyncio.gather(
            *(store.acquire(WORKSPACE, session.id, holder) for holder in holders)
        )
        leases = [lease for lease in results if lease is not None]
        assert len(leases) == 1
        assert await store.lease_of(WORKSPACE, session.id) == leases[0]

    async def test_unknown_session_cannot_be_leased(self, store: Store) -> None:
        session = await create_session(store)
        for name in ((WORKSPACE, ids.new_id()), (OTHER_WORKSPACE, session.id)):
            with pytest.raises(NotFound):
                await store.acquire(*name, "one")

    async def test_epochs_rise_with_each_new_lease(self, store: Store) -> None:
        session = await create_session(store)
        epochs = []
        for holder in ("one", "two", "one"):
            lease = await acquire_lease(store, session, holder)
            epochs.append(lease.epoch)
            await store.release(lease)
        assert epochs == sorted(set(epochs))

    async def test_a_lease_lets_its_holder_write(self, store: Store) -> None:
        session = await create_session(store)
        await write_message(store, await acquire_lease(store, session), "mine")
        assert message_texts(await read_history(store, session)) == ["mine"]

    async def test_lease_that_was_not_renewed_can_be_taken_over_once(self, store: Store) -> None:
        session = await create_session(store)
        seen = await acquire_lease(store, session, "one")
        assert await store.renew("one") == {(WORKSPACE, session.id)}
        assert await store.acquire(WORKSPACE, session.id, "two", over=seen) is None
        renewed = await store.lease_of(WORKSPACE, session.id)
        assert renewed is not None and renewed.renewals > seen.renewals
        taken = await store.acquire(WORKSPACE, session.id, "two", over=renewed)
        assert taken is not None
        assert (taken.holder, taken.epoch) == ("two", seen.epoch + 1)
        assert await store.acquire(WORKSPACE, session.id, "three", over=renewed) is None
        with pytest.raises(LeaseLost):
            await write_message(store, renewed)
        assert await store.renew("one") == set()

    async def test_lease_of_another_session_is_not_taken_over(self, store: Store) -> None:
        session, other_session = await create_session(store), await create_session(store)
        lease = await acquire_lease(store, session, "one")
        other = await acquire_lease(store, other_session, "one")
        assert (lease.epoch, lease.renewals) == (other.epoch, other.renewals)
        assert await store.acquire(WORKSPACE, session.id, "two", over=other) is None
        assert await store.lease_of(WORKSPACE, session.id) == lease

    async def test_lost_lease_does_not_allow_writes(self, store: Store) -> None:
        session = await create_session(store)
        lost = await acquire_lease(store, session, "one")
        current = await take_over(store, lost, "two")
        with pytest.raises(LeaseLost):
            await write_message(store, lost)
        with pytest.raises(LeaseLost):
            await store.change(WORKSPACE, session.id, no_events, lease=lost)
        await store.release(current)
        with pytest.raises(LeaseLost):
            await write_message(store, current)
        await acquire_lease(store, session, "two")
        with pytest.raises(LeaseLost):
            await write_message(store, current)
        assert await store.get(WORKSPACE, session.id) == session

    async def test_lost_lease_consumes_and_begins_no_inbox_item(self, store: Store) -> None:
        session = await create_session(store)
        item = await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        lost = await acquire_lease(store, session, "one")
        await take_over(store, lost, "two")
        items: list[dict[str, Any]] = [{"consume": [item.number]}, {"begin": [item]}]
        for arguments in items:
            with pytest.raises(LeaseLost):
                await store.change(
                    WORKSPACE, session.id, lambda _: [user_message("x")], lease=lost, **arguments
                )
        assert await store.inbox(WORKSPACE, session.id) == [item]

    async def test_change_without_a_lease_ignores_the_lease_of_others(self, store: Store) -> None:
        session = await create_session(store)
        await acquire_lease(store, session)
        await append_events(store, session, user_message("from outside"))
        assert message_texts(await read_history(store, session)) == ["from outside"]

    async def test_renew_renews_the_leases_that_a_holder_still_has(self, store: Store) -> None:
        one, two, three = [
            await create_session(store, workspace=w)
            for w in (WORKSPACE, OTHER_WORKSPACE, WORKSPACE)
        ]
        first = await acquire_lease(store, one, "one")
        await acquire_lease(store, two, "one")
        current = await take_over(store, await acquire_lease(store, three, "one"), "two")
        renewed = await store.renew("one")
        assert renewed == {(WORKSPACE, one.id), (OTHER_WORKSPACE, two.id)}
        after = await store.lease_of(WORKSPACE, one.id)
        assert after is not None
        assert (after.epoch, after.renewals > first.renewals) == (first.epoch, True)
        assert await store.lease_of(WORKSPACE, three.id) == current
        assert await store.renew("three") == set()

    async def test_release_of_an_old_lease_does_not_affect_the_new_one(self, store: Store) -> None:
        session = await create_session(store)
        old = await acquire_lease(store, session, "one")
        new = await take_over(store, old, "two")
        await store.release(old)
        assert await store.lease_of(WORKSPACE, session.id) == new
        await store.release(new)
        await store.release(new)
        assert (await acquire_lease(store, session, "three")).holder == "three"

    async def test_lease_of_an_earlier_epoch_releases_nothing(self, store: Store) -> None:
        session = await create_session(store)
        old = await acquire_lease(store, session, "one")
        await store.release(old)
        new = await acquire_lease(store, session, "one")
        await store.release(old)
        assert await store.lease_of(WORKSPACE, session.id) == new

    async def test_held_leases_are_listed_until_they_are_released(self, store: Store) -> None:
        session, there = (
            await create_session(store),
            await create_session(store, workspace=OTHER_WORKSPACE),
        )
        leases = [await acquire_lease(store, row) for row in (session, there)]
        assert sorted(await store.leases(), key=lambda lease: lease.workspace) == leases
        await store.release(leases[0])
        assert await store.leases() == [leases[1]]
        await store.release(leases[1])
        assert await store.leases() == []

    async def test_release_signals_a_process_that_waits_for_the_lease(
        self, store: Store, open_store: OpenStore
    ) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session, "one")
        other = await open_store()
        released = asyncio.Event()

        def listen(signal: Signal) -> None:
            if signal == Signal("inbox", WORKSPACE, session.id):
                released.set()

        try:
            other.watch(listen)
            await asyncio.sleep(0.2)
            released.clear()
            await store.release(lease)
            await asyncio.wait_for(released.wait(), 10)
        finally:
            await other.close()

    async def test_lease_is_visible_to_another_connection(
        self, store: Store, open_store: OpenStore
    ) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session, "one")
        other = await open_store()
        try:
            assert await other.acquire(WORKSPACE, session.id, "two") is None
            assert await other.lease_of(WORKSPACE, session.id) == lease
        finally:
            await other.close()

    # the inbox

    async def test_inbox_is_in_the_order_of_arrival(self, store: Store) -> None:
        session, other = await create_session(store), await create_session(store)
        before = clock.now()
        kinds: list[InboxKind] = ["prompt", "cancel", "answer"]
        items = [
            await store.put_inbox(WORKSPACE, session.id, kind, ids.new_id(), {"n": i})
            for i, kind in enumerate(kinds)
        ]
        await store.put_inbox(WORKSPACE, other.id, "prompt", "other", {})
        assert await store.inbox(WORKSPACE, session.id) == items
        assert [item.kind for item in items] == kinds
        assert [item.body for item in items] == [{"n": 0}, {"n": 1}, {"n": 2}]
        numbers = [item.number for item in items]
        assert numbers == sorted(set(numbers))
        assert all(before <= item.at <= clock.now() for item in items)
        assert all(item.session == session.id for item in items)

    async def test_change_can_consume_an_item(self, store: Store) -> None:
        session = await create_session(store)
        one, two = [await store.put_inbox(WORKSPACE, session.id, "prompt", n, {}) for n in "ab"]
        await store.change(
            WORKSPACE, session.id, lambda _: [user_message("a")], consume=[one.number]
        )
        assert await store.inbox(WORKSPACE, session.id) == [two]
        assert message_texts(await read_history(store, session)) == ["a"]

    async def test_item_can_be_consumed_without_an_event(self, store: Store) -> None:
        session = await create_session(store)
        item = await store.put_inbox(WORKSPACE, session.id, "cancel", "c", {})
        assert await store.change(WORKSPACE, session.id, no_events, consume=[item.number]) == (
            session,
            [],
        )
        assert await store.inbox(WORKSPACE, session.id) == []

    async def test_consuming_a_removed_item_conflicts_and_changes_nothing(
        self, store: Store
    ) -> None:
        session = await create_session(store)
        one, two = [await store.put_inbox(WORKSPACE, session.id, "prompt", n, {}) for n in "ab"]
        await store.drop_inbox(WORKSPACE, session.id, [one.number])
        with pytest.raises(Conflict):
            await store.change(
                WORKSPACE,
                session.id,
                lambda _: [user_message("x")],
                consume=[two.number, one.number],
            )
        assert await store.inbox(WORKSPACE, session.id) == [two]
        assert await store.get(WORKSPACE, session.id) == session

    async def test_item_of_another_session_cannot_be_consumed(self, store: Store) -> None:
        session, other = await create_session(store), await create_session(store)
        item = await store.put_inbox(WORKSPACE, other.id, "prompt", "p", {})
        with pytest.raises(Conflict):
            await store.change(WORKSPACE, session.id, no_events, consume=[item.number])
        assert await store.drop_inbox(WORKSPACE, session.id, [item.number]) == set()
        assert await store.inbox(WORKSPACE, other.id) == [item]

    async def test_one_of_two_concurrent_consumers_of_an_item_succeeds(self, store: Store) -> None:
        session = await create_session(store)
        item = await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        calls = [
            store.change(
                WORKSPACE, session.id, lambda _: [user_message("mine")], consume=[item.number]
            )
            for _ in range(2)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, Conflict) for result in results) == 1
        assert message_texts(await read_history(store, session)) == ["mine"]

    async def test_drop_returns_the_items_that_it_removed(self, store: Store) -> None:
        session = await create_session(store)
        one, two = [await store.put_inbox(WORKSPACE, session.id, "prompt", n, {}) for n in "ab"]
        assert await store.drop_inbox(WORKSPACE, session.id, [one.number]) == {one.number}
        assert await store.drop_inbox(WORKSPACE, session.id, [one.number, two.number]) == {
            two.number
        }
        assert await store.drop_inbox(WORKSPACE, session.id, []) == set()
        assert await store.inbox(WORKSPACE, session.id) == []

    async def test_inbox_numbers_are_not_reused(self, store: Store) -> None:
        session = await create_session(store)
        one = await store.put_inbox(WORKSPACE, session.id, "prompt", "a", {})
        await store.drop_inbox(WORKSPACE, session.id, [one.number])
        two = await store.put_inbox(WORKSPACE, session.id, "prompt", "b", {})
        assert two.number > one.number

    async def test_begun_prompt_stays_as_a_turn_until_it_is_consumed(self, store: Store) -> None:
        session = await create_session(store)
        item = await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {"n": 1}, "one")
        assert item.holder == "one"
        begun = replace(item, holder="", body={"n": 2})
        await store.change(WORKSPACE, session.id, lambda _: [user_message("p")], begin=[begun])
        turn = replace(begun, kind="turn")
        assert await store.inbox(WORKSPACE, session.id) == [turn]
        assert await store.drop_inbox(WORKSPACE, session.id, [item.number]) == set()
        for again in (item, turn):
            with pytest.raises(Conflict):
                await store.change(
                    WORKSPACE, session.id, lambda _: [user_message("x")], begin=[again]
                )
        assert await store.inbox(WORKSPACE, session.id) == [turn]
        await store.change(WORKSPACE, session.id, no_events, consume=[item.number])
        assert await store.inbox(WORKSPACE, session.id) == []
        assert message_texts(await read_history(store, session)) == ["p"]

    async def test_sessions_with_items_and_without_a_holder_are_waiting(self, store: Store) -> None:
        session, there = (
            await create_session(store),
            await create_session(store, workspace=OTHER_WORKSPACE),
        )
        busy, cancelled = await create_session(store), await create_session(store)
        for row in (session, session, there, busy):
            await store.put_inbox(row.workspace, row.id, "prompt", ids.new_id(), {})
        await store.put_inbox(WORKSPACE, cancelled.id, "cancel", "c", {})
        lease = await acquire_lease(store, busy)
        names = [(WORKSPACE, session.id), (OTHER_WORKSPACE, there.id), (WORKSPACE, cancelled.id)]
        assert sorted(await store.waiting()) == sorted(names)
        await store.release(lease)
        assert (WORKSPACE, busy.id) in await store.waiting()

    async def test_turn_that_any_process_can_resume_is_not_waiting(self, store: Store) -> None:
        session, bound = await create_session(store), await create_session(store)
        for row, holder in ((session, ""), (bound, "one")):
            item = await store.put_inbox(WORKSPACE, row.id, "prompt", "p", {}, "one")
            begun = replace(item, holder=holder)
            await store.change(WORKSPACE, row.id, lambda _: [user_message("p")], begin=[begun])
        assert await store.waiting() == [(WORKSPACE, bound.id)]

    async def test_disowned_items_have_no_holder(self, store: Store) -> None:
        session = await create_session(store)
        one, two = [
            await store.put_inbox(WORKSPACE, session.id, "prompt", name, {}, holder)
            for name, holder in (("a", "one"), ("b", "two"))
        ]
        await store.disown_inbox("one")
        await store.disown_inbox("")
        items = await store.inbox(WORKSPACE, session.id)
        assert items == [replace(one, holder=""), two]

    async def test_begun_turns_of_a_holder_that_stops_are_waiting(self, store: Store) -> None:
        bound, free = await create_session(store), await create_session(store)
        for row, holder in ((bound, "one"), (free, "")):
            item = await store.put_inbox(WORKSPACE, row.id, "prompt", "p", {}, "one")
            begun = replace(item, holder=holder)
            await store.change(WORKSPACE, row.id, lambda _: [user_message("p")], begin=[begun])
        for holder in ("one", "", "one"):
            await store.disown_inbox(holder)
            ((bound_item,), (free_item,)) = [
                await store.inbox(WORKSPACE, row.id) for row in (bound, free)
            ]
            assert (bound_item.holder, free_item.holder) == (ENDED_HOLDER, "")
            assert await store.waiting() == [(WORKSPACE, bound.id)]

    # deltas

    async def test_deltas_are_returned_in_the_order_they_were_stored(self, store: Store) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session)
        deltas = [
            make_delta(session, "m", 0, "Hel"),
            make_delta(session, "m", 3, "lo"),
            make_delta(session, "n", 0, "x"),
        ]
        await store.put_deltas(lease, deltas[:2])
        await store.put_deltas(lease, deltas[2:])
        assert await store.deltas(WORKSPACE, session.id) == deltas
        assert await store.deltas(WORKSPACE, (await create_session(store)).id) == []

    async def test_new_deltas_are_those_after_a_number(self, store: Store) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session)
        message = ids.new_id()
        deltas = [make_delta(session, message, at, text) for at, text in ((0, "a"), (1, "b"))]
        assert await store.new_deltas(WORKSPACE, session.id, 0) == ([], 0)
        await store.put_deltas(lease, deltas[:1])
        first, number = await store.new_deltas(WORKSPACE, session.id, 0)
        await store.put_deltas(lease, deltas[1:])
        second, last = await store.new_deltas(WORKSPACE, session.id, number)
        assert (first, second, number < last) == (deltas[:1], deltas[1:], True)
        assert await store.new_deltas(WORKSPACE, session.id, last) == ([], last)
        stored = Draft(body=agent_message("ab"), id=message)
        await store.change(WORKSPACE, session.id, lambda _: [stored], lease=lease)
        await store.put_deltas(lease, [make_delta(session, "n", 0, "c")])
        third, newest = await store.new_deltas(WORKSPACE, session.id, last)
        assert (third, newest > last) == ([make_delta(session, "n", 0, "c")], True)
        with pytest.raises(NotFound):
            await store.new_deltas(WORKSPACE, ids.new_id(), 0)

    async def test_stored_message_removes_its_deltas(self, store: Store) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session)
        finished_id, other = ids.new_id(), ids.new_id()
        await store.put_deltas(
            lease, [make_delta(session, finished_id, 0, "a"), make_delta(session, other, 0, "b")]
        )
        finished = Draft(body=agent_message("a"), id=finished_id)
        await store.change(WORKSPACE, session.id, lambda _: [finished], lease=lease)
        assert await store.deltas(WORKSPACE, session.id) == [make_delta(session, other, 0, "b")]

    async def test_first_event_of_a_response_removes_the_delta_of_its_request(
        self, store: Store
    ) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session)
        deltas = [
            Delta(session=session.id, message=request, kind="request", offset=0, text="{}")
            for request in ("r1", "r2")
        ]
        await store.put_deltas(lease, deltas)
        assert await store.deltas(WORKSPACE, session.id) == deltas
        asked_at = "2026-01-31T12:00:00Z"
        response = replace(agent_message("a"), request="r1", asked_at=asked_at)
        await store.change(WORKSPACE, session.id, lambda _: [response], lease=lease)
        assert await store.deltas(WORKSPACE, session.id) == deltas[1:]
        failed = ModelCalled(usage=Usage(), asked="r2", asked_at=asked_at, is_error=True)
        await store.change(WORKSPACE, session.id, lambda _: [failed], lease=lease)
        assert await store.deltas(WORKSPACE, session.id) == []

    async def test_release_removes_the_deltas(self, store: Store) -> None:
        session = await create_session(store)
        lease = await acquire_lease(store, session)
        await store.put_deltas(lease, [make_delta(session, "m", 0, "a")])
        await store.release(lease)
        assert await store.deltas(WORKSPACE, session.id) == []

    async def test_purge_removes_the_deltas(self, store: Store) -> None:
        session = await create_session(store)
        await store.put_deltas(
            await acquire_lease(store, session), [make_delta(session, "m", 0, "a")]
        )
        await store.purge(WORKSPACE, session.id, allow_purge)
        await create_session(store, id=session.id)
        assert await store.deltas(WORKSPACE, session.id) == []

    async def test_acked_seq_only_rises_and_is_visible_to_another_connection(
        self, store: Store, open_store: OpenStore
    ) -> None:
        session = await create_session(store)
        assert await store.acked_seq(WORKSPACE, session.id) == 0
        for seq, acked in ((7, 7), (3, 7), (9, 9)):
            await store.ack(WORKSPACE, session.id, seq)
            assert await store.acked_seq(WORKSPACE, session.id) == acked
        other = await open_store()
        try:
            assert await other.acked_seq(WORKSPACE, session.id) == 9
        finally:
            await other.close()
        assert await store.get(WORKSPACE, session.id) == session
        for name in ((WORKSPACE, ids.new_id()), (OTHER_WORKSPACE, session.id)):
            with pytest.raises(NotFound):
                await store.ack(*name, 1)
            with pytest.raises(NotFound):
                await store.acked_seq(*name)

    async def test_lost_lease_stores_no_deltas(self, store: Store) -> None:
        session = await create_session(store)
        lost = await acquire_lease(store, session, "one")
        await take_over(store, lost, "two")
        with pytest.raises(LeaseLost):
            await store.put_deltas(lost, [make_delta(session, "m", 0, "a")])
        assert await store.deltas(WORKSPACE, session.id) == []
