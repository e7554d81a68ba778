"""Forks: a new session out of the beginning of another, cut at any event."""

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

from .harness import (
    HERE,
    THERE,
    Contract,
    Refused,
    add,
    agent,
    anyway,
    check_fold,
    draft,
    found,
    history,
    make,
    nothing,
    refuse,
    status,
    texts,
    titled,
    user,
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


def as_told(events: Sequence[Event]) -> list[tuple[int, int, AnyBody]]:
    """Events without their ids."""
    return [(event.seq, event.at, event.body) for event in events]


async def a_turn(store: Store) -> Session:
    """A session with a whole turn in it: 10 events."""
    return await make(
        store,
        draft(user("do it"), 1),
        draft(status("running", turn="t"), 2),
        draft(ToolCall(call_id="one", name="run"), 3),
        draft(PermissionAsked(ask_id="ask", title="may I?", options=()), 4),
        draft(ToolCall(call_id="two", name="run"), 5),
        draft(ToolResult(call_id="one"), 6),
        draft(ModelCalled(usage=Usage(input_tokens=100)), 7),
        draft(agent("done"), 8),
        draft(status("idle"), 9),
    )


class ForkContract(Contract):
    async def test_a_fork_can_be_cut_at_every_event(self, store: Store) -> None:
        parent = await a_turn(store)
        events = await history(store, parent)
        for upto in range(1, parent.last_seq + 1):
            child = await fork(store, parent, upto)
            copied = await history(store, child)
            assert as_told(copied[1:upto]) == as_told(events[1:upto])
            assert child.fork == ForkPoint(session=parent.id, seq=upto)
            assert (child.status, child.turn) == ("idle", None)
            assert (child.open_calls, child.open_asks) == ((), ())
            assert await store.get(HERE, child.id) == child
            await check_fold(store, child)

    async def test_a_fork_between_a_call_and_its_result_closes_the_call(self, store: Store) -> None:
        parent = await a_turn(store)
        child = await fork(store, parent, 6)
        results = await store.events(HERE, child.id, types=["tool_result"])
        bodies = [event.body for event in results]
        assert [(body.call_id, body.status) for body in bodies if isinstance(body, ToolResult)] == [
            ("one", "cancelled"),
            ("two", "cancelled"),
        ]
        assert child.last_seq > 6

    async def test_a_fork_has_its_own_creation_and_id(self, store: Store) -> None:
        parent = await a_turn(store)
        child = await store.fork(
            HERE, parent.id, ids.new_id(), 2, draft(Created(cwd="/other"), 50), nothing
        )
        assert (child.cwd, child.created_at - parent.created_at) == ("/other", 50_000_000)
        first, second = await history(store, child)
        assert first.body == Created(cwd="/other")
        assert as_told([second]) == as_told((await history(store, parent))[1:2])

    async def test_the_events_of_a_fork_have_ids_of_their_own(self, store: Store) -> None:
        parent = await a_turn(store)
        await add(store, parent, ModelAsked())
        child = await fork(store, parent, parent.last_seq + 1)
        theirs, own = await history(store, parent), await history(store, child)
        shared = {event.id for event in theirs} & {event.id for event in own}
        named = [event for event in own if event.id in shared]
        assert [event.type for event in named] == [
            "permission_asked",
            "model_called",
            "model_asked",
        ]  # which are looked for by their ids
        for event in own:
            assert await store.locate(HERE, child.id, event.id) == event.seq
        again = await history(store, await fork(store, child, child.last_seq))
        assert {event.id for event in again} & {event.id for event in own} == shared

    async def test_what_the_parent_cost_is_not_the_forks(self, store: Store) -> None:
        parent = await a_turn(store)
        child = await fork(store, parent, parent.last_seq)
        assert parent.usage.input_tokens == 100
        assert child.usage == Usage()
        assert (parent.running_time, child.running_time) == (7_000_000, 0)

    async def test_a_fork_of_a_shelved_session_is_on_no_shelf(self, store: Store) -> None:
        for shelved in (InfoChanged(archived=True), InfoChanged(deleted=True)):
            parent = await make(store, user("one"), shelved)
            child = await fork(store, parent, parent.last_seq)
            assert child.state == "active"
            assert await store.get(HERE, parent.id) == parent

    async def test_parent_and_fork_go_on_apart(self, store: Store) -> None:
        parent = await make(store, user("shared"))
        child = await fork(store, parent, 2)
        await add(store, parent, user("parent"))
        await add(store, child, user("child"))
        assert texts(await history(store, parent)) == ["shared", "parent"]
        assert texts(await history(store, child)) == ["shared", "child"]
        await store.purge(HERE, parent.id, anyway)
        assert texts(await history(store, child)) == ["shared", "child"]
        assert await found(store, "shared") == {child.id}

    async def test_a_fork_is_found_by_the_words_it_took_over(self, store: Store) -> None:
        parent = await make(store, user("shared"), user("later"))
        child = await fork(store, parent, 2)
        assert await found(store, "shared") == {parent.id, child.id}
        assert await found(store, "later") == {parent.id}

    async def test_the_tail_sees_the_row_at_the_cut(self, store: Store) -> None:
        parent = await a_turn(store)
        seen: list[Session] = []

        def tail(session: Session) -> list[InfoChanged]:
            seen.append(session)
            return [titled("a fork")]

        child = await fork(store, parent, 6, tail)
        assert (seen[-1].last_seq, seen[-1].open_calls) == (6, ("one", "two"))
        assert (child.last_seq, child.title) == (7, "a fork")
        await check_fold(store, child)

    async def test_a_fork_can_be_forked(self, store: Store) -> None:
        parent = await make(store, user("one"), user("two"))
        child = await fork(store, parent, 3)
        child = await add(store, child, user("three"))
        grandchild = await fork(store, child, child.last_seq)
        assert texts(await history(store, grandchild)) == ["one", "two", "three"]

    async def test_a_fork_that_cannot_be_leaves_nothing(self, store: Store) -> None:
        parent = await make(store, user("one"))
        id = ids.new_id()
        for upto in (-1, 0, 3):
            with pytest.raises(InvalidInput):
                await fork(store, parent, upto, id=id)
        with pytest.raises(Refused):
            await fork(store, parent, 2, refuse, id=id)
        assert await store.get(HERE, id) is None
        with pytest.raises(Conflict):
            await fork(store, parent, 2, id=parent.id)
        assert await store.get(HERE, parent.id) == parent

    async def test_a_session_of_another_workspace_cannot_be_forked(self, store: Store) -> None:
        parent = await make(store, workspace=THERE)
        created = Draft(body=Created(cwd="/"))
        with pytest.raises(NotFound):
            await store.fork(HERE, parent.id, ids.new_id(), 1, created, nothing)

    async def test_a_long_history_is_forked_whole(self, store: Store) -> None:
        parent = await make(store, *(user(f"line {i}") for i in range(3_000)))
        child = await fork(store, parent, 2_501)
        assert (child.messages, child.last_seq) == (2_500, 2_501)
        last = await store.events(HERE, child.id, limit=1, backward=True)
        assert texts(last) == ["line 2499"]
