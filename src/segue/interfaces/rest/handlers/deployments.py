"""Deployments: create, update, list, pause, archive and run them."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, to_builtins

from segue.hub.resources.attachments import Attachment
from segue.hub.resources.first_events import FirstEvent
from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.scheduling import deployments
from segue.hub.resources.scheduling.deployments import DeploymentBody, DeploymentSettings, RunBody
from segue.interfaces.rest import records
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import requests
from segue.interfaces.rest.schemas.requests import Out, Page
from segue.interfaces.rest.schemas.session import BudgetOut, budget
from segue.model import clock
from segue.model.anthropic.agents import AgentReference
from segue.model.errors import InvalidInput
from segue.model.record import Record

from . import agents, resources, sessions

Events = Annotated[tuple[FirstEvent, ...], Meta(min_length=1, max_length=50)]
Resources = Annotated[tuple[resources.Resource, ...], Meta(max_length=500)]
Vaults = Annotated[tuple[str, ...], Meta(max_length=50)]
MAX_UPCOMING_RUNS = 5
Agent = str | requests.AgentById

FILTERS = (
    "agent_id",
    "created_at[gte]",
    "created_at[lte]",
    "include_archived",
    "limit",
    "page",
    "status",
)


class Schedule(requests.Body, frozen=True, tag_field="type", tag="cron"):
    expression: Annotated[str, Meta(max_length=255)]
    timezone: Annotated[str, Meta(max_length=64)]


class Create(requests.Body, frozen=True):
    name: requests.Name
    agent: Agent
    environment_id: str
    initial_events: Events
    description: requests.Description | None = None
    metadata: requests.Metadata = msgspec.field(default_factory=dict)
    resources: Resources = ()
    vault_ids: Vaults = ()
    schedule: Schedule | None = None
    budget: sessions.Budget | None = None


class Update(requests.Body, frozen=True):
    name: requests.Name | UnsetType = UNSET
    agent: Agent | UnsetType = UNSET
    environment_id: str | UnsetType = UNSET
    initial_events: Events | UnsetType = UNSET
    description: requests.Description | UnsetType | None = UNSET
    metadata: requests.MetadataPatch | UnsetType | None = UNSET
    resources: Resources | UnsetType | None = UNSET
    vault_ids: Vaults | UnsetType | None = UNSET
    schedule: Schedule | UnsetType | None = UNSET
    budget: sessions.Budget | UnsetType | None = UNSET


class Manual(Out, frozen=True, tag_field="type", tag="manual"):
    """A client requested it."""


class PausingError(Out, frozen=True):
    """Why a scheduled run created no session."""

    type: str
    message: str


class Failed(Out, frozen=True, tag_field="type", tag="error"):
    error: PausingError


class ScheduleOut(Out, frozen=True, tag_field="type", tag="cron"):
    expression: str
    timezone: str
    last_run_at: str | None
    upcoming_runs_at: list[str]


class Scheduled(Out, frozen=True, tag_field="type", tag="schedule"):
    """The schedule started the run."""

    scheduled_at: str


class Deployment(Out, frozen=True, tag_field="type", tag="deployment"):
    id: str
    name: str
    description: str | None
    agent: AgentReference
    environment_id: str
    initial_events: list[dict[str, Any]]
    resources: list[dict[str, Any]]
    vault_ids: list[str]
    metadata: dict[str, str]
    status: Literal["active", "paused"]
    paused_reason: Manual | Failed | None
    created_at: str
    updated_at: str
    archived_at: str | None
    schedule: ScheduleOut | None
    budget: BudgetOut | None


class RunError(Out, frozen=True):
    """Why a run created no session, or a session without some of its resources."""

    type: str
    message: str


class Run(Out, frozen=True, tag_field="type", tag="deployment_run"):
    id: str
    deployment_id: str
    session_id: str | None
    agent: AgentReference
    trigger_context: Manual | Scheduled
    error: RunError | None
    created_at: str


def show(record: Record) -> Deployment:
    """Return a deployment as the API shows it."""
    body = DeploymentBody.of(record)
    paused_reason: Manual | Failed | None = None
    if body.paused and body.paused_by is not None:
        error = body.paused_by
        paused_reason = Failed(error=PausingError(type=error.type, message=error.message))
    elif body.paused:
        paused_reason = Manual()
    return Deployment(
        id=format_record_id(record),
        name=body.name,
        description=body.description,
        agent=AgentReference(id=body.agent.id, version=body.agent.version),
        environment_id=body.environment_id,
        initial_events=to_builtins(body.initial_events),
        resources=[_show_resource(resource) for resource in body.resources],
        vault_ids=list(body.vault_ids),
        metadata=body.metadata,
        status="paused" if body.paused else "active",
        paused_reason=paused_reason,
        schedule=_show_schedule(body, archived=record.archived_at is not None),
        budget=budget(body.budget),
        **records.times(record),
    )


def _show_resource(resource: Attachment) -> dict[str, Any]:
    fields: dict[str, Any] = to_builtins(resource)
    fields.pop("authorization_token", None)
    return fields


def _show_schedule(body: DeploymentBody, *, archived: bool) -> ScheduleOut | None:
    if body.schedule is None:
        return None
    upcoming = islice(body.schedule.timetable().after(clock.now()), MAX_UPCOMING_RUNS)
    return ScheduleOut(
        expression=body.schedule.expression,
        timezone=body.schedule.timezone,
        last_run_at=None if body.last_run_at is None else clock.to_rfc3339(body.last_run_at),
        upcoming_runs_at=[] if archived else [clock.to_rfc3339(at) for at in upcoming],
    )


def show_run(record: Record) -> Run:
    """Return a run as the API shows it."""
    body = RunBody.of(record)
    due, error = body.scheduled_at, body.error
    return Run(
        id=format_record_id(record),
        deployment_id=body.deployment_id,
        session_id=body.session_id,
        agent=AgentReference(id=body.agent.id, version=body.agent.version),
        trigger_context=Manual() if due is None else Scheduled(scheduled_at=clock.to_rfc3339(due)),
        error=None if error is None else RunError(type=error.type, message=error.message),
        created_at=clock.to_rfc3339(record.created_at),
    )


async def create(request: RestRequest) -> Deployment:
    sent = await request.stored_body(Create)
    settings = DeploymentSettings(
        name=sent.name,
        description=sent.description,
        agent=await agents.choice(request, sent.agent),
        environment_id=sent.environment_id,
        initial_events=sent.initial_events,
        resources=sent.resources,
        vault_ids=sent.vault_ids,
        metadata=sent.metadata,
        budget=sessions.cost_limit(sent.budget),
    )
    schedule = _schedule(sent.schedule)
    return show(await request.hub.deployments.create(request.principal, settings, schedule))


def _schedule(schedule: Schedule | None) -> deployments.Schedule | None:
    if schedule is None:
        return None
    return deployments.Schedule(expression=schedule.expression, timezone=schedule.timezone)


async def update(request: RestRequest) -> Deployment:
    sent = await request.stored_body(Update)
    record = await _find(request)
    changes: dict[str, Any] = {
        name: value
        for name in ("name", "environment_id", "initial_events", "description")
        if not isinstance(value := getattr(sent, name), UnsetType)
    }
    for name in ("resources", "vault_ids"):
        if not isinstance(value := getattr(sent, name), UnsetType):
            changes[name] = value or ()
    if not isinstance(sent.agent, UnsetType):
        changes["agent"] = await agents.choice(request, sent.agent)
    if not isinstance(sent.budget, UnsetType):
        changes["budget"] = sessions.cost_limit(sent.budget)

    changed = await request.hub.deployments.update(
        request.principal,
        record,
        changes,
        schedule=UNSET if isinstance(sent.schedule, UnsetType) else _schedule(sent.schedule),
        metadata=sent.metadata,
    )
    return show(changed)


async def retrieve(request: RestRequest) -> Deployment:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[Deployment]:
    agent = request.params.id("agent_id")
    status = request.params.choice("status", "", "active", "paused")
    if status and request.params.flag("include_archived"):
        raise InvalidInput("status: cannot be combined with include_archived")

    def matches(record: Record) -> bool:
        body = DeploymentBody.of(record)
        return (agent is None or body.agent.id == agent) and (
            not status or body.paused == (status == "paused")
        )

    return await records.page(request, "deployment", show, keep=matches)


async def archive(request: RestRequest) -> Deployment:
    return show(await request.hub.deployments.archive(await _find(request)))


async def pause(request: RestRequest) -> Deployment:
    return show(await request.hub.deployments.set_paused(await _find(request), paused=True))


async def unpause(request: RestRequest) -> Deployment:
    return show(await request.hub.deployments.set_paused(await _find(request), paused=False))


async def run(request: RestRequest) -> Run:
    """Create a session, or record why that failed."""
    record = await _find(request)
    return show_run(await request.hub.deployments.run(request.principal, record))


async def retrieve_run(request: RestRequest) -> Run:
    name = request.path_params["deployment_run_id"]
    return show_run(await records.find(request, "deployment_run", name))


async def list_runs(request: RestRequest) -> Page[Run]:
    deployment = request.params.id("deployment_id")
    failed = request.params.flag("has_error") if request.params.text("has_error") else None
    trigger = request.params.choice("trigger_type", "", "manual", "schedule")

    def matches(record: Record) -> bool:
        body = RunBody.of(record)
        return (
            (deployment is None or body.deployment_id == deployment)
            and (failed is None or failed == (body.error is not None))
            and trigger in ("", "manual" if body.scheduled_at is None else "schedule")
        )

    return await records.page(request, "deployment_run", show_run, max_limit=1000, keep=matches)


async def _find(request: RestRequest) -> Record:
    return await records.find(request, "deployment", request.path_params["deployment_id"])
