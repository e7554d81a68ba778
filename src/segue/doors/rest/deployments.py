"""Deployments: what a session is made with, kept under a name, to be run again and again."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from ...model import clock, ids
from ...model.errors import InvalidInput
from ...store.base import Record
from . import bodies, events_in, records, resources, sessions, settings
from .call import Call

Events = Annotated[tuple[events_in.Initial, ...], Meta(min_length=1, max_length=50)]
Resources = Annotated[tuple[resources.Resource, ...], Meta(max_length=500)]
Vaults = Annotated[tuple[str, ...], Meta(max_length=50)]
Agent = str | bodies.AgentById

LIST = (
    "agent_id",
    "created_at[gte]",
    "created_at[lte]",
    "include_archived",
    "limit",
    "page",
    "status",
)


class Schedule(bodies.Body, frozen=True, tag_field="type", tag="cron"):
    expression: str
    timezone: str


class Create(bodies.Body, frozen=True):
    name: bodies.Name
    agent: Agent
    environment_id: str
    initial_events: Events
    description: bodies.Description | None = None
    metadata: bodies.Metadata = msgspec.field(default_factory=dict)
    resources: Resources = ()
    vault_ids: Vaults = ()
    schedule: Schedule | None = None
    budget: sessions.Budget | None = None


class Update(bodies.Body, frozen=True):
    name: bodies.Name | UnsetType = UNSET
    agent: Agent | UnsetType = UNSET
    environment_id: str | UnsetType = UNSET
    initial_events: Events | UnsetType = UNSET
    description: bodies.Description | UnsetType | None = UNSET
    metadata: bodies.MetadataPatch | UnsetType | None = UNSET
    resources: Resources | UnsetType | None = UNSET
    vault_ids: Vaults | UnsetType | None = UNSET
    schedule: Schedule | UnsetType | None = UNSET
    budget: sessions.Budget | UnsetType | None = UNSET


def show(record: Record) -> dict[str, Any]:
    body = record.body
    paused = body.get("paused", False)
    return {
        "type": "deployment",
        "id": records.spell(record),
        "name": body["name"],
        "description": body["description"],
        "agent": {"type": "agent", **body["agent"]},
        "environment_id": body["environment_id"],
        "initial_events": body["initial_events"],
        "resources": body["resources"],
        "vault_ids": body["vault_ids"],
        "metadata": body["metadata"],
        "schedule": None,
        "budget": None,
        "status": "paused" if paused else "active",
        "paused_reason": {"type": "manual"} if paused else None,
        **records.times(record),
    }


def show_run(record: Record) -> dict[str, Any]:
    return {
        "type": "deployment_run",
        "id": records.spell(record),
        "deployment_id": record.body["deployment_id"],
        "session_id": record.body["session_id"],
        "agent": {"type": "agent", **record.body["agent"]},
        "trigger_context": {"type": "manual"},
        "error": None,
        "created_at": clock.to_rfc3339(record.created_at),
    }


async def create(call: Call) -> dict[str, Any]:
    given = await call.body(Create)
    _refuse(given.schedule, given.budget)
    body = await _checked(call, given)
    return show(await call.hub.records.create(call.workspace, "deployment", body))


def _refuse(schedule: object, budget: object) -> None:
    if isinstance(schedule, Schedule):
        raise InvalidInput("schedule: this server runs deployments on request only")
    if isinstance(budget, sessions.Budget):
        raise InvalidInput("budget: this server has no price list to hold a session to")


async def _checked(call: Call, given: Create) -> dict[str, Any]:
    """A deployment as it is stored, if a session could be made with it now."""
    made_with = await sessions.prepare(call, _setup(given))
    for event in given.initial_events:
        events_in.initial(event)
    kept = msgspec.to_builtins(given)
    del kept["schedule"], kept["budget"]
    for resource in kept["resources"]:
        resource.pop("authorization_token", None)  # secrets are not kept
    return {
        **kept,
        "description": given.description or None,
        "agent": {
            "id": ids.spell("agent", made_with.agent.id),
            "version": made_with.agent.version,
        },
        "environment_id": ids.spell("env", made_with.environment_id),
        "vault_ids": [ids.spell("vlt", id) for id in made_with.vault_ids],
    }


def _setup(given: Create) -> sessions.Setup:
    return sessions.Setup(
        agent=given.agent,
        environment_id=given.environment_id,
        vault_ids=given.vault_ids,
        resources=given.resources,
    )


def _given(body: dict[str, Any]) -> Create:
    """A stored deployment as the request that would make it."""
    known = {name: body[name] for name in Create.__struct_fields__ if name in body}
    known["agent"] = {"type": "agent", **body["agent"]}
    return msgspec.convert(known, Create)


async def update(call: Call) -> dict[str, Any]:
    given = await call.body(Update)
    record = await _find(call)
    _refuse(given.schedule, given.budget)
    changes = {
        name: value or ()
        for name in ("resources", "vault_ids")
        if not isinstance(value := getattr(given, name), UnsetType)
    } | {
        name: value
        for name in ("name", "agent", "environment_id", "initial_events", "description")
        if not isinstance(value := getattr(given, name), UnsetType)
    }
    body = await _checked(call, replace(_given(record.body), **changes))

    def edit(current: Record) -> dict[str, Any]:
        edited = {**current.body, **{name: body[name] for name in changes}}
        if not isinstance(given.metadata, UnsetType):
            edited["metadata"] = settings.metadata(current.body["metadata"], given.metadata)
        return edited

    return show(await records.change(call, record, edit))


async def retrieve(call: Call) -> dict[str, Any]:
    return show(await _find(call))


async def list_(call: Call) -> dict[str, Any]:
    agent = call.params.text("agent_id")
    wanted = call.params.choice("status", "", "active", "paused")
    if wanted and call.params.flag("include_archived"):
        raise InvalidInput("status: cannot be combined with include_archived")

    def keep(record: Record) -> bool:
        return (agent is None or record.body["agent"]["id"] == agent) and (
            not wanted or record.body.get("paused", False) == (wanted == "paused")
        )

    return await records.page(call, "deployment", show, keep=keep)


async def archive(call: Call) -> dict[str, Any]:
    return show(await call.hub.records.archive(await _find(call)))


async def pause(call: Call) -> dict[str, Any]:
    return await _pause(call, True)


async def unpause(call: Call) -> dict[str, Any]:
    return await _pause(call, False)


async def _pause(call: Call, paused: bool) -> dict[str, Any]:
    record = await _find(call)
    changed = await records.change(call, record, lambda now: {**now.body, "paused": paused})
    return show(changed)


async def run(call: Call) -> dict[str, Any]:
    record = await _find(call)
    if record.archived_at is not None:
        raise InvalidInput(f"deployment {records.spell(record)} is archived")
    given = _given(record.body)
    made_with = await sessions.prepare(call, _setup(given))
    session = await sessions.make(
        call, made_with._replace(deployment_id=record.id), given.initial_events
    )
    body = {
        "deployment_id": records.spell(record),
        "session_id": ids.spell("sesn", session.id),
        "agent": record.body["agent"],
    }
    return show_run(await call.hub.records.create(call.workspace, "deployment_run", body))


async def retrieve_run(call: Call) -> dict[str, Any]:
    given = call.path["deployment_run_id"]
    return show_run(await records.find(call, "deployment_run", given))


async def list_runs(call: Call) -> dict[str, Any]:
    deployment = call.params.text("deployment_id")
    # Every run here was asked for, and one that could not begin was refused instead.
    failed = call.params.flag("has_error")
    scheduled = call.params.choice("trigger_type", "", "manual", "schedule") == "schedule"

    def keep(record: Record) -> bool:
        named = deployment is None or record.body["deployment_id"] == deployment
        return named and not failed and not scheduled

    return await records.page(call, "deployment_run", show_run, most=1000, keep=keep)


async def _find(call: Call) -> Record:
    return await records.find(call, "deployment", call.path["deployment_id"])
