"""How the model agent is set up for a session: read from the agent's specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from segue.acp.wire import HttpMcpServer
from segue.agents.permission import Policy

TOOLSET = "agent_toolset_20260401"
# Custom tools of the program that has a session open, beside those of its agent.
FUNCTIONS = "functions"
# What agents name that want the demo agent to answer, whatever is configured.
DEMO = "demo"


class Toolset(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools of a set are on, and whether each asks first."""

    enabled: bool = True
    policy: Policy = "auto"
    tools: dict[str, tuple[bool, Policy]] = {}

    def of(self, name: str) -> tuple[bool, Policy]:
        return self.tools.get(name, (self.enabled, self.policy))


class CustomTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for a kind of task: in a file at `path`, or else here as `text`."""

    name: str
    description: str
    path: str | None = None
    text: str | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a model agent but the conversation."""

    model: str
    base_url: str | None = None
    system: str | None = None
    append_system: str | None = None
    place: bool = True  # whether the system prompt says where the agent is
    elsewhere: bool = False  # whether others run its tools, in a place of theirs
    max_turns: int = 100
    max_tokens: int | None = None
    context: int | None = None
    thinking: str | None = None
    fast: bool = False
    retries: int = 8
    backoff: float = 1.0
    built_in: Toolset | None = Toolset()
    custom: tuple[CustomTool, ...] = ()
    mcp: dict[str, Toolset] = {}
    servers: tuple[HttpMcpServer, ...] = ()
    skills: tuple[Skill, ...] = ()
    config: dict[str, Any] = {}


def has_provider(model: str) -> bool:
    """Whether a model's name says whose it is: provider:name."""
    provider, _, name = model.partition(":")
    return bool(provider.strip() and name.strip())


def resolve_model(spec: Mapping[str, Any]) -> str | None:
    """The model that answers for an agent, as provider:name; None for none at all.

    An agent's own model counts if it names its provider, and `demo`, which is none. A bare name, as
    the REST API has them, is one of Anthropic's: it counts where those are what is configured.
    Otherwise the configured model answers.
    """
    given = spec.get("model")
    own = given.get("id") if isinstance(given, Mapping) else given
    configured: str | None = spec.get("config", {}).get("model")
    if own == DEMO:
        return None
    if isinstance(own, str) and own:
        if ":" in own:
            return own
        if configured is not None and configured.startswith("anthropic:"):
            return f"anthropic:{own}"
    return configured


def read(spec: Mapping[str, Any]) -> Settings:
    """The settings that a specification comes to."""
    config = dict(spec.get("config", {}))
    model = resolve_model(spec)
    assert model is not None  # else there is no model agent
    own = model != config.get("model")
    same = model.partition(":")[0] == str(config.get("model", "")).partition(":")[0]
    fields: dict[str, Any] = {
        "max_turns": spec.get("max_turns") or config.get("model.max_turns"),
        "max_tokens": config.get("model.max_tokens"),
        "context": None if own else config.get("model.context"),
        "thinking": _effort(spec) or config.get("model.thinking"),
        "fast": _asked(spec, "speed") == "fast",
        "base_url": spec.get("base_url") or (config.get("model.base_url") if same else None),
        "system": spec.get("system"),
        "append_system": spec.get("append_system"),
        "place": False if spec.get("elsewhere") else spec.get("place"),
        "elsewhere": spec.get("elsewhere"),
        "retries": spec.get("retries"),
        "backoff": spec.get("backoff"),
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if "tools" in spec:
        given |= _tools(spec["tools"] or ())
    functions = [msgspec.convert(tool, CustomTool) for tool in spec.get(FUNCTIONS, ())]
    given["custom"] = (*functions, *given.get("custom", ()))
    servers = tuple(
        HttpMcpServer(name=each["name"], url=each["url"]) for each in spec.get("mcp_servers", ())
    )
    # Those that the hub has found; a bare reference is nothing to a model.
    skills = tuple(
        msgspec.convert(each, Skill) for each in spec.get("skills", ()) if "name" in each
    )
    return Settings(model=model, servers=servers, skills=skills, config=config, **given)


def _asked(spec: Mapping[str, Any], name: str) -> Any:
    """What an agent asks of its model beside the name, if it says anything."""
    given = spec.get("model")
    return given.get(name) if isinstance(given, Mapping) else None


def _effort(spec: Mapping[str, Any]) -> str | None:
    """How hard the model should think; `high` is what agents have that do not say."""
    given = _asked(spec, "effort") or {}
    level: str | None = given.get("type")
    return None if level == "high" else level


def _tools(tools: Any) -> dict[str, Any]:
    built_in: Toolset | None = None
    custom: list[CustomTool] = []
    mcp: dict[str, Toolset] = {}
    for tool in tools:
        match tool["type"]:
            case "custom":
                custom.append(msgspec.convert(tool, CustomTool))
            case "mcp_toolset":
                mcp[tool["mcp_server_name"]] = _toolset(tool, "always_ask")
            case _:
                built_in = _toolset(tool, "always_allow")
    return {"built_in": built_in, "custom": tuple(custom), "mcp": mcp}


def _toolset(tool: Mapping[str, Any], policy: Policy) -> Toolset:
    enabled, policy = _switch(tool.get("default_config") or {}, True, policy)
    return Toolset(
        enabled=enabled,
        policy=policy,
        tools={each["name"]: _switch(each, enabled, policy) for each in tool.get("configs", ())},
    )


def _switch(config: Mapping[str, Any], enabled: bool, policy: Policy) -> tuple[bool, Policy]:
    own = config.get("permission_policy") or {}
    given = config.get("enabled")
    return (enabled if given is None else given), own.get("type", policy)
