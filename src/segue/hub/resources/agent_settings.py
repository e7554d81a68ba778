"""The settings of an agent as records store them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from segue.agents.base.spec import (
    BUILT_IN_TOOLS,
    DELEGATION_TOOLS,
    TOOLS_BY_KEY,
    UNTRUSTED_SERVERS,
)
from segue.model import ids
from segue.model.anthropic.agents import AgentSettings, roster_of
from segue.model.errors import InvalidInput
from segue.model.event import AgentRef
from segue.model.record import Record

from .record_ids import format_record_id
from .records import CONFIGURED

# The fields in which an agent has whether an API key created it, and the settings that keys have
# changed since, as the local user left them.
BY_KEY = "by_key"
LOCAL_SETTINGS = "local_settings"
_OF_KEYS = (BY_KEY, LOCAL_SETTINGS)
_LABELS = frozenset({"name", "description", "metadata"})  # they do not change what an agent does
MAX_VERSION = 1 << 31
DEMO_MODEL = "demo"  # the id that is shown if no model is configured
# Of Anthropic's models only Opus has a fast mode, since 4.6. Other models are not checked.
_WITHOUT_FAST_MODE = re.compile(r"(anthropic:)?claude-(?!opus-(?!4-(0|1|5|2025)))")


def model_settings(
    id: str,
    *,
    speed: str | None = None,
    effort: str | None = None,
    inference_geo: str | None = None,
) -> dict[str, Any]:
    """Return the settings of a model with all defaults.

    Raises InvalidInput if the model does not have this speed.
    """
    if not 1 <= len(id) <= 256:
        raise InvalidInput("model: expected str of length 1 to 256")
    if speed == "fast" and _WITHOUT_FAST_MODE.match(id):
        raise InvalidInput(f"model.speed: {id} has no fast mode")
    return {
        "id": id,
        "speed": speed or "standard",
        "effort": {"type": effort or "high"},
        "inference_geo": inference_geo,
    }


DEFAULTS: dict[str, Any] = {
    "description": None,
    "system": None,
    "model": model_settings(DEMO_MODEL),
    "tools": [],
    "mcp_servers": [],
    "skills": [],
    "multiagent": None,
    "execution_identity": {"type": "service_account"},
}


# The tools that the configured model gets from the built-in agent.
_BUILT_IN_TOOLSET = [
    {
        "type": "agent_toolset_20260401",
        "configs": [],
        "default_config": {"enabled": True, "permission_policy": {"type": "auto"}},
    }
]


def complete_settings(record: Record) -> dict[str, Any]:
    """Return the name and all settings of an agent, defaults included."""
    body = record.body
    model = body.get("model", body.get(CONFIGURED) or DEFAULTS["model"])
    defaults = {**DEFAULTS, "tools": _BUILT_IN_TOOLSET} if body.get(CONFIGURED) else DEFAULTS
    settings = {name: body.get(name, default) for name, default in defaults.items()}
    settings["model"] = model_settings(model) if isinstance(model, str) else model
    return {"name": body.get("name"), **settings}


def shown_settings(record: Record) -> dict[str, Any]:
    """Return the fields of AgentSettings for an agent. They may be invalid in an imported one."""
    return {
        "type": "agent",
        "id": format_record_id(record),
        "version": record.version,
        **complete_settings(record),
        "metadata": record.body.get("metadata", {}),
    }


def can_be_shown(record: Record, overrides: Mapping[str, Any] | None = None) -> bool:
    """Return whether the settings of an agent, with overrides, have the types of AgentSettings."""
    try:
        return fit_settings(shown_settings(record), overrides or {})
    except InvalidInput:
        return False


def fit_settings(fields: Mapping[str, Any], overrides: Mapping[str, Any]) -> bool:
    """Return whether the fields of AgentSettings, with overrides, have its types."""
    try:
        settings = {**fields, **complete_overrides(overrides)}
        topology = msgspec.convert(settings, AgentSettings).multiagent
    except (msgspec.ValidationError, InvalidInput):
        return False
    members = roster_of(None if topology is None else msgspec.to_builtins(topology)).members
    return all(
        ids.parse(member["id"], "agent") and 1 <= member["version"] < MAX_VERSION
        for member in members
    )


def member_ref(member: Mapping[str, Any]) -> AgentRef:
    """Return the agent that an entry of a roster refers to."""
    return AgentRef(id=ids.parse(member["id"], "agent") or "", version=member["version"])


def complete_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides of a session that are settings of agents."""
    settings = {
        name: value for name, value in overrides.items() if name == "name" or name in DEFAULTS
    }
    if isinstance(settings.get("model"), str):
        settings["model"] = model_settings(settings["model"])
    return settings


def created_by(settings: Mapping[str, Any], *, local: bool) -> dict[str, Any]:
    """Return the body of an agent that the local user creates, or an API key."""
    body = {**settings, TOOLS_BY_KEY: not local} if "tools" in settings else dict(settings)
    if local and "mcp_servers" in settings:
        body[UNTRUSTED_SERVERS] = False
    return body if local else {**body, BY_KEY: True}


def changed_by(
    body: Mapping[str, Any], changes: Mapping[str, Any], *, local: bool
) -> dict[str, Any]:
    """Return the body of an agent after changes by the local user, or by an API key.

    A key's changes apply only to turns of keys. The body keeps the settings as the local user left
    them; None stands for a setting that the agent did not have.
    """
    sent = created_by(changes, local=local)
    kept = dict(body.get(LOCAL_SETTINGS, {}))
    for name in sent.keys() - _LABELS - {BY_KEY}:
        if local:
            kept.pop(name, None)
        elif not body.get(BY_KEY) and sent[name] != body.get(name):
            kept.setdefault(name, body.get(name))
    changed = {**body, **sent}
    changed |= {LOCAL_SETTINGS: kept, BY_KEY: bool(body.get(BY_KEY)) and not local}
    return {name: value for name, value in changed.items() if value or name not in _OF_KEYS}


def for_local_turns(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of an agent with the settings that apply to the local user's turns."""
    kept = body.get(LOCAL_SETTINGS, {})
    absent = {name for name, value in kept.items() if value is None}
    return {name: value for name, value in {**body, **kept}.items() if name not in absent}


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise InvalidInput if settings contradict each other."""
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
    built_in = (*BUILT_IN_TOOLS, *(DELEGATION_TOOLS if settings.get("multiagent") else ()))
    if taken := sorted(set(custom).intersection(built_in)):
        raise InvalidInput(
            f"tools: {taken[0]!r} is a built-in tool; give the custom tool another name"
        )
