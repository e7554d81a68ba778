"""Resolve the agent settings of a request to the form in which they are stored and shown."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType, to_builtins

from segue.hub.resources.agent_settings import model_settings
from segue.model.errors import InvalidInput

from . import requests


def resolve(settings: requests.Settings) -> dict[str, Any]:
    """Return the settings that a request has, with all defaults. Others are left out.

    Skills are left out too: they refer to records.
    """
    resolved: dict[str, Any] = {}
    if not isinstance(settings.model, UnsetType):
        if settings.model is None:
            details = {"error_code": "agent_model_required"}
            raise InvalidInput("model: an agent needs one; it cannot be cleared", details=details)
        resolved["model"] = _resolve_model(settings.model)
    if not isinstance(settings.system, UnsetType):
        resolved["system"] = settings.system or None
    if not isinstance(settings.tools, UnsetType):
        resolved["tools"] = [_resolve_tool(tool) for tool in settings.tools or ()]
    if not isinstance(settings.mcp_servers, UnsetType):
        resolved["mcp_servers"] = to_builtins(settings.mcp_servers or ())
    return resolved


def _resolve_model(model: str | requests.Model) -> dict[str, Any]:
    if isinstance(model, str):
        return model_settings(model)
    effort = model.effort.type if isinstance(model.effort, requests.EffortLevel) else model.effort
    return model_settings(
        model.id, speed=model.speed, effort=effort, inference_geo=model.inference_geo
    )


def _resolve_tool(
    tool: requests.AgentToolset | requests.MCPToolset | requests.CustomTool,
) -> dict[str, Any]:
    if isinstance(tool, requests.CustomTool):
        if tool.input_schema.get("type") != "object":
            raise InvalidInput("tools: input_schema must have type object")
        custom_tool: dict[str, Any] = to_builtins(tool)
        return custom_tool
    is_mcp = isinstance(tool, requests.MCPToolset)
    usual = {
        "enabled": True,
        "permission_policy": {"type": "always_ask" if is_mcp else "always_allow"},
    }
    default = _resolve_switch(tool.default_config or requests.Switch(), usual)
    configs = []
    for config in tool.configs:
        name = {"name": config.name} if is_mcp else {"type": config.name, "name": config.name}
        configs.append({**name, **_resolve_switch(config, default)})
    if isinstance(tool, requests.MCPToolset):
        return {
            "type": "mcp_toolset",
            "mcp_server_name": tool.mcp_server_name,
            "configs": configs,
            "default_config": default,
        }
    return {"type": "agent_toolset_20260401", "configs": configs, "default_config": default}


def _resolve_switch(switch: requests.Switch, default: dict[str, Any]) -> dict[str, Any]:
    resolved = dict(default)
    if switch.enabled is not None:
        resolved["enabled"] = switch.enabled
    if switch.permission_policy is not None:
        resolved["permission_policy"] = {"type": switch.permission_policy.type}
    return resolved
