"""An agent's settings as they are stored and shown: every default filled in when it is saved."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType, to_builtins

from segue.hub.resources.agent_settings import model_settings
from segue.model.errors import InvalidInput

from . import requests


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


def metadata(before: dict[str, str], patch: requests.MetadataPatch | None) -> dict[str, str]:
    """The bag after a patch, which may not grow beyond what a bag may hold."""
    merged = {**before, **(patch or {})}
    kept = {key: value for key, value in merged.items() if value is not None}
    if len(kept) > 16:
        raise InvalidInput("metadata: at most 16 pairs")
    return kept


def model(given: str | requests.Model) -> dict[str, Any]:
    """Return the settings of a model that a request names, with all defaults."""
    if isinstance(given, str):
        return model_settings(given)
    effort = given.effort.type if isinstance(given.effort, requests.EffortLevel) else given.effort
    return model_settings(
        given.id, speed=given.speed, effort=effort, inference_geo=given.inference_geo
    )


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
