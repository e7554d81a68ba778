"""Memory stores: create, update, list, archive and delete them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.memories import MemoryStoreBody
from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import patch_metadata, with_sent
from segue.interfaces.rest import records
from segue.interfaces.rest.request import MANAGED_AGENTS, RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Metadata, MetadataPatch, Out, Page
from segue.model import codec
from segue.model.record import Record

from . import memories

BETAS = MANAGED_AGENTS | {"agent-memory-2026-07-22"}

Name = Annotated[
    str,
    codec.described_pattern(
        "text without control characters", r"^[^\x00-\x1f\x7f]*$", min_length=1, max_length=255
    ),
]
Description = Annotated[str, Meta(max_length=1024)]


class Create(Body, frozen=True):
    name: Name
    description: Description = ""
    metadata: Metadata = msgspec.field(default_factory=dict)


class Update(Body, frozen=True):
    name: Name | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET


class MemoryStore(Out, frozen=True, tag_field="type", tag="memory_store"):
    id: str
    name: str
    description: str
    metadata: dict[str, str]
    created_at: str
    updated_at: str
    archived_at: str | None


class MemoryStoreDeleted(Deleted, frozen=True, tag_field="type", tag="memory_store_deleted"):
    """The memory store and its memories were deleted."""


def show(record: Record) -> MemoryStore:
    """Return a memory store as the API shows it."""
    body = MemoryStoreBody.of(record)
    return MemoryStore(
        id=format_record_id(record),
        name=body.name,
        description=body.description or "",
        metadata=body.metadata,
        **records.times(record),
    )


async def create(request: RestRequest) -> MemoryStore:
    sent = await request.stored_body(Create)
    body = MemoryStoreBody(
        name=sent.name, description=sent.description, metadata=sent.metadata
    ).encode()
    return show(await request.hub.records.create(request.workspace, "memory_store", body))


async def update(request: RestRequest) -> MemoryStore:
    sent = await request.stored_body(Update)
    record = await memories.find_store(request)

    def edit(current: Record) -> dict[str, Any]:
        body = MemoryStoreBody.of(current)
        body = with_sent(
            body,
            name=sent.name or UNSET,
            description=UNSET if sent.description is UNSET else sent.description or "",
            metadata=patch_metadata(body.metadata, sent.metadata),
        )
        return body.encode()

    return show(await request.hub.records.change(record, edit))


async def retrieve(request: RestRequest) -> MemoryStore:
    return show(await memories.find_store(request))


async def list_(request: RestRequest) -> Page[MemoryStore]:
    return await records.page(request, "memory_store", show)


async def archive(request: RestRequest) -> MemoryStore:
    return show(await request.hub.records.retire(await memories.find_store(request)))


async def delete(request: RestRequest) -> MemoryStoreDeleted:
    record = await memories.find_store(request)
    await request.hub.records.delete(record)
    await request.hub.memories.delete_all(record)
    return MemoryStoreDeleted(id=format_record_id(record))
