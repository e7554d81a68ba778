"""Signals: whoever watches hears of changes, made here or through another opening of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from segue.model import ids
from segue.model.errors import NotFound
from segue.model.event import Created, Delta, Draft
from segue.store.base import InboxItem, Signal, Store

from .harness import (
    HERE,
    MINUTE,
    THERE,
    Contract,
    OpenStore,
    Refused,
    add,
    anyway,
    history,
    make,
    nothing,
    refuse,
    user,
)

PATIENCE = 10.0  # seconds until a signal that has not come counts as lost


class Ear:
    """Collects signals, each of which may come more than once."""

    def __init__(self) -> None:
        self.heard: set[Signal] = set()
        self._news = asyncio.Event()

    def __call__(self, signal: Signal) -> None:
        self.heard.add(signal)
        self._news.set()

    async def wait_for(self, signal: Signal) -> None:
        async with asyncio.timeout(PATIENCE):
            while signal not in self.heard:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def listening(store: Store) -> AsyncIterator[Ear]:
    ear = Ear()
    stop = store.watch(ear)
    try:
        yield ear
    finally:
        stop()


async def tells(store: Store, done: Awaitable[object], signal: Signal) -> None:
    async with listening(store) as ear:
        await done
        await ear.wait_for(signal)


class WatchContract(Contract):
    async def test_a_watcher_hears_of_events(self, store: Store) -> None:
        made = await make(store, user("one"), workspace=THERE)
        here, fork, loaded = ids.new_id(), ids.new_id(), ids.new_id()
        created = Draft(body=Created(cwd="/"))
        await tells(store, store.create(HERE, here, [created]), Signal("events", HERE, here))
        await tells(store, add(store, made, user("two")), Signal("events", THERE, made.id))
        forking = store.fork(THERE, made.id, fork, 1, created, nothing)
        await tells(store, forking, Signal("events", THERE, fork))
        loading = store.load(HERE, loaded, await history(store, made))
        await tells(store, loading, Signal("events", HERE, loaded))

    async def test_a_watcher_hears_of_purges(self, store: Store) -> None:
        made = await make(store)
        await tells(store, store.purge(HERE, made.id, anyway), Signal("purged", HERE, made.id))

    async def test_a_watcher_hears_of_the_inbox(self, store: Store) -> None:
        made = await make(store)
        putting = store.put_inbox(HERE, made.id, "prompt", "p", {})
        await tells(store, putting, Signal("inbox", HERE, made.id))

    async def test_a_watcher_hears_of_deltas(self, store: Store) -> None:
        made = await make(store)
        lease = await store.acquire(HERE, made.id, "one", MINUTE)
        assert lease is not None
        piece = Delta(session=made.id, message="m", kind="thought", offset=0, text="a")
        await tells(store, store.put_deltas(lease, [piece]), Signal("deltas", HERE, made.id))

    async def test_a_release_asks_to_look_at_the_inbox(self, store: Store) -> None:
        made = await make(store)
        lease = await store.acquire(HERE, made.id, "one", MINUTE)
        assert lease is not None
        await tells(store, store.release(lease), Signal("inbox", HERE, made.id))

    async def test_what_a_signal_tells_of_can_be_read(self, store: Store) -> None:
        made = await make(store)
        looks: list[asyncio.Task[list[InboxItem]]] = []

        def look(signal: Signal) -> None:
            if signal.kind == "inbox":
                looks.append(asyncio.create_task(store.inbox(HERE, made.id)))

        stop = store.watch(look)
        putting = store.put_inbox(HERE, made.id, "prompt", "p", {})
        await tells(store, putting, Signal("inbox", HERE, made.id))
        stop()
        assert all(await asyncio.gather(*looks))

    async def test_several_watchers_hear_the_same(self, store: Store) -> None:
        made = await make(store)
        async with listening(store) as one, listening(store) as two:
            await add(store, made, user("more"))
            await one.wait_for(Signal("events", HERE, made.id))
            await two.wait_for(Signal("events", HERE, made.id))

    async def test_a_watcher_that_stopped_hears_nothing(self, store: Store) -> None:
        made = await make(store)
        gone = Ear()
        stop = store.watch(gone)
        stop()
        stop()
        await tells(store, add(store, made, user("more")), Signal("events", HERE, made.id))
        assert gone.heard == set()

    async def test_a_change_that_failed_is_not_told(self, store: Store) -> None:
        made, other = await make(store), await make(store, workspace=THERE)
        async with listening(store) as ear:
            with pytest.raises(NotFound):
                await store.put_inbox(THERE, made.id, "prompt", "p", {})
            with pytest.raises(Refused):
                await store.purge(HERE, made.id, refuse)
            await store.put_inbox(THERE, other.id, "prompt", "p", {})
            await ear.wait_for(Signal("inbox", THERE, other.id))
            assert {signal.kind for signal in ear.heard} <= {"events", "inbox"}
            assert Signal("inbox", THERE, made.id) not in ear.heard

    async def test_a_watcher_hears_what_another_opening_of_the_store_did(
        self, store: Store, open_store: OpenStore
    ) -> None:
        made, gone = await make(store), await make(store)
        lease = await store.acquire(HERE, made.id, "one", MINUTE)
        assert lease is not None
        piece = Delta(session=made.id, message="m", kind="message", offset=0, text="a")
        other = await open_store()
        try:
            async with listening(other) as ear:
                await add(store, made, user("more"))
                await ear.wait_for(Signal("events", HERE, made.id))
                await store.put_inbox(HERE, made.id, "prompt", "p", {})
                await ear.wait_for(Signal("inbox", HERE, made.id))
                await store.put_deltas(lease, [piece])
                await ear.wait_for(Signal("deltas", HERE, made.id))
                await store.purge(HERE, gone.id, anyway)
                await ear.wait_for(Signal("purged", HERE, gone.id))
        finally:
            await other.close()
