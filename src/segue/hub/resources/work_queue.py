"""The queue of a self-hosted environment, whose workers run the tools of sessions.

An item means that a session needs a worker. It is queued, handed out, acknowledged, and held as
long as the worker sends heartbeats. A stopped item is archived. Each step stores the next version
of the record and deletes the previous one, so of two concurrent steps one raises Conflict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from msgspec.structs import replace

from segue.model import clock
from segue.model.errors import Conflict, SegueError
from segue.model.query import Position
from segue.model.record import Record
from segue.model.session import Session
from segue.store.base import Store

from .records import Records, environment_id, new

DEFAULT_TTL_SECONDS = 300  # within which a worker must send a heartbeat
NO_HEARTBEAT = "NO_HEARTBEAT"  # the value that a worker sends with its first heartbeat
_NEEDED = "work_of"  # the kind of record that has the id of a session's newest item
BATCH_SIZE = 200
MAX_ATTEMPTS = 20
_NEVER = 1 << 62


class HeartbeatRefused(SegueError):
    """Another worker has sent a heartbeat since, so it holds the item."""

    http_status = 412


def kind(environment: str) -> str:
    return f"work:{environment}"


class WorkQueue:
    """The queues of all self-hosted environments."""

    def __init__(self, store: Store, records: Records) -> None:
        self._store = store
        self._records = records

    async def runs_on_worker(self, session: Session) -> bool:
        """Return whether a worker runs a session's tools."""
        id = session.environment_id
        if id is None or id == environment_id(session.workspace):
            return False
        environment = await self._records.find(session.workspace, "environment", id)
        if environment is None:  # deleted: tools of workers do not run here instead
            return await self._records.find(session.workspace, _NEEDED, session.id) is not None
        return is_self_hosted(environment)

    async def enqueue(self, session: Session) -> None:
        """Queue an item for a session, unless it has one that is not stopping."""
        if not await self.runs_on_worker(session):
            return
        needed = await self._records.find(session.workspace, _NEEDED, session.id)
        queue = kind(str(session.environment_id))
        if needed is not None:
            item = await self._records.find(session.workspace, queue, needed.body["work"])
            if item is not None and item.body["state"] not in ("stopping", "stopped"):
                return
        body = {
            "session": session.id,
            "state": "queued",
            "metadata": {},
            "ttl": DEFAULT_TTL_SECONDS,
        }
        item = new(session.workspace, queue, body)
        mark = new(session.workspace, _NEEDED, {"work": item.id}, session.id)
        if needed is not None:
            mark = replace(mark, version=needed.version + 1, created_at=needed.created_at)
        try:
            await self._records.put(item, mark)
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

    async def assign(self, items: Iterable[Record], patience: int) -> Record | None:
        """Hand out the first free item, which the caller must acknowledge, or return None."""
        for item in items:
            now = clock.now()
            if available_at(item, patience) > now:
                continue
            try:
                if not await self._needed(item):
                    await self._stop(item, now)
                    continue
                fresh = {name: item.body[name] for name in ("session", "metadata", "ttl")}
                body = {**fresh, "state": "queued", "polled_at": now}
                return await self._records.update(item, body, drop_earlier=True)
            except Conflict:
                continue
        return None

    async def _needed(self, item: Record) -> bool:
        """Return whether the session is active and, if it lost its worker, has work to do."""
        session = await self._store.get(item.workspace, item.body["session"])
        if session is None or session.state != "active" or session.status == "terminated":
            return False
        if item.body["state"] == "stopping":
            return False
        return item.body["state"] == "queued" or await self._busy(session)

    async def _busy(self, session: Session) -> bool:
        """Return whether a turn runs in a session or waits in its inbox."""
        # In this order: a prompt that leaves the inbox in between is the turn that is found then.
        if await self._store.inbox(session.workspace, session.id):
            return True
        current = await self._store.get(session.workspace, session.id)
        return current is not None and current.turn is not None

    async def acknowledge(self, item: Record) -> Record:
        """Acknowledge an item that was handed out. Raises Conflict if it is in another state."""
        body = item.body
        if body["state"] != "queued" or "polled_at" not in body:
            raise Conflict(f"the work is {body['state']}, and not to be acknowledged")
        now = clock.now()
        acknowledged = {**body, "state": "starting", "acknowledged_at": now}
        return await self._records.update(item, acknowledged, drop_earlier=True)

    async def heartbeat(self, item: Record, expected: str | None, ttl: int | None) -> Record:
        """Extend the time for which a worker holds an item.

        Raises HeartbeatRefused unless the last heartbeat was `expected`. Does nothing if the item
        is stopping or stopped.
        """
        for _ in range(MAX_ATTEMPTS):
            body = item.body
            if body["state"] in ("stopping", "stopped"):
                return item
            if expected is not None and expected != (last_heartbeat(item) or NO_HEARTBEAT):
                break
            now = clock.now()
            beaten = {"started_at": now, **body, "state": "active", "latest_heartbeat_at": now}
            try:
                beaten["ttl"] = ttl or body["ttl"]
                return await self._records.update(item, beaten, drop_earlier=True)
            except Conflict:
                item = await self._records.get(item.workspace, item.kind, item.id)
        lease = {
            "last_heartbeat": last_heartbeat(item),
            "lease_extended": False,
            "state": item.body["state"],
            "ttl_seconds": item.body["ttl"],
        }
        details = {"error_code": "heartbeat_precondition_failed", "current_state": lease}
        message = "expected_last_heartbeat: another heartbeat was the last one"
        raise HeartbeatRefused(message, details=details)

    async def stop(self, item: Record, *, force: bool) -> Record:
        """Stop an item: at once with `force`, else when its worker sends its next heartbeat.

        If a worker stops by itself while its session has work to do, another item is queued.
        """
        for _ in range(MAX_ATTEMPTS):
            body, now = item.body, clock.now()
            if body["state"] == "stopped":
                raise Conflict("the work has stopped already")
            try:
                if not force and body["state"] in ("starting", "active"):
                    asked = {**body, "state": "stopping", "stop_requested_at": now}
                    return await self._records.update(item, asked, drop_earlier=True)
                return await self._stop(item, now)
            except Conflict:
                item = await self._records.get(item.workspace, item.kind, item.id)
        raise Conflict("the work is being changed by others")

    async def _stop(self, item: Record, now: int) -> Record:
        body = {**item.body, "state": "stopped", "stopped_at": now}
        stopped = replace(
            item, body=body, version=item.version + 1, updated_at=now, archived_at=now
        )
        await self._store.put_record(stopped, drop_earlier=True)
        # Prompts that came until now found this item and queued no other.
        session = await self._store.get(item.workspace, body["session"])
        unasked = "stop_requested_at" not in body and "acknowledged_at" in body
        if session is not None and unasked and await self._busy(session):
            await self.enqueue(session)
        return stopped


