"""Contract: checkpoints of imported sessions, and whether a store is read-only."""

from __future__ import annotations

import pytest

from segue.hub.turns.end_turn import fork_tail_events
from segue.model import errors, ids
from segue.model.event import Created, Draft, ForkPoint
from segue.model.session import Checkpoint
from segue.store.base import Store

from .harness import (
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    OpenStore,
    allow_purge,
    append_events,
    create_session,
    user_message,
)

FIRST = Checkpoint(
    source="codex",
    path="/home/me/rollout-\udcff.jsonl",
    inode=(1 << 64) - 1,
    offset=1 << 40,
    tail_hash="0f" * 16,
    extra={"agents": [{"path": "a.jsonl", "offset": 12}]},
)
SECOND = Checkpoint(source="codex", path="/b", inode=2, offset=7, tail_hash="aa")


class CheckpointContract(Contract):
    """How far a source's transcript has been imported into a session."""

    async def test_a_session_that_was_not_imported_has_no_checkpoint(self, store: Store) -> None:
        session = await create_session(store)
        assert await store.checkpoint(WORKSPACE, session.id) is None
        assert await store.checkpoint(WORKSPACE, ids.new_id()) is None

    async def test_create_stores_a_checkpoint(self, store: Store, open_store: OpenStore) -> None:
        id = ids.new_id()
        await store.create(WORKSPACE, id, [Created(cwd="/work")], checkpoint=FIRST)
        assert await store.checkpoint(WORKSPACE, id) == FIRST
        assert await store.checkpoint(OTHER_WORKSPACE, id) is None
        other = await open_store()
        try:
            assert await other.checkpoint(WORKSPACE, id) == FIRST
        finally:
            await other.close()

    async def test_a_session_that_cannot_be_created_stores_no_checkpoint(
        self, store: Store
    ) -> None:
        session = await create_session(store)
        with pytest.raises(errors.Conflict):
            await store.create(WORKSPACE, session.id, [Created(cwd="/work")], checkpoint=FIRST)
        assert await store.checkpoint(WORKSPACE, session.id) is None

    async def test_load_stores_a_checkpoint(self, store: Store) -> None:
        session = await create_session(store, user_message("one"))
        events = await store.events(WORKSPACE, session.id)
        await store.load(OTHER_WORKSPACE, session.id, events, checkpoint=FIRST)
        assert await store.checkpoint(OTHER_WORKSPACE, session.id) == FIRST
        assert await store.checkpoint(WORKSPACE, session.id) is None

    async def test_change_replaces_the_checkpoint(self, store: Store) -> None:
        id = ids.new_id()
        await store.create(WORKSPACE, id, [Created(cwd="/work")], checkpoint=FIRST)
        await store.change(WORKSPACE, id, lambda _: [user_message("one")], checkpoint=SECOND)
        assert await store.checkpoint(WORKSPACE, id) == SECOND
        await store.change(WORKSPACE, id, lambda _: [user_message("two")])
        assert await store.checkpoint(WORKSPACE, id) == SECOND

    async def test_change_without_events_stores_the_checkpoint_alone(self, store: Store) -> None:
        session = await create_session(store)
        point = await store.change_point(WORKSPACE)
        assert await store.change(WORKSPACE, session.id, lambda _: [], checkpoint=FIRST) == (
            session,
            [],
        )
        assert await store.checkpoint(WORKSPACE, session.id) == FIRST
        assert await store.get(WORKSPACE, session.id) == session
        assert (await store.change_point(WORKSPACE)).low >= point.low

    async def test_a_change_that_fails_keeps_the_old_checkpoint(self, store: Store) -> None:
        id = ids.new_id()
        await store.create(WORKSPACE, id, [Created(cwd="/work")], checkpoint=FIRST)
        with pytest.raises(errors.InvalidInput):
            await store.change(WORKSPACE, id, lambda _: [Created(cwd="/again")], checkpoint=SECOND)
        assert await store.checkpoint(WORKSPACE, id) == FIRST

    async def test_purge_removes_the_checkpoint(self, store: Store) -> None:
        id = ids.new_id()
        await store.create(WORKSPACE, id, [Created(cwd="/work")], checkpoint=FIRST)
        await store.purge(WORKSPACE, id, allow_purge)
        assert await store.checkpoint(WORKSPACE, id) is None
        await store.create(WORKSPACE, id, [Created(cwd="/work")])
        assert await store.checkpoint(WORKSPACE, id) is None

    async def test_a_fork_has_no_checkpoint(self, store: Store) -> None:
        parent = ids.new_id()
        await store.create(
            WORKSPACE, parent, [Created(cwd="/work"), user_message("one")], checkpoint=FIRST
        )
        created = Draft(body=Created(cwd="/work", fork=ForkPoint(session=parent, seq=2)))
        fork = await store.fork(WORKSPACE, parent, ids.new_id(), 2, created, fork_tail_events)
        assert await store.checkpoint(WORKSPACE, fork.id) is None
        assert await store.checkpoint(WORKSPACE, parent) == FIRST

    async def test_a_store_that_can_be_written_is_not_read_only(self, store: Store) -> None:
        session = await create_session(store)
        await append_events(store, session, user_message("one"))
        assert store.read_only is False
