"""Agents as Anthropic's API returns them, with all defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from segue.model import codec

Effort = Literal["low", "medium", "high", "xhigh", "max"]
Tool = Literal["bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search"]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request body or a part of one. Unknown fields are refused."""


class Out(msgspec.Struct, frozen=True, kw_only=True):
    """A response or a part of one. Every field is present, null ones included."""


class EffortLevel(Body, frozen=True):
    type: Effort


class Policy(Body, frozen=True):
    type: Literal["always_allow", "always_ask", "auto"]


class CustomTool(Body, frozen=True, tag_field="type", tag="custom"):
    name: Annotated[
        str,
        codec.described_pattern(
            "1 to 128 letters, digits, hyphens and underscores", r"^[a-zA-Z0-9_-]{1,128}$"
        ),
    ]
    description: str
    input_schema: dict[str, Any]


class MCPServer(Body, frozen=True, tag_field="type", tag="url"):
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    url: Annotated[
        str,
        codec.described_pattern(
            "a URL that begins with http:// or https://", r"^https?://", max_length=2048
        ),
    ]


class ModelOut(Out, frozen=True):
    id: str
    speed: Literal["standard", "fast"]
    effort: EffortLevel
    inference_geo: str | None


class SwitchOut(Out, frozen=True):
    enabled: bool
    permission_policy: Policy


class ToolSwitchOut(SwitchOut, frozen=True):
    type: Tool
    name: Tool


class MCPToolSwitchOut(SwitchOut, frozen=True):
    name: str


class AgentToolsetOut(Out, frozen=True, tag_field="type", tag="agent_toolset_20260401"):
    configs: list[ToolSwitchOut]
    default_config: SwitchOut


class MCPToolsetOut(Out, frozen=True, tag_field="type", tag="mcp_toolset"):
    mcp_server_name: str
    configs: list[MCPToolSwitchOut]
    default_config: SwitchOut


class AnthropicSkillOut(Out, frozen=True, tag_field="type", tag="anthropic"):
    skill_id: str
    version: str


class CustomSkillOut(Out, frozen=True, tag_field="type", tag="custom"):
    skill_id: str
    version: str


class ServiceAccountOut(Out, frozen=True, tag_field="type", tag="service_account"):
    """The only execution identity that segue has."""


class AgentReference(Out, frozen=True, tag_field="type", tag="agent"):
    id: str
    version: int


class Advisor(Out, frozen=True, tag_field="type", tag="advisor"):
    """A model that a coordinator may consult."""

    model: str


class CoordinatorOut(Out, frozen=True, tag_field="type", tag="coordinator"):
    agents: list[AgentReference | Advisor]


class Disabled(Out, frozen=True, tag_field="type", tag="disabled"):
    """A part of a topology that is not used."""


class Enabled(Out, frozen=True, tag_field="type", tag="enabled"):
    """A part of a topology that has no settings."""


class AdvisorEnabled(Out, frozen=True, tag_field="type", tag="enabled"):
    model: str


class SubagentsEnabled(Out, frozen=True, tag_field="type", tag="enabled"):
    inline_agents: Enabled | Disabled
    predefined_agents: list[AgentReference]


class TopologyOut(Out, frozen=True, tag_field="type", tag="multiagent_20261001"):
    """The newer form of a topology. Workflows are always disabled: segue has none."""

    advisor: AdvisorEnabled | Disabled
    subagents: SubagentsEnabled | Disabled
    workflows: Disabled


class SettingsOut(Out, frozen=True):
    id: str
    version: int
    name: str
    description: str | None
    system: str | None
    model: ModelOut
    tools: list[AgentToolsetOut | MCPToolsetOut | CustomTool]
    mcp_servers: list[MCPServer]
    skills: list[AnthropicSkillOut | CustomSkillOut]
    execution_identity: ServiceAccountOut


class AgentSettings(SettingsOut, frozen=True, tag_field="type", tag="agent"):
    """An agent without its times."""

    multiagent: CoordinatorOut | TopologyOut | None
    metadata: dict[str, str]


class AgentOut(AgentSettings, frozen=True, tag_field="type", tag="agent"):
    """An agent as the agents API returns it."""

    created_at: str
    updated_at: str
    archived_at: str | None


class ThreadAgent(SettingsOut, frozen=True, tag_field="type", tag="agent"):
    """The agent of a thread, or a member of a roster."""


class InlineAgent(Out, frozen=True, tag_field="type", tag="inline"):
    """The agent of a thread that a coordinator has defined; it has no record."""

    name: str
    description: str | None
    system: str | None
    model: ModelOut
    tools: list[AgentToolsetOut | MCPToolsetOut | CustomTool]
    mcp_servers: list[MCPServer]
    skills: list[AnthropicSkillOut | CustomSkillOut]
    execution_identity: ServiceAccountOut


class RosterOut(Out, frozen=True, tag_field="type", tag="coordinator"):
    agents: list[ThreadAgent | Advisor]


class SessionSubagentsEnabled(Out, frozen=True, tag_field="type", tag="enabled"):
    inline_agents: Enabled | Disabled
    predefined_agents: list[ThreadAgent]


class SessionTopology(Out, frozen=True, tag_field="type", tag="multiagent_20261001"):
    """The topology of a session's agent, with the agents themselves."""

    advisor: AdvisorEnabled | Disabled
    subagents: SessionSubagentsEnabled | Disabled
    workflows: Disabled


class SessionAgent(SettingsOut, frozen=True, tag_field="type", tag="agent"):
    """The agent of a session, as it was when the session was created."""

    multiagent: RosterOut | SessionTopology | None


ADVISOR_NAME = "anthropic.advisor"  # the name of the agent in an advisor's threads


class Roster(NamedTuple):
    """The agents that an agent may start threads of, and the model of its advisor."""

    members: tuple[dict[str, Any], ...] = ()  # AgentReference or, in a session, ThreadAgent
    advisor: str | None = None
    inline_agents: bool = False


def roster_of(topology: Any) -> Roster:
    """Return the roster of an agent's `multiagent` setting, in either of its forms.

    An imported agent may have any value; what is not a roster is left out.
    """
    if not isinstance(topology, Mapping):
        return Roster()
    if topology.get("type") != "multiagent_20261001":
        entries = _entries(topology, "agents")
        models = [entry.get("model") for entry in entries if entry.get("type") == "advisor"]
        model = next((model for model in models if isinstance(model, str)), None)
        return Roster(_members(entries), model)
    advisor, subagents = topology.get("advisor"), topology.get("subagents")
    enabled = isinstance(advisor, Mapping) and isinstance(advisor.get("model"), str)
    model = advisor["model"] if enabled and isinstance(advisor, Mapping) else None
    if not isinstance(subagents, Mapping) or subagents.get("type") != "enabled":
        return Roster((), model)
    inline = subagents.get("inline_agents") == {"type": "enabled"}
    return Roster(_members(_entries(subagents, "predefined_agents")), model, inline)


def _entries(fields: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = fields.get(name)
    return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []


def _members(entries: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(
        entry
        for entry in entries
        if entry.get("type") == "agent"
        and isinstance(entry.get("id"), str)
        and isinstance(entry.get("version"), int)
    )
