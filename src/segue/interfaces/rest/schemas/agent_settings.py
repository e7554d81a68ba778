"""An agent's settings as they are stored and shown: every default filled in when it is saved."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UnsetType, to_builtins

from segue.model.errors import InvalidInput

from . import requests

# What answers where no model is configured.
DEMO = "demo"

# Of Anthropic's models only Opus has a fast mode, since 4.6; of others nothing is known here.
_SLOW = re.compile(r"(anthropic:)?claude-(?!opus-(?!4-(0|1|5|2025)))")

DEFAULTS: dict[str, Any] = {
    "description": None,
    "system": None,
    "model": {"id": DEMO, "speed": "standard", "effort": {"type": "high"}, "inference_geo": None},
    "tools": [],
    "mcp_servers": [],
    "skills": [],
    "multiagent": None,
    "metadata": {},
    "execution_identity": {"type": "service_account"},
}


def resolve(given: requests.Settings) -> dict[str, Any]:
    """The settings that a request gives, each whole; those that it leaves out are left out.

    Skills are not among them: they refer to records.
    """
    found: dict[str, Any] = {}
    if not isinstance(given.model, UnsetType):
        if given.model is None:
            details = {"error_code": "agent_model_required"}
            raise InvalidInput("model: an agent needs one; it cannot be cleared", details=details)
        found["model"] = model(given.model)
    if not isinstance(given.system, UnsetType):
        found["system"] = given.system or None
    if not isinstance(given.tools, UnsetType):
        found["tools"] = [_tool(tool) for tool in given.tools or ()]
    if not isinstance(given.mcp_servers, UnsetType):
        found["mcp_servers"] = to_builtins(given.mcp_servers or ())
    return found


def check(settings: dict[str, Any]) -> None:
    """What must hold between the settings."""
    servers = [server["name"] for server in settings.get("mcp_servers", ())]
    tools = settings.get("tools", ())
    used = {tool["mcp_server_name"] for tool in tools if tool["type"] == "mcp_toolset"}
    if len(set(servers)) < len(servers):
        raise InvalidInput("mcp_servers: names must be unique")
    if unused := sorted(set(servers) - used):
        raise InvalidInput(f"mcp_servers: {unused[0]!r} is referenced by no mcp_toolset in tools")
    if unknown := sorted(used - set(servers)):
        raise InvalidInput(f"tools: no MCP server is named {unknown[0]!r}")
    custom = [tool["name"] for tool in tools if tool["type"] == "custom"]
    if len(set(custom)) < len(custom):
        raise InvalidInput("tools: names of custom tools must be unique")


def metadata(before: dict[str, str], patch: requests.MetadataPatch | None) -> dict[str, str]:
    """The bag after a patch, which may not grow beyond what a bag may hold."""
    merged = {**before, **(patch or {})}
    kept = {key: value for key, value in merged.items() if value is not None}
    if len(kept) > 16:
        raise InvalidInput("metadata: at most 16 pairs")
    return kept


def model(given: str | requests.Model) -> dict[str, Any]:
    """A model with everything that can be asked of it."""
    asked = requests.Model(id=given) if isinstance(given, str) else given
    if not 1 <= len(asked.id) <= 256:
        raise InvalidInput("model: expected str of length 1 to 256")
    if asked.speed == "fast" and _SLOW.match(asked.id):
        raise InvalidInput(f"model.speed: {asked.id} has no fast mode")
    effort = asked.effort.type if isinstance(asked.effort, requests.EffortLevel) else asked.effort
    return {
        "id": asked.id,
        "speed": asked.speed or "standard",
        "effort": {"type": effort or "high"},
        "inference_geo": asked.inference_geo,
    }


def _tool(
    tool: requests.AgentToolset | requests.MCPToolset | requests.CustomTool,
) -> dict[str, Any]:
    if isinstance(tool, requests.CustomTool):
        if tool.input_schema.get("type") != "object":
            raise InvalidInput("tools: input_schema must have type object")
        found: dict[str, Any] = to_builtins(tool)
        return found
    own = isinstance(tool, requests.AgentToolset)
    asks = "always_allow" if own else "always_ask"
    default = _switch(tool.default_config or requests.Switch(), True, {"type": asks})
    configs = []
    for config in tool.configs:
        named = {"type": config.name, "name": config.name} if own else {"name": config.name}
        configs.append(
            {**named, **_switch(config, default["enabled"], default["permission_policy"])}
        )
    if isinstance(tool, requests.MCPToolset):
        return {
            "type": "mcp_toolset",
            "mcp_server_name": tool.mcp_server_name,
            "configs": configs,
            "default_config": default,
        }
    return {"type": "agent_toolset_20260401", "configs": configs, "default_config": default}


def _switch(switch: requests.Switch, enabled: bool, policy: dict[str, str]) -> dict[str, Any]:
    return {
        "enabled": enabled if switch.enabled is None else switch.enabled,
        "permission_policy": (
            policy if switch.permission_policy is None else {"type": switch.permission_policy.type}
        ),
    }
