"""Credentials in vaults. Their secrets are encrypted when they arrive and never shown again."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.credentials import CredentialBody, kind
from segue.hub.resources.record_ids import format_record_id, parent_id
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import (
    Body,
    Deleted,
    Host,
    Metadata,
    MetadataPatch,
    Out,
    Page,
)
from segue.model import clock, codec, ids
from segue.model.record import Record

Secret = Annotated[str, Meta(min_length=1, max_length=65_536)]
URL = Annotated[
    str,
    codec.described_pattern(
        "a URL that begins with http:// or https://", r"^https?://", max_length=2048
    ),
]
DisplayName = Annotated[str, Meta(min_length=1, max_length=255)]


class AnyHost(Body, frozen=True, tag_field="type", tag="unrestricted"):
    """The variable may be sent to any host."""


class AllowedHosts(Body, frozen=True, tag_field="type", tag="limited"):
    allowed_hosts: Annotated[tuple[Host, ...], Meta(min_length=1, max_length=16)]


class InjectionLocation(Body, frozen=True):
    header: bool | None = None
    body: bool | None = None


class NoSecret(Body, frozen=True, tag_field="type", tag="none"):
    """The token endpoint requires no client secret."""


class ClientSecretBasic(Body, frozen=True, tag_field="type", tag="client_secret_basic"):
    client_secret: Secret


class ClientSecretPost(Body, frozen=True, tag_field="type", tag="client_secret_post"):
    client_secret: Secret


class Refresh(Body, frozen=True):
    client_id: Annotated[str, Meta(min_length=1, max_length=2048)]
    refresh_token: Secret
    token_endpoint: URL
    token_endpoint_auth: NoSecret | ClientSecretBasic | ClientSecretPost
    resource: str | None = None
    scope: str | None = None


class OAuth(Body, frozen=True, tag_field="type", tag="mcp_oauth"):
    mcp_server_url: URL
    access_token: Secret
    expires_at: str | None = None
    refresh: Refresh | None = None


class Bearer(Body, frozen=True, tag_field="type", tag="static_bearer"):
    mcp_server_url: URL
    token: Secret


class Variable(Body, frozen=True, tag_field="type", tag="environment_variable"):
    secret_name: Annotated[
        str,
        codec.described_pattern(
            "letters, digits and underscores, not beginning with a digit",
            r"^[A-Za-z_][A-Za-z0-9_]*$",
            max_length=255,
        ),
    ]
    secret_value: Secret
    networking: AnyHost | AllowedHosts
    injection_location: InjectionLocation | None = None


class ClientSecretBasicUpdate(Body, frozen=True, tag_field="type", tag="client_secret_basic"):
    client_secret: Secret | None = None


class ClientSecretPostUpdate(Body, frozen=True, tag_field="type", tag="client_secret_post"):
    client_secret: Secret | None = None


class RefreshUpdate(Body, frozen=True):
    refresh_token: Secret | None = None
    scope: str | None = None
    token_endpoint_auth: ClientSecretBasicUpdate | ClientSecretPostUpdate | None = None


class OAuthUpdate(Body, frozen=True, tag_field="type", tag="mcp_oauth"):
    access_token: Secret | None = None
    expires_at: str | UnsetType | None = UNSET
    refresh: RefreshUpdate | None = None


class BearerUpdate(Body, frozen=True, tag_field="type", tag="static_bearer"):
    token: Secret | None = None


class VariableUpdate(Body, frozen=True, tag_field="type", tag="environment_variable"):
    secret_value: Secret | None = None
    networking: AnyHost | AllowedHosts | None = None
    injection_location: InjectionLocation | None = None


class Create(Body, frozen=True):
    auth: OAuth | Bearer | Variable
    display_name: DisplayName | None = None
    metadata: Metadata = msgspec.field(default_factory=dict)


class Update(Body, frozen=True):
    auth: OAuthUpdate | BearerUpdate | VariableUpdate | UnsetType = UNSET
    display_name: DisplayName | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET


class ClientSecretBasicOut(Out, frozen=True, tag_field="type", tag="client_secret_basic"):
    """The client secret is not shown."""


class ClientSecretPostOut(Out, frozen=True, tag_field="type", tag="client_secret_post"):
    """The client secret is not shown."""


class RefreshOut(Out, frozen=True):
    client_id: str
    token_endpoint: str
    token_endpoint_auth: NoSecret | ClientSecretBasicOut | ClientSecretPostOut
    resource: str | None
    scope: str | None


class OAuthOut(Out, frozen=True, tag_field="type", tag="mcp_oauth"):
    mcp_server_url: str
    expires_at: str | None
    refresh: RefreshOut | None


class BearerOut(Out, frozen=True, tag_field="type", tag="static_bearer"):
    mcp_server_url: str


class InjectionLocationOut(Out, frozen=True):
    header: bool
    body: bool


class VariableOut(Out, frozen=True, tag_field="type", tag="environment_variable"):
    secret_name: str
    networking: AnyHost | AllowedHosts
    injection_location: InjectionLocationOut


class Credential(Out, frozen=True, tag_field="type", tag="vault_credential"):
    id: str
    vault_id: str
    auth: OAuthOut | BearerOut | VariableOut
    display_name: str | None
    metadata: dict[str, str]
    created_at: str
    updated_at: str
    archived_at: str | None


class CredentialDeleted(Deleted, frozen=True, tag_field="type", tag="vault_credential_deleted"):
    """The credential and its secrets were deleted."""


class Validation(Out, frozen=True, tag_field="type", tag="vault_credential_validation"):
    credential_id: str
    vault_id: str
    status: Literal["valid", "invalid", "unknown"]
    has_refresh_token: bool
    validated_at: str
    mcp_probe: None = None
    refresh: None = None


def show(record: Record) -> Credential:
    """Return a credential as the API shows it, without its secrets."""
    body = CredentialBody.of(record)
    return Credential(
        id=format_record_id(record),
        vault_id=ids.format_id("vlt", parent_id(record)),
        auth=msgspec.convert(body.auth, OAuthOut | BearerOut | VariableOut),
        display_name=body.display_name,
        metadata=body.metadata,
        **records.times(record),
    )


async def create(request: RestRequest) -> Credential:
    sent = await request.stored_body(Create)
    vault = await _vault(request)
    auth = msgspec.to_builtins(sent.auth)
    record = await request.hub.credentials.create(
        request.principal,
        vault,
        auth,
        display_name=sent.display_name,
        metadata=sent.metadata,
    )
    return show(record)


async def update(request: RestRequest) -> Credential:
    sent = await request.stored_body(Update)
    record = await request.hub.credentials.change(
        request.principal,
        await _find(request),
        None if isinstance(sent.auth, UnsetType) else msgspec.to_builtins(sent.auth),
        display_name=sent.display_name,
        metadata=sent.metadata,
    )
    return show(record)


async def retrieve(request: RestRequest) -> Credential:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[Credential]:
    return await records.page(request, kind((await _vault(request)).id), show)


async def archive(request: RestRequest) -> Credential:
    return show(await request.hub.credentials.archive(await _find(request)))


async def delete(request: RestRequest) -> CredentialDeleted:
    record = await _find(request)
    await request.hub.records.delete(record)
    return CredentialDeleted(id=format_record_id(record))


async def validate(request: RestRequest) -> Validation:
    """Answer that the state of a credential is unknown: this server does not try it."""
    record = await _find(request)
    return Validation(
        credential_id=format_record_id(record),
        vault_id=request.path_params["vault_id"],
        status="unknown",
        has_refresh_token=request.hub.credentials.has_refresh_token(record),
        validated_at=clock.to_rfc3339(clock.now()),
    )


async def _vault(request: RestRequest) -> Record:
    return await records.find(request, "vault", request.path_params["vault_id"])


async def _find(request: RestRequest) -> Record:
    vault = await _vault(request)
    return await records.find(request, kind(vault.id), request.path_params["credential_id"])
