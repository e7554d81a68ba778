"""Deployments: stored setups of sessions that are run on request or on a schedule."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.encryption import SecretBox
from segue.hub.access.quotas import Quotas
from segue.hub.resources.agents import AgentChoice
from segue.hub.resources.attachments import Attachment, Repository
from segue.hub.resources.first_events import FirstEvent, FirstEvents
from segue.hub.resources.record_ids import format_record_id
from segue.hub.resources.records import Records, new, patch_metadata
from segue.hub.resources.session_factory import PreparedSession, SessionFactory, SessionSetup
from segue.model import clock, ids
from segue.model.errors import Conflict, InvalidInput, NotFound, SegueError
from segue.model.principal import Principal
from segue.model.record import Record, RecordBody
from segue.store.base import SCHEDULE_KIND, Store

from . import cron

log = logging.getLogger("segue.hub")

KIND = "deployment"
RUN_KIND = "deployment_run"
# Which deployments of all workspaces have a schedule. No API key belongs to this workspace.
ALL_WORKSPACES, SCHEDULED = "", "scheduled"
UNKNOWN_ERROR = "unknown_error"
REJECTED_ERROR = "session_creation_rejected_error"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a stored deployment."""


class PinnedAgent(_Part, frozen=True):
    """An agent by its prefixed id, at one version."""

    id: str
    version: int


class Schedule(_Part, frozen=True):
    """When a deployment runs by itself."""

    expression: str
    timezone: str

    def timetable(self) -> cron.Cron:
        """Return the times of the schedule. Raises InvalidInput if it is not valid."""
        return cron.parse(self.expression, self.timezone)


class RunError(_Part, frozen=True):
    """Why a run created no session, or one without all its first events."""

    type: str
    message: str


class DeploymentSettings(_Part, frozen=True):
    """What a client sets. `budget` is in the unit of costs."""

    name: str
    agent: AgentChoice
    environment_id: str
    initial_events: tuple[FirstEvent, ...]
    description: str | None = None
    metadata: dict[str, str] = {}
    resources: tuple[Attachment, ...] = ()
    vault_ids: tuple[str, ...] = ()
    budget: int | None = None


class DeploymentBody(RecordBody, frozen=True):
    """The body of a deployment's record.

    `tokens` has the encrypted tokens of `resources` by index. Runs are due from `scheduled_from`.
    `fired_at` is the scheduled time of the last run, `last_run_at` when that run began. `by_key`
    says that an API key created or changed it: then its turns run as turns of keys.
    """

    name: str
    agent: PinnedAgent
    environment_id: str
    initial_events: tuple[FirstEvent, ...]
    description: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    resources: tuple[Attachment, ...] = ()
    vault_ids: tuple[str, ...] = ()
    budget: int | None = None
    tokens: dict[str, str] = msgspec.field(default_factory=dict)
    schedule: Schedule | None = None
    scheduled_from: int = 0
    fired_at: int = 0
    last_run_at: int | None = None
    paused: bool = False
    paused_by: RunError | None = None
    by_key: bool = False


class RunBody(RecordBody, frozen=True):
    """The body of a run's record. `scheduled_at` is None for a run on request."""

    deployment_id: str
    agent: PinnedAgent
    session_id: str | None = None
    scheduled_at: int | None = None
    error: RunError | None = None


