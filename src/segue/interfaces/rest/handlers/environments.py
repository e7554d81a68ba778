"""Environments: create, update, list, archive and delete them."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import UNSET, convert, to_builtins
from msgspec.structs import replace

from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import (
    DEFAULT_CONFIG,
    INSTALLED,
    PACKAGE_MANAGERS,
    EnvironmentBody,
    patch_config,
    patch_metadata,
    with_sent,
)
from segue.hub.workdir.isolation import can_install, can_limit_network
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import requests
from segue.interfaces.rest.schemas.requests import Deleted, Out, Page
from segue.model.errors import InvalidInput
from segue.model.record import Record

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
        config=convert(body.config or DEFAULT_CONFIG, CloudOut | SelfHostedOut),
        metadata=body.metadata,
        scope=cast(Scope | None, body.scope),
        **records.times(record),
    )


async def create(request: RestRequest) -> Environment:
    sent = await request.stored_body(requests.EnvironmentCreate)
    _check(sent)
    config = DEFAULT_CONFIG
    if isinstance(sent.config, requests.SelfHosted):
        config = to_builtins(sent.config)
    elif sent.config is not None:
        config = patch_config(config, to_builtins(sent.config))
    body = EnvironmentBody(
        name=sent.name,
        description=sent.description,
        config=config,
        metadata=sent.metadata,
        scope=sent.scope,
    )
    return show(await request.hub.records.create(request.workspace, "environment", body.encode()))


async def update(request: RestRequest) -> Environment:
    sent = await request.stored_body(requests.EnvironmentUpdate)
    _check(sent)
    record = await _find(request)

    def edit(current: Record) -> dict[str, Any]:
        body = EnvironmentBody.of(current)
        # For environments an empty value deletes its key, too.
        patch = {key: value or None for key, value in (sent.metadata or {}).items()}
        body = with_sent(
            body,
            name=sent.name or UNSET,
            description=sent.description,
            scope=sent.scope or UNSET,
            metadata=patch_metadata(body.metadata, patch),
        )
        if sent.config:
            config = patch_config(body.config or DEFAULT_CONFIG, to_builtins(sent.config))
            body = replace(body, config=config)
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


def _check(sent: requests.EnvironmentCreate | requests.EnvironmentUpdate) -> None:
    """Raise InvalidInput, with the name of the field, for settings that segue does not apply."""
    if sent.scope == "account":
        raise InvalidInput("scope: environments belong to a workspace; no other scope exists here")
    if not isinstance(sent.config, requests.Cloud):
        return
    if isinstance(sent.config.networking, requests.Limited) and not can_limit_network():
        raise InvalidInput(
            "config.networking: this server cannot restrict the network access of programs, which"
            " needs Landlock of Linux 6.12 or newer"
        )
    packages = sent.config.packages
    for manager in PACKAGE_MANAGERS:
        if getattr(packages, manager, None):
            _check_manager(manager)


def _check_manager(manager: str) -> None:
    """Raise InvalidInput if packages of a manager cannot be installed."""
    if manager not in INSTALLED:
        raise InvalidInput(
            f"config.packages.{manager}: segue installs packages of {' and '.join(INSTALLED)} only,"
            " and never changes the server's system"
        )
    if not can_limit_network():
        raise InvalidInput(
            f"config.packages.{manager}: this server cannot install packages in a sandbox, which"
            " needs Landlock of Linux 6.12 or newer"
        )
    if not can_install(manager):
        raise InvalidInput(f"config.packages.{manager}: {manager} is not installed on this server")


async def _find(request: RestRequest) -> Record:
    return await records.find(request, "environment", request.path_params["environment_id"])


async def _find_deletable(request: RestRequest) -> Record:
    """Return the environment in the path. Raises InvalidInput for the built-in environment."""
    record = await _find(request)
    if request.hub.records.is_built_in(record):
        raise InvalidInput("the built-in environment cannot be archived or deleted")
    return record
