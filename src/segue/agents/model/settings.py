"""The settings of a model agent, parsed from the agent's specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from segue.acp.wire import HttpMcpServer
from segue.agents.base.spec import (
    DEMO,
    FUNCTIONS,
    NETWORKING,
    PACKAGE_CACHE,
    PACKAGES,
    REMOTE,
    ROSTER,
    TOOLS_BY_KEY,
    UNTRUSTED_SERVERS,
)
from segue.model.event import AgentRef, Policy

ANTHROPIC = "anthropic"


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools of a set are enabled, and the permission policy of each."""

    enabled: bool = True
    policy: Policy = "auto"
    tools: dict[str, tuple[bool, Policy]] = {}

    def tool_config(self, name: str) -> tuple[bool, Policy]:
        """Return whether a tool is enabled, and its policy."""
        return self.tools.get(name, (self.enabled, self.policy))


class CustomTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for a kind of task, in the file at `path` or in `text`."""

    name: str
    description: str
    path: str | None = None
    text: str | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a coordinator may start threads of, with its specification.

    An advisor has no record; its `definition` has its model.
    """

    name: str
    description: str | None = None
    spec: dict[str, Any] = {}
    agent: AgentRef | None = None
    definition: dict[str, Any] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a model agent."""

    model: str
    base_url: str | None = None
    system: str | None = None
    append_system: str | None = None
    describe_directories: bool = True  # whether the system prompt names the directories
    remote: bool = False  # whether a remote worker runs the tools, with its own files
    max_turns: int = 100
    max_tokens: int | None = None
    context_tokens: int | None = None
    thinking: str | None = None
    effort: str | None = None  # None stands for `high`, the default
    fast: bool = False
    inference_geo: str | None = None
    retries: int = 8
    backoff: float = 1.0
    built_in: Toolset | None = Toolset()
    custom: tuple[CustomTool, ...] = ()
    mcp: dict[str, Toolset] = {}
    tools_by_key: bool = False  # whether an API key chose the policies of the tools
    servers: tuple[HttpMcpServer, ...] = ()
    untrusted_servers: bool = False  # whether an imported file chose the servers
    skills: tuple[Skill, ...] = ()
    networking: dict[str, Any] | None = None  # of the session's environment
    packages: dict[str, tuple[str, ...]] = {}  # the same, by manager
    package_cache: str = ""
    roster: tuple[Member, ...] = ()
    advisor: Member | None = None
    inline_agents: bool = False  # whether it may define agents when it starts threads
    own_spec: dict[str, Any] = {}  # the specification that these agents are made from
    config: dict[str, Any] = {}


def resolve_model(spec: Mapping[str, Any]) -> str | None:
    """Return the model that answers for an agent, as provider:name, or None for the demo agent.

    The agent's own model is used if it names its provider. A name without a provider, as in the
    REST API, is an Anthropic model; it is used if the workspace has configured an Anthropic model.
    Otherwise the configured model answers, which may be the demo agent too.
    """
    model = spec.get("model")
    own_model = model.get("id") if isinstance(model, Mapping) else model
    configured: str | None = spec.get("config", {}).get("model")
    if own_model == DEMO:
        return None
    if isinstance(own_model, str) and own_model:
        if ":" in own_model:
            return own_model
        if configured is not None and configured.startswith("anthropic:"):
            return f"anthropic:{own_model}"
    return None if configured == DEMO else configured


def parse_settings(spec: Mapping[str, Any]) -> Settings:
    """Return the settings of a specification, which must name or configure a model."""
    config = dict(spec.get("config", {}))
    model = resolve_model(spec)
    assert model is not None  # the registry builds the demo agent otherwise
    fields = _plain_fields(spec, config, model)
    if "tools" in spec:
        fields |= _parse_tools(spec["tools"] or ())
    functions = [msgspec.convert(tool, CustomTool) for tool in spec.get(FUNCTIONS, ())]
    fields["custom"] = (*functions, *fields.get("custom", ()))
    servers = tuple(
        HttpMcpServer(name=server["name"], url=server["url"])
        for server in spec.get("mcp_servers", ())
    )
    # The hub adds the names of the skills that it has; a reference without a name is unusable.
    skills = tuple(
        msgspec.convert(skill, Skill) for skill in spec.get("skills", ()) if "name" in skill
    )
    roster = spec.get(ROSTER, {})
    return Settings(
        model=model,
        servers=servers,
        skills=skills,
        config=config,
        roster=tuple(msgspec.convert(member, Member) for member in roster.get("members", ())),
        advisor=msgspec.convert(roster.get("advisor"), Member | None),
        inline_agents=bool(roster.get("inline_agents")),
        own_spec={k: v for k, v in spec.items() if k != ROSTER} if roster else {},
        **fields,
    )


def _plain_fields(spec: Mapping[str, Any], config: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return the settings that are plain values, without those that nothing sets."""
    is_configured = model == config.get("model")
    same_provider = _provider(model) == _provider(str(config.get("model", "")))
    remote = spec.get(REMOTE)
    optional: dict[str, Any] = {
        "max_turns": spec.get("max_turns") or config.get("model.max_turns"),
        "max_tokens": config.get("model.max_tokens"),
        "context_tokens": config.get("model.context") if is_configured else None,
        "thinking": spec.get("thinking") or _effort(spec) or config.get("model.thinking"),
        "effort": _effort(spec),
        "inference_geo": _model_option(spec, "inference_geo"),
        "fast": _model_option(spec, "speed") == "fast",
        "base_url": spec.get("base_url")
        or (config.get("model.base_url") if same_provider else None),
        "system": spec.get("system"),
        "append_system": spec.get("append_system"),
        "describe_directories": False if remote else spec.get("describe_directories"),
        "remote": remote,
        "tools_by_key": spec.get(TOOLS_BY_KEY),
        "untrusted_servers": spec.get(UNTRUSTED_SERVERS),
        "networking": spec.get(NETWORKING),
        "packages": spec.get(PACKAGES),
        "package_cache": spec.get(PACKAGE_CACHE),
        "retries": spec.get("retries"),
        "backoff": spec.get("backoff"),
    }
    return {name: value for name, value in optional.items() if value is not None}


