"""Vaults: named places for credentials, which sessions refer to."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.credentials import kind
from segue.interfaces.rest import records
from segue.interfaces.rest.request import Call
from segue.interfaces.rest.schemas import agent_settings
from segue.interfaces.rest.schemas.requests import Body, Deleted, Metadata, MetadataPatch, Out, Page
from segue.store.base import Record

from . import credentials

Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Create(Body, frozen=True):
    display_name: Name
    metadata: Metadata = msgspec.field(default_factory=dict)


class Update(Body, frozen=True):
    display_name: Name | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET


class Vault(Out, frozen=True, tag_field="type", tag="vault"):
    id: str
    display_name: str
    metadata: dict[str, str]
    created_at: str
    updated_at: str
    archived_at: str | None


class VaultDeleted(Deleted, frozen=True, tag_field="type", tag="vault_deleted"):
    """It is gone, and its credentials with it."""


def show(record: Record) -> Vault:
    return Vault(
        id=records.spell(record),
        display_name=record.body["display_name"],
        metadata=record.body["metadata"],
        **records.times(record),
    )


async def create(call: Call) -> Vault:
    body = msgspec.to_builtins(await call.body(Create))
    return show(await call.hub.records.create(call.workspace, "vault", body))


async def update(call: Call) -> Vault:
    given = await call.body(Update)
    record = await _find(call)

    def edit(current: Record) -> dict[str, Any]:
        body = dict(current.body)
        if not isinstance(given.display_name, UnsetType) and given.display_name is not None:
            body["display_name"] = given.display_name
        if not isinstance(given.metadata, UnsetType):
            body["metadata"] = agent_settings.metadata(body["metadata"], given.metadata)
        return body

    return show(await records.change(call, record, edit))


async def retrieve(call: Call) -> Vault:
    return show(await _find(call))


async def list_(call: Call) -> Page[Vault]:
    return await records.page(call, "vault", show)


async def archive(call: Call) -> Vault:
    record = await _find(call)
    archived = await call.hub.records.retire(record)
    async for credential in call.hub.records.all(call.workspace, kind(record.id)):
        await credentials.forget(call, credential)
    return show(archived)


async def delete(call: Call) -> VaultDeleted:
    record = await _find(call)
    await call.hub.records.delete(record)
    async for credential in call.hub.records.all(call.workspace, kind(record.id)):
        await call.hub.records.delete(credential)
    return VaultDeleted(id=records.spell(record))


async def _find(call: Call) -> Record:
    return await records.find(call, "vault", call.path["vault_id"])
