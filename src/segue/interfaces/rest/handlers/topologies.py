"""The `multiagent` setting of an agent: which agents it may start threads of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from segue.hub.resources.agents import AgentChoice
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas.requests import (
    AdvisorEntry,
    AdvisorOn,
    AgentById,
    Coordinator,
    Multiagent,
    Off,
    SelfReference,
    SubagentsOn,
)
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef

Topology = dict[str, Any]
_DISABLED = {"type": "disabled"}
_ENABLED = {"type": "enabled"}


async def resolve(
    request: RestRequest,
    sent: Coordinator | Multiagent | None,
    coordinator: AgentRef,
    stored: Mapping[str, Any] | None,
) -> Topology | None:
    """Return a topology with its members pinned to versions.

    One of the newer form is merged into a stored one of that form. Raises InvalidInput if it names
    an agent that cannot be called, or workflows, which segue does not have.
    """
    if sent is None:
        return None
    if isinstance(sent, Coordinator):
        return await _resolve_coordinator(request, sent, coordinator)
    before = stored if stored and stored["type"] == "multiagent_20261001" else {}
    keeps_workflows_off = isinstance(sent.workflows, UnsetType) and bool(before)
    if not isinstance(sent.workflows, Off) and not keeps_workflows_off:
        raise InvalidInput(
            "multiagent.workflows: segue has no workflows, which are enabled by default; send"
            ' {"type": "disabled"}'
        )
    return {
        "type": "multiagent_20261001",
        "advisor": _resolve_advisor(sent.advisor, before.get("advisor", _DISABLED)),
        "subagents": await _resolve_subagents(
            request, sent.subagents, coordinator, before.get("subagents")
        ),
        "workflows": _DISABLED,
    }


async def _resolve_coordinator(
    request: RestRequest, sent: Coordinator, coordinator: AgentRef
) -> Topology:
    advisors = [entry for entry in sent.agents if isinstance(entry, AdvisorEntry)]
    if len(advisors) > 1:
        raise InvalidInput("multiagent.agents: at most one entry can be an advisor")
    members = [entry for entry in sent.agents if not isinstance(entry, AdvisorEntry)]
    pinned = await _pin(request, members, coordinator, "multiagent.agents")
    advisor_rows = [{"type": "advisor", "model": advisor.model} for advisor in advisors]
    return {"type": "coordinator", "agents": [*pinned, *advisor_rows]}


def _resolve_advisor(
    sent: AdvisorOn | Off | UnsetType | None, before: Mapping[str, Any]
) -> Mapping[str, Any]:
    if isinstance(sent, UnsetType):
        return before
    return {"type": "enabled", "model": sent.model} if isinstance(sent, AdvisorOn) else _DISABLED


async def _resolve_subagents(
    request: RestRequest,
    sent: SubagentsOn | Off | UnsetType | None,
    coordinator: AgentRef,
    before: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    if isinstance(sent, UnsetType) and before is not None:
        return before
    if isinstance(sent, Off):
        return _DISABLED
    subagents = sent if isinstance(sent, SubagentsOn) else SubagentsOn()
    kept = before if before and before["type"] == "enabled" and sent is not None else {}
    inline, members = subagents.inline_agents, subagents.predefined_agents
    if inline is UNSET:
        inline_agents = kept.get("inline_agents", _ENABLED)
    else:
        inline_agents = _DISABLED if isinstance(inline, Off) else _ENABLED
    if isinstance(members, UnsetType):
        pinned = kept.get("predefined_agents", [])
    else:
        field = "multiagent.subagents.predefined_agents"
        pinned = await _pin(request, members or (), coordinator, field)
    if inline_agents == _DISABLED and not pinned:
        raise InvalidInput(
            "multiagent.subagents.predefined_agents: name at least one agent, or enable"
            " inline_agents"
        )
    return {"type": "enabled", "inline_agents": inline_agents, "predefined_agents": pinned}


async def _pin(
    request: RestRequest,
    members: Iterable[str | AgentById | SelfReference],
    coordinator: AgentRef,
    field: str,
) -> list[dict[str, Any]]:
    resolver = request.hub.agent_resolver
    choices = map(_member_choice, members)
    return await resolver.pin_roster(request.workspace, choices, coordinator, field=field)


def _member_choice(member: str | AgentById | SelfReference) -> AgentChoice | None:
    if isinstance(member, SelfReference):
        return None
    if isinstance(member, str):
        return AgentChoice(member)
    return AgentChoice(member.id, member.version)
