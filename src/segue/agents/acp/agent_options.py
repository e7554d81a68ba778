"""The login methods, options and commands of an agent, in one form for both protocol versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from segue.acp.client import AcpClient
from segue.acp.methods import AUTH_STATUS, MCP_OVER_ACP, PROVIDERS, SYSTEM_PROMPT
from segue.acp.wire import LoginMethod
from segue.agents.base.external import AgentDescription

OFFERED = "offered"  # the session option that contains the agent's options and commands
MODE = "mode"  # also marks an option that the agent reports as `modes`


def update_offered(offered: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offered options and commands after an update or the result of opening a session.

    An agent may report its modes as `modes` and as an option; the option has precedence.
    """
    result: dict[str, Any] = {
        name: offered[name] for name in ("options", "commands") if name in offered
    }
    if isinstance(update.get("configOptions"), list):
        result["options"] = _merge_config_options(
            result.get("options", ()), update["configOptions"]
        )
    if isinstance(update.get("modes"), dict) and (mode := _parse_modes(update["modes"])):
        others = [option for option in result.get("options", ()) if option.get("by") != MODE]
        if not any(option["category"] == MODE for option in others):
            result["options"] = [mode, *others]
    if isinstance(update.get("currentModeId"), str):
        result["options"] = [
            {**option, "value": update["currentModeId"]} if option.get("by") == MODE else option
            for option in result.get("options", ())
        ]
    if isinstance(update.get("availableCommands"), list):
        commands = map(_parse_command, _dicts(update["availableCommands"]))
        result["commands"] = [command for command in commands if command is not None]
    return result


def _merge_config_options(current: Any, raw_options: Any) -> list[dict[str, Any]]:
    parsed = map(_parse_option, _dicts(raw_options))
    options = [option for option in parsed if option is not None]
    if any(option["category"] == MODE for option in options):
        return options
    return [*(option for option in current if option.get("by") == MODE), *options]


def _parse_option(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a selection, or a switch, which has no choices; None if the option is invalid."""
    id = raw.get("configId", raw.get("id"))
    value, choices = raw.get("currentValue"), _parse_choices(raw.get("options"))
    is_switch = raw.get("type") == "boolean" and isinstance(value, bool)
    is_selection = raw.get("type") == "select" and value in [choice["value"] for choice in choices]
    if not isinstance(id, str) or not (is_switch or is_selection):
        return None
    return {
        "id": id,
        "name": _text(raw.get("name")) or id,
        "description": _text(raw.get("description")) or None,
        "category": _text(raw.get("category")) or None,
        "value": value,
        "choices": [] if is_switch else choices,
        **_meta_of(raw),
    }


def _parse_choices(raw: Any) -> list[dict[str, Any]]:
    """Return the values of an option; those of a group name their group."""
    choices: list[dict[str, Any]] = []
    for item in _dicts(raw):
        if isinstance(item.get("options"), list):
            id = _text(item.get("groupId", item.get("group")))
            group = {"id": id, "name": _text(item.get("name")) or id, **_meta_of(item)}
            choices += [{**choice, "group": group} for choice in _parse_choices(item["options"])]
        elif isinstance(item.get("value"), str):
            name = _text(item.get("name")) or item["value"]
            description = _text(item.get("description")) or None
            fields = {"value": item["value"], "name": name, "description": description}
            choices.append({**fields, **_meta_of(item)})
    return choices


def _parse_modes(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the modes of an agent as an option."""
    modes = [
        {**mode, "value": mode.get("id")}
        for mode in raw.get("availableModes") or ()
        if isinstance(mode, dict)
    ]
    option = _parse_option(
        {
            "id": MODE,
            "name": "Mode",
            "type": "select",
            "category": MODE,
            "currentValue": raw.get("currentModeId"),
            "options": modes,
            "_meta": raw.get("_meta"),
        }
    )
    return None if option is None else {**option, "by": MODE}


def valid_commands(raw: list[Any], version: int) -> list[dict[str, Any]]:
    """Return the commands of an agent, without those that have no valid name in its version."""
    commands = [command for command in _dicts(raw) if _parse_command(command) is not None]
    if version == 1:
        return commands
    return [command for command in commands if not any(map(str.isspace, command["name"]))]


def _parse_command(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    name = raw.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    input = raw.get("input")
    hint = input.get("hint") if isinstance(input, dict) else None
    return {
        "name": name,
        "description": _text(raw.get("description")),
        "hint": _text(hint) or None,
        **_meta_of(raw),
    }


def describe(client: AcpClient) -> AgentDescription:
    """Return the name and the capabilities of a connected agent."""
    if client.version == 1:
        session = _dict(client.capabilities.get("sessionCapabilities"))
        mcp = _dict(client.capabilities.get("mcpCapabilities"))
        http, acp = mcp.get("http") is True, mcp.get("acp") is True or None
    else:
        session = _dict(client.capabilities.get("session"))
        mcp = _dict(session.get("mcp"))
        http, acp = mcp.get("http") is not None, mcp.get("acp")
    optional = {
        SYSTEM_PROMPT: session.get("systemPrompt"),
        AUTH_STATUS: _dict(client.capabilities.get("auth")).get("status"),
        PROVIDERS: client.capabilities.get("providers"),
        MCP_OVER_ACP: acp,
    }
    contents = ("image", "audio", "embeddedContext")
    capability_meta = client.capabilities.get("_meta")
    return AgentDescription(
        info=client.agent,
        prompt_content=frozenset(name for name in contents if client.accepts_content(name)),
        additional_directories=client.supports("additionalDirectories"),
        http_mcp_servers=http,
        meta=client.agent_meta,
        capability_meta=capability_meta if isinstance(capability_meta, dict) else {},
        optional={name: value for name, value in optional.items() if value is not None},
    )


def parse_login(raw: Mapping[str, Any]) -> LoginMethod | None:
    """Return a login method of either protocol version, or None if its type is unknown."""
    id, kind = raw.get("methodId", raw.get("id")), raw.get("type", "agent")
    if not isinstance(id, str) or kind not in ("agent", "terminal"):
        return None
    name, description = _text(raw.get("name")) or id, _text(raw.get("description")) or None
    if kind == "agent":
        return LoginMethod(id=id, name=name, description=description)
    args, env = raw.get("args") or (), raw.get("env") or {}
    if isinstance(env, list):
        env = {variable.get("name"): variable.get("value") for variable in _dicts(env)}
    return LoginMethod(
        id=id,
        name=name,
        description=description,
        args=tuple(map(str, args)),
        env={str(key): str(value) for key, value in env.items()},
    )


def _meta_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `_meta` of a part of a message, which clients of the agent get back."""
    return {"meta": raw["_meta"]} if isinstance(raw.get("_meta"), dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    """Return the dicts in a list; none if the value is not a list."""
    items = value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict)]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
