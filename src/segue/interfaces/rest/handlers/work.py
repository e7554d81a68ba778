"""The work queue of a self-hosted environment, which the client's workers poll."""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any, Literal

from msgspec.structs import replace

from segue.hub.resources.record_ids import format_record_id, parent_id
from segue.hub.resources.records import patch_metadata
from segue.hub.resources.work_queue import Poll, WorkBody, is_self_hosted, kind, last_heartbeat
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, MetadataPatch, Out, Page
from segue.model import clock, codec, ids
from segue.model.errors import InvalidInput
from segue.model.record import Record

_POLL_INTERVAL_SECONDS = 0.1
_DEFAULT_RECLAIM_MS = 5000
_TTL_SECONDS = (10, 3600)  # other values are clamped to this range

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


Polled = WorkOut | None  # null if the queue has no work


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
    """Return an item of the queue as the API shows it."""
    body = WorkBody.of(record)
    return WorkOut(
        id=format_record_id(record),
        environment_id=ids.format_id("env", parent_id(record)),
        data=SessionWork(id=ids.format_id("sesn", body.session)),
        state=body.state,
        metadata=body.metadata,
        secret=secret,
        created_at=clock.to_rfc3339(record.created_at),
        acknowledged_at=_format_time(body.acknowledged_at),
        started_at=_format_time(body.started_at),
        latest_heartbeat_at=_format_time(body.latest_heartbeat_at),
        stop_requested_at=_format_time(body.stop_requested_at),
        stopped_at=_format_time(body.stopped_at),
    )


def _format_time(at: int | None) -> str | None:
    return None if at is None else clock.to_rfc3339(at)


async def poll(request: RestRequest) -> Polled:
    environment = await _environment(request)
    block_ms = request.params.number("block_ms", 1, 999) or 0
    reclaim_ms = request.params.number("reclaim_older_than_ms", 0, 1 << 31)
    if reclaim_ms is None:
        reclaim_ms = _DEFAULT_RECLAIM_MS
    deadline = time.monotonic() + block_ms / 1000
    disconnected = asyncio.ensure_future(request.wait_for_disconnect())
    worker_poll = Poll(request.hub.work_queue, environment, reclaim_ms * 1000)
    try:
        while True:
            item = await worker_poll.next_item()
            if item is not None:
                return show(item, _secret(request))
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 or request.context.closing.is_set():
                return None
            await asyncio.wait({disconnected}, timeout=min(seconds_left, _POLL_INTERVAL_SECONDS))
            if disconnected.done():  # leave the next item to other workers
                return None
    finally:
        disconnected.cancel()


def _secret(request: RestRequest) -> str | None:
    """Return the worker's own API key in the form in which workers expect the secret of an item."""
    if not request.key:
        return None
    packed = codec.encode({"sessions_token": request.key})
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


async def acknowledge(request: RestRequest) -> WorkOut:
    return show(await request.hub.work_queue.acknowledge(await _find(request)))


async def heartbeat(request: RestRequest) -> Heartbeat:
    low, high = _TTL_SECONDS
    desired_ttl = request.params.number("desired_ttl_seconds", 1, 1 << 31)
    ttl = None if desired_ttl is None else min(max(desired_ttl, low), high)
    item = await request.hub.work_queue.heartbeat(
        await _find(request), request.params.text("expected_last_heartbeat"), ttl
    )
    body = WorkBody.of(item)
    return Heartbeat(
        last_heartbeat=last_heartbeat(item) or "",
        lease_extended=body.state == "active",
        state=body.state,
        ttl_seconds=body.ttl,
    )


async def stop(request: RestRequest) -> WorkOut:
    sent = await request.body(Stop)
    return show(await request.hub.work_queue.stop(await _find(request), force=bool(sent.force)))


async def update(request: RestRequest) -> WorkOut:
    sent = await request.body(Update)

    def edit(current: Record) -> dict[str, Any]:
        body = WorkBody.of(current)
        metadata = patch_metadata(body.metadata, sent.metadata)
        return replace(body, metadata=metadata).encode()

    return show(await request.hub.records.change(await _find(request), edit, drop_earlier=True))


async def retrieve(request: RestRequest) -> WorkOut:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[WorkOut]:
    environment = await _environment(request)
    return await records.page(request, kind(environment.id), show, archived=True)


async def stats(request: RestRequest) -> Stats:
    items = await request.hub.work_queue.open_items(await _environment(request))
    queued = [item for item in items if WorkBody.of(item).state == "queued"]
    pending = sum(WorkBody.of(item).polled_at is not None for item in queued)
    return Stats(
        depth=len(queued) - pending,
        pending=pending,
        oldest_queued_at=clock.to_rfc3339(queued[0].created_at) if queued else None,
        workers_polling=None,  # not counted
    )


async def _environment(request: RestRequest) -> Record:
    """Return the environment in the path. Raises InvalidInput unless it is self-hosted."""
    name = request.path_params["environment_id"]
    environment = await records.find(request, "environment", name)
    if not is_self_hosted(environment):
        raise InvalidInput(f"environment {name} is not self_hosted")
    return environment


async def _find(request: RestRequest) -> Record:
    environment = await _environment(request)
    return await records.find(request, kind(environment.id), request.path_params["work_id"])