class Deployments:
    """Create, change and run deployments."""

    def __init__(
        self,
        store: Store,
        records: Records,
        secrets: SecretBox,
        first_events: FirstEvents,
        sessions: SessionFactory,
        quotas: Quotas,
    ) -> None:
        self._store = store
        self._records = records
        self._secrets = secrets
        self._first_events = first_events
        self._sessions = sessions
        self._quotas = quotas

    async def create(
        self, principal: Principal, settings: DeploymentSettings, schedule: Schedule | None
    ) -> Record:
        """Create a deployment.

        Raises NotFound or InvalidInput if it could create no session, and QuotaExceeded if the
        workspace has too many schedules. The caller has reserved its bytes.
        """
        id = ids.new_id()
        body = await self._check(principal, settings, id)
        if schedule is not None:
            body = replace(body, **_scheduled(schedule))
        record = new(principal.workspace, KIND, body.encode(), id)
        if schedule is None:
            await self._records.put(record)
            return record
        async with self._quotas.reserve_more(principal, schedules=1):
            await self._records.put(record, _schedule_entry(record), _counted_schedule(record))
        return record

    async def update(
        self,
        principal: Principal,
        record: Record,
        changes: Mapping[str, Any],
        *,
        schedule: Schedule | msgspec.UnsetType | None,
        metadata: Mapping[str, str | None] | msgspec.UnsetType | None,
    ) -> Record:
        """Change the settings in `changes`, the schedule and the metadata of a deployment.

        Raises NotFound or InvalidInput if the changed deployment could create no session, and
        QuotaExceeded if the workspace has too many schedules.
        """
        plan = {} if isinstance(schedule, msgspec.UnsetType) else _scheduled(schedule)
        settings = replace(self._settings(record), **changes)
        checked = await self._check(principal, settings, record.id)
        names = {*changes, "tokens"} if "resources" in changes else set(changes)

        def edit(current: Record) -> dict[str, Any]:
            body = DeploymentBody.of(current)
            fields = {name: getattr(checked, name) for name in names}
            fields["by_key"] = body.by_key or checked.by_key
            patched = patch_metadata(body.metadata, metadata)
            return replace(body, **fields, **plan, metadata=patched).encode()

        adds_schedule = not isinstance(schedule, msgspec.UnsetType | None)
        if not adds_schedule or DeploymentBody.of(record).schedule is not None:
            changed = await self._records.change(record, edit)
        else:
            async with self._quotas.reserve_more(principal, schedules=1):
                changed = await self._records.change(record, edit)
                await self._count_schedule(changed)
        if adds_schedule:
            await self.watch_schedule(changed)
        elif schedule is None:
            await self.forget_schedule(changed)
        return changed

    async def archive(self, record: Record) -> Record:
        """Archive a deployment. It does not run any more."""
        retired = await self._records.retire(record)
        await self.forget_schedule(retired)
        return retired

    async def _check(
        self, principal: Principal, settings: DeploymentSettings, id: str
    ) -> DeploymentBody:
        """Return a deployment as it is stored, if it could create a session now."""
        workspace = principal.workspace
        prepared = await self._prepare(workspace, settings)
        await self._first_events.prepare(principal, settings.initial_events)
        await self._records.store_built_in(workspace, prepared.agent, prepared.environment_id)
        tokens: dict[str, str] = {}
        resources: list[Attachment] = []
        for index, resource in enumerate(settings.resources):
            if isinstance(resource, Repository) and resource.authorization_token:
                tokens[str(index)] = self._secrets.seal(
                    resource.authorization_token, workspace, KIND, id, str(index)
                )
                resource = replace(resource, authorization_token=None)
            resources.append(resource)
        return DeploymentBody(
            name=settings.name,
            description=settings.description or None,
            agent=PinnedAgent(
                id=ids.format_id("agent", prepared.agent.id), version=prepared.agent.version
            ),
            environment_id=ids.format_id("env", prepared.environment_id),
            initial_events=settings.initial_events,
            resources=tuple(resources),
            tokens=tokens,
            vault_ids=tuple(ids.format_id("vlt", vault_id) for vault_id in prepared.vault_ids),
            metadata=settings.metadata,
            budget=settings.budget,
            by_key=not principal.local,
        )

    def _settings(self, record: Record) -> DeploymentSettings:
        """Return the settings of a stored deployment, with decrypted tokens."""
        body = DeploymentBody.of(record)
        resources = list(body.resources)
        for index, sealed in body.tokens.items():
            resource = resources[int(index)]
            assert isinstance(resource, Repository)
            token = self._secrets.open(sealed, record.workspace, KIND, record.id, index)
            resources[int(index)] = replace(resource, authorization_token=token)
        return DeploymentSettings(
            name=body.name,
            description=body.description,
            agent=AgentChoice(body.agent.id, body.agent.version),
            environment_id=body.environment_id,
            initial_events=body.initial_events,
            resources=tuple(resources),
            vault_ids=body.vault_ids,
            metadata=body.metadata,
            budget=body.budget,
        )

    async def _prepare(self, workspace: str, settings: DeploymentSettings) -> PreparedSession:
        setup = SessionSetup(
            agent=settings.agent,
            environment_id=settings.environment_id,
            vault_ids=settings.vault_ids,
            attachments=settings.resources,
            budget=settings.budget,
        )
        return await self._sessions.prepare(workspace, setup)

    async def set_paused(self, record: Record, *, paused: bool) -> Record:
        """Pause a deployment or resume it. Runs that were due while it was paused are skipped."""

        def edit(current: Record) -> dict[str, Any]:
            body = DeploymentBody.of(current)
            if body.paused == paused:
                return current.body
            body = replace(body, paused=paused, paused_by=None, scheduled_from=clock.now())
            return body.encode()

        return await self._records.change(record, edit)

    async def run(self, principal: Principal, record: Record) -> Record:
        """Create a session and return the record of the run, which has the error if it failed.

        Raises InvalidInput if the deployment is archived, and QuotaExceeded if not even the run can
        be stored.
        """
        if record.archived_at is not None:
            raise InvalidInput(f"deployment {format_record_id(record)} is archived")
        if DeploymentBody.of(record).by_key:
            principal = replace(principal, local=False)
        await self._quotas.check(principal, bytes=1)  # also a failed run is recorded
        return await self._run(principal, record, None)

    async def run_scheduled(self, record: Record, due: int) -> None:
        """Run a deployment that is due, and pause it if it cannot run.

        After a failure of the server, such as a full disk, it stays active and runs the next time.
        """
        run = await self._run(Principal(workspace=record.workspace), record, due)
        error = RunBody.of(run).error
        if error is None or error.type == UNKNOWN_ERROR:
            return
        if error.type == REJECTED_ERROR:
            error = replace(error, type=UNKNOWN_ERROR)

        def edit(current: Record) -> dict[str, Any]:
            return replace(DeploymentBody.of(current), paused=True, paused_by=error).encode()

        await self._records.change(record, edit)

    async def _run(self, principal: Principal, record: Record, due: int | None) -> Record:
        session_id = ids.new_id()
        run = RunBody(
            deployment_id=format_record_id(record),
            agent=DeploymentBody.of(record).agent,
            scheduled_at=due,
        )
        try:
            settings = self._settings(record)
            prepared = await self._prepare(principal.workspace, settings)
            prepared = prepared._replace(deployment_id=record.id)
            await self._sessions.create(principal, prepared, settings.initial_events, id=session_id)
            run = replace(run, session_id=ids.format_id("sesn", session_id))
        except Exception as error:
            run = replace(run, error=await self._run_error(principal, session_id, error))
        return await self._records.create(principal.workspace, RUN_KIND, run.encode())

    async def _run_error(self, principal: Principal, session_id: str, error: Exception) -> RunError:
        message = "the server failed; see its log"
        if isinstance(error, SegueError):
            message = error.remote_message  # all callers can read runs
            if message != error.message:
                log.warning("a deployment could not be run: %s", error.message)
        else:
            log.error("a deployment could not be run", exc_info=error)
        if await self._store.get(principal.workspace, session_id) is not None:
            name = ids.format_id("sesn", session_id)
            return RunError(
                type=UNKNOWN_ERROR, message=f"session {name} was created, but: {message}"
            )
        if isinstance(error, InvalidInput | NotFound):
            return RunError(type=_error_type(error), message=message)
        return RunError(type=UNKNOWN_ERROR, message=message)

    async def watch_schedule(self, record: Record) -> None:
        """Register a deployment with the scheduler, and count its schedule."""
        with suppress(Conflict):  # it is registered already
            await self._store.put_record(_schedule_entry(record))
        await self._count_schedule(record)

    async def _count_schedule(self, record: Record) -> None:
        with suppress(Conflict):  # it is counted already
            await self._store.put_record(_counted_schedule(record))

    async def forget_schedule(self, record: Record) -> None:
        """Stop counting the schedule of a deployment that has none any more."""
        await self._records.delete(_counted_schedule(record))


