"""Work for those who run a session's tools elsewhere: the queue of a self-hosted environment.

An item says that a session needs a worker. It waits, is handed out, is acknowledged, and is held
for as long as heartbeats come; one that has stopped is archived. Each step is the next version of
its record, and the only one that is kept, so of two who want the same, one is told that the other
was quicker.
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

TTL = 300  # seconds that a worker may be silent
FIRST = "NO_HEARTBEAT"  # what a worker says who has sent none
_NEEDED = "work_of"  # which item is a session's newest
_BATCH = 200
_TRIES = 20
_NEVER = 1 << 62


class HeartbeatRefused(SegueError):
    """The last heartbeat was not the one that the worker knows of: somebody else holds the work."""

    http_status = 412


def kind(environment: str) -> str:
    return f"work:{environment}"


class Work:
    """The queues of all self-hosted environments."""

    def __init__(self, store: Store, records: Records) -> None:
        self._store = store
        self._records = records

    async def elsewhere(self, session: Session) -> bool:
        """Whether a session's tools run with a worker."""
        id = session.environment_id
        if id is None or id == environment_id(session.workspace):
            return False
        place = await self._records.find(session.workspace, "environment", id)
        if place is None:  # deleted since; what was left to workers is not done here instead
            return await self._records.find(session.workspace, _NEEDED, session.id) is not None
        return self_hosted(place)

    async def offer(self, session: Session) -> None:
        """Have a worker come, unless one is there or on the way."""
        if not await self.elsewhere(session):
            return
        needed = await self._records.find(session.workspace, _NEEDED, session.id)
        queue = kind(str(session.environment_id))
        if needed is not None:
            item = await self._records.find(session.workspace, queue, needed.body["work"])
            if item is not None and item.body["state"] not in ("stopping", "stopped"):
                return
        body = {"session": session.id, "state": "queued", "metadata": {}, "ttl": TTL}
        item = new(session.workspace, queue, body)
        mark = new(session.workspace, _NEEDED, {"work": item.id}, session.id)
        if needed is not None:
            mark = replace(mark, version=needed.version + 1, created_at=needed.created_at)
        try:
            await self._records.put(item, mark)
        except Conflict:  # somebody else was quicker, and offers the same
            return

    async def live(self, environment: Record) -> list[Record]:
        """What has not stopped, oldest first."""
        return [each async for each in self._live(environment)][::-1]

    async def _live(self, environment: Record) -> AsyncIterator[Record]:
        after: Position | None = None
        queue = kind(environment.id)
        while rows := await self._records.list(
            environment.workspace, queue, after=after, limit=_BATCH
        ):
            for record in rows:
                yield record
            after = Position(rows[-1].created_at, rows[-1].id)

    async def newest(self, environment: Record) -> str | None:
        """The id of the newest item that has not stopped."""
        queue = kind(environment.id)
        rows = await self._records.list(environment.workspace, queue, limit=1)
        return rows[0].id if rows else None

    async def hand_out(self, items: Iterable[Record], patience: int) -> Record | None:
        """The first of some items that nobody has, now the caller's to acknowledge."""
        for item in items:
            now = clock.now()
            if free_from(item, patience) > now:
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
        """Whether the session is there, and if a worker was lost, whether it waits for another."""
        session = await self._store.get(item.workspace, item.body["session"])
        if session is None or session.state != "active" or session.status == "terminated":
            return False
        if item.body["state"] == "stopping":
            return False
        return item.body["state"] == "queued" or await self._busy(session)

    async def _busy(self, session: Session) -> bool:
        return session.turn is not None or bool(
            await self._store.inbox(session.workspace, session.id)
        )

    async def acknowledge(self, item: Record) -> Record:
        """Take on an item that was handed out; Conflict if somebody else has, or it has stopped."""
        body = item.body
        if body["state"] != "queued" or "polled_at" not in body:
            raise Conflict(f"the work is {body['state']}, and not to be acknowledged")
        now = clock.now()
        taken = {**body, "state": "starting", "acknowledged_at": now}
        return await self._records.update(item, taken, drop_earlier=True)

    async def beat(self, item: Record, expected: str | None, ttl: int | None) -> Record:
        """Hold an item for a while longer; HeartbeatRefused unless the last one was `expected`.

        One that is to stop, or has, is held no longer, whoever asks.
        """
        for _ in range(_TRIES):
            body = item.body
            if body["state"] in ("stopping", "stopped"):
                return item
            if expected is not None and expected != (last_heartbeat(item) or FIRST):
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
        told = "expected_last_heartbeat: another heartbeat was the last one"
        raise HeartbeatRefused(told, details=details)

    async def stop(self, item: Record, *, force: bool) -> Record:
        """Have an item stop: at once, or when its worker next hears of it.

        A session that is in the middle of something, and whose worker leaves it unasked, gets
        another one.
        """
        for _ in range(_TRIES):
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
        # Whoever asked the session something until now found this item, and offered no other.
        session = await self._store.get(item.workspace, body["session"])
        unasked = "stop_requested_at" not in body and "acknowledged_at" in body
        if session is not None and unasked and await self._busy(session):
            await self.offer(session)
        return stopped


class Poll:
    """One who waits for an item of an environment's.

    `patience` is how long, in microseconds, somebody else may take to acknowledge one. All items
    are read once. Then the newest alone tells whether there is another one, until it is time for
    one of those that are known to be handed out again.
    """

    def __init__(self, work: Work, environment: Record, patience: int) -> None:
        self._work = work
        self._environment = environment
        self._patience = patience
        self._newest: str | None = None
        self._due = 0

    async def look(self) -> Record | None:
        """The oldest item that nobody has, now the caller's to acknowledge."""
        if clock.now() < self._due and self._newest == await self._work.newest(self._environment):
            return None
        items = await self._work.live(self._environment)
        self._newest = items[-1].id if items else None
        self._due = min((free_from(each, self._patience) for each in items), default=_NEVER)
        return await self._work.hand_out(items, self._patience)


def self_hosted(environment: Record) -> bool:
    config: dict[str, Any] = environment.body.get("config") or {}
    return config.get("type") == "self_hosted"


def free_from(item: Record, patience: int) -> int:
    """When an item may be handed out: it waits, or who had it has not been heard of for long."""
    body = item.body
    if body["state"] == "queued":
        return int(body.get("polled_at", -patience) + patience)
    heard = body.get("latest_heartbeat_at") or body["acknowledged_at"]
    return int(heard + body["ttl"] * clock.SECOND + 1)


def last_heartbeat(item: Record) -> str | None:
    """As it was told to the worker, who repeats it."""
    at = item.body.get("latest_heartbeat_at")
    return None if at is None else clock.to_rfc3339(at)
