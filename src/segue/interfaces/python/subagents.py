"""The agents in a program's options, to which the session's agent can delegate work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from segue.agents.base.spec import DEMO, FUNCTIONS, TOOLSET, has_provider
from segue.model.errors import InvalidInput

from .options import Options, new_toolset, split_tool_name, toolsets, with_provider

_INHERIT = "inherit"  # the model of the session's agent
_FIELDS = ("description", "prompt", "tools", "model")


def subagents(
    options: Options, functions: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return the agents in `options` as a turn's overrides have them.

    `functions` are the definitions of the program's own tools. Raises InvalidInput for a bad one.
    """
    return [
        _subagent(name, _fields(name, definition), options, functions)
        for name, definition in (options.get("agents") or {}).items()
    ]


def _fields(name: Any, definition: Any) -> dict[str, Any]:
    """Return the fields of a definition, which may be the Agent SDK's AgentDefinition."""
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(f"agents: {name!r} is not a name")
    fields = definition if isinstance(definition, Mapping) else getattr(definition, "__dict__", {})
    fields = {field: value for field, value in fields.items() if value is not None}
    if unknown := sorted(map(str, fields.keys() - set(_FIELDS))):
        raise InvalidInput(
            f"agents: {name} has the unknown field {unknown[0]!r}; the fields are"
            f" {', '.join(_FIELDS)}"
        )
    for field in ("description", "prompt"):
        text = fields.get(field)
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput(f"agents: {name} needs a {field}, as a string")
    if (tools := fields.get("tools")) is not None:
        is_list = isinstance(tools, Iterable) and not isinstance(tools, str | Mapping)
        fields["tools"] = names = list(tools) if is_list else [None]
        if not all(isinstance(tool, str) for tool in names):
            raise InvalidInput(f"agents: tools of {name} must be a list of names, not {tools!r}")
    return fields


def _subagent(
    name: str,
    fields: Mapping[str, Any],
    options: Options,
    functions: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    settings: dict[str, Any] = {"system": fields["prompt"], "describe_directories": True}
    model = fields.get("model", _INHERIT)
    if model != _INHERIT:
        if not isinstance(model, str) or model == DEMO or not has_provider(with_provider(model)):
            raise InvalidInput(
                f"agents: the model {model!r} of {name} is not a model: write provider:name,"
                f" or {_INHERIT}"
            )
        settings["model"] = with_provider(model)
    if (tools := fields.get("tools")) is not None:
        own_functions = {function["name"] for function in functions}
        functions = [function for function in functions if function["name"] in tools]
        names = [tool for tool in tools if tool not in own_functions]
        settings["tools"] = _only(names, options)
    if functions:
        settings[FUNCTIONS] = list(functions)
    return {
        "name": name,
        "description": fields["description"],
        "definition": {"name": name, "system": fields["prompt"]},
        "settings": settings,
    }


def _only(names: Collection[str], options: Options) -> list[dict[str, Any]]:
    """Return the session's toolsets without the tools that are not named.

    A tool that the session's agent does not get is not added.
    """
    parents = toolsets(
        options.get("allowed_tools") or (), options.get("disallowed_tools") or ()
    ) or [new_toolset("auto", type=TOOLSET)]
    by_server = {parent.get("mcp_server_name", ""): parent for parent in parents}
    for server in options.get("mcp_servers") or {}:
        default = new_toolset("always_ask", type="mcp_toolset", mcp_server_name=server)
        by_server.setdefault(server, default)
    chosen: dict[str, set[str | None]] = {}
    for name in names:
        server, tool = split_tool_name(name)
        if server not in by_server:
            raise InvalidInput(f"agents: there is no MCP server {server!r} for the tool {name!r}")
        chosen.setdefault(server, set()).add(tool)
    return [
        parent if None in chosen.get(server, ()) else _limited(parent, chosen.get(server, set()))
        for server, parent in by_server.items()
    ]


def _limited(toolset: Mapping[str, Any], names: Iterable[str | None]) -> dict[str, Any]:
    default = toolset["default_config"]
    configs = {config["name"]: config for config in toolset["configs"]}
    return {
        **toolset,
        "default_config": {**default, "enabled": False},
        "configs": [
            configs.get(name, {"name": name, **default}) for name in sorted(map(str, names))
        ],
    }
