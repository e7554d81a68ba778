"""Environments: where a session's tools run."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UnsetType, convert, to_builtins

from segue.hub.resources.record_ids import format_record_id
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings, requests
from segue.interfaces.rest.schemas.requests import Deleted, Out, Page
from segue.model.errors import InvalidInput
from segue.model.record import Record

_MANAGERS = ("apt", "cargo", "gem", "go", "npm", "pip")
_CLOUD: dict[str, Any] = {
    "type": "cloud",
    "networking": {"type": "unrestricted"},
    "packages": {"type": "packages", **{name: [] for name in _MANAGERS}},
}


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
    """Tools run with a worker of the client's."""


class Environment(Out, frozen=True, tag_field="type", tag="environment"):
    id: str
    name: str
    description: str
    config: CloudOut | SelfHostedOut
    metadata: dict[str, str]
    scope: Literal["organization", "account"] | None
    created_at: str
    updated_at: str
    archived_at: str | None


class EnvironmentDeleted(Deleted, frozen=True, tag_field="type", tag="environment_deleted"):
    """It is gone."""


def show(record: Record) -> Environment:
    return Environment(
        id=format_record_id(record),
        name=record.body["name"],
        # Null to clients of today, but older ones insist on text.
        description=record.body.get("description") or "",
        config=convert(record.body.get("config", _CLOUD), CloudOut | SelfHostedOut),
        metadata=record.body.get("metadata", {}),
        scope=record.body.get("scope"),
        **records.times(record),
    )


def _config(given: requests.Cloud | requests.SelfHosted | None, before: dict[str, Any]) -> Any:
    """The whole configuration; what is left out stays as it was."""
    if given is None:
        return before
    hosted = isinstance(given, requests.SelfHosted)
    if before and hosted != (before["type"] == "self_hosted"):
        raise InvalidInput("config.type: an environment stays what it is; create another one")
    if isinstance(given, requests.SelfHosted):
        return {"type": "self_hosted"}
    before = before or _CLOUD
    config = dict(before)
    if isinstance(given.networking, requests.Limited):
        config["networking"] = {
            "type": "limited",
            "allow_mcp_servers": bool(given.networking.allow_mcp_servers),
            "allow_package_managers": bool(given.networking.allow_package_managers),
            "allowed_hosts": list(given.networking.allowed_hosts or ()),
        }
    elif given.networking is not None:
        config["networking"] = {"type": "unrestricted"}
    if given.packages is not None:
        asked = to_builtins(given.packages)
        config["packages"] = {
            "type": "packages",
            **{name: asked[name] or [] for name in _MANAGERS},
        }
    return config


async def create(request: RestRequest) -> Environment:
    given = await request.body(requests.EnvironmentCreate)
    body = {
        "name": given.name,
        "description": given.description,
        "config": _config(given.config, {}) or _CLOUD,
        "metadata": given.metadata,
        "scope": given.scope,
    }
    return show(await request.hub.records.create(request.workspace, "environment", body))


async def update(request: RestRequest) -> Environment:
    given = await request.body(requests.EnvironmentUpdate)
    record = await _find(request)

    def edit(current: Record) -> dict[str, Any]:
        body = dict(current.body)
        if not isinstance(given.name, UnsetType) and given.name is not None:
            body["name"] = given.name
        if not isinstance(given.description, UnsetType):
            body["description"] = given.description
        if not isinstance(given.scope, UnsetType) and given.scope is not None:
            body["scope"] = given.scope
        if not isinstance(given.config, UnsetType):
            body["config"] = _config(given.config, body.get("config", _CLOUD))
        if not isinstance(given.metadata, UnsetType):
            # Here an empty value removes its key, too.
            patch = {key: value or None for key, value in (given.metadata or {}).items()}
            body["metadata"] = agent_settings.metadata(body.get("metadata", {}), patch)
        return body

    return show(await request.hub.records.change(record, edit))


async def retrieve(request: RestRequest) -> Environment:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[Environment]:
    return await records.page(request, "environment", show)


async def archive(request: RestRequest) -> Environment:
    return show(await request.hub.records.retire(await _own(request)))


async def delete(request: RestRequest) -> EnvironmentDeleted:
    record = await _own(request)
    await request.hub.records.delete(record)
    return EnvironmentDeleted(id=format_record_id(record))


async def _find(request: RestRequest) -> Record:
    return await records.find(request, "environment", request.path_params["environment_id"])


async def _own(request: RestRequest) -> Record:
    record = await _find(request)
    if request.hub.records.is_built_in(record):
        raise InvalidInput("the built-in environment cannot be archived or deleted")
    return record