class ScheduleEntry(RecordBody, frozen=True):
    """The body of the record by which the scheduler finds a deployment."""

    workspace: str


def _schedule_entry(record: Record) -> Record:
    body = ScheduleEntry(workspace=record.workspace)
    return new(ALL_WORKSPACES, SCHEDULED, body.encode(), record.id)


def _counted_schedule(record: Record) -> Record:
    """Return the record by which the store counts the schedules of a workspace."""
    return new(record.workspace, SCHEDULE_KIND, {}, record.id)


def _scheduled(schedule: Schedule | None) -> dict[str, Any]:
    """Return the fields of a deployment with a schedule. Raises InvalidInput if it is not valid."""
    if schedule is None:
        return {"schedule": None}
    try:
        schedule.timetable()
    except InvalidInput as error:
        raise InvalidInput(f"schedule.{error.message}") from None
    return {"schedule": schedule, "scheduled_from": clock.now()}


def _error_type(error: InvalidInput | NotFound) -> str:
    """Return the type of a run's error, as clients know it."""
    missing, archived = error.data.get("missing"), error.data.get("archived")
    if missing in ("environment", "vault", "file", "skill"):
        return f"{missing}_not_found_error"
    if missing == "memory_store":
        return "session_resource_not_found_error"
    if archived in ("environment", "agent", "vault", "memory_store"):
        return f"{archived}_archived_error"
    return REJECTED_ERROR
