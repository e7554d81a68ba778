"""The queue of a self-hosted environment, whose workers run the tools of sessions.

An item means that a session needs a worker. It is queued, assigned, acknowledged, and active as
long as the worker sends heartbeats. A stopped item is archived. Each step stores the next version
of the record and deletes the previous one, so of two concurrent steps one raises Conflict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal

from msgspec.structs import replace

from segue.model import clock
from segue.model.errors import Conflict, SegueError
from segue.model.query import Position
from segue.model.record import Record, RecordBody
from segue.model.session import Session
from segue.store.base import Store

from .records import (
    DEFAULT_CONFIG,
    INSTALLED,
    MAX_ATTEMPTS,
    EnvironmentBody,
    Records,
    built_in_environment,
    new,
)

DEFAULT_TTL_SECONDS = 300  # within which a worker must send a heartbeat
NO_HEARTBEAT = "NO_HEARTBEAT"  # the value that a worker sends with its first heartbeat
_NEWEST_KIND = "work_of"  # the kind of record that has the id of a session's newest item
BATCH_SIZE = 200
_NEVER = 1 << 62


class WorkBody(RecordBody, frozen=True):
    """The body of an item's record. A time is None until its step was taken."""

    session: str
    state: Literal["queued", "starting", "active", "stopping", "stopped"]
    metadata: dict[str, str]
    ttl: int  # in seconds
    polled_at: int | None = None
    acknowledged_at: int | None = None
    started_at: int | None = None
    latest_heartbeat_at: int | None = None
    stop_requested_at: int | None = None
    stopped_at: int | None = None

    @property
    def is_ending(self) -> bool:
        """Return whether the item is stopping or stopped."""
        return self.state in ("stopping", "stopped")


class NewestWork(RecordBody, frozen=True):
    """The body of the record that has the id of a session's newest item."""

    work: str


class HeartbeatRefused(SegueError):
    """Another worker has sent a heartbeat since, so it holds the item."""

    http_status = 412


def kind(environment: str) -> str:
    """Return the kind of the records of an environment's items."""
    return f"work:{environment}"


