"""Environments: create, update, list, archive and delete them."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import UnsetType, convert, to_builtins
from msgspec.structs import replace

from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import EnvironmentBody, patch_metadata
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import requests
from segue.interfaces.rest.schemas.requests import Deleted, Out, Page
from segue.model.errors import InvalidInput
from segue.model.record import Record

_PACKAGE_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")
_DEFAULT_CONFIG: dict[str, Any] = {
    "type": "cloud",
    "networking": {"type": "unrestricted"},
    "packages": {"type": "packages", **{name: [] for name in _PACKAGE_MANAGERS}},
}


Scope = Literal["organization", "account"]


class LimitedOut(Out, frozen=True, tag_field="type", tag="limited"):
    allow_mcp_servers: bool
    allow_package_managers: bool
    allowed_hosts: list[str]


class PackagesOut(Out, frozen=True, tag_field="type", tag="packages"):
    apt: list[str]
    cargo: list[str]
    gem: list[str]
    go: list[str]
    npm: list[str]
    pip: list[str]


class CloudOut(Out, frozen=True, tag_field="type", tag="cloud"):
    networking: requests.Unrestricted | LimitedOut
    packages: PackagesOut


class SelfHostedOut(Out, frozen=True, tag_field="type", tag="self_hosted"):
    """A worker of the client runs the tools."""


class Environment(Out, frozen=True, tag_field="type", tag="environment"):
    id: str
    name: str
    description: str
    config: CloudOut | SelfHostedOut
    metadata: dict[str, str]
    scope: Scope | None
    created_at: str
    updated_at: str
    archived_at: str | None


class EnvironmentDeleted(Deleted, frozen=True, tag_field="type", tag="environment_deleted"):
    """The environment was deleted."""


def show(record: Record) -> Environment:
    """Return an environment as the API shows it."""
    body = EnvironmentBody.of(record)
    return Environment(
        id=format_record_id(record),
        name=body.name,
        # Current clients accept null, older ones need text.
        description=body.description or "",
        config=convert(body.config or _DEFAULT_CONFIG, CloudOut | SelfHostedOut),
        metadata=body.metadata,
        scope=cast(Scope | None, body.scope),
        **records.times(record),
    )


def _patch_config(
    config: dict[str, Any], sent: requests.Cloud | requests.SelfHosted
) -> dict[str, Any]:
    """Return a configuration with the fields of a request.

    Raises InvalidInput if the request changes the type.
    """
    if isinstance(sent, requests.SelfHosted) != (config["type"] == "self_hosted"):
        raise InvalidInput(
            "config.type: the type of an environment cannot be changed; create another one"
        )
    if isinstance(sent, requests.SelfHosted):
        return config
    config = dict(config)
    if isinstance(sent.networking, requests.Limited):
        config["networking"] = {
            "type": "limited",
            "allow_mcp_servers": bool(sent.networking.allow_mcp_servers),
            "allow_package_managers": bool(sent.networking.allow_package_managers),
            "allowed_hosts": list(sent.networking.allowed_hosts or ()),
        }
    elif sent.networking is not None:
        config["networking"] = {"type": "unrestricted"}
    if sent.packages is not None:
        packages = to_builtins(sent.packages)
        config["packages"] = {
            "type": "packages",
            **{name: packages[name] or [] for name in _PACKAGE_MANAGERS},
        }
    return config


async def create(request: RestRequest) -> Environment:
    sent = await request.body(requests.EnvironmentCreate)
    config = _DEFAULT_CONFIG
    if isinstance(sent.config, requests.SelfHosted):
        config = {"type": "self_hosted"}
    elif sent.config is not None:
        config = _patch_config(config, sent.config)
    body = EnvironmentBody(
        name=sent.name,
        description=sent.description,
        config=config,
        metadata=sent.metadata,
        scope=sent.scope,
    )
    return show(await request.hub.records.create(request.workspace, "environment", body.encode()))


async def update(request: RestRequest) -> Environment:
    sent = await request.body(requests.EnvironmentUpdate)
    record = await _find(request)

    def edit(current: Record) -> dict[str, Any]:
        body = EnvironmentBody.of(current)
        if not isinstance(sent.name, UnsetType) and sent.name is not None:
            body = replace(body, name=sent.name)
        if not isinstance(sent.description, UnsetType):
            body = replace(body, description=sent.description)
        if not isinstance(sent.scope, UnsetType) and sent.scope is not None:
            body = replace(body, scope=sent.scope)
        if not isinstance(sent.config, UnsetType) and sent.config is not None:
            body = replace(body, config=_patch_config(body.config or _DEFAULT_CONFIG, sent.config))
        if not isinstance(sent.metadata, UnsetType):
            # For environments an empty value deletes its key, too.
            patch = {key: value or None for key, value in (sent.metadata or {}).items()}
            body = replace(body, metadata=patch_metadata(body.metadata, patch))
        return body.encode()

    return show(await request.hub.records.change(record, edit))


async def retrieve(request: RestRequest) -> Environment:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[Environment]:
    return await records.page(request, "environment", show)


async def archive(request: RestRequest) -> Environment:
    return show(await request.hub.records.retire(await _find_deletable(request)))


async def delete(request: RestRequest) -> EnvironmentDeleted:
    record = await _find_deletable(request)
    await request.hub.records.delete(record)
    return EnvironmentDeleted(id=format_record_id(record))


async def _find(request: RestRequest) -> Record:
    return await records.find(request, "environment", request.path_params["environment_id"])


async def _find_deletable(request: RestRequest) -> Record:
    """Return the environment in the path. Raises InvalidInput for the built-in environment."""
    record = await _find(request)
    if request.hub.records.is_built_in(record):
        raise InvalidInput("the built-in environment cannot be archived or deleted")
    return record
