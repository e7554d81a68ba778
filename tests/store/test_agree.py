"""All stores agree: the same operations in any sequence have the same results.

A state machine does the same random operations on a MemoryStore and on another store. The clock
stands still unless the machine moves it, and the machine chooses all ids, so results are equal.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from segue.hub.turns.end_turn import fork_tail_events
from segue.model import clock, ids, projection, search_text
from segue.model.content import as_content
from segue.model.cursor import ChangePoint
from segue.model.errors import SegueError
from segue.model.event import AgentMessage, Created, Delta, Draft, Drafts, ForkPoint
from segue.model.query import Position, Query, position
from segue.model.session import Session
from segue.store.base import InboxItem, Lease, Store
from segue.store.memory import MemoryStore
from tests.store.strategies import (
    NOON,
    Change,
    change_lists,
    creations,
    sparse_queries,
    texts,
    times,
)

T = TypeVar("T")
Name = tuple[str, str]  # workspace and id

WORKSPACES = ("this", "that")
HOLDERS = ("one", "two")


class Agreement(RuleBasedStateMachine):
    """Runs operations on several stores; the others must answer like the first."""

    sessions = Bundle("sessions")
    change_points = Bundle("change_points")
    leases = Bundle("leases")
    items = Bundle("items")
    _examples = count()

    def __init__(self, loop: asyncio.AbstractEventLoop, others: Sequence[Store]) -> None:
        super().__init__()
        self.loop = loop
        self.stores: list[Store] = [MemoryStore(), *others]
        # The other stores are used by all examples; each example has its own workspaces there.
        example = next(self._examples)
        self.scoped_names = {name: f"{name}-{example}" for name in (*WORKSPACES, *HOLDERS)}
        self.names: set[Name] = set()
        self.id_count = 0
        self.time = NOON
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(clock, "now", lambda: self.time)

    def teardown(self) -> None:
        try:
            for name in self.names:
                self.check_history(name)
                self.purge_session(name)
        finally:
            self.patch.undo()

    # Helpers.

    def call_each(self, call: Callable[[int, Store], Awaitable[T]]) -> list[T]:
        """Return the answer of each store. All stores must raise the same error, or none."""

        async def answer(number: int, store: Store) -> T | type[SegueError]:
            try:
                return await call(number, store)
            except SegueError as error:
                return type(error)

        async def all_answers() -> list[T | type[SegueError]]:
            return [await answer(number, store) for number, store in enumerate(self.stores)]

        answers = self.loop.run_until_complete(all_answers())
        refusals = [answer if isinstance(answer, type) else None for answer in answers]
        assert refusals == refusals[:1] * len(refusals)
        return [answer for answer in answers if not isinstance(answer, type)]

    def same(self, call: Callable[[Store], Awaitable[T]]) -> T | None:
        """Return the answer that all stores give; None if all raise an error."""
        return self.equal(self.call_each(lambda _, store: call(store)))

    def equal(self, answers: list[T]) -> T | None:
        for answer in answers[1:]:
            assert answer == answers[0]
        return answers[0] if answers else None

    def drafts(self, changes: Sequence[Change]) -> list[Draft]:
        return [Draft(body=body, id=self.new_id(), at=at) for body, at in changes]

    def new_id(self) -> str:
        self.id_count += 1
        return ids.derived_id("event", str(self.id_count))

    def check_history(self, name: Name) -> None:
        events = self.same(lambda store: store.events(*name))
        row = self.same(lambda store: store.get(*name))
        if events is None:
            assert row is None
        else:
            assert row == projection.project(*name, events)

    # Sessions.

    @initialize(target=sessions, created=creations)
    def begin(self, created: Created) -> Name:
        return self.create_session("this", 0, created, [])

    @rule(
        target=sessions,
        workspace=st.sampled_from(WORKSPACES),
        number=st.integers(0, 30),
        created=creations,
        changes=change_lists,
    )
    def create(self, workspace: str, number: int, created: Created, changes: list[Change]) -> Name:
        return self.create_session(workspace, number, created, changes)

    def create_session(
        self, workspace: str, number: int, created: Created, changes: list[Change]
    ) -> Name:
        name = self.scoped_names[workspace], ids.derived_id("session", str(number))
        drafts = self.drafts([(created, None), *changes])
        self.same(lambda store: store.create(*name, drafts))
        self.names.add(name)
        return name

    @rule(name=sessions, changes=change_lists)
    def append(self, name: Name, changes: list[Change]) -> None:
        drafts = self.drafts(changes)
        self.same(lambda store: store.change(*name, lambda _: drafts))
        self.same(lambda store: store.change(*name, lambda _: drafts))  # nothing is added twice
        self.check_history(name)

    @rule(name=sessions, lease=leases, item=items, changes=change_lists)
    def append_in_turn(
        self,
        name: Name,
        lease: Lease,
        item: list[InboxItem],
        changes: list[Change],
    ) -> None:
        drafts = self.drafts(changes)
        self.call_each(
            lambda number, store: store.change(
                *name, lambda _: drafts, lease=lease, consume=[item[number].number]
            )
        )
        self.check_history(name)

    @rule(target=sessions, name=sessions, number=st.integers(0, 30), upto=st.integers(0, 12))
    def fork(self, name: Name, number: int, upto: int) -> Name:
        workspace, parent = name
        child = workspace, ids.derived_id("session", str(number))
        point = ForkPoint(session=parent, seq=upto)
        created = Draft(body=Created(cwd="/a", fork=point), id=self.new_id())
        tail_ids = [self.new_id() for _ in range(8)]

        def tail(session: Session) -> Drafts:
            bodies = fork_tail_events(session)
            return [Draft(body=body, id=id) for body, id in zip(bodies, tail_ids, strict=False)]

        self.same(lambda store: store.fork(*name, child[1], upto, created, tail))
        self.names.add(child)
        return child

    @rule(target=sessions, name=sessions)
    def load(self, name: Name) -> Name:
        """Copy a session to the other workspace."""
        here, there = (self.scoped_names[workspace] for workspace in WORKSPACES)
        copy = there if name[0] == here else here, name[1]
        if events := self.same(lambda store: store.events(*name)):
            self.same(lambda store: store.load(*copy, events))
            self.names.add(copy)
        return copy

    @rule(name=consumes(sessions))
    def purge(self, name: Name) -> None:
        self.purge_session(name)

    def purge_session(self, name: Name) -> None:
        self.same(lambda store: store.purge(*name, lambda _: None))

    @rule(
        name=sessions,
        after=st.integers(-1, 9),
        before=st.none() | st.integers(0, 9),
        types=st.lists(st.sampled_from(("user_message", "info_changed")), max_size=2),
        since=st.none() | times,
        until=st.none() | times,
        limit=st.integers(1, 4),
        backward=st.booleans(),
    )
    def read(self, name: Name, **options: Any) -> None:
        self.same(lambda store: store.events(*name, **options))

    # Lists.

    @rule(workspace=st.sampled_from(WORKSPACES), query=sparse_queries(), backward=st.booleans())
    def walk(self, workspace: str, query: Query, backward: bool) -> None:
        scope = self.scoped_names[workspace]
        sessions: list[Session] = []

        async def next_page(store: Store) -> list[Session]:
            after = position(sessions[-1], query.order) if sessions else None
            return await store.page(scope, query, after, backward=backward)

        while page := self.same(next_page):
            sessions += page[::-1] if backward else page
        down = query.descending != backward
        in_order = sorted(sessions, key=lambda row: position(row, query.order), reverse=down)
        assert sessions == in_order
        if query.text is not None:
            terms = search_text.terms(query.text)
            self.same(lambda store: store.newest_matches(scope, sessions, terms))
            ranked = replace(query, limit=1000)
            for hits in self.call_each(lambda _, store: store.ranked(scope, ranked)):
                assert {hit.session.id for hit in hits} == {row.id for row in sessions}

    @rule(
        workspace=st.sampled_from(WORKSPACES),
        query=sparse_queries(),
        at=times,
        after=st.integers(0, 30),
    )
    def seek(self, workspace: str, query: Query, at: int, after: int) -> None:
        after_position = Position(at, ids.derived_id("session", str(after)))
        scope = self.scoped_names[workspace]
        self.same(lambda store: store.page(scope, query, after_position))
        self.same(lambda store: store.page(scope, query, after_position, backward=True))

    @rule(target=change_points, workspace=st.sampled_from(WORKSPACES))
    def take_change_point(self, workspace: str) -> list[ChangePoint]:
        return self.call_each(lambda _, store: store.change_point(self.scoped_names[workspace]))

    @rule(workspace=st.sampled_from(WORKSPACES), points=change_points, query=sparse_queries())
    def sweep(self, workspace: str, points: list[ChangePoint], query: Query) -> None:
        sessions: list[Session] = []

        async def next_page(number: int, store: Store) -> list[Session]:
            after = sessions[-1].id if sessions else ""
            return await store.sweep(self.scoped_names[workspace], query, points[number], after)

        while page := self.equal(self.call_each(next_page)):
            sessions += page

    @rule(state=st.sampled_from(("active", "archived", "trashed")), before=times)
    def stale(self, state: Any, before: int) -> None:
        scope = self.scoped_names["this"]
        rows = self.call_each(lambda _, store: store.stale(scope, state, before, 1000))
        self.equal([{row.id for row in answer} for answer in rows])

    # Turns.

    @rule(ticks=st.integers(1, 4))
    def wait(self, ticks: int) -> None:
        self.time += ticks

    @rule(target=leases, name=sessions, holder=st.sampled_from(HOLDERS), over=st.none() | leases)
    def acquire(self, name: Name, holder: str, over: Lease | None) -> Lease:
        leases = self.call_each(
            lambda _, store: store.acquire(*name, self.scoped_names[holder], over=over)
        )
        workspace, session = name
        missing = Lease(workspace=workspace, session=session, holder="none", epoch=1)
        return self.equal(leases) or missing

    @rule(holder=st.sampled_from(HOLDERS))
    def renew(self, holder: str) -> None:
        self.same(lambda store: store.renew(self.scoped_names[holder]))

    @rule(lease=leases)
    def release(self, lease: Lease) -> None:
        self.same(lambda store: store.release(lease))

    @rule(
        target=items,
        name=sessions,
        kind=st.sampled_from(("prompt", "cancel")),
        body=st.dictionaries(st.just("text"), texts),
    )
    def put_inbox(self, name: Name, kind: Any, body: dict[str, Any]) -> list[InboxItem]:
        id = self.new_id()
        items = self.call_each(lambda _, store: store.put_inbox(*name, kind, id, body))
        self.equal([plain(item) for item in items])
        nothing = InboxItem(number=0, session=name[1], kind="prompt", id=id, at=0)
        return items or [nothing for _ in self.stores]

    @rule(name=sessions, item=items)
    def drop(self, name: Name, item: list[InboxItem]) -> None:
        dropped = self.call_each(
            lambda number, store: store.drop_inbox(*name, [item[number].number])
        )
        self.equal([len(numbers) for numbers in dropped])

    @rule(lease=leases, text=texts, stored=st.booleans())
    def stream(self, lease: Lease, text: str, stored: bool) -> None:
        message = self.new_id()
        delta = Delta(session=lease.session, message=message, kind="message", offset=0, text=text)
        self.same(lambda store: store.put_deltas(lease, [delta]))
        if stored:
            name = lease.workspace, lease.session
            draft = Draft(body=AgentMessage(content=as_content(text)), id=message)
            self.same(lambda store: store.change(*name, lambda _: [draft], lease=lease))

    @invariant()
    def stores_hold_the_same(self) -> None:
        self.same(self.contents)

    async def contents(self, store: Store) -> dict[str, Any]:
        rows = {name: row for name in self.names if (row := await store.get(*name))}
        leases = {name: await store.lease_of(*name) for name in self.names}
        held = [lease for lease in await store.leases() if self.is_ours(lease.workspace)]
        return {
            "rows": rows,
            "leases": leases,
            "held": set(held),
            "inboxes": {n: [plain(item) for item in await store.inbox(*n)] for n in rows},
            "waiting": {n for n in await store.waiting() if self.is_ours(n[0])},
            "deltas": {name: await store.deltas(*name) for name in rows},
            "usage": [await store.usage(self.scoped_names[name]) for name in WORKSPACES],
        }

    def is_ours(self, workspace: str) -> bool:
        return workspace in self.scoped_names.values()


# Numbers are any that rise.


def plain(item: InboxItem) -> InboxItem:
    return replace(item, number=0, at=0)


def agree(
    loop: asyncio.AbstractEventLoop, other: Store, runs: int, examples: int, steps: int
) -> None:
    for _ in range(runs):  # several short ones, since hypothesis remembers all of a run
        run_state_machine_as_test(
            lambda: Agreement(loop, [other]),  # type: ignore[arg-type]  # any factory will do
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


depths = pytest.mark.parametrize(
    ("runs", "examples", "steps"),
    [pytest.param(1, 20, 25), pytest.param(12, 40, 60, marks=pytest.mark.full)],
)


@depths
def test_sqlite_agrees_with_memory(
    loop: asyncio.AbstractEventLoop, sqlite: Store, runs: int, examples: int, steps: int
) -> None:
    agree(loop, sqlite, runs, examples, steps)


@depths
@pytest.mark.usefixtures("low_limits")
def test_sqlite_agrees_with_memory_with_low_limits(
    loop: asyncio.AbstractEventLoop, sqlite: Store, runs: int, examples: int, steps: int
) -> None:
    agree(loop, sqlite, runs, examples, steps)


@depths
def test_postgres_agrees_with_memory(
    loop: asyncio.AbstractEventLoop, postgres: Store, runs: int, examples: int, steps: int
) -> None:
    agree(loop, postgres, runs, examples, steps)
