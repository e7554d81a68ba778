"""Contract: watchers get signals of changes, also of changes through another connection."""

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
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    OpenStore,
    Refused,
    allow_purge,
    append_events,
    create_session,
    no_events,
    read_history,
    refuse,
    user_message,
)

SIGNAL_TIMEOUT_SECONDS = 10.0


class SignalRecorder:
    """Records signals, each of which may come more than once."""

    def __init__(self) -> None:
        self.signals: set[Signal] = set()
        self._received = asyncio.Event()

    def __call__(self, signal: Signal) -> None:
        self.signals.add(signal)
        self._received.set()

    async def wait_for(self, signal: Signal) -> None:
        async with asyncio.timeout(SIGNAL_TIMEOUT_SECONDS):
            while signal not in self.signals:
                self._received.clear()
                await self._received.wait()


@asynccontextmanager
async def record_signals(store: Store) -> AsyncIterator[SignalRecorder]:
    recorder = SignalRecorder()
    stop = store.watch(recorder)
    try:
        yield recorder
    finally:
        stop()


async def expect_signal(store: Store, action: Awaitable[object], signal: Signal) -> None:
    async with record_signals(store) as recorder:
        await action
        await recorder.wait_for(signal)


class WatchContract(Contract):
    async def test_watcher_gets_signals_of_events(self, store: Store) -> None:
        session = await create_session(store, user_message("one"), workspace=OTHER_WORKSPACE)
        new_id, fork, loaded = ids.new_id(), ids.new_id(), ids.new_id()
        created = Draft(body=Created(cwd="/"))
        await expect_signal(
            store, store.create(WORKSPACE, new_id, [created]), Signal("events", WORKSPACE, new_id)
        )
        await expect_signal(
            store,
            append_events(store, session, user_message("two")),
            Signal("events", OTHER_WORKSPACE, session.id),
        )
        forking = store.fork(OTHER_WORKSPACE, session.id, fork, 1, created, no_events)
        await expect_signal(store, forking, Signal("events", OTHER_WORKSPACE, fork))
        loading = store.load(WORKSPACE, loaded, await read_history(store, session))
        await expect_signal(store, loading, Signal("events", WORKSPACE, loaded))

    async def test_watcher_gets_signals_of_purges(self, store: Store) -> None:
        session = await create_session(store)
        await expect_signal(
            store,
            store.purge(WORKSPACE, session.id, allow_purge),
            Signal("purged", WORKSPACE, session.id),
        )

    async def test_watcher_gets_signals_of_the_inbox(self, store: Store) -> None:
        session = await create_session(store)
        putting = store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        await expect_signal(store, putting, Signal("inbox", WORKSPACE, session.id))

    async def test_watcher_gets_signals_of_deltas(self, store: Store) -> None:
        session = await create_session(store)
        lease = await store.acquire(WORKSPACE, session.id, "one")
        assert lease is not None
        delta = Delta(session=session.id, message="m", kind="thought", offset=0, text="a")
        await expect_signal(
            store, store.put_deltas(lease, [delta]), Signal("deltas", WORKSPACE, session.id)
        )

    async def test_release_signals_the_inbox(self, store: Store) -> None:
        session = await create_session(store)
        lease = await store.acquire(WORKSPACE, session.id, "one")
        assert lease is not None
        await expect_signal(store, store.release(lease), Signal("inbox", WORKSPACE, session.id))

    async def test_signaled_change_is_readable(self, store: Store) -> None:
        session = await create_session(store)
        reads: list[asyncio.Task[list[InboxItem]]] = []

        def read_inbox(signal: Signal) -> None:
            if signal.kind == "inbox":
                reads.append(asyncio.create_task(store.inbox(WORKSPACE, session.id)))

        stop = store.watch(read_inbox)
        putting = store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
        await expect_signal(store, putting, Signal("inbox", WORKSPACE, session.id))
        stop()
        assert all(await asyncio.gather(*reads))

    async def test_several_watchers_get_the_same_signals(self, store: Store) -> None:
        session = await create_session(store)
        async with record_signals(store) as first, record_signals(store) as second:
            await append_events(store, session, user_message("more"))
            await first.wait_for(Signal("events", WORKSPACE, session.id))
            await second.wait_for(Signal("events", WORKSPACE, session.id))

    async def test_stopped_watcher_gets_no_signals(self, store: Store) -> None:
        session = await create_session(store)
        stopped = SignalRecorder()
        stop = store.watch(stopped)
        stop()
        stop()
        await expect_signal(
            store,
            append_events(store, session, user_message("more")),
            Signal("events", WORKSPACE, session.id),
        )
        assert stopped.signals == set()

    async def test_failed_change_is_not_signaled(self, store: Store) -> None:
        session, other = (
            await create_session(store),
            await create_session(store, workspace=OTHER_WORKSPACE),
        )
        async with record_signals(store) as recorder:
            with pytest.raises(NotFound):
                await store.put_inbox(OTHER_WORKSPACE, session.id, "prompt", "p", {})
            with pytest.raises(Refused):
                await store.purge(WORKSPACE, session.id, refuse)
            await store.put_inbox(OTHER_WORKSPACE, other.id, "prompt", "p", {})
            await recorder.wait_for(Signal("inbox", OTHER_WORKSPACE, other.id))
            assert {signal.kind for signal in recorder.signals} <= {"events", "inbox"}
            assert Signal("inbox", OTHER_WORKSPACE, session.id) not in recorder.signals

    async def test_watcher_gets_signals_of_another_connection(
        self, store: Store, open_store: OpenStore
    ) -> None:
        session, purged = await create_session(store), await create_session(store)
        lease = await store.acquire(WORKSPACE, session.id, "one")
        assert lease is not None
        delta = Delta(session=session.id, message="m", kind="message", offset=0, text="a")
        other = await open_store()
        try:
            async with record_signals(other) as recorder:
                await append_events(store, session, user_message("more"))
                await recorder.wait_for(Signal("events", WORKSPACE, session.id))
                await store.put_inbox(WORKSPACE, session.id, "prompt", "p", {})
                await recorder.wait_for(Signal("inbox", WORKSPACE, session.id))
                await store.put_deltas(lease, [delta])
                await recorder.wait_for(Signal("deltas", WORKSPACE, session.id))
                await store.purge(WORKSPACE, purged.id, allow_purge)
                await recorder.wait_for(Signal("purged", WORKSPACE, purged.id))
        finally:
            await other.close()