def _provider(model: str) -> str:
    return model.partition(":")[0]


def _model_option(spec: Mapping[str, Any], name: str) -> Any:
    """Return an option in the agent's `model` object, or None."""
    model = spec.get("model")
    return model.get(name) if isinstance(model, Mapping) else None


def unsupported_by_provider(model: str, *, fast: bool, inference_geo: str | None) -> str | None:
    """Return why the provider of `model` cannot apply these options; None if it can."""
    if _provider(model) == ANTHROPIC:
        return None
    if fast:
        return f"model.speed: {model} has no fast mode"
    if inference_geo is not None:
        return f"model.inference_geo: only models of the provider {ANTHROPIC} have it, not {model}"
    return None


def _effort(spec: Mapping[str, Any]) -> str | None:
    """Return the agent's effort, or None for `high`, which is also the default of agents."""
    effort = _model_option(spec, "effort") or {}
    level: str | None = effort.get("type")
    return None if level == "high" else level


def _parse_tools(tools: Any) -> dict[str, Any]:
    built_in: Toolset | None = None
    custom: list[CustomTool] = []
    mcp: dict[str, Toolset] = {}
    for tool in tools:
        match tool["type"]:
            case "custom":
                custom.append(msgspec.convert(tool, CustomTool))
            case "mcp_toolset":
                mcp[tool["mcp_server_name"]] = _parse_toolset(tool, "always_ask")
            case _:
                built_in = _parse_toolset(tool, "always_allow")
    return {"built_in": built_in, "custom": tuple(custom), "mcp": mcp}


def _parse_toolset(toolset: Mapping[str, Any], policy: Policy) -> Toolset:
    default = _parse_tool_config(toolset.get("default_config") or {}, (True, policy))
    return Toolset(
        enabled=default[0],
        policy=default[1],
        tools={
            config["name"]: _parse_tool_config(config, default)
            for config in toolset.get("configs", ())
        },
    )


def _parse_tool_config(
    config: Mapping[str, Any], default: tuple[bool, Policy]
) -> tuple[bool, Policy]:
    policy = config.get("permission_policy") or {}
    enabled = config.get("enabled")
    return (default[0] if enabled is None else enabled), policy.get("type", default[1])
