"""Change many sessions in one transaction.

While one group is committed, the next one gathers, so concurrent writers of a process share the
round trips and the sync of a commit. A change that fails does not affect the rest of its group. A
session that another transaction has locked delays no other: its change gets its own transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from segue.model import clock, errors
from segue.model.event import Draft, Drafts, Event
from segue.model.session import Session, decode_session
from segue.store.base import EventDecider, Lease, append_drafts, finished_messages, lease_lost

from .appends import Change, write_changes
from .connection import Connection, Database

MAX_GROUP = 128
# While the server works on one group, this process prepares another one.
MAX_CONCURRENT_GROUPS = 2

# The sessions are locked in the order of the parameters, so that groups of several processes do not
# wait for each other in a circle.
_LOCK = """
    SELECT n.number, s.pk, s.row, l.holder, l.epoch
    FROM unnest($1::text[], $2::text[], $3::int[]) WITH ORDINALITY
      AS n (workspace, id, has_lease, number)
    CROSS JOIN LATERAL (
      SELECT pk, row FROM sessions
      WHERE workspace = n.workspace COLLATE "C" AND id = n.id COLLATE "C"
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS s
    LEFT JOIN LATERAL (
      SELECT holder, epoch FROM leases WHERE n.has_lease = 1 AND session = s.pk
      FOR NO KEY UPDATE SKIP LOCKED
    ) AS l ON true
"""

Name = tuple[str, str]
Changed = tuple[Session, list[Event]]


class ChangeRequest(NamedTuple):
    """A change that a caller waits for."""

    name: Name  # workspace and session
    decide: EventDecider
    lease: Lease | None
    future: asyncio.Future[Changed]


class GroupWriter:
    """Commit changes in groups. `alone` makes one change in its own transaction."""

    def __init__(
        self, database: Database, alone: Callable[[ChangeRequest], Awaitable[Changed]]
    ) -> None:
        self._database = database
        self._alone = alone
        self._queue: list[ChangeRequest] = []
        self._busy: set[Name] = set()  # the sessions of the groups that are being committed
        self._committing = 0  # groups
        self._tasks: set[asyncio.Task[None]] = set()

    async def change(self, name: Name, decide: EventDecider, lease: Lease | None) -> Changed:
        """Return the session after a change and the new events, once they are committed."""
        request = ChangeRequest(name, decide, lease, asyncio.get_running_loop().create_future())
        self._queue.append(request)
        self._begin_group()
        return await request.future

    def _begin_group(self) -> None:
        """Begin in the next iteration of the loop: other tasks of this one join the group."""
        if self._queue and self._committing < MAX_CONCURRENT_GROUPS:
            self._committing += 1
            self._spawn(self._commit_groups())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_groups(self) -> None:
        try:
            while group := self._take_group():
                await self._commit(group)
        finally:
            self._committing -= 1

    def _take_group(self) -> list[ChangeRequest]:
        """Remove the next changes from the queue, except those of sessions that are changed now."""
        group: list[ChangeRequest] = []
        left: list[ChangeRequest] = []
        for request in self._queue:
            if request.future.done():  # its caller was cancelled
                continue
            fits = len(group) < MAX_GROUP and request.name not in self._busy
            (group if fits else left).append(request)
        self._queue = left
        return group

    async def _commit(self, group: Sequence[ChangeRequest]) -> None:
        names = {request.name for request in group}
        self._busy |= names
        outcomes: list[Changed | Exception | None] = [None] * len(group)

        async def write(connection: Connection) -> None:
            outcomes[:] = await _write(connection, group)

        try:
            await self._database.transact(write)
        except errors.StoreError as error:
            outcomes = [error] * len(group)
        except Exception:
            outcomes = [None] * len(group)  # one change is refused: find out which
        except BaseException as error:
            _settle(group, [error] * len(group))
            raise
        finally:
            self._busy -= names
        _settle(group, outcomes)
        alone = [
            request for request, outcome in zip(group, outcomes, strict=True) if outcome is None
        ]
        for name in {request.name for request in alone}:
            self._busy.add(name)
            requests = [request for request in alone if request.name == name]
            self._spawn(self._change_alone(name, requests))

    async def _change_alone(self, name: Name, requests: Sequence[ChangeRequest]) -> None:
        """Make changes of a session one by one, each in its own transaction."""
        try:
            for request in requests:
                try:
                    _settle([request], [await self._alone(request)])
                except Exception as error:
                    _settle([request], [error])
        finally:
            self._busy.discard(name)
            self._begin_group()


def _settle(
    group: Sequence[ChangeRequest], outcomes: Sequence[Changed | BaseException | None]
) -> None:
    for request, outcome in zip(group, outcomes, strict=True):
        if request.future.done() or outcome is None:
            continue
        if isinstance(outcome, BaseException):
            request.future.set_exception(outcome)
        else:
            request.future.set_result(outcome)


async def _write(
    connection: Connection, group: Sequence[ChangeRequest]
) -> list[Changed | Exception | None]:
    """Lock the sessions of a group, make its changes, and return the outcome of each.

    The outcome is None for a change that needs its own transaction.
    """
    leased = {request.name for request in group if request.lease is not None}
    names = sorted({request.name for request in group})
    rows = await connection.fetch(
        _LOCK,
        [workspace for workspace, _ in names],
        [id for _, id in names],
        [int(name in leased) for name in names],
    )
    locked = {names[number - 1]: _LockedSession(*row) for number, *row in rows}
    outcomes: list[Changed | Exception | None] = []
    for request in group:
        session = locked.get(request.name)
        outcomes.append(None if session is None else session.apply(request))
    changes = [session.change for session in locked.values() if session.events]
    if changes:
        await write_changes(connection, changes)
    return outcomes


class _LockedSession:
    """A locked row, and the events that the changes of a group add to it."""

    def __init__(self, pk: int, row: bytes, holder: str | None, epoch: int | None) -> None:
        self._pk = pk
        self._before = self._session = decode_session(row)
        self._lease = (holder, epoch)
        self._finished: list[str] = []
        self._left = False  # whether a change was left to its own transaction
        self.events: list[Event] = []

    @property
    def change(self) -> Change:
        return Change(self._pk, self._before, self._session, self.events, self._finished)

    def apply(self, request: ChangeRequest) -> Changed | Exception | None:
        """Add the events of a change; return None if it needs its own transaction."""
        lease = request.lease
        if lease is not None and self._lease != (lease.holder, lease.epoch):
            # Without a row, another transaction has locked the lease.
            self._left = self._left or self._lease[0] is None
            return None if self._left else lease_lost(lease)
        if self._left:  # changes of a session keep their order
            return None
        try:
            drafts = self._without_added(request.decide(self._session))
            session, events = append_drafts(self._session, drafts, clock.now())
        except Exception as error:
            return error
        self._session = session
        self.events += events
        if lease is not None:  # a finished message replaces its deltas
            self._finished += finished_messages(events)
        return session, events

    def _without_added(self, drafts: Drafts) -> Drafts:
        added: set[Any] = {event.id for event in self.events}
        if not added:
            return drafts
        return [draft for draft in drafts if not isinstance(draft, Draft) or draft.id not in added]
