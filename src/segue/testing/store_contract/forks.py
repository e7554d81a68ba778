"""Contract: a session is forked at any of its events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from segue.hub.turns.end_turn import fork_tail_events
from segue.model import ids
from segue.model.errors import Conflict, InvalidInput, NotFound
from segue.model.event import (
    AnyBody,
    Created,
    Draft,
    Event,
    ForkPoint,
    InfoChanged,
    ModelAsked,
    ModelCalled,
    PermissionAsked,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.model.session import Session
from segue.store.base import EventDecider, Store
from segue.testing.helpers import message_texts

from .harness import (
    OTHER_WORKSPACE,
    WORKSPACE,
    Contract,
    Refused,
    agent_message,
    allow_purge,
    append_events,
    check_projection,
    create_session,
    draft,
    no_events,
    read_history,
    refuse,
    search_ids,
    status_change,
    title_change,
    user_message,
)


async def fork(
    store: Store,
    parent: Session,
    upto: int,
    tail: EventDecider = fork_tail_events,
    id: str | None = None,
) -> Session:
    point = ForkPoint(session=parent.id, seq=upto)
    created = Draft(body=Created(cwd=parent.cwd, fork=point))
    return await store.fork(parent.workspace, parent.id, id or ids.new_id(), upto, created, tail)


def without_ids(events: Sequence[Event]) -> list[tuple[int, int, AnyBody]]:
    """Return events without their ids."""
    return [(event.seq, event.at, event.body) for event in events]


async def create_session_with_turn(store: Store) -> Session:
    """Create a session of 10 events, with a complete turn."""
    return await create_session(
        store,
        draft(user_message("do it"), 1),
        draft(status_change("running", turn="t"), 2),
        draft(ToolCall(call_id="one", name="run"), 3),
        draft(PermissionAsked(ask_id="ask", title="may I?", options=()), 4),
        draft(ToolCall(call_id="two", name="run"), 5),
        draft(ToolResult(call_id="one"), 6),
        draft(ModelCalled(usage=Usage(input_tokens=100)), 7),
        draft(agent_message("done"), 8),
        draft(status_change("idle"), 9),
    )


class ForkContract(Contract):
    async def test_a_fork_can_be_cut_at_every_event(self, store: Store) -> None:
        parent = await create_session_with_turn(store)
        events = await read_history(store, parent)
        for upto in range(1, parent.last_seq + 1):
            child = await fork(store, parent, upto)
            copied = await read_history(store, child)
            assert without_ids(copied[1:upto]) == without_ids(events[1:upto])
            assert child.fork == ForkPoint(session=parent.id, seq=upto)
            assert (child.status, child.turn) == ("idle", None)
            assert (child.open_calls, child.open_asks) == ((), ())
            assert await store.get(WORKSPACE, child.id) == child
            await check_projection(store, child)

    async def test_a_fork_between_a_call_and_its_result_closes_the_call(self, store: Store) -> None:
        parent = await create_session_with_turn(store)
        child = await fork(store, parent, 6)
        results = await store.events(WORKSPACE, child.id, types=["tool_result"])
        bodies = [event.body for event in results]
        assert [(body.call_id, body.status) for body in bodies if isinstance(body, ToolResult)] == [
            ("one", "cancelled"),
            ("two", "cancelled"),
        ]
        assert child.last_seq > 6

    async def test_a_fork_has_its_own_creation_and_id(self, store: Store) -> None:
        parent = await create_session_with_turn(store)
        child = await store.fork(
            WORKSPACE, parent.id, ids.new_id(), 2, draft(Created(cwd="/other"), 50), no_events
        )
        assert (child.cwd, child.created_at - parent.created_at) == ("/other", 50_000_000)
        first, second = await read_history(store, child)
        assert first.body == Created(cwd="/other")
        assert without_ids([second]) == without_ids((await read_history(store, parent))[1:2])

    async def test_the_events_of_a_fork_have_ids_of_their_own(self, store: Store) -> None:
        parent = await create_session_with_turn(store)
        await append_events(store, parent, ModelAsked())
        child = await fork(store, parent, parent.last_seq + 1)
        parent_events, child_events = (
            await read_history(store, parent),
            await read_history(store, child),
        )
        shared = {event.id for event in parent_events} & {event.id for event in child_events}
        with_shared_ids = [event for event in child_events if event.id in shared]
        assert [event.type for event in with_shared_ids] == [
            "permission_asked",
            "model_called",
            "model_asked",
        ]  # other events refer to these by id
        for event in child_events:
            assert await store.locate(WORKSPACE, child.id, event.id) == event.seq
        grandchild_events = await read_history(store, await fork(store, child, child.last_seq))
        assert {event.id for event in grandchild_events} & {
            event.id for event in child_events
        } == shared

    async def test_fork_does_not_inherit_the_cost_of_its_parent(self, store: Store) -> None:
        parent = await create_session_with_turn(store)
        child = await fork(store, parent, parent.last_seq)
        assert parent.usage.input_tokens == 100
        assert child.usage == Usage()
        assert (parent.running_time, child.running_time) == (7_000_000, 0)

    async def test_fork_of_an_archived_or_trashed_session_is_active(self, store: Store) -> None:
        for change in (InfoChanged(archived=True), InfoChanged(deleted=True)):
            parent = await create_session(store, user_message("one"), change)
            child = await fork(store, parent, parent.last_seq)
            assert child.state == "active"
            assert await store.get(WORKSPACE, parent.id) == parent

    async def test_parent_and_fork_continue_independently(self, store: Store) -> None:
        parent = await create_session(store, user_message("shared"))
        child = await fork(store, parent, 2)
        await append_events(store, parent, user_message("parent"))
        await append_events(store, child, user_message("child"))
        assert message_texts(await read_history(store, parent)) == ["shared", "parent"]
        assert message_texts(await read_history(store, child)) == ["shared", "child"]
        await store.purge(WORKSPACE, parent.id, allow_purge)
        assert message_texts(await read_history(store, child)) == ["shared", "child"]
        assert await search_ids(store, "shared") == {child.id}

    async def test_search_finds_a_fork_by_inherited_words(self, store: Store) -> None:
        parent = await create_session(store, user_message("shared"), user_message("later"))
        child = await fork(store, parent, 2)
        assert await search_ids(store, "shared") == {parent.id, child.id}
        assert await search_ids(store, "later") == {parent.id}

    async def test_tail_function_gets_the_row_at_the_fork_point(self, store: Store) -> None:
        parent = await create_session_with_turn(store)
        seen: list[Session] = []

        def tail(session: Session) -> list[InfoChanged]:
            seen.append(session)
            return [title_change("a fork")]

        child = await fork(store, parent, 6, tail)
        assert (seen[-1].last_seq, seen[-1].open_calls) == (6, ("one", "two"))
        assert (child.last_seq, child.title) == (7, "a fork")
        await check_projection(store, child)

    async def test_a_fork_can_be_forked(self, store: Store) -> None:
        parent = await create_session(store, user_message("one"), user_message("two"))
        child = await fork(store, parent, 3)
        child = await append_events(store, child, user_message("three"))
        grandchild = await fork(store, child, child.last_seq)
        assert message_texts(await read_history(store, grandchild)) == ["one", "two", "three"]

    async def test_failed_fork_stores_nothing(self, store: Store) -> None:
        parent = await create_session(store, user_message("one"))
        id = ids.new_id()
        for upto in (-1, 0, 3):
            with pytest.raises(InvalidInput):
                await fork(store, parent, upto, id=id)
        with pytest.raises(Refused):
            await fork(store, parent, 2, refuse, id=id)
        assert await store.get(WORKSPACE, id) is None
        with pytest.raises(Conflict):
            await fork(store, parent, 2, id=parent.id)
        assert await store.get(WORKSPACE, parent.id) == parent

    async def test_a_session_of_another_workspace_cannot_be_forked(self, store: Store) -> None:
        parent = await create_session(store, workspace=OTHER_WORKSPACE)
        created = Draft(body=Created(cwd="/"))
        with pytest.raises(NotFound):
            await store.fork(WORKSPACE, parent.id, ids.new_id(), 1, created, no_events)

    async def test_long_history_is_forked_completely(self, store: Store) -> None:
        parent = await create_session(store, *(user_message(f"line {i}") for i in range(3_000)))
        child = await fork(store, parent, 2_501)
        assert (child.messages, child.last_seq) == (2_500, 2_501)
        last = await store.events(WORKSPACE, child.id, limit=1, backward=True)
        assert message_texts(last) == ["line 2499"]
