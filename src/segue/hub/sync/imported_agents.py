"""Import the agents of an exported session.

The author of an export file is unknown. Therefore the file cannot choose a program to start or an
address that receives keys, cannot allow a tool without a permission request, and cannot change an
agent that exists here. MCP servers of the file are connected as if an API key had chosen them. An
agent with settings that no interface could show does not answer here.

Nothing of the file is lost: an unsafe record is also stored unchanged, under a kind of its own. No
agent is built from that kind. An export of the session contains it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from segue.agents.base.spec import UNTRUSTED_SERVERS
from segue.hub.resources.agent_settings import LOCAL_SETTINGS, can_be_shown
from segue.hub.resources.records import BUILT_IN_SINCE, CONFIGURED, Records
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef, AnyBody, ConfigChanged, Created
from segue.model.record import Record
from segue.store.base import Store

from .export_file import AgentRecord

ORIGINAL_KIND = "imported_agent"  # records of agents as an export file had them
_SAFE_KINDS = ("default", "demo", "model")  # agents that start no program
_LOCAL_SETTINGS = frozenset({"command", "config", "base_url"})  # only this workspace sets these


class ImportedAgents(NamedTuple):
    """The records of an export file that are new in this workspace.

    `new` has the agents that may answer here, without unsafe settings, and the records that are
    only stored to be exported again.
    """

    records: Records
    workspace: str
    new: Sequence[Record]

    @classmethod
    async def from_records(
        cls, store: Store, records: Records, workspace: str, exported: Sequence[AgentRecord]
    ) -> Self:
        """Select the records that can be imported. Raises InvalidInput if a version is missing."""
        new: list[Record] = []
        for id, versions in _by_id(exported, workspace).items():
            if await store.get_record(workspace, "agent", id) is not None:
                continue
            if [record.version for record in versions] != list(range(1, len(versions) + 1)):
                raise InvalidInput(f"the file does not have all versions of agent {id}")
            built_in = await records.find(workspace, "agent", id, 1)
            if built_in is not None:
                if all(_without_model(record) == built_in.body for record in versions):
                    new += versions
                continue
            safe: list[Record] = []
            if all(map(_is_safe, versions)):
                safe = [_without_unsafe_settings(record) for record in versions]
            if not all(map(can_be_shown, safe)):
                safe = []
            new += safe
            known = await store.get_record(workspace, ORIGINAL_KIND, id)
            if safe != versions and known is None:
                new += [replace(record, kind=ORIGINAL_KIND) for record in versions]
        return cls(records, workspace, new)

    async def local_ref(self, ref: AgentRef) -> AgentRef:
        """Return an agent that may answer here: the same one if possible."""
        overrides = _safe_settings(ref.overrides)
        for record in self.new:
            if (record.kind, record.id, record.version) == ("agent", ref.id, ref.version):
                return replace(ref, overrides=overrides if can_be_shown(record, overrides) else {})
        if known := await self.records.find(self.workspace, "agent", ref.id):
            version = max(1, min(ref.version, known.version))
            overrides = overrides if can_be_shown(known, overrides) else {}
            ref = AgentRef(id=ref.id, version=version, overrides=overrides)
        else:
            ref = await self.records.built_in_agent(self.workspace)
        await self.records.store_built_in(self.workspace, ref)
        return ref


async def exported_agents(
    store: Store, workspace: str, bodies: Iterable[AnyBody]
) -> list[AgentRecord]:
    """Return the records of the agents that events refer to, up to the versions that they name.

    The first version of a built-in agent is left out if the second one differs by its model only.
    """
    newest: dict[str, int] = {}
    for body in bodies:
        if isinstance(body, Created | ConfigChanged) and isinstance(body.agent, AgentRef):
            ref = body.agent
            newest[ref.id] = max(ref.version, newest.get(ref.id, 0))
    exported: list[AgentRecord] = []
    for id in sorted(newest):
        records: list[Record] = []
        for version in range(1, newest[id] + 1):
            original = await store.get_record(workspace, ORIGINAL_KIND, id, version)
            record = original or await store.get_record(workspace, "agent", id, version)
            if record is None:
                break
            records.append(record)
        if len(records) > 1 and _is_first_of(records[0], records[1]):
            del records[0]
        exported += map(_exported, records)
    return exported


def _exported(record: Record) -> AgentRecord:
    created_at = None if record.created_at == BUILT_IN_SINCE else record.created_at
    return AgentRecord(
        id=record.id,
        version=record.version,
        created_at=created_at,
        updated_at=record.updated_at,
        archived_at=record.archived_at,
        body=record.body,
    )


def _is_first_of(first: Record, second: Record) -> bool:
    """Return whether the first version of a built-in agent can be computed from the second."""
    return first == replace(_first_of(second), updated_at=first.updated_at)


def _first_of(second: Record) -> Record:
    """Return the first version of a built-in agent, given the second."""
    body = _without_model(second)
    return replace(
        second, version=1, body=body, created_at=BUILT_IN_SINCE, updated_at=BUILT_IN_SINCE
    )


def _by_id(exported: Sequence[AgentRecord], workspace: str) -> dict[str, list[Record]]:
    """Return the agents of a file as records of a workspace: the versions of each, in order."""
    agents: dict[str, list[Record]] = {}
    for agent in exported:
        record = Record(
            workspace=workspace,
            kind="agent",
            id=agent.id,
            version=agent.version,
            created_at=BUILT_IN_SINCE if agent.created_at is None else agent.created_at,
            updated_at=agent.updated_at,
            archived_at=agent.archived_at,
            body=agent.body,
        )
        agents.setdefault(agent.id, []).append(record)
    for versions in agents.values():
        versions.sort(key=lambda record: record.version)
        if (versions[0].version, versions[0].created_at) == (2, BUILT_IN_SINCE):
            versions.insert(0, _first_of(versions[0]))
    return agents


def _without_model(record: Record) -> dict[str, Any]:
    """Return the body of a built-in agent's version without the model that was configured."""
    return {name: value for name, value in record.body.items() if name != CONFIGURED}


