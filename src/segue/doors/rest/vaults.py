"""Vaults: named places for credentials, which sessions refer to."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ...store.base import Record
from . import records, settings
from .bodies import Body, Metadata, MetadataPatch
from .call import Call

Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Create(Body, frozen=True):
    display_name: Name
    metadata: Metadata = msgspec.field(default_factory=dict)


class Update(Body, frozen=True):
    display_name: Name | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET


def show(record: Record) -> dict[str, Any]:
    return {
        "type": "vault",
        "id": records.spell(record),
        "display_name": record.body["display_name"],
        "metadata": record.body["metadata"],
        **records.times(record),
    }


async def create(call: Call) -> dict[str, Any]:
    body = msgspec.to_builtins(await call.body(Create))
    return show(await call.hub.records.create(call.workspace, "vault", body))


async def update(call: Call) -> dict[str, Any]:
    given = await call.body(Update)
    record = await _find(call)

    def edit(current: Record) -> dict[str, Any]:
        body = dict(current.body)
        if not isinstance(given.display_name, UnsetType) and given.display_name is not None:
            body["display_name"] = given.display_name
        if not isinstance(given.metadata, UnsetType):
            body["metadata"] = settings.metadata(body["metadata"], given.metadata)
        return body

    return show(await records.change(call, record, edit))


async def retrieve(call: Call) -> dict[str, Any]:
    return show(await _find(call))


async def list_(call: Call) -> dict[str, Any]:
    return await records.page(call, "vault", show)


async def archive(call: Call) -> dict[str, Any]:
    return show(await call.hub.records.archive(await _find(call)))


async def delete(call: Call) -> dict[str, Any]:
    record = await _find(call)
    await call.hub.records.delete(record)
    return {"type": "vault_deleted", "id": records.spell(record)}


async def _find(call: Call) -> Record:
    return await records.find(call, "vault", call.path["vault_id"])
