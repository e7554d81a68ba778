"""Concurrent changes of one process share PostgreSQL transactions, without affecting each other."""

import asyncio

import pytest

from segue.model import errors, ids, projection
from segue.model.event import Draft, Drafts
from segue.model.session import Session

from .postgres_helpers import (
    WORKSPACE,
    append_message,
    connect,
    create_session,
    open_store,
    user_message,
)


@pytest.fixture
def url(migrated_database_url: str) -> str:
    return migrated_database_url


async def test_concurrent_appends_share_transactions(url: str) -> None:
    async with open_store(url) as store:
        sessions = [await create_session(store) for _ in range(20)]
        before = store.vitals()["commits"]
        await asyncio.gather(
            *(append_message(store, session, f"{n}") for session in sessions for n in range(3))
        )
        assert store.vitals()["commits"] - before <= 3
        for session in sessions:
            events = await store.events(WORKSPACE, session.id)
            texts = [event.body.content[0].text for event in events[1:]]
            assert texts == ["0", "1", "2"]
            assert projection.project(WORKSPACE, session.id, events) == await store.get(
                WORKSPACE, session.id
            )


async def test_change_that_fails_does_not_affect_the_others_of_its_group(url: str) -> None:
    def refuse(_: Session) -> Drafts:
        raise errors.Conflict("not now")

    async with open_store(url) as store:
        first, second, third = [await create_session(store) for _ in range(3)]
        _, (stored,) = await store.change(WORKSPACE, second.id, lambda _: [user_message("once")])
        again = Draft(id=stored.id, body=user_message("again"))
        taken = Draft(id=first.id, body=user_message("new"))
        outcomes = await asyncio.gather(
            store.change(WORKSPACE, first.id, refuse),
            store.change(WORKSPACE, second.id, lambda _: [again]),
            store.change(WORKSPACE, ids.new_id(), lambda _: [taken]),
            store.change(WORKSPACE, third.id, lambda _: [taken]),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], errors.Conflict)
        assert not isinstance(outcomes[1], BaseException) and outcomes[1][1] == []
        assert isinstance(outcomes[2], errors.NotFound)
        assert not isinstance(outcomes[3], BaseException) and outcomes[3][0].last_seq == 2


async def test_locked_session_delays_no_other_one(url: str) -> None:
    async with open_store(url) as store, connect(url) as connection:
        locked, free = await create_session(store), await create_session(store)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM sessions WHERE id = $1 FOR UPDATE", locked.id)
        waiting = [asyncio.create_task(append_message(store, locked, f"{n}")) for n in range(2)]
        for number in range(5):
            await append_message(store, free, f"{number}")
        assert not any(task.done() for task in waiting)
        await transaction.rollback()
        changed = await asyncio.gather(*waiting)
        assert [session.last_seq for session in changed] == [2, 3]


async def test_process_without_the_lease_writes_nothing_in_a_group(url: str) -> None:
    async with open_store(url) as store:
        session, other = await create_session(store), await create_session(store)
        lease = await store.acquire(WORKSPACE, session.id, "first")
        assert lease is not None
        await store.release(lease)
        newer = await store.acquire(WORKSPACE, session.id, "second")
        drafts = [user_message("hello")]
        outcomes = await asyncio.gather(
            store.change(WORKSPACE, session.id, lambda _: drafts, lease=lease),
            store.change(WORKSPACE, session.id, lambda _: drafts, lease=newer),
            store.change(WORKSPACE, other.id, lambda _: drafts),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], errors.LeaseLost)
        assert [outcome[0].last_seq for outcome in outcomes[1:]] == [2, 2]  # type: ignore[index]


async def test_cancelled_caller_does_not_affect_the_others_of_its_group(url: str) -> None:
    async with open_store(url) as store:
        sessions = [await create_session(store) for _ in range(3)]
        tasks = [asyncio.create_task(append_message(store, session, "x")) for session in sessions]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [True, False, False]
        row = await store.get(WORKSPACE, sessions[1].id)
        assert row is not None and row.last_seq == 2
