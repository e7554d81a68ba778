"""Import the agents of an exported session.

The author of an export file is unknown. Therefore the file cannot choose a program to start or an
address that receives keys, cannot allow a tool without a permission request, and cannot change an
agent that exists here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from segue.hub.resources.records import Records
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef, ConfigChanged, Created, Event
from segue.model.record import Record

_SAFE_KINDS = ("default", "demo", "model")  # agents that start no program
_LOCAL_SETTINGS = frozenset({"command", "config", "base_url"})  # only this workspace sets these


class ImportedAgents(NamedTuple):
    """The agent records of an export file that are new in this workspace."""

    records: Records
    workspace: str
    new: Sequence[Record]

    @classmethod
    async def from_records(
        cls, records: Records, workspace: str, exported: Sequence[Record]
    ) -> Self:
        """Select the records that can be imported, without their unsafe settings."""
        skipped = {
            record.id for record in exported if record.kind != "agent" or not _is_safe(record)
        }
        for id in {record.id for record in exported} - skipped:
            if await records.find(workspace, "agent", id) is not None:
                skipped.add(id)
        new = [
            _without_unsafe_settings(record, workspace)
            for record in exported
            if record.id not in skipped
        ]
        return cls(records, workspace, new)

    async def adapt(self, event: Event) -> Event:
        """Return the event with a reference to an agent that exists in this workspace."""
        body = event.body
        if not isinstance(body, Created | ConfigChanged) or not isinstance(body.agent, AgentRef):
            return event
        return replace(event, body=replace(body, agent=await self._local_ref(body.agent)))

    async def _local_ref(self, ref: AgentRef) -> AgentRef:
        if known := await self.records.find(self.workspace, "agent", ref.id):
            version = min(ref.version, known.version)
            ref = AgentRef(id=ref.id, version=version, overrides=_safe_settings(ref.overrides))
        elif any((record.id, record.version) == (ref.id, ref.version) for record in self.new):
            return replace(ref, overrides=_safe_settings(ref.overrides))
        else:
            ref = await self.records.built_in_agent(self.workspace)
        await self.records.store_built_in(self.workspace, ref)
        return ref


def _is_safe(record: Record) -> bool:
    spec = record.body.get("spec", {})
    return isinstance(spec, dict) and spec.get("kind", "default") in _SAFE_KINDS


def _without_unsafe_settings(record: Record, workspace: str) -> Record:
    body = _safe_settings(record.body)
    if "spec" in body:
        body["spec"] = _safe_settings(body["spec"])
    return replace(record, workspace=workspace, body=body)


def _safe_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a file may set; its tools ask before they change anything."""
    kind = settings.get("kind", "default")
    removed = _LOCAL_SETTINGS if kind in _SAFE_KINDS else _LOCAL_SETTINGS | {"kind"}
    safe = {name: value for name, value in settings.items() if name not in removed}
    return {**safe, "tools": _asking_tools(safe["tools"])} if safe.get("tools") else safe


def _asking_tools(tools: Any) -> list[Any]:
    """Return toolsets in which every tool that changes something asks for permission."""
    try:
        return [tool if tool["type"] == "custom" else _asking_toolset(tool) for tool in tools]
    except (TypeError, KeyError, AttributeError):
        raise InvalidInput("the tools of the agent in this file cannot be read") from None


def _asking_toolset(toolset: Mapping[str, Any]) -> dict[str, Any]:
    default_policy = "always_ask" if toolset["type"] == "mcp_toolset" else "auto"

    def with_policy(config: Mapping[str, Any]) -> dict[str, Any]:
        policy = (config.get("permission_policy") or {}).get("type")
        policy = policy if policy == "always_ask" else default_policy
        return {**config, "permission_policy": {"type": policy}}

    return {
        **toolset,
        "default_config": with_policy(toolset.get("default_config") or {}),
        "configs": [with_policy(config) for config in toolset.get("configs") or ()],
    }
