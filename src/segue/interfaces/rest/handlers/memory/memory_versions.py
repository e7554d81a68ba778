"""Versions of memories: list, retrieve and redact them."""

from __future__ import annotations

from typing import Literal, cast

from msgspec import convert

from segue.hub.resources.memories import MemoryVersionBody, versions
from segue.hub.resources.record_ids import format_record_id, parent_id
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Out, Page
from segue.model import clock, ids
from segue.model.record import Record

from . import memories

FILTERS = (
    "api_key_id",
    "created_at[gte]",
    "created_at[lte]",
    "limit",
    "memory_id",
    "operation",
    "page",
    "service_account_id",
    "session_id",
    "view",
)
Operation = Literal["created", "modified", "deleted"]


class ApiActor(Out, frozen=True, tag_field="type", tag="api_actor"):
    api_key_id: str


class SessionActor(Out, frozen=True, tag_field="type", tag="session_actor"):
    """The agent of a session changed the memory in its directory."""

    session_id: str


Actor = ApiActor | SessionActor


class MemoryVersion(Out, frozen=True, tag_field="type", tag="memory_version"):
    id: str
    memory_store_id: str
    memory_id: str
    operation: Operation
    path: str | None
    content: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: str
    created_by: Actor | None
    redacted_at: str | None
    redacted_by: Actor | None


def show(record: Record, view: memories.View) -> MemoryVersion:
    """Return a version as the API shows it, with its content if the view is full."""
    body = MemoryVersionBody.of(record)
    redacted_at = body.redacted_at
    return MemoryVersion(
        id=format_record_id(record),
        memory_store_id=ids.format_id("memstore", parent_id(record)),
        memory_id=ids.format_id("mem", body.memory),
        operation=cast(Operation, body.operation),
        path=body.path,
        content=body.content if view == "full" else None,
        content_sha256=body.sha256,
        content_size_bytes=body.size,
        created_at=clock.to_rfc3339(record.created_at),
        created_by=convert(body.by, Actor | None),
        redacted_at=None if redacted_at is None else clock.to_rfc3339(redacted_at),
        redacted_by=convert(body.redacted_by, Actor | None),
    )


async def list_(request: RestRequest) -> Page[MemoryVersion]:
    store = await memories.find_store(request)
    view = memories.requested_view(request, "basic")
    params = request.params
    memory, key = params.id("memory_id"), params.id("api_key_id")
    memory_id = None if memory is None else ids.parse(memory, "mem") or ""
    operation = params.choice("operation", "", "created", "modified", "deleted")
    session = params.id("session_id")
    service_account = params.id("service_account_id")  # matches no version: none exist here

    def matches(record: Record) -> bool:
        body = MemoryVersionBody.of(record)
        by = body.by or {}
        return (
            not service_account
            and (memory_id is None or body.memory == memory_id)
            and (key is None or by.get("api_key_id") == key)
            and (session is None or by.get("session_id") == session)
            and operation in ("", body.operation)
        )

    return await records.page(
        request,
        versions(store.id),
        lambda record: show(record, view),
        keep=matches,
        max_limit=memories.page_limit(request, view),
        clamp=True,
    )


async def retrieve(request: RestRequest) -> MemoryVersion:
    view = memories.requested_view(request, "full")
    return show(await _find(request), view)


async def redact(request: RestRequest) -> MemoryVersion:
    """Delete the path and the content of a version, but not the version itself."""
    version = await _find(request)
    redacted = await request.hub.memories.redact(version, memories.actor(request))
    return show(redacted, "full")


async def _find(request: RestRequest) -> Record:
    store = await memories.find_store(request)
    return await records.find(request, versions(store.id), request.path_params["memory_version_id"])
