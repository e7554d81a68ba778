"""Vaults: create, update, list, archive and delete them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.credentials import VaultBody
from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import patch_metadata, with_sent
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Metadata, MetadataPatch, Out, Page
from segue.model.record import Record

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
    """The vault and its credentials were deleted."""


def show(record: Record) -> Vault:
    """Return a vault as the API shows it."""
    body = VaultBody.of(record)
    return Vault(
        id=format_record_id(record),
        display_name=body.display_name,
        metadata=body.metadata,
        **records.times(record),
    )


async def create(request: RestRequest) -> Vault:
    sent = await request.stored_body(Create)
    body = VaultBody(display_name=sent.display_name, metadata=sent.metadata)
    return show(await request.hub.records.create(request.workspace, "vault", body.encode()))


async def update(request: RestRequest) -> Vault:
    sent = await request.stored_body(Update)
    record = await _find(request)

    def edit(current: Record) -> dict[str, Any]:
        body = VaultBody.of(current)
        body = with_sent(
            body,
            display_name=sent.display_name or UNSET,
            metadata=patch_metadata(body.metadata, sent.metadata),
        )
        return body.encode()

    return show(await request.hub.records.change(record, edit))


async def retrieve(request: RestRequest) -> Vault:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[Vault]:
    return await records.page(request, "vault", show)


async def archive(request: RestRequest) -> Vault:
    return show(await request.hub.credentials.archive_vault(await _find(request)))


async def delete(request: RestRequest) -> VaultDeleted:
    record = await _find(request)
    await request.hub.credentials.delete_vault(record)
    return VaultDeleted(id=format_record_id(record))


async def _find(request: RestRequest) -> Record:
    return await records.find(request, "vault", request.path_params["vault_id"])
