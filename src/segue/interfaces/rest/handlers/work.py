"""The work of a self-hosted environment: what the clients' workers ask for, hold and let go."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Literal

from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.work_queue import Poll, is_self_hosted, kind, last_heartbeat
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings
from segue.interfaces.rest.schemas.requests import Body, MetadataPatch, Out, Page
from segue.model import clock, codec, ids
from segue.model.errors import InvalidInput
from segue.model.record import Record

_LOOK_SECONDS = 0.1
_PATIENCE_MS = 5000
_TTLS = (10, 3600)  # seconds; other values are clamped to this range

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
        id=format_record_id(record),
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


async def poll(request: RestRequest) -> Polled:
    place = await _place(request)
    block = request.params.number("block_ms", 1, 999)
    patience = request.params.number("reclaim_older_than_ms", 0, 1 << 31)
    patience = _PATIENCE_MS if patience is None else patience
    loop = asyncio.get_running_loop()
    until = loop.time() + (block or 0) / 1000
    gone = asyncio.ensure_future(request.wait_for_disconnect())
    waiting = Poll(request.hub.work_queue, place, patience * 1000)
    try:
        while True:
            item = await waiting.next_item()
            if item is not None:
                return show(item, _secret(request))
            left = until - loop.time()
            if left <= 0 or request.context.closing.is_set():
                return None
            await asyncio.wait({gone}, timeout=min(left, _LOOK_SECONDS))
            if gone.done():  # what comes is for others
                return None
    finally:
        gone.cancel()


def _secret(request: RestRequest) -> str | None:
    """What a worker does the work with, in the form that it knows: the key that it has."""
    if not request.key:
        return None
    packed = codec.encode({"sessions_token": request.key})
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


async def acknowledge(request: RestRequest) -> WorkOut:
    return show(await request.hub.work_queue.acknowledge(await _find(request)))


async def heartbeat(request: RestRequest) -> Heartbeat:
    low, high = _TTLS
    wished = request.params.number("desired_ttl_seconds", 1, 1 << 31)
    ttl = None if wished is None else min(max(wished, low), high)
    item = await request.hub.work_queue.heartbeat(
        await _find(request), request.params.text("expected_last_heartbeat"), ttl
    )
    return Heartbeat(
        last_heartbeat=last_heartbeat(item) or "",
        lease_extended=item.body["state"] == "active",
        state=item.body["state"],
        ttl_seconds=item.body["ttl"],
    )


async def stop(request: RestRequest) -> WorkOut:
    given = await request.body(Stop)
    return show(await request.hub.work_queue.stop(await _find(request), force=bool(given.force)))


async def update(request: RestRequest) -> WorkOut:
    given = await request.body(Update)

    def edit(current: Record) -> dict[str, Any]:
        metadata = agent_settings.patch_metadata(current.body["metadata"], given.metadata)
        return {**current.body, "metadata": metadata}

    return show(await request.hub.records.change(await _find(request), edit, drop_earlier=True))


async def retrieve(request: RestRequest) -> WorkOut:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[WorkOut]:
    place = await _place(request)
    return await records.page(request, kind(place.id), show, archived=True)


async def stats(request: RestRequest) -> Stats:
    waiting = [
        each
        for each in await request.hub.work_queue.open_items(await _place(request))
        if each.body["state"] == "queued"
    ]
    pending = sum("polled_at" in each.body for each in waiting)
    oldest = clock.to_rfc3339(waiting[0].created_at) if waiting else None
    return Stats(
        depth=len(waiting) - pending,
        pending=pending,
        oldest_queued_at=oldest,
        workers_polling=None,  # not counted
    )


async def _place(request: RestRequest) -> Record:
    place = await records.find(request, "environment", request.path_params["environment_id"])
    if not is_self_hosted(place):
        raise InvalidInput(
            f"environment {request.path_params['environment_id']} is not self_hosted"
        )
    return place


async def _find(request: RestRequest) -> Record:
    place = await _place(request)
    return await records.find(request, kind(place.id), request.path_params["work_id"])
