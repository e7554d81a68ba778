"""The versions of memories: what each change made, and who made it."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from segue.hub.resources.memories import kind, versions
from segue.hub.resources.record_ids import format_record_id
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Out, Page
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound
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
    """The agent of a session, by way of its directory."""

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
    body = record.body
    by, redacted_by = body.get("by"), body.get("redacted_by")
    redacted_at = body.get("redacted_at")
    return MemoryVersion(
        id=format_record_id(record),
        memory_store_id=ids.format_id("memstore", record.kind.partition(":")[2]),
        memory_id=ids.format_id("mem", body["memory"]),
        operation=body["operation"],
        path=body.get("path"),
        content=body.get("content") if view == "full" else None,
        content_sha256=body.get("sha256"),
        content_size_bytes=body.get("size"),
        created_at=clock.to_rfc3339(record.created_at),
        created_by=_actor(by),
        redacted_at=None if redacted_at is None else clock.to_rfc3339(redacted_at),
        redacted_by=_actor(redacted_by),
    )


def _actor(by: dict[str, str] | None) -> Actor | None:
    if by is None:
        return None
    if by["type"] == "session_actor":
        return SessionActor(session_id=by["session_id"])
    return ApiActor(api_key_id=by["api_key_id"])


async def list_(request: RestRequest) -> Page[MemoryVersion]:
    store = await memories.the_store(request)
    chosen = memories.view(request, "basic")
    params = request.params
    memory, key = params.text("memory_id"), params.text("api_key_id")
    wanted = None if memory is None else ids.parse(memory, "mem") or ""
    operation = params.choice("operation", "", "created", "modified", "deleted")
    session = params.text("session_id")
    service_account = params.text("service_account_id")  # matches no version: none exist here

    def keep(record: Record) -> bool:
        by = record.body.get("by") or {}
        return (
            not service_account
            and (wanted is None or record.body["memory"] == wanted)
            and (key is None or by.get("api_key_id") == key)
            and (session is None or by.get("session_id") == session)
            and operation in ("", record.body["operation"])
        )

    return await records.page(
        request,
        versions(store.id),
        lambda record: show(record, chosen),
        keep=keep,
        max_limit=memories.page_limit(request, chosen),
        clamp=True,
    )


async def retrieve(request: RestRequest) -> MemoryVersion:
    chosen = memories.view(request, "full")
    return show(await _find(request), chosen)


async def redact(request: RestRequest) -> MemoryVersion:
    """Forget what a version said, for good. That it was made, and by whom, stays."""
    record = await _find(request)
    if "redacted_at" in record.body:
        return show(record, "full")
    store = await memories.the_store(request)
    try:
        memory = await request.hub.records.get(
            request.workspace, kind(store.id), record.body["memory"]
        )
    except NotFound:
        memory = None
    if memory is not None and memory.body["version"] == record.id:
        raise InvalidInput("the version is its memory's current one; change or delete that first")
    kept = {name: record.body[name] for name in ("memory", "operation", "by")}
    body = {**kept, "redacted_at": clock.now(), "redacted_by": memories.actor(request)}
    return show(await request.hub.records.amend(replace(record, body=body)), "full")


async def _find(request: RestRequest) -> Record:
    store = await memories.the_store(request)
    return await records.find(request, versions(store.id), request.path_params["memory_version_id"])
