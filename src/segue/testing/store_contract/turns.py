"""What turns need: leases that fence, an inbox that lasts, deltas that do not."""

from __future__ import annotations

import asyncio

import pytest

from segue.model import clock, ids
from segue.model.errors import Conflict, LeaseLost, NotFound
from segue.model.event import Delta, Draft
from segue.model.session import Session
from segue.store.base import InboxKind, Lease, Store

from .harness import (
    FAR,
    HERE,
    MINUTE,
    THERE,
    Contract,
    OpenStore,
    add,
    agent,
    anyway,
    history,
    make,
    nothing,
    texts,
    user,
)

AT_ONCE = 0  # as the time to live of a lease: expired as soon as it is given


async def hold(store: Store, session: Session, holder: str = "one", ttl: int = MINUTE) -> Lease:
    lease = await store.acquire(session.workspace, session.id, holder, ttl)
    assert lease is not None
    return lease


async def write(store: Store, lease: Lease, text: str = "word") -> None:
    await store.change(lease.workspace, lease.session, lambda _: [agent(text)], lease=lease)


def piece(session: Session, message: str, offset: int, text: str) -> Delta:
    return Delta(session=session.id, message=message, kind="message", offset=offset, text=text)


class TurnContract(Contract):
    # leases

    async def test_a_lease_says_whose_it_is_and_how_long(self, store: Store) -> None:
        made = await make(store)
        before = clock.now()
        lease = await hold(store, made, "one")
        assert (lease.workspace, lease.session, lease.holder) == (HERE, made.id, "one")
        assert before + MINUTE <= lease.expires_at <= clock.now() + MINUTE
        assert await store.lease_of(HERE, made.id) == lease

    async def test_a_session_that_nobody_holds_has_no_lease(self, store: Store) -> None:
        made = await make(store)
        assert await store.lease_of(HERE, made.id) is None
        await store.release(await hold(store, made))
        assert await store.lease_of(HERE, made.id) is None

    async def test_a_lease_excludes_other_holders(self, store: Store) -> None:
        made = await make(store)
        lease = await hold(store, made, "one")
        assert await store.acquire(HERE, made.id, "two", MINUTE) is None
        assert await store.lease_of(HERE, made.id) == lease
        other = await make(store)
        assert (await hold(store, other, "two")).holder == "two"

    async def test_of_many_who_ask_at_once_one_gets_it(self, store: Store) -> None:
        made = await make(store)
        asked = [store.acquire(HERE, made.id, str(i), MINUTE) for i in range(10)]
        given = [lease for lease in await asyncio.gather(*asked) if lease is not None]
        assert len(given) == 1
        assert await store.lease_of(HERE, made.id) == given[0]

    async def test_a_holder_who_asks_again_keeps_the_epoch(self, store: Store) -> None:
        made = await make(store)
        first = await hold(store, made, "one")
        again = await hold(store, made, "one", 2 * MINUTE)
        assert again.epoch == first.epoch
        assert again.expires_at > first.expires_at
        await write(store, first)

    async def test_an_expired_lease_goes_to_the_next_with_a_higher_epoch(
        self, store: Store
    ) -> None:
        made = await make(store)
        first = await hold(store, made, "one", AT_ONCE)
        second = await hold(store, made, "two")
        assert second.epoch > first.epoch
        assert await store.acquire(HERE, made.id, "one", MINUTE) is None

    async def test_a_holder_who_comes_back_late_has_a_higher_epoch(self, store: Store) -> None:
        made = await make(store)
        first = await hold(store, made, "one", AT_ONCE)
        assert (await hold(store, made, "one")).epoch > first.epoch

    async def test_epochs_go_on_rising_after_a_release(self, store: Store) -> None:
        made = await make(store)
        epochs = []
        for holder in ("one", "two", "one"):
            lease = await hold(store, made, holder)
            epochs.append(lease.epoch)
            await store.release(lease)
        assert epochs == sorted(set(epochs))

    async def test_a_lease_lets_its_holder_write(self, store: Store) -> None:
        made = await make(store)
        await write(store, await hold(store, made), "mine")
        assert texts(await history(store, made)) == ["mine"]

    async def test_a_lease_that_is_lost_lets_nobody_write(self, store: Store) -> None:
        made = await make(store)
        expired = await hold(store, made, "one", AT_ONCE)
        with pytest.raises(LeaseLost):
            await write(store, expired)
        taken = await hold(store, made, "two")
        with pytest.raises(LeaseLost):
            await write(store, expired)
        with pytest.raises(LeaseLost):
            await store.change(HERE, made.id, nothing, lease=expired)
        await store.release(taken)
        with pytest.raises(LeaseLost):
            await write(store, taken)
        await hold(store, made, "two")
        with pytest.raises(LeaseLost):
            await write(store, taken)
        assert await store.get(HERE, made.id) == made

    async def test_a_lost_lease_uses_nothing_up(self, store: Store) -> None:
        made = await make(store)
        item = await store.put_inbox(HERE, made.id, "prompt", "p", {})
        lost = await hold(store, made, "one", AT_ONCE)
        with pytest.raises(LeaseLost):
            await store.change(
                HERE, made.id, lambda _: [user("x")], lease=lost, consume=[item.number]
            )
        assert await store.inbox(HERE, made.id) == [item]

    async def test_changes_without_a_lease_need_none(self, store: Store) -> None:
        made = await make(store)
        await hold(store, made)
        await add(store, made, user("from aside"))
        assert texts(await history(store, made)) == ["from aside"]

    async def test_renewing_extends_what_a_holder_still_holds(self, store: Store) -> None:
        one, two, three = [await make(store, workspace=w) for w in (HERE, THERE, HERE)]
        first = await hold(store, one, "one")
        await hold(store, two, "one")
        lost = await hold(store, three, "one", AT_ONCE)
        await hold(store, await make(store), "two")
        renewed = await store.renew("one", 2 * MINUTE)
        assert renewed == {(HERE, one.id), (THERE, two.id)}
        after = await store.lease_of(HERE, one.id)
        assert after is not None
        assert (after.epoch, after.expires_at > first.expires_at) == (first.epoch, True)
        assert await store.lease_of(HERE, three.id) == lost
        assert await store.renew("nobody", MINUTE) == set()

    async def test_only_its_own_lease_can_be_released(self, store: Store) -> None:
        made = await make(store)
        old = await hold(store, made, "one", AT_ONCE)
        new = await hold(store, made, "two")
        await store.release(old)
        assert await store.lease_of(HERE, made.id) == new
        await store.release(new)
        await store.release(new)
        assert (await hold(store, made, "three")).holder == "three"

    async def test_a_lease_of_an_earlier_epoch_releases_nothing(self, store: Store) -> None:
        made = await make(store)
        old = await hold(store, made, "one", AT_ONCE)
        new = await hold(store, made, "one")
        await store.release(old)
        assert await store.lease_of(HERE, made.id) == new

    async def test_expired_leases_are_listed_until_they_are_taken(self, store: Store) -> None:
        made, there = await make(store), await make(store, workspace=THERE)
        await hold(store, await make(store), "alive")
        leases = [await hold(store, row, "dead", AT_ONCE) for row in (made, there)]
        found = await store.expired_leases()
        assert sorted(found, key=lambda lease: lease.workspace) == leases
        assert await store.lease_of(HERE, made.id) == leases[0]
        await hold(store, made, "next")
        assert await store.expired_leases() == [leases[1]]
        await store.release(leases[1])
        assert await store.expired_leases() == []

    async def test_a_lease_is_seen_by_whoever_opens_the_store(
        self, store: Store, open_store: OpenStore
    ) -> None:
        made = await make(store)
        lease = await hold(store, made, "one")
        other = await open_store()
        try:
            assert await other.acquire(HERE, made.id, "two", MINUTE) is None
            assert await other.lease_of(HERE, made.id) == lease
        finally:
            await other.close()

    # the inbox

    async def test_an_inbox_keeps_the_order_of_arrival(self, store: Store) -> None:
        made, other = await make(store), await make(store)
        before = clock.now()
        kinds: list[InboxKind] = ["prompt", "cancel", "answer"]
        items = [
            await store.put_inbox(HERE, made.id, kind, ids.new_id(), {"n": i})
            for i, kind in enumerate(kinds)
        ]
        await store.put_inbox(HERE, other.id, "prompt", "other", {})
        assert await store.inbox(HERE, made.id) == items
        assert [item.kind for item in items] == kinds
        assert [item.body for item in items] == [{"n": 0}, {"n": 1}, {"n": 2}]
        numbers = [item.number for item in items]
        assert numbers == sorted(set(numbers))
        assert all(before <= item.at <= clock.now() for item in items)
        assert all(item.session == made.id for item in items)

    async def test_a_change_can_use_up_an_item(self, store: Store) -> None:
        made = await make(store)
        one, two = [await store.put_inbox(HERE, made.id, "prompt", n, {}) for n in "ab"]
        await store.change(HERE, made.id, lambda _: [user("a")], consume=[one.number])
        assert await store.inbox(HERE, made.id) == [two]
        assert texts(await history(store, made)) == ["a"]

    async def test_an_item_can_be_used_up_without_any_event(self, store: Store) -> None:
        made = await make(store)
        item = await store.put_inbox(HERE, made.id, "cancel", "c", {})
        assert await store.change(HERE, made.id, nothing, consume=[item.number]) == (made, [])
        assert await store.inbox(HERE, made.id) == []

    async def test_an_item_that_is_gone_conflicts_and_changes_nothing(self, store: Store) -> None:
        made = await make(store)
        one, two = [await store.put_inbox(HERE, made.id, "prompt", n, {}) for n in "ab"]
        await store.drop_inbox(HERE, made.id, [one.number])
        with pytest.raises(Conflict):
            await store.change(
                HERE, made.id, lambda _: [user("x")], consume=[two.number, one.number]
            )
        assert await store.inbox(HERE, made.id) == [two]
        assert await store.get(HERE, made.id) == made

    async def test_an_item_of_another_session_cannot_be_used_up(self, store: Store) -> None:
        made, other = await make(store), await make(store)
        item = await store.put_inbox(HERE, other.id, "prompt", "p", {})
        with pytest.raises(Conflict):
            await store.change(HERE, made.id, nothing, consume=[item.number])
        assert await store.drop_inbox(HERE, made.id, [item.number]) == set()
        assert await store.inbox(HERE, other.id) == [item]

    async def test_of_two_who_use_up_an_item_one_succeeds(self, store: Store) -> None:
        made = await make(store)
        item = await store.put_inbox(HERE, made.id, "prompt", "p", {})
        calls = [
            store.change(HERE, made.id, lambda _: [user("mine")], consume=[item.number])
            for _ in range(2)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, Conflict) for result in results) == 1
        assert texts(await history(store, made)) == ["mine"]

    async def test_dropping_says_what_was_still_there(self, store: Store) -> None:
        made = await make(store)
        one, two = [await store.put_inbox(HERE, made.id, "prompt", n, {}) for n in "ab"]
        assert await store.drop_inbox(HERE, made.id, [one.number]) == {one.number}
        assert await store.drop_inbox(HERE, made.id, [one.number, two.number]) == {two.number}
        assert await store.drop_inbox(HERE, made.id, []) == set()
        assert await store.inbox(HERE, made.id) == []

    async def test_numbers_are_not_used_again(self, store: Store) -> None:
        made = await make(store)
        one = await store.put_inbox(HERE, made.id, "prompt", "a", {})
        await store.drop_inbox(HERE, made.id, [one.number])
        two = await store.put_inbox(HERE, made.id, "prompt", "b", {})
        assert two.number > one.number

    async def test_prompts_that_nobody_holds_are_waiting(self, store: Store) -> None:
        made, there = await make(store), await make(store, workspace=THERE)
        busy, cancelled = await make(store), await make(store)
        for row in (made, made, there, busy):
            await store.put_inbox(row.workspace, row.id, "prompt", ids.new_id(), {})
        await store.put_inbox(HERE, cancelled.id, "cancel", "c", {})
        lease = await hold(store, busy)
        waiting = await store.waiting_prompts(FAR)
        assert sorted(waiting) == sorted([(HERE, made.id), (THERE, there.id)])
        assert await store.waiting_prompts(0) == []
        await store.release(lease)
        assert (HERE, busy.id) in await store.waiting_prompts(FAR)

    async def test_a_prompt_waits_when_its_holder_is_gone(self, store: Store) -> None:
        made = await make(store)
        item = await store.put_inbox(HERE, made.id, "prompt", "p", {})
        await hold(store, made, "dead", AT_ONCE)
        assert await store.waiting_prompts(FAR) == [(HERE, made.id)]
        assert await store.waiting_prompts(item.at) == []

    # deltas

    async def test_deltas_come_in_the_order_they_were_put(self, store: Store) -> None:
        made = await make(store)
        lease = await hold(store, made)
        pieces = [piece(made, "m", 0, "Hel"), piece(made, "m", 3, "lo"), piece(made, "n", 0, "x")]
        await store.put_deltas(lease, pieces[:2])
        await store.put_deltas(lease, pieces[2:])
        assert await store.deltas(HERE, made.id) == pieces
        assert await store.deltas(HERE, (await make(store)).id) == []

    async def test_deltas_go_when_their_message_is_stored(self, store: Store) -> None:
        made = await make(store)
        lease = await hold(store, made)
        mine, other = ids.new_id(), ids.new_id()
        await store.put_deltas(lease, [piece(made, mine, 0, "a"), piece(made, other, 0, "b")])
        finished = Draft(body=agent("a"), id=mine)
        await store.change(HERE, made.id, lambda _: [finished], lease=lease)
        assert await store.deltas(HERE, made.id) == [piece(made, other, 0, "b")]

    async def test_deltas_go_with_the_lease(self, store: Store) -> None:
        made = await make(store)
        lease = await hold(store, made)
        await store.put_deltas(lease, [piece(made, "m", 0, "a")])
        await store.release(lease)
        assert await store.deltas(HERE, made.id) == []

    async def test_deltas_go_with_the_session(self, store: Store) -> None:
        made = await make(store)
        await store.put_deltas(await hold(store, made), [piece(made, "m", 0, "a")])
        await store.purge(HERE, made.id, anyway)
        await make(store, id=made.id)
        assert await store.deltas(HERE, made.id) == []

    async def test_what_was_told_only_rises_and_is_seen_by_whoever_opens_the_store(
        self, store: Store, open_store: OpenStore
    ) -> None:
        made = await make(store)
        assert await store.acked_seq(HERE, made.id) == 0
        for seq, told in ((7, 7), (3, 7), (9, 9)):
            await store.ack(HERE, made.id, seq)
            assert await store.acked_seq(HERE, made.id) == told
        other = await open_store()
        try:
            assert await other.acked_seq(HERE, made.id) == 9
        finally:
            await other.close()
        assert await store.get(HERE, made.id) == made
        for name in ((HERE, ids.new_id()), (THERE, made.id)):
            with pytest.raises(NotFound):
                await store.ack(*name, 1)
            with pytest.raises(NotFound):
                await store.acked_seq(*name)

    async def test_a_lost_lease_puts_no_deltas(self, store: Store) -> None:
        made = await make(store)
        lost = await hold(store, made, "one", AT_ONCE)
        with pytest.raises(LeaseLost):
            await store.put_deltas(lost, [piece(made, "m", 0, "a")])
        await hold(store, made, "two")
        with pytest.raises(LeaseLost):
            await store.put_deltas(lost, [piece(made, "m", 0, "a")])
        assert await store.deltas(HERE, made.id) == []