class WorkQueue:
    """The queues of all self-hosted environments."""

    def __init__(self, store: Store, records: Records) -> None:
        self._store = store
        self._records = records

    async def runs_on_worker(self, session: Session) -> bool:
        """Return whether a worker runs a session's tools."""
        id = session.environment_id
        if id is None or id == built_in_environment(session.workspace):
            return False
        environment = await self._records.find(session.workspace, "environment", id)
        if environment is None:  # deleted: tools of workers do not run here instead
            return await self._records.find(session.workspace, _NEWEST_KIND, session.id) is not None
        return is_self_hosted(environment)

    async def packages(self, session: Session) -> dict[str, list[str]]:
        """Return the packages of a session's environment by manager, without empty lists."""
        id = session.environment_id
        if id is None or id == built_in_environment(session.workspace):
            return {}
        environment = await self._records.find(session.workspace, "environment", id)
        if environment is None:
            return {}
        config = EnvironmentBody.of(environment).config or DEFAULT_CONFIG
        packages = config.get("packages", {})
        return {manager: packages[manager] for manager in INSTALLED if packages.get(manager)}

    async def networking(self, session: Session) -> dict[str, Any] | None:
        """Return the `networking` of a session's environment; None if it restricts nothing.

        The programs of a session whose environment was deleted reach no host.
        """
        id = session.environment_id
        if id is None or id == built_in_environment(session.workspace):
            return None
        environment = await self._records.find(session.workspace, "environment", id)
        if environment is None:
            return {"type": "limited", "allow_mcp_servers": True}
        config = EnvironmentBody.of(environment).config or DEFAULT_CONFIG
        networking: dict[str, Any] = config.get("networking", {"type": "unrestricted"})
        return None if networking["type"] == "unrestricted" else networking

    async def enqueue(self, session: Session) -> None:
        """Queue an item for a session, unless it has one that is not stopping."""
        if not await self.runs_on_worker(session):
            return
        newest = await self._records.find(session.workspace, _NEWEST_KIND, session.id)
        queue = kind(str(session.environment_id))
        if newest is not None:
            item = await self._records.find(session.workspace, queue, NewestWork.of(newest).work)
            if item is not None and not WorkBody.of(item).is_ending:
                return
        body = WorkBody(session=session.id, state="queued", metadata={}, ttl=DEFAULT_TTL_SECONDS)
        item = new(session.workspace, queue, body.encode())
        following = new(
            session.workspace, _NEWEST_KIND, NewestWork(work=item.id).encode(), session.id
        )
        if newest is not None:
            following = replace(following, version=newest.version + 1, created_at=newest.created_at)
        try:
            await self._records.put(item, following)
        except Conflict:  # queued concurrently
            return

    async def open_items(self, environment: Record) -> list[Record]:
        """Return the items that have not stopped, oldest first."""
        return [item async for item in self._iterate_open_items(environment)][::-1]

    async def _iterate_open_items(self, environment: Record) -> AsyncIterator[Record]:
        after: Position | None = None
        queue = kind(environment.id)
        while rows := await self._records.list(
            environment.workspace, queue, after=after, limit=BATCH_SIZE
        ):
            for record in rows:
                yield record
            after = Position(rows[-1].created_at, rows[-1].id)

    async def newest(self, environment: Record) -> str | None:
        """Return the id of the newest item that has not stopped."""
        queue = kind(environment.id)
        rows = await self._records.list(environment.workspace, queue, limit=1)
        return rows[0].id if rows else None

    async def assign(self, items: Iterable[Record], reclaim_after: int) -> Record | None:
        """Assign the first available item to the caller, which must acknowledge it.

        Returns None if no item is available; see `available_at`.
        """
        for item in items:
            now = clock.now()
            if available_at(item, reclaim_after) > now:
                continue
            try:
                if not await self._needed(item):
                    await self._stop(item, now)
                    continue
                body = WorkBody.of(item)
                assigned = WorkBody(
                    session=body.session,
                    state="queued",
                    metadata=body.metadata,
                    ttl=body.ttl,
                    polled_at=now,
                )
                return await self._store_next(item, assigned)
            except Conflict:
                continue
        return None

    async def _store_next(self, item: Record, body: WorkBody) -> Record:
        """Store the next state of an item. Raises Conflict if it was changed meanwhile."""
        return await self._records.update(item, body.encode(), drop_earlier=True)

    async def _needed(self, item: Record) -> bool:
        """Return whether the session is active and, if it lost its worker, has work to do."""
        body = WorkBody.of(item)
        session = await self._store.get(item.workspace, body.session)
        if session is None or session.state != "active" or session.status == "terminated":
            return False
        if body.state == "stopping":
            return False
        return body.state == "queued" or await self._busy(session)

    async def _busy(self, session: Session) -> bool:
        """Return whether a turn runs in a session or waits in its inbox."""
        # In this order: a prompt that leaves the inbox in between is the turn that is found then.
        if await self._store.inbox(session.workspace, session.id):
            return True
        current = await self._store.get(session.workspace, session.id)
        return current is not None and current.turn is not None

    async def acknowledge(self, item: Record) -> Record:
        """Acknowledge an assigned item. Raises Conflict if it is in another state."""
        body = WorkBody.of(item)
        if body.state != "queued" or body.polled_at is None:
            raise Conflict(f"the work is {body.state}, and not to be acknowledged")
        return await self._store_next(
            item, replace(body, state="starting", acknowledged_at=clock.now())
        )

    async def heartbeat(self, item: Record, expected: str | None, ttl: int | None) -> Record:
        """Extend the time for which a worker holds an item.

        Raises HeartbeatRefused unless the last heartbeat was `expected`. Does nothing if the item
        is stopping or stopped.
        """
        for _ in range(MAX_ATTEMPTS):
            body = WorkBody.of(item)
            if body.is_ending:
                return item
            if expected is not None and expected != (last_heartbeat(item) or NO_HEARTBEAT):
                break
            now = clock.now()
            active = replace(
                body,
                state="active",
                started_at=now if body.started_at is None else body.started_at,
                latest_heartbeat_at=now,
                ttl=ttl or body.ttl,
            )
            try:
                return await self._store_next(item, active)
            except Conflict:
                item = await self._records.get(item.workspace, item.kind, item.id)
        body = WorkBody.of(item)
        lease = {
            "last_heartbeat": last_heartbeat(item),
            "lease_extended": False,
            "state": body.state,
            "ttl_seconds": body.ttl,
        }
        details = {"error_code": "heartbeat_precondition_failed", "current_state": lease}
        message = "expected_last_heartbeat: another heartbeat was the last one"
        raise HeartbeatRefused(message, details=details)

    async def stop(self, item: Record, *, force: bool) -> Record:
        """Stop an item: at once with `force`, else when its worker sends its next heartbeat.

        If a worker stops by itself while its session has work to do, another item is queued.
        """
        for _ in range(MAX_ATTEMPTS):
            body, now = WorkBody.of(item), clock.now()
            if body.state == "stopped":
                raise Conflict("the work has stopped already")
            try:
                if not force and body.state in ("starting", "active"):
                    stopping = replace(body, state="stopping", stop_requested_at=now)
                    return await self._store_next(item, stopping)
                return await self._stop(item, now)
            except Conflict:
                item = await self._records.get(item.workspace, item.kind, item.id)
        raise Conflict("other requests are changing the work item; try again")

    async def _stop(self, item: Record, now: int) -> Record:
        body = replace(WorkBody.of(item), state="stopped", stopped_at=now)
        stopped = replace(
            item, body=body.encode(), version=item.version + 1, updated_at=now, archived_at=now
        )
        await self._store.put_record(stopped, drop_earlier=True)
        # Prompts that came until now saw this item and queued no other.
        session = await self._store.get(item.workspace, body.session)
        worker_stopped = body.stop_requested_at is None and body.acknowledged_at is not None
        if session is not None and worker_stopped and await self._busy(session):
            await self.enqueue(session)
        return stopped