class Poll:
    """A worker's wait for an item of an environment.

    `patience` is the time in microseconds that another worker has to acknowledge an item. All
    items are read once. After that only the newest item is read, until one of the known items can
    be handed out again.
    """

    def __init__(self, queue: WorkQueue, environment: Record, patience: int) -> None:
        self._queue = queue
        self._environment = environment
        self._patience = patience
        self._newest: str | None = None
        self._due = 0

    async def next_item(self) -> Record | None:
        """Hand out the oldest free item, which the caller must acknowledge, or return None."""
        if clock.now() < self._due and self._newest == await self._queue.newest(self._environment):
            return None
        items = await self._queue.open_items(self._environment)
        self._newest = items[-1].id if items else None
        self._due = min((available_at(item, self._patience) for item in items), default=_NEVER)
        return await self._queue.assign(items, self._patience)


def is_self_hosted(environment: Record) -> bool:
    """Return whether workers run the tools of an environment."""
    config: dict[str, Any] = environment.body.get("config") or {}
    return config.get("type") == "self_hosted"


def available_at(item: Record, patience: int) -> int:
    """Return when an item can be handed out, which depends on its last poll or heartbeat."""
    body = item.body
    if body["state"] == "queued":
        return int(body.get("polled_at", -patience) + patience)
    heard = body.get("latest_heartbeat_at") or body["acknowledged_at"]
    return int(heard + body["ttl"] * clock.SECOND + 1)


def last_heartbeat(item: Record) -> str | None:
    """Return the time of the last heartbeat as workers repeat it."""
    at = item.body.get("latest_heartbeat_at")
    return None if at is None else clock.to_rfc3339(at)
