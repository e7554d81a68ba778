"""Credentials in vaults. Their secrets are encrypted when they arrive and never shown again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.hub.resources.credentials import CredentialBody, CredentialEdit, kind
from segue.hub.resources.record_ids import format_record_id, parent_id
from segue.hub.resources.records import patch_metadata
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import Body, Deleted, Metadata, MetadataPatch, Out, Page
from segue.model import clock, ids
from segue.model.errors import InvalidInput
from segue.model.record import Record

Secret = Annotated[str, Meta(min_length=1, max_length=65_536)]
URL = Annotated[str, Meta(pattern=r"^https?://", max_length=2048)]
Host = Annotated[str, Meta(pattern=r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$")]
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
    secret_name: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)]
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


def _split_secrets(sent: OAuth | Bearer | Variable) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of `auth` that the API shows, and the secrets."""
    auth: dict[str, Any] = msgspec.to_builtins(sent)
    secrets: dict[str, str] = {}
    match sent:
        case OAuth():
            auth["expires_at"] = _parse_time(sent.expires_at)
            secrets["access_token"] = auth.pop("access_token")
            if sent.refresh is not None:
                secrets["refresh_token"] = auth["refresh"].pop("refresh_token")
                endpoint_auth = auth["refresh"]["token_endpoint_auth"]
                if "client_secret" in endpoint_auth:
                    secrets["client_secret"] = endpoint_auth.pop("client_secret")
        case Bearer():
            secrets["token"] = auth.pop("token")
        case Variable():
            secrets["secret_value"] = auth.pop("secret_value")
            auth["injection_location"] = _patch_location(
                {"header": True, "body": False}, sent.injection_location
            )
    return auth, secrets


def _patch_location(location: dict[str, bool], patch: InjectionLocation | None) -> dict[str, bool]:
    """Return where a variable is injected. Raises InvalidInput if no location is enabled."""
    sent = {} if patch is None else msgspec.to_builtins(patch)
    patched = {**location, **{name: value for name, value in sent.items() if value is not None}}
    if not any(patched.values()):
        raise InvalidInput("injection_location: at least one location must be enabled")
    return patched


def _parse_time(text: str | None) -> str | None:
    """Return a time in UTC. Raises InvalidInput if it is not an RFC 3339 time."""
    if text is None:
        return None
    try:
        return clock.to_rfc3339(clock.from_rfc3339(text))
    except (ValueError, OverflowError):
        raise InvalidInput("expires_at: must be an RFC 3339 time") from None


def _patch_auth(
    auth: dict[str, Any], patch: OAuthUpdate | BearerUpdate | VariableUpdate
) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return `auth` after an update, and the secrets that the update replaces, or None for each.

    Raises InvalidInput if the update is for another type of credential.
    """
    if patch.__struct_config__.tag != auth["type"]:
        raise InvalidInput(f"auth.type: is {auth['type']}, and cannot be changed")
    match patch:
        case BearerUpdate():
            return auth, {"token": patch.token}
        case VariableUpdate():
            return _patch_variable(auth, patch), {"secret_value": patch.secret_value}
        case OAuthUpdate():
            return _patch_oauth(auth, patch)


def _patch_variable(auth: dict[str, Any], patch: VariableUpdate) -> dict[str, Any]:
    location = _patch_location(auth["injection_location"], patch.injection_location)
    patched = {**auth, "injection_location": location}
    if patch.networking is not None:
        patched["networking"] = msgspec.to_builtins(patch.networking)
    return patched


def _patch_oauth(
    auth: dict[str, Any], patch: OAuthUpdate
) -> tuple[dict[str, Any], dict[str, str | None]]:
    patched = dict(auth)
    secrets: dict[str, str | None] = {"access_token": patch.access_token}
    if not isinstance(patch.expires_at, UnsetType):
        patched["expires_at"] = _parse_time(patch.expires_at)
    if patch.refresh is not None:
        if auth["refresh"] is None:
            raise InvalidInput("auth.refresh: the credential has no refresh token to change")
        refresh = dict(auth["refresh"])
        if patch.refresh.scope is not None:
            refresh["scope"] = patch.refresh.scope or None
        endpoint_auth = patch.refresh.token_endpoint_auth
        if endpoint_auth is not None:
            if refresh["token_endpoint_auth"]["type"] == "none":
                raise InvalidInput("auth.refresh: the token endpoint takes no secret")
            secrets["client_secret"] = endpoint_auth.client_secret
        secrets["refresh_token"] = patch.refresh.refresh_token
        patched["refresh"] = refresh
    return patched, secrets


async def create(request: RestRequest) -> Credential:
    sent = await request.body(Create)
    vault = await _vault(request)
    auth, secrets = _split_secrets(sent.auth)
    record = await request.hub.credentials.create(
        vault, auth, secrets, display_name=sent.display_name, metadata=sent.metadata
    )
    return show(record)


async def update(request: RestRequest) -> Credential:
    sent = await request.body(Update)

    def edit(credential: CredentialEdit) -> None:
        if not isinstance(sent.auth, UnsetType):
            credential.auth, secrets = _patch_auth(credential.auth, sent.auth)
            credential.new_secrets = {
                name: value for name, value in secrets.items() if value is not None
            }
        if not isinstance(sent.display_name, UnsetType):
            credential.display_name = sent.display_name
        if not isinstance(sent.metadata, UnsetType):
            credential.metadata = patch_metadata(credential.metadata, sent.metadata)

    return show(await request.hub.credentials.change(await _find(request), edit))


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
