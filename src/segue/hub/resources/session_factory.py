"""Create sessions with an environment, vaults, attached resources and first events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from segue.agents.registry import runs_its_tools
from segue.hub.access.quotas import Quotas
from segue.hub.sessions.editor import SessionEditor
from segue.hub.turns.service import TurnService
from segue.model import ids
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef, Failed
from segue.model.principal import Principal
from segue.model.session import Session

from .agents import AgentChoice, AgentResolver
from .attachments import Attachment, Attachments, ResolvedAttachments
from .first_events import FirstEvent, FirstEvents
from .record_ids import check_active
from .records import Records
from .work_queue import is_self_hosted


class SessionSetup(NamedTuple):
    """What a new session refers to, by prefixed ids. `budget` is in the unit of costs."""

    agent: AgentChoice
    environment_id: str
    vault_ids: Sequence[str] = ()
    attachments: Sequence[Attachment] = ()
    metadata: Mapping[str, str] = MappingProxyType({})
    budget: int | None = None


class PreparedSession(NamedTuple):
    """A setup whose references were checked."""

    agent: AgentRef
    environment_id: str
    vault_ids: tuple[str, ...]
    attached: ResolvedAttachments
    metadata: dict[str, str]
    budget: int | None = None
    deployment_id: str | None = None


class SessionFactory:
    """Check the setup of a session, then create it."""

    def __init__(
        self,
        records: Records,
        agents: AgentResolver,
        attachments: Attachments,
        first_events: FirstEvents,
        editor: SessionEditor,
        turns: TurnService,
        quotas: Quotas,
    ) -> None:
        self._records = records
        self._agents = agents
        self._attachments = attachments
        self._first_events = first_events
        self._editor = editor
        self._turns = turns
        self._quotas = quotas

    async def prepare(self, workspace: str, setup: SessionSetup) -> PreparedSession:
        """Check a setup; nothing is stored.

        Raises NotFound or InvalidInput if no session can be created with it.
        """
        agent = await self._agents.choose(workspace, setup.agent)
        environment = await self._records.resolve(
            workspace, "environment", setup.environment_id, field="environment_id"
        )
        check_active(environment, "environment_id")
        vault_ids = []
        for name in setup.vault_ids:
            vault = await self._records.resolve(workspace, "vault", name, field="vault_ids")
            vault_ids.append(check_active(vault, "vault_ids").id)
        attached = await self._attachments.resolve(workspace, setup.attachments)
        if is_self_hosted(environment):
            await self._check_self_hosted(workspace, agent, attached)
        if setup.budget is not None:
            await self.check_prices(workspace, agent)
        return PreparedSession(
            agent,
            environment.id,
            tuple(vault_ids),
            attached,
            dict(setup.metadata),
            setup.budget,
        )

    async def _check_self_hosted(
        self, workspace: str, agent: AgentRef, attached: ResolvedAttachments
    ) -> None:
        if any(resource["type"] != "memory_store" for resource in attached.resources):
            raise InvalidInput("resources: files and repositories need a cloud environment")
        record = await self._records.get(workspace, "agent", agent.id, agent.version)
        if runs_its_tools(record.body.get("spec", {})):
            raise InvalidInput(
                "environment_id: this agent runs its tools itself, so a worker cannot run them;"
                " use a cloud environment"
            )

    async def check_prices(self, workspace: str, agent: AgentRef) -> None:
        """Raise InvalidInput if an agent, or one that it may call, has a model without a price."""
        roster = await self._agents.roster(workspace, agent)
        await self._turns.check_budget(workspace, agent, *roster)

    async def create(
        self,
        principal: Principal,
        prepared: PreparedSession,
        events: Sequence[FirstEvent],
        *,
        title: str | None = None,
        id: str | None = None,
    ) -> Session:
        """Create a session, mount its resources and send its first events.

        Raises QuotaExceeded, before anything is stored, if the session or its turns
        exceed a quota of the workspace.
        """
        steps = await self._first_events.prepare(principal, events)
        turns = {"turns": len(steps)} if steps else {}
        await self._quotas.check(principal, sessions=1, bytes=1, **turns)
        session_id = id or ids.new_id()
        session = await self._editor.create(
            principal,
            id=session_id,
            title=(title or "").strip() or None,
            origin="rest",
            agent=prepared.agent,
            environment_id=prepared.environment_id,
            vault_ids=prepared.vault_ids,
            metadata=prepared.metadata,
            budget=prepared.budget,
            deployment_id=prepared.deployment_id,
            resources=await self._attachments.copy_files(principal, session_id, prepared.attached),
            memory_store_ids=prepared.attached.memory_store_ids,
        )
        absent = await self._agents.skills_of_anthropic(principal.workspace, prepared.agent)
        if absent:
            await self._editor.append(principal, session_id, *map(_absent_skill, absent))
        await self._attachments.mount(session, prepared.attached.tokens)
        for send in steps:
            await send(session)
        # The first turn may have begun or even ended by now. The answer is the same in any case.
        return replace(session, status="running") if steps else session


def _absent_skill(name: str) -> Failed:
    return Failed(
        message=f"skills: Anthropic's skill {name!r} is not available here, so the agent does not"
        " have it; upload a skill, and use it with the type custom"
    )
