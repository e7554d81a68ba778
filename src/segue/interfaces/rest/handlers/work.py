"""The work of a self-hosted environment: what the clients' workers ask for, hold and let go."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Literal

from segue.hub.resources.work_queue import Poll, kind, last_heartbeat, self_hosted
from segue.interfaces.rest import records
from segue.interfaces.rest.request import Call
from segue.interfaces.rest.schemas import agent_settings
from segue.interfaces.rest.schemas.requests import Body, MetadataPatch, Out, Page
from segue.model import clock, codec, ids
from segue.model.errors import InvalidInput
from segue.store.base import Record

_LOOK_SECONDS = 0.1
_PATIENCE_MS = 5000
_TTLS = (10, 3600)  # seconds; what a worker wishes beyond is brought within

State = Literal["queued", "starting", "active", "stopping", "stopped"]


class Update(Body, frozen=True):
    metadata: MetadataPatch


class Stop(Body, frozen=True):
    force: bool | None = None


class SessionWork(Out, frozen=True, tag_field="type", tag="session"):
    id: str


class WorkOut(Out, frozen=True, tag_field="type", tag="work"):
    id: str
    environment_id: str
    data: SessionWork
    state: State
    metadata: dict[str, str]
    secret: str | None
    created_at: str
    acknowledged_at: str | None
    started_at: str | None
    latest_heartbeat_at: str | None
    stop_requested_at: str | None
    stopped_at: str | None


Polled = WorkOut | None  # JSON's null where there is nothing to do


class Heartbeat(Out, frozen=True, tag_field="type", tag="work_heartbeat"):
    last_heartbeat: str
    lease_extended: bool
    state: State
    ttl_seconds: int


class Stats(Out, frozen=True, tag_field="type", tag="work_queue_stats"):
    depth: int
    pending: int
    oldest_queued_at: str | None
    workers_polling: None


def show(record: Record, secret: str | None = None) -> WorkOut:
    body = record.body

    def at(name: str) -> str | None:
        return None if body.get(name) is None else clock.to_rfc3339(body[name])

    return WorkOut(
        id=records.spell(record),
        environment_id=ids.format_id("env", record.kind.partition(":")[2]),
        data=SessionWork(id=ids.format_id("sesn", body["session"])),
        state=body["state"],
        metadata=body["metadata"],
        secret=secret,
        created_at=clock.to_rfc3339(record.created_at),
        acknowledged_at=at("acknowledged_at"),
        started_at=at("started_at"),
        latest_heartbeat_at=at("latest_heartbeat_at"),
        stop_requested_at=at("stop_requested_at"),
        stopped_at=at("stopped_at"),
    )


async def poll(call: Call) -> Polled:
    place = await _place(call)
    block = call.params.number("block_ms", 1, 999)
    patience = call.params.number("reclaim_older_than_ms", 0, 1 << 31)
    patience = _PATIENCE_MS if patience is None else patience
    loop = asyncio.get_running_loop()
    until = loop.time() + (block or 0) / 1000
    gone = asyncio.ensure_future(call.left())
    waiting = Poll(call.hub.work, place, patience * 1000)
    try:
        while True:
            item = await waiting.look()
            if item is not None:
                return show(item, _secret(call))
            left = until - loop.time()
            if left <= 0 or call.door.closing.is_set():
                return None
            await asyncio.wait({gone}, timeout=min(left, _LOOK_SECONDS))
            if gone.done():  # what comes is for others
                return None
    finally:
        gone.cancel()


def _secret(call: Call) -> str | None:
    """What a worker does the work with, in the form that it knows: the key that it has."""
    if not call.key:
        return None
    packed = codec.encode({"sessions_token": call.key})
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


async def acknowledge(call: Call) -> WorkOut:
    return show(await call.hub.work.acknowledge(await _find(call)))


async def heartbeat(call: Call) -> Heartbeat:
    low, high = _TTLS
    wished = call.params.number("desired_ttl_seconds", 1, 1 << 31)
    ttl = None if wished is None else min(max(wished, low), high)
    item = await call.hub.work.beat(
        await _find(call), call.params.text("expected_last_heartbeat"), ttl
    )
    return Heartbeat(
        last_heartbeat=last_heartbeat(item) or "",
        lease_extended=item.body["state"] == "active",
        state=item.body["state"],
        ttl_seconds=item.body["ttl"],
    )


async def stop(call: Call) -> WorkOut:
    given = await call.body(Stop)
    return show(await call.hub.work.stop(await _find(call), force=bool(given.force)))


async def update(call: Call) -> WorkOut:
    given = await call.body(Update)

    def edit(current: Record) -> dict[str, Any]:
        metadata = agent_settings.metadata(current.body["metadata"], given.metadata)
        return {**current.body, "metadata": metadata}

    return show(await records.change(call, await _find(call), edit, only=True))


async def retrieve(call: Call) -> WorkOut:
    return show(await _find(call))


async def list_(call: Call) -> Page[WorkOut]:
    place = await _place(call)
    return await records.page(call, kind(place.id), show, archived=True)


async def stats(call: Call) -> Stats:
    waiting = [
        each
        for each in await call.hub.work.live(await _place(call))
        if each.body["state"] == "queued"
    ]
    pending = sum("polled_at" in each.body for each in waiting)
    oldest = clock.to_rfc3339(waiting[0].created_at) if waiting else None
    return Stats(
        depth=len(waiting) - pending,
        pending=pending,
        oldest_queued_at=oldest,
        workers_polling=None,  # nobody counts them
    )


async def _place(call: Call) -> Record:
    place = await records.find(call, "environment", call.path["environment_id"])
    if not self_hosted(place):
        raise InvalidInput(f"environment {call.path['environment_id']} is not self_hosted")
    return place


async def _find(call: Call) -> Record:
    place = await _place(call)
    return await records.find(call, kind(place.id), call.path["work_id"])
