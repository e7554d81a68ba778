"""All stores agree: the same operations in any sequence have the same results.

A machine does random things to a MemoryStore and to another store side by side. Time stands still
unless the machine moves it, and all ids are given, so that results can be compared as they are.
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
from tests.store.strategies import NOON, Happening, creations, happenings, sparse, texts, times

T = TypeVar("T")
Name = tuple[str, str]  # workspace and id

WORKSPACES = ("this", "that")
HOLDERS = ("one", "two")
lifetimes = st.sampled_from((0, 3600 * clock.SECOND))  # of leases: none, or longer than the test


class Agreement(RuleBasedStateMachine):
    """Operations on several stores at once; the first says what the others must."""

    sessions = Bundle("sessions")
    moments = Bundle("moments")
    leases = Bundle("leases")
    items = Bundle("items")
    _examples = count()

    def __init__(self, loop: asyncio.AbstractEventLoop, others: Sequence[Store]) -> None:
        super().__init__()
        self.loop = loop
        self.stores: list[Store] = [MemoryStore(), *others]
        # The other stores live on from example to example; each has rooms of its own there.
        example = next(self._examples)
        self.room = {name: f"{name}-{example}" for name in (*WORKSPACES, *HOLDERS)}
        self.names: set[Name] = set()
        self.made = 0
        self.time = NOON
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(clock, "now", lambda: self.time)

    def teardown(self) -> None:
        try:
            for name in self.names:
                self.check_history(name)
                self.purge_it(name)
        finally:
            self.patch.undo()

    # How it is done.

    def each(self, call: Callable[[int, Store], Awaitable[T]]) -> list[T]:
        """What each store answers. One that refuses must refuse in the same way as the others."""

        async def answer(number: int, store: Store) -> T | type[SegueError]:
            try:
                return await call(number, store)
            except SegueError as error:
                return type(error)

        async def all_answers() -> list[T | type[SegueError]]:
            return [await answer(number, store) for number, store in enumerate(self.stores)]

        answers = self.loop.run_until_complete(all_answers())
        refusals = [each if isinstance(each, type) else None for each in answers]
        assert refusals == refusals[:1] * len(refusals)
        return [each for each in answers if not isinstance(each, type)]

    def same(self, call: Callable[[Store], Awaitable[T]]) -> T | None:
        """The answer that all give; None if all refuse."""
        return self.equal(self.each(lambda _, store: call(store)))

    def equal(self, answers: list[T]) -> T | None:
        for answer in answers[1:]:
            assert answer == answers[0]
        return answers[0] if answers else None

    def drafts(self, happened: Sequence[Happening]) -> list[Draft]:
        return [Draft(body=body, id=self.new_id(), at=at) for body, at in happened]

    def new_id(self) -> str:
        self.made += 1
        return ids.derived_id("event", str(self.made))

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
        return self.make("this", 0, created, [])

    @rule(
        target=sessions,
        workspace=st.sampled_from(WORKSPACES),
        number=st.integers(0, 30),
        created=creations,
        happened=happenings,
    )
    def create(
        self, workspace: str, number: int, created: Created, happened: list[Happening]
    ) -> Name:
        return self.make(workspace, number, created, happened)

    def make(
        self, workspace: str, number: int, created: Created, happened: list[Happening]
    ) -> Name:
        name = self.room[workspace], ids.derived_id("session", str(number))
        drafts = self.drafts([(created, None), *happened])
        self.same(lambda store: store.create(*name, drafts))
        self.names.add(name)
        return name

    @rule(name=sessions, happened=happenings)
    def append(self, name: Name, happened: list[Happening]) -> None:
        drafts = self.drafts(happened)
        self.same(lambda store: store.change(*name, lambda _: drafts))
        self.same(lambda store: store.change(*name, lambda _: drafts))  # nothing is added twice
        self.check_history(name)

    @rule(name=sessions, held=leases, item=items, happened=happenings)
    def append_in_turn(
        self,
        name: Name,
        held: Lease,
        item: list[InboxItem],
        happened: list[Happening],
    ) -> None:
        drafts = self.drafts(happened)
        self.each(
            lambda number, store: store.change(
                *name, lambda _: drafts, lease=held, consume=[item[number].number]
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
        """A copy in the other workspace."""
        here, there = (self.room[workspace] for workspace in WORKSPACES)
        copy = there if name[0] == here else here, name[1]
        if events := self.same(lambda store: store.events(*name)):
            self.same(lambda store: store.load(*copy, events))
            self.names.add(copy)
        return copy

    @rule(name=consumes(sessions))
    def purge(self, name: Name) -> None:
        self.purge_it(name)

    def purge_it(self, name: Name) -> None:
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
    def read(self, name: Name, **asked: Any) -> None:
        self.same(lambda store: store.events(*name, **asked))

    # Lists.

    @rule(workspace=st.sampled_from(WORKSPACES), query=sparse(), backward=st.booleans())
    def walk(self, workspace: str, query: Query, backward: bool) -> None:
        room = self.room[workspace]
        found: list[Session] = []

        async def next_page(store: Store) -> list[Session]:
            after = position(found[-1], query.order) if found else None
            return await store.page(room, query, after, backward=backward)

        while page := self.same(next_page):
            found += page[::-1] if backward else page
        down = query.descending != backward
        in_order = sorted(found, key=lambda row: position(row, query.order), reverse=down)
        assert found == in_order
        if query.text is not None:
            wanted = search_text.terms(query.text)
            self.same(lambda store: store.newest_matches(room, found, wanted))
            ranked = replace(query, limit=1000)
            for hits in self.each(lambda _, store: store.ranked(room, ranked)):
                assert {hit.session.id for hit in hits} == {row.id for row in found}

    @rule(workspace=st.sampled_from(WORKSPACES), query=sparse(), at=times, after=st.integers(0, 30))
    def seek(self, workspace: str, query: Query, at: int, after: int) -> None:
        place = Position(at, ids.derived_id("session", str(after)))
        room = self.room[workspace]
        self.same(lambda store: store.page(room, query, place))
        self.same(lambda store: store.page(room, query, place, backward=True))

    @rule(target=moments, workspace=st.sampled_from(WORKSPACES))
    def mark(self, workspace: str) -> list[ChangePoint]:
        return self.each(lambda _, store: store.change_point(self.room[workspace]))

    @rule(workspace=st.sampled_from(WORKSPACES), moment=moments, query=sparse())
    def sweep(self, workspace: str, moment: list[ChangePoint], query: Query) -> None:
        found: list[Session] = []

        async def next_page(number: int, store: Store) -> list[Session]:
            after = found[-1].id if found else ""
            return await store.sweep(self.room[workspace], query, moment[number], after)

        while page := self.equal(self.each(next_page)):
            found += page

    @rule(state=st.sampled_from(("active", "archived", "trashed")), before=times)
    def stale(self, state: Any, before: int) -> None:
        room = self.room["this"]
        rows = self.each(lambda _, store: store.stale(room, state, before, 1000))
        self.equal([{row.id for row in each} for each in rows])

    # Turns.

    @rule(ticks=st.integers(1, 4))
    def wait(self, ticks: int) -> None:
        self.time += ticks

    @rule(target=leases, name=sessions, holder=st.sampled_from(HOLDERS), ttl=lifetimes)
    def acquire(self, name: Name, holder: str, ttl: int) -> Lease:
        given = self.each(lambda _, store: store.acquire(*name, self.room[holder], ttl))
        workspace, session = name
        nobodys = Lease(
            workspace=workspace, session=session, holder="nobody", epoch=1, expires_at=0
        )
        return self.equal([timeless(lease) for lease in given]) or nobodys

    @rule(holder=st.sampled_from(HOLDERS), ttl=lifetimes)
    def renew(self, holder: str, ttl: int) -> None:
        self.same(lambda store: store.renew(self.room[holder], ttl))

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
        items = self.each(lambda _, store: store.put_inbox(*name, kind, id, body))
        self.equal([plain(item) for item in items])
        nothing = InboxItem(number=0, session=name[1], kind="prompt", id=id, at=0)
        return items or [nothing for _ in self.stores]

    @rule(name=sessions, item=items)
    def drop(self, name: Name, item: list[InboxItem]) -> None:
        dropped = self.each(lambda number, store: store.drop_inbox(*name, [item[number].number]))
        self.equal([len(numbers) for numbers in dropped])

    @rule(lease=leases, said=texts, stored=st.booleans())
    def stream(self, lease: Lease, said: str, stored: bool) -> None:
        message = self.new_id()
        delta = Delta(session=lease.session, message=message, kind="message", offset=0, text=said)
        self.same(lambda store: store.put_deltas(lease, [delta]))
        if stored:
            name = lease.workspace, lease.session
            draft = Draft(body=AgentMessage(content=as_content(said)), id=message)
            self.same(lambda store: store.change(*name, lambda _: [draft], lease=lease))

    @invariant()
    def stores_hold_the_same(self) -> None:
        self.same(self.contents)

    async def contents(self, store: Store) -> dict[str, Any]:
        rows = {name: row for name in self.names if (row := await store.get(*name))}
        leases = {name: await store.lease_of(*name) for name in self.names}
        expired = [lease for lease in await store.expired_leases() if self.is_ours(lease.workspace)]
        return {
            "rows": rows,
            "leases": {name: timeless(lease) for name, lease in leases.items()},
            "expired": {timeless(lease) for lease in expired},
            "inboxes": {n: [plain(item) for item in await store.inbox(*n)] for n in rows},
            "waiting": {n for n in await store.waiting_prompts(clock.LATEST) if self.is_ours(n[0])},
            "deltas": {name: await store.deltas(*name) for name in rows},
        }

    def is_ours(self, workspace: str) -> bool:
        return workspace in self.room.values()


# A store shared by machines keeps leases by its own clock, and numbers are any that rise.


def timeless(lease: Lease | None) -> Lease | None:
    return None if lease is None else replace(lease, expires_at=0)


def plain(item: InboxItem) -> InboxItem:
    return replace(item, number=0, at=0)


def agree(loop: asyncio.AbstractEventLoop, other: Store, runs: int, steps: int) -> None:
    for _ in range(runs):  # several short ones, since hypothesis remembers all of a run
        run_state_machine_as_test(
            lambda: Agreement(loop, [other]),  # type: ignore[arg-type]  # any factory will do
            settings=settings(
                max_examples=40,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


depths = pytest.mark.parametrize(
    ("runs", "steps"), [pytest.param(1, 25), pytest.param(12, 60, marks=pytest.mark.full)]
)


@depths
def test_sqlite_agrees_with_memory(
    loop: asyncio.AbstractEventLoop, sqlite: Store, runs: int, steps: int
) -> None:
    agree(loop, sqlite, runs, steps)


@depths
@pytest.mark.usefixtures("few_are_many")
def test_sqlite_agrees_with_memory_among_many(
    loop: asyncio.AbstractEventLoop, sqlite: Store, runs: int, steps: int
) -> None:
    agree(loop, sqlite, runs, steps)


@depths
def test_postgres_agrees_with_memory(
    loop: asyncio.AbstractEventLoop, postgres: Store, runs: int, steps: int
) -> None:
    agree(loop, postgres, runs, steps)
