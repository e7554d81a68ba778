"""Memory stores: what sessions can have attached."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...store.base import Record
from . import records, settings
from .bodies import Body, Metadata, MetadataPatch
from .call import MANAGED, Call

BETAS = MANAGED | {"agent-memory-2026-07-22"}

Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]
Description = Annotated[str, Meta(max_length=1024)]


class Create(Body, frozen=True):
    name: Name
    description: Description = ""
    metadata: Metadata = msgspec.field(default_factory=dict)


class Update(Body, frozen=True):
    name: Name | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET


def show(record: Record) -> dict[str, Any]:
    return {
        "type": "memory_store",
        "id": records.spell(record),
        "name": record.body["name"],
        "description": record.body["description"],
        "metadata": record.body["metadata"],
        **records.times(record),
    }


async def create(call: Call) -> dict[str, Any]:
    given = await call.body(Create)
    body = msgspec.to_builtins(given)
    return show(await call.hub.records.create(call.workspace, "memory_store", body))


async def update(call: Call) -> dict[str, Any]:
    given = await call.body(Update)
    record = await _find(call)

    def edit(current: Record) -> dict[str, Any]:
        body = dict(current.body)
        if not isinstance(given.name, UnsetType) and given.name is not None:
            body["name"] = given.name
        if not isinstance(given.description, UnsetType):
            body["description"] = given.description or ""
        if not isinstance(given.metadata, UnsetType):
            body["metadata"] = settings.metadata(body["metadata"], given.metadata)
        return body

    return show(await records.change(call, record, edit))


async def retrieve(call: Call) -> dict[str, Any]:
    return show(await _find(call))


async def list_(call: Call) -> dict[str, Any]:
    return await records.page(call, "memory_store", show)


async def archive(call: Call) -> dict[str, Any]:
    return show(await call.hub.records.archive(await _find(call)))


async def delete(call: Call) -> dict[str, Any]:
    record = await _find(call)
    await call.hub.records.delete(record)
    return {"type": "memory_store_deleted", "id": records.spell(record)}


async def _find(call: Call) -> Record:
    return await records.find(call, "memory_store", call.path["memory_store_id"])