def _is_safe(record: Record) -> bool:
    spec, local_settings = record.body.get("spec", {}), record.body.get(LOCAL_SETTINGS, {})
    if not isinstance(spec, dict) or not isinstance(local_settings, dict):
        return False
    return spec.get("kind", "default") in _SAFE_KINDS


def _without_unsafe_settings(record: Record) -> Record:
    body = _safe_settings(record.body)
    for part in ("spec", LOCAL_SETTINGS):
        if part in body:
            body[part] = _safe_settings(body[part])
    return replace(record, body=body)


def _safe_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a file may set; its tools ask before they change anything."""
    kind = settings.get("kind", "default")
    removed = _LOCAL_SETTINGS if kind in _SAFE_KINDS else _LOCAL_SETTINGS | {"kind"}
    safe = {name: value for name, value in settings.items() if name not in removed}
    if safe.get("mcp_servers"):
        safe[UNTRUSTED_SERVERS] = True
    else:
        safe.pop(UNTRUSTED_SERVERS, None)
    return {**safe, "tools": _asking_tools(safe["tools"])} if safe.get("tools") else safe


def _asking_tools(tools: Any) -> list[Any]:
    """Return toolsets in which every tool that changes something asks for permission."""
    try:
        return [tool if tool["type"] == "custom" else _asking_toolset(tool) for tool in tools]
    except (TypeError, KeyError, AttributeError):
        raise InvalidInput("the tools of the agent in this file cannot be read") from None


def _asking_toolset(toolset: Mapping[str, Any]) -> dict[str, Any]:
    is_mcp = toolset["type"] == "mcp_toolset"
    default_policy = "always_ask" if is_mcp else "auto"

    def complete(config: Mapping[str, Any], *, enabled: Any) -> dict[str, Any]:
        policy = (config.get("permission_policy") or {}).get("type")
        policy = policy if policy == "always_ask" else default_policy
        if config.get("enabled") is not None:
            enabled = config["enabled"]
        return {**config, "enabled": enabled, "permission_policy": {"type": policy}}

    default = complete(toolset.get("default_config") or {}, enabled=True)
    configs = [
        complete(config, enabled=default["enabled"]) for config in toolset.get("configs") or ()
    ]
    if not is_mcp:
        configs = [{"type": config.get("name"), **config} for config in configs]
    return {**toolset, "default_config": default, "configs": configs}
