"""The agents that an imported session brings along.

The file may be anybody's. So it chooses no program to start and no address to send keys to, allows
no tool without asking, and agents that are known here stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from segue.hub.resources.records import Records
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef, ConfigChanged, Created, Event
from segue.model.record import Record

_KINDS = ("default", "demo", "model")  # those that start nothing
_OURS = frozenset({"command", "config", "base_url"})  # what only this workspace says


class Brought(NamedTuple):
    """The records that are new here, and how events name agents then."""

    records: Records
    workspace: str
    new: Sequence[Record]

    @classmethod
    async def agents(cls, records: Records, workspace: str, given: Sequence[Record]) -> Self:
        await records.prepare(workspace)
        left = {each.id for each in given if each.kind != "agent" or not _starts_nothing(each)}
        for id in {each.id for each in given} - left:
            if await records.find(workspace, "agent", id) is not None:
                left.add(id)
        new = [_tamed(each, workspace) for each in given if each.id not in left]
        return cls(records, workspace, new)

    async def settled(self, event: Event) -> Event:
        """The event, naming an agent that its session can have here."""
        body = event.body
        if not isinstance(body, Created | ConfigChanged) or not isinstance(body.agent, AgentRef):
            return event
        return replace(event, body=replace(body, agent=await self._ref(body.agent)))

    async def _ref(self, given: AgentRef) -> AgentRef:
        version = given.version
        if known := await self.records.find(self.workspace, "agent", given.id):
            version = min(version, known.version)
        elif not any((each.id, each.version) == (given.id, version) for each in self.new):
            return await self.records.built_in_agent(self.workspace)
        return AgentRef(id=given.id, version=version, overrides=_settings(given.overrides))


def _starts_nothing(record: Record) -> bool:
    spec = record.body.get("spec", {})
    return isinstance(spec, dict) and spec.get("kind", "default") in _KINDS


def _tamed(record: Record, workspace: str) -> Record:
    body = _settings(record.body)
    if "spec" in body:
        body["spec"] = _settings(body["spec"])
    return replace(record, workspace=workspace, body=body)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that a file may say."""
    kind = given.get("kind", "default")
    left = _OURS if kind in _KINDS else _OURS | {"kind"}
    found = {name: value for name, value in given.items() if name not in left}
    return {**found, "tools": _asking(found["tools"])} if found.get("tools") else found


def _asking(tools: Any) -> list[Any]:
    """Toolsets, each tool of which asks before it does more than look."""
    try:
        return [tool if tool["type"] == "custom" else _asked(tool) for tool in tools]
    except (TypeError, KeyError, AttributeError):
        raise InvalidInput("the tools of the agent in this file are not to be read") from None


def _asked(tool: Mapping[str, Any]) -> dict[str, Any]:
    usual = "always_ask" if tool["type"] == "mcp_toolset" else "auto"

    def switch(given: Mapping[str, Any]) -> dict[str, Any]:
        own = (given.get("permission_policy") or {}).get("type")
        return {**given, "permission_policy": {"type": own if own == "always_ask" else usual}}

    default = switch(tool.get("default_config") or {})
    configs = [switch(each) for each in tool.get("configs") or ()]
    return {**tool, "default_config": default, "configs": configs}
