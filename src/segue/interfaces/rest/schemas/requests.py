"""The types of request bodies for agents and environments, and the bases of all bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from segue.model import codec
from segue.model.anthropic.agents import Body as Body
from segue.model.anthropic.agents import CustomTool as CustomTool
from segue.model.anthropic.agents import Effort as Effort
from segue.model.anthropic.agents import EffortLevel as EffortLevel
from segue.model.anthropic.agents import MCPServer as MCPServer
from segue.model.anthropic.agents import Out as Out
from segue.model.anthropic.agents import Policy as Policy
from segue.model.anthropic.agents import Tool as Tool

T = TypeVar("T")
Host = Annotated[
    str,
    codec.described_pattern(
        "a host name, which may begin with *.",
        r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
    ),
]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Metadata = Annotated[
    dict[Annotated[str, Meta(min_length=1, max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
MetadataPatch = dict[
    Annotated[str, Meta(min_length=1, max_length=64)],
    Annotated[str, Meta(max_length=512)] | None,
]


class Deleted(Out, frozen=True):
    """The id of a deleted resource."""

    id: str


class Page(Out, Generic[T], frozen=True):
    """One page of a list, and the token of the next page."""

    data: Sequence[T]
    next_page: str | None


class Model(Body, frozen=True):
    id: Name
    speed: Literal["standard", "fast"] | None = None
    effort: Effort | EffortLevel | None = None
    inference_geo: Name | None = None


class Switch(Body, frozen=True):
    """Whether a tool is enabled, and whether it asks for permission."""

    enabled: bool | None = None
    permission_policy: Policy | None = None


class ToolSwitch(Switch, frozen=True, kw_only=True):
    name: Tool
    type: Tool | None = None


class MCPToolSwitch(Switch, frozen=True, kw_only=True):
    name: Name


class AgentToolset(Body, frozen=True, tag_field="type", tag="agent_toolset_20260401"):
    configs: tuple[ToolSwitch, ...] = ()
    default_config: Switch | None = None


class MCPToolset(Body, frozen=True, tag_field="type", tag="mcp_toolset"):
    mcp_server_name: Annotated[str, Meta(min_length=1, max_length=255)]
    configs: tuple[MCPToolSwitch, ...] = ()
    default_config: Switch | None = None


class AnthropicSkill(Body, frozen=True, tag_field="type", tag="anthropic"):
    skill_id: Name
    version: str | None = None


class CustomSkill(Body, frozen=True, tag_field="type", tag="custom"):
    skill_id: Name
    version: str | None = None


class AgentById(Body, frozen=True, tag_field="type", tag="agent"):
    id: str
    version: Annotated[int, Meta(ge=1, lt=1 << 31)] | None = None


class SelfReference(Body, frozen=True, tag_field="type", tag="self"):
    """The agent that the request creates or updates."""


ModelId = Annotated[str, Meta(min_length=1, max_length=256)]


class AdvisorEntry(Body, frozen=True, tag_field="type", tag="advisor"):
    """A model that the coordinator may consult."""

    model: ModelId


class Coordinator(Body, frozen=True, tag_field="type", tag="coordinator"):
    agents: Annotated[
        tuple[str | AgentById | SelfReference | AdvisorEntry, ...],
        Meta(min_length=1, max_length=20),
    ]


class Switched(Body, frozen=True, tag_field="type", tag="enabled"):
    """A part of a topology that has no settings, and is used."""


class Off(Body, frozen=True, tag_field="type", tag="disabled"):
    """A part of a topology that is not used."""


class AdvisorOn(Body, frozen=True, tag_field="type", tag="enabled"):
    model: ModelId


Predefined = Annotated[tuple[str | AgentById | SelfReference, ...], Meta(max_length=20)]


class SubagentsOn(Body, frozen=True, tag_field="type", tag="enabled"):
    inline_agents: Switched | Off | UnsetType | None = UNSET
    predefined_agents: Predefined | UnsetType | None = UNSET


class WorkflowsOn(Body, frozen=True, tag_field="type", tag="enabled"):
    """Refused by name: segue has no workflows."""

    inline_agents: Switched | Off | UnsetType | None = UNSET
    predefined_agents: Predefined | UnsetType | None = UNSET


class Multiagent(Body, frozen=True, tag_field="type", tag="multiagent_20261001"):
    """Null is the default of a part: no advisor, inline agents, and workflows (refused)."""

    advisor: AdvisorOn | Off | UnsetType | None = UNSET
    subagents: SubagentsOn | Off | UnsetType | None = UNSET
    workflows: WorkflowsOn | Off | UnsetType | None = UNSET


class ServiceAccount(Body, frozen=True, tag_field="type", tag="service_account"):
    """The only execution identity that segue has."""


System = Annotated[str, Meta(max_length=100_000)]
Description = Annotated[str, Meta(max_length=2048)]
Tools = Annotated[tuple[AgentToolset | MCPToolset | CustomTool, ...], Meta(max_length=256)]
Servers = Annotated[tuple[MCPServer, ...], Meta(max_length=20)]
Skills = Annotated[tuple[AnthropicSkill | CustomSkill, ...], Meta(max_length=500)]


class Settings(Body, frozen=True):
    """Settings of an agent, which a session may override."""

    model: str | Model | UnsetType | None = UNSET
    system: System | UnsetType | None = UNSET
    tools: Tools | UnsetType | None = UNSET
    mcp_servers: Servers | UnsetType | None = UNSET
    skills: Skills | UnsetType | None = UNSET


class AgentWithOverrides(
    Settings, frozen=True, kw_only=True, tag_field="type", tag="agent_with_overrides"
):
    id: str
    version: Annotated[int, Meta(ge=1, lt=1 << 31)] | None = None


class AgentUpdate(Settings, frozen=True):
    name: Name | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    multiagent: Coordinator | Multiagent | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    execution_identity: ServiceAccount | UnsetType | None = UNSET
    version: Annotated[int, Meta(ge=1, lt=1 << 31)] | UnsetType = UNSET


class AgentCreate(Settings, frozen=True, kw_only=True):
    name: Name
    model: str | Model
    description: Description | UnsetType | None = UNSET
    multiagent: Coordinator | Multiagent | UnsetType | None = UNSET
    metadata: Metadata | UnsetType = UNSET
    execution_identity: ServiceAccount | UnsetType | None = UNSET


class Unrestricted(Body, frozen=True, tag_field="type", tag="unrestricted"):
    """Tools may connect to any host."""


class Limited(Body, frozen=True, tag_field="type", tag="limited"):
    allow_mcp_servers: bool | None = None
    allow_package_managers: bool | None = None
    allowed_hosts: Annotated[tuple[Host, ...], Meta(max_length=1000)] | None = None


# Names with versions. Paths, URLs and options are not among them.
PipPackage = Annotated[
    str,
    codec.described_pattern(
        "a name with extras and versions, such as requests[socks]>=2,<3",
        r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?"
        r"((===?|[<>~!]=|[<>])[A-Za-z0-9.*+!_-]+(,(===?|[<>~!]=|[<>])[A-Za-z0-9.*+!_-]+)*)?$",
        max_length=200,
    ),
]
NpmPackage = Annotated[
    str,
    codec.described_pattern(
        "a name with a version, such as @scope/name@^1.2",
        r"^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*(@[A-Za-z0-9^~<>=*][A-Za-z0-9.^~<>=*+-]*)?$",
        max_length=200,
    ),
]
MAX_PACKAGES = 100


class Packages(Body, frozen=True):
    apt: tuple[str, ...] | None = None
    cargo: tuple[str, ...] | None = None
    gem: tuple[str, ...] | None = None
    go: tuple[str, ...] | None = None
    npm: Annotated[tuple[NpmPackage, ...], Meta(max_length=MAX_PACKAGES)] | None = None
    pip: Annotated[tuple[PipPackage, ...], Meta(max_length=MAX_PACKAGES)] | None = None
    type: Literal["packages"] | None = None


class Cloud(Body, frozen=True, tag_field="type", tag="cloud"):
    networking: Unrestricted | Limited | None = None
    packages: Packages | None = None


class SelfHosted(Body, frozen=True, tag_field="type", tag="self_hosted"):
    """A worker of the client runs the tools."""


class EnvironmentUpdate(Body, frozen=True):
    name: Name | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    config: Cloud | SelfHosted | UnsetType | None = UNSET
    metadata: MetadataPatch | UnsetType | None = UNSET
    scope: Literal["organization", "account"] | UnsetType | None = UNSET


class EnvironmentCreate(Body, frozen=True):
    name: Name
    description: Description | None = None
    config: Cloud | SelfHosted | None = None
    metadata: Metadata = msgspec.field(default_factory=dict)
    scope: Literal["organization", "account"] | None = None
