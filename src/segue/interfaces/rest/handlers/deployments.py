"""Deployments: what a session is made with, kept under a name, to be run again and again."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from segue.hub.resources import cron
from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import new
from segue.interfaces.rest import records
from segue.interfaces.rest.events import send
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import agent_settings, requests
from segue.interfaces.rest.schemas.agent import AgentReference
from segue.interfaces.rest.schemas.requests import Out, Page
from segue.interfaces.rest.schemas.session import BudgetOut
from segue.model import clock, ids
from segue.model.errors import InvalidInput, NotFound, SegueError
from segue.model.record import Record

from . import resources, scheduler, sessions

Events = Annotated[tuple[send.Opening, ...], Meta(min_length=1, max_length=50)]
Resources = Annotated[tuple[resources.Resource, ...], Meta(max_length=500)]
Vaults = Annotated[tuple[str, ...], Meta(max_length=50)]
_UPCOMING = 5
log = logging.getLogger("segue.rest")
Agent = str | requests.AgentById

LIST = (
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
    """Somebody asked for it."""


class PausingError(Out, frozen=True):
    """Why a run by schedule made no session."""

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
    """Its time had come."""

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
    """Why a run made no session, or not one that works on what it should."""

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
    body = record.body
    paused = body.get("paused", False)
    why = body.get("paused_by")
    reason = Failed(error=PausingError(**why)) if why else Manual()
    return Deployment(
        id=format_record_id(record),
        name=body["name"],
        description=body["description"],
        agent=AgentReference(**body["agent"]),
        environment_id=body["environment_id"],
        initial_events=body["initial_events"],
        resources=body["resources"],
        vault_ids=body["vault_ids"],
        metadata=body["metadata"],
        status="paused" if paused else "active",
        paused_reason=reason if paused else None,
        schedule=_show_schedule(record),
        budget=_show_budget(body.get("budget")),
        **records.times(record),
    )


def _show_budget(kept: dict[str, Any] | None) -> BudgetOut | None:
    return None if kept is None else msgspec.convert(kept, BudgetOut)


def _show_schedule(record: Record) -> ScheduleOut | None:
    times = scheduler.timetable(record)
    if times is None:
        return None
    last = record.body.get("last_run_at")
    coming = () if record.archived_at is not None else islice(times.after(clock.now()), _UPCOMING)
    return ScheduleOut(
        **record.body["schedule"],
        last_run_at=None if last is None else clock.to_rfc3339(last),
        upcoming_runs_at=[clock.to_rfc3339(at) for at in coming],
    )


def show_run(record: Record) -> Run:
    error = record.body.get("error")
    due = record.body.get("scheduled_at")
    return Run(
        id=format_record_id(record),
        deployment_id=record.body["deployment_id"],
        session_id=record.body["session_id"],
        agent=AgentReference(**record.body["agent"]),
        trigger_context=Manual() if due is None else Scheduled(scheduled_at=clock.to_rfc3339(due)),
        error=error and RunError(**error),
        created_at=clock.to_rfc3339(record.created_at),
    )


async def create(request: RestRequest) -> Deployment:
    given = await request.body(Create)
    id = ids.new_id()
    body = await _checked(request, given, id) | _scheduled(given.schedule)
    made = new(request.workspace, "deployment", body, id)
    marks = [] if given.schedule is None else [scheduler.mark(made)]
    await request.hub.records.put(made, *marks)
    return show(made)


def _scheduled(given: Schedule | None) -> dict[str, Any]:
    """A schedule as it is stored, if it can be kept."""
    if given is None:
        return {"schedule": None}
    try:
        cron.parse(given.expression, given.timezone)
    except InvalidInput as error:
        raise InvalidInput(f"schedule.{error.message}") from None
    kept = {"expression": given.expression, "timezone": given.timezone}
    return {"schedule": kept, "scheduled_from": clock.now()}


async def _checked(request: RestRequest, given: Create, id: str) -> dict[str, Any]:
    """A deployment as it is stored, if a session could be made with it now."""
    made_with = await sessions.prepare(request, _setup(given))
    await send.openings(request, given.initial_events)
    await request.hub.records.store_built_in(
        request.workspace, made_with.agent, made_with.environment_id
    )
    kept = msgspec.to_builtins(given)
    del kept["schedule"]
    tokens = {
        str(place): request.hub.secrets.seal(token, request.workspace, "deployment", id, str(place))
        for place, resource in enumerate(kept["resources"])
        if (token := resource.pop("authorization_token", None))
    }
    return {
        **kept,
        "tokens": tokens,
        "description": given.description or None,
        "agent": {
            "id": ids.format_id("agent", made_with.agent.id),
            "version": made_with.agent.version,
        },
        "environment_id": ids.format_id("env", made_with.environment_id),
        "vault_ids": [ids.format_id("vlt", id) for id in made_with.vault_ids],
    }


def _setup(given: Create) -> sessions.Setup:
    return sessions.Setup(
        agent=given.agent,
        environment_id=given.environment_id,
        vault_ids=given.vault_ids,
        resources=given.resources,
        budget=given.budget,
    )


def _given(request: RestRequest, record: Record) -> Create:
    """A stored deployment as the request that would make it."""
    body = record.body
    names = [name for name in Create.__struct_fields__ if name != "schedule"]
    known = {name: body[name] for name in names if name in body}
    known["agent"] = {"type": "agent", **body["agent"]}
    known["resources"] = [dict(resource) for resource in body["resources"]]
    for place, sealed in body.get("tokens", {}).items():
        token = request.hub.secrets.open(sealed, request.workspace, "deployment", record.id, place)
        known["resources"][int(place)]["authorization_token"] = token
    return msgspec.convert(known, Create)


async def update(request: RestRequest) -> Deployment:
    given = await request.body(Update)
    record = await _find(request)
    plan = {} if isinstance(given.schedule, UnsetType) else _scheduled(given.schedule)
    changes = {
        name: value or ()
        for name in ("resources", "vault_ids")
        if not isinstance(value := getattr(given, name), UnsetType)
    } | {
        name: value
        for name in ("name", "agent", "environment_id", "initial_events", "description", "budget")
        if not isinstance(value := getattr(given, name), UnsetType)
    }
    body = await _checked(request, replace(_given(request, record), **changes), record.id)

    def edit(current: Record) -> dict[str, Any]:
        edited = {**current.body, **{name: body[name] for name in changes}, **plan}
        if "resources" in changes:
            edited["tokens"] = body["tokens"]
        if not isinstance(given.metadata, UnsetType):
            edited["metadata"] = agent_settings.metadata(current.body["metadata"], given.metadata)
        return edited

    changed = await request.hub.records.change(record, edit)
    if plan.get("schedule") is not None:
        await scheduler.note(request.hub, changed)
    return show(changed)


async def retrieve(request: RestRequest) -> Deployment:
    return show(await _find(request))


async def list_(request: RestRequest) -> Page[Deployment]:
    agent = request.params.text("agent_id")
    wanted = request.params.choice("status", "", "active", "paused")
    if wanted and request.params.flag("include_archived"):
        raise InvalidInput("status: cannot be combined with include_archived")

    def keep(record: Record) -> bool:
        return (agent is None or record.body["agent"]["id"] == agent) and (
            not wanted or record.body.get("paused", False) == (wanted == "paused")
        )

    return await records.page(request, "deployment", show, keep=keep)


async def archive(request: RestRequest) -> Deployment:
    return show(await request.hub.records.retire(await _find(request)))


async def pause(request: RestRequest) -> Deployment:
    return await _pause(request, True)


async def unpause(request: RestRequest) -> Deployment:
    return await _pause(request, False)


async def _pause(request: RestRequest, paused: bool) -> Deployment:
    record = await _find(request)

    def edit(now: Record) -> dict[str, Any]:
        if now.body.get("paused", False) == paused:
            return now.body
        # What came due meanwhile stays undone.
        return {**now.body, "paused": paused, "paused_by": None, "scheduled_from": clock.now()}

    return show(await request.hub.records.change(record, edit))


async def run(request: RestRequest) -> Run:
    """A session, or a record of why there is none."""
    record = await _find(request)
    if record.archived_at is not None:
        raise InvalidInput(f"deployment {format_record_id(record)} is archived")
    return show_run(await _run(request, record, None))


async def fire(request: RestRequest, record: Record, due: int) -> None:
    """Run a deployment whose time has come; one that cannot be run is paused.

    What failed otherwise, as a server's disk may, is tried again at the next time.
    """
    error = (await _run(request, record, due)).body.get("error")
    if error is None or error["type"] == "unknown_error":
        return
    if error["type"] == "session_creation_rejected_error":
        error = {**error, "type": "unknown_error"}

    def edit(now: Record) -> dict[str, Any]:
        return {**now.body, "paused": True, "paused_by": error}

    await request.hub.records.change(record, edit)


async def _run(request: RestRequest, record: Record, due: int | None) -> Record:
    body: dict[str, Any] = {
        "deployment_id": format_record_id(record),
        "session_id": None,
        "agent": record.body["agent"],
        "scheduled_at": due,
    }
    id = ids.new_id()
    try:
        given = _given(request, record)
        made_with = await sessions.prepare(request, _setup(given))
        made_with = made_with._replace(deployment_id=record.id)
        await sessions.make(request, made_with, given.initial_events, id=id)
        body["session_id"] = ids.format_id("sesn", id)
    except Exception as error:
        body["error"] = await _failure(request, id, error)
    return await request.hub.records.create(request.workspace, "deployment_run", body)


async def _failure(request: RestRequest, id: str, error: Exception) -> dict[str, str]:
    """Why a run has come to nothing, or to a session that was not told what it should be."""
    told = "the server failed; its log says more"
    if isinstance(error, SegueError):
        told = error.message
    else:
        log.error("a deployment could not be run", exc_info=error)
    if await request.hub.store.get(request.workspace, id) is not None:
        told = f"session {ids.format_id('sesn', id)} was made, and then: {told}"
        return {"type": "unknown_error", "message": told}
    kind = _reason(error) if isinstance(error, InvalidInput | NotFound) else "unknown_error"
    return {"type": kind, "message": told}


def _reason(error: InvalidInput | NotFound) -> str:
    """Which error of a run it is, as clients know them."""
    missing, archived = error.data.get("missing"), error.data.get("archived")
    if missing in ("environment", "vault", "file", "skill"):
        return f"{missing}_not_found_error"
    if missing == "memory_store":
        return "session_resource_not_found_error"
    if archived in ("environment", "agent", "vault", "memory_store"):
        return f"{archived}_archived_error"
    return "session_creation_rejected_error"


async def retrieve_run(request: RestRequest) -> Run:
    given = request.path_params["deployment_run_id"]
    return show_run(await records.find(request, "deployment_run", given))


async def list_runs(request: RestRequest) -> Page[Run]:
    deployment = request.params.text("deployment_id")
    failed = request.params.flag("has_error") if request.params.text("has_error") else None
    trigger = request.params.choice("trigger_type", "", "manual", "schedule")

    def keep(record: Record) -> bool:
        named = deployment is None or record.body["deployment_id"] == deployment
        wanted = failed is None or failed == ("error" in record.body)
        by = "manual" if record.body.get("scheduled_at") is None else "schedule"
        return named and wanted and trigger in ("", by)

    return await records.page(request, "deployment_run", show_run, max_limit=1000, keep=keep)


async def _find(request: RestRequest) -> Record:
    return await records.find(request, "deployment", request.path_params["deployment_id"])
