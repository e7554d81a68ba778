"""Resolve the agents that sessions, deployments and other agents refer to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import UnsetType

from segue.agents.registry import AgentRegistry
from segue.hub.access.config import Config
from segue.model import ids
from segue.model.anthropic.agents import roster_of
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef
from segue.model.principal import Principal
from segue.model.record import Record

from .agent_settings import (
    DEFAULTS,
    MAX_VERSION,
    changed_by,
    check_settings,
    complete_overrides,
    complete_settings,
    created_by,
    fit_settings,
    member_ref,
)
from .record_ids import check_active
from .records import Records, patch_metadata
from .skills import Skills


class AgentChoice(NamedTuple):
    """An agent as a request names it: by default the newest version, without overrides."""

    id: str
    version: int | None = None
    overrides: dict[str, Any] | None = None


class AgentResolver:
    """Store agents; find which version of an agent is meant, and what its settings are."""

    def __init__(
        self, records: Records, skills: Skills, registry: AgentRegistry, config: Config
    ) -> None:
        self._records = records
        self._config = config
        self._skills = skills
        self._registry = registry

    async def create(self, principal: Principal, settings: dict[str, Any], id: str) -> Record:
        """Store a new agent; without `tools` it has none.

        Raises InvalidInput if its settings contradict each other.
        """
        check_settings(settings)
        await self._check_model(principal.workspace, settings)
        body = created_by({"tools": [], **settings}, local=principal.local)
        return await self._records.create(principal.workspace, "agent", body, id)

    async def update(
        self,
        principal: Principal,
        record: Record,
        changes: Mapping[str, Any],
        metadata: Mapping[str, str | None] | UnsetType | None,
        *,
        expected_version: int | None = None,
    ) -> Record:
        """Store the next version of an agent, with other settings and patched metadata.

        What an API key changes does not apply to the local user's turns. Raises as
        `Records.change` does, and InvalidInput if the settings contradict each other.
        """
        await self._check_model(principal.workspace, changes)

        def edit(current: Record) -> dict[str, Any]:
            body = changed_by(current.body, changes, local=principal.local)
            if not isinstance(metadata, UnsetType):
                body["metadata"] = patch_metadata(body.get("metadata", {}), metadata)
            check_settings(body)
            return body

        return await self._records.change(record, edit, expected_version=expected_version)

    async def choose(self, workspace: str, choice: AgentChoice) -> AgentRef:
        """Return the version of an agent that a new session will use.

        Raises NotFound or InvalidInput if no session can be created with it.
        """
        record = await self._records.resolve(
            workspace, "agent", choice.id, choice.version, field="agent"
        )
        newest = await self._records.resolve(workspace, "agent", choice.id, field="agent")
        check_active(newest, "agent")
        if not self._registry.can_build(record.body.get("spec", {"kind": "default"})):
            raise InvalidInput(
                f"agent: {record.body['name']} is part of a program and answers only there;"
                " this server cannot run it"
            )
        overrides = choice.overrides or {}
        settings = {**record.body, **overrides}
        if choice.overrides is not None:
            check_settings(settings)
            await self._check_model(workspace, choice.overrides)
        await self._skills.check_existing(workspace, settings.get("skills", ()))
        return AgentRef(id=record.id, version=record.version, overrides=overrides)

    async def _check_model(self, workspace: str, settings: Mapping[str, Any]) -> None:
        """Raise InvalidInput if settings have an option that the answering model does not have.

        The demo agent has no model, so it is not checked. A turn checks again.
        """
        model = settings.get("model")
        if not isinstance(model, Mapping):
            return
        from segue.agents.model.settings import resolve_model, unsupported_by_provider

        config = await self._config.all(workspace)
        answering = resolve_model({"model": model, "config": config})
        if answering is None:
            return
        problem = unsupported_by_provider(
            answering,
            fast=model.get("speed") == "fast",
            inference_geo=model.get("inference_geo"),
        )
        if problem is not None:
            raise InvalidInput(problem)

    async def pin_roster(
        self,
        workspace: str,
        members: Iterable[AgentChoice | None],
        coordinator: AgentRef,
        *,
        field: str = "multiagent.agents",
    ) -> list[dict[str, Any]]:
        """Return the members of a coordinator's roster, each pinned to a version.

        None stands for the coordinator itself. Raises NotFound or InvalidInput, with the `field` of
        the request, for a member that cannot be called.
        """
        pinned: dict[str, dict[str, Any]] = {}
        for member in members:
            ref = coordinator
            if member is not None:
                ref = await self._pin_member(workspace, member, field)
            if ref.id in pinned:
                raise InvalidInput(f"{field}: members must be distinct")
            name = ids.format_id("agent", ref.id)
            pinned[ref.id] = {"type": "agent", "id": name, "version": ref.version}
        return list(pinned.values())

    async def _pin_member(self, workspace: str, member: AgentChoice, field: str) -> AgentRef:
        record = await self._records.resolve(
            workspace, "agent", member.id, member.version, field=field
        )
        check_active(record, field)
        if record.body.get("multiagent"):
            raise InvalidInput(f"{field}: a member cannot itself have multiagent set")
        if record.body.get("spec", {}).get("kind", "default") not in ("default", "model"):
            raise InvalidInput(f"{field}: {record.body['name']} is a program, not a model's agent")
        ref = AgentRef(id=record.id, version=record.version)
        await self._records.store_built_in(workspace, ref)
        return ref

    async def roster(self, workspace: str, ref: AgentRef) -> list[AgentRef]:
        """Return the agents that an agent may call, other than itself."""
        record = await self._records.get(workspace, "agent", ref.id, ref.version)
        roster = roster_of({**record.body, **ref.overrides}.get("multiagent"))
        members = [member_ref(member) for member in roster.members]
        return [member for member in members if member.id != ref.id]

    async def skills_of_anthropic(self, workspace: str, ref: AgentRef) -> list[str]:
        """Return the ids of the skills that only Anthropic has, of an agent and its roster."""
        agents = [ref, *await self.roster(workspace, ref)]
        settings = [await self.snapshot(workspace, one, with_roster=False) for one in agents]
        skills = [skill for fields in settings for skill in fields.get("skills", ())]
        ids_of_anthropic = [skill["skill_id"] for skill in skills if skill["type"] == "anthropic"]
        return list(dict.fromkeys(ids_of_anthropic))

    async def snapshot(
        self, workspace: str, ref: AgentRef | None, *, with_roster: bool = True
    ) -> dict[str, Any]:
        """Return the id, version and settings of a session's agent, overrides included.

        None is the built-in agent. An agent that does not exist here is named `unknown`, as in a
        session that was imported without its agent. Overrides that are not valid settings are left
        out: the events of an imported session may have them.
        """
        ref = ref or await self._records.built_in_agent(workspace)
        id = ids.parse(ref.id) or ids.derived_id("agent", ref.id)  # a file may have any id
        agent: dict[str, Any]
        agent = {"type": "agent", "id": ids.format_id("agent", id), "version": ref.version}
        record = None
        if 1 <= ref.version < MAX_VERSION:
            record = await self._records.find(workspace, "agent", ref.id, ref.version)
        known = {**DEFAULTS, "name": "unknown"} if record is None else complete_settings(record)
        agent |= known
        topology = agent.pop("multiagent")
        fields = {**agent, "multiagent": topology, "metadata": {}}
        if ref.overrides and fit_settings(fields, ref.overrides):
            agent |= complete_overrides(ref.overrides)
        if not with_roster:
            return agent
        return {**agent, "multiagent": await self._with_members(workspace, topology)}

    async def _with_members(
        self, workspace: str, topology: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return a topology with the settings of its members instead of references to them."""

        async def settings(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                await self.snapshot(workspace, member_ref(entry), with_roster=False)
                if entry["type"] == "agent"
                else entry
                for entry in entries
            ]

        if topology is None:
            return None
        if topology["type"] == "coordinator":
            return {**topology, "agents": await settings(topology["agents"])}
        subagents = topology["subagents"]
        if subagents["type"] == "enabled":
            members = await settings(subagents["predefined_agents"])
            subagents = {**subagents, "predefined_agents": members}
        return {**topology, "subagents": subagents}