class Poll:
    """A worker's wait for an item of an environment.

    All items are read once. After that only the newest item is read, until one of the known items
    is available again.
    """

    def __init__(self, queue: WorkQueue, environment: Record, reclaim_after: int) -> None:
        self._queue = queue
        self._environment = environment
        self._reclaim_after = reclaim_after
        self._newest: str | None = None
        self._next_at = 0

    async def next_item(self) -> Record | None:
        """Assign the oldest available item to the caller; see `WorkQueue.assign`."""
        if clock.now() < self._next_at and self._newest == await self._queue.newest(
            self._environment
        ):
            return None
        items = await self._queue.open_items(self._environment)
        self._newest = items[-1].id if items else None
        self._next_at = min(
            (available_at(item, self._reclaim_after) for item in items), default=_NEVER
        )
        return await self._queue.assign(items, self._reclaim_after)


def is_self_hosted(environment: Record) -> bool:
    """Return whether workers run the tools of an environment."""
    config: dict[str, Any] = environment.body.get("config") or {}
    return config.get("type") == "self_hosted"


def available_at(item: Record, reclaim_after: int) -> int:
    """Return when an item can be assigned.

    A worker has `reclaim_after` microseconds to acknowledge it, and then must send heartbeats.
    """
    body = WorkBody.of(item)
    if body.state == "queued":
        return 0 if body.polled_at is None else body.polled_at + reclaim_after
    seen_at = body.latest_heartbeat_at or body.acknowledged_at or 0
    return seen_at + body.ttl * clock.SECOND + 1


def last_heartbeat(item: Record) -> str | None:
    """Return the time of the last heartbeat as workers repeat it."""
    at = WorkBody.of(item).latest_heartbeat_at
    return None if at is None else clock.to_rfc3339(at)
