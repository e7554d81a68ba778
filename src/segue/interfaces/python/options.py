"""The options of `create_session` and `resume_session`, and the agent settings they mean."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

from segue.acp.wire import EnvVariable, HttpHeader, HttpMcpServer, McpServer, StdioMcpServer
from segue.agents.base.spec import (
    BUILT_IN_TOOLS,
    DEMO,
    MODES,
    TOOLSET,
    has_provider,
    tool_name,
)
from segue.hub import Hub
from segue.model.errors import InvalidInput

from .command_rules import command_rule
from .hub_handle import StoreLocation

# Takes two or three arguments; see permission.py.
CanUseTool = Callable[..., Awaitable[Any]]

# Options that the demo agent cannot honour, so it refuses them.
NEED_A_MODEL = (
    "system_prompt",
    "append_system_prompt",
    "max_turns",
    "allowed_tools",
    "disallowed_tools",
    "hooks",
    "env",
    "max_budget_usd",
    "thinking",
    "output_format",
    "agents",
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The permission modes of a program. `dontAsk` refuses what would need a permission.
DONT_ASK = "dontAsk"
PERMISSION_MODES = (*MODES, DONT_ASK)
THINKING = ("minimal", "low", "medium", "high", "xhigh", "max")
_TEXT, _MAP, _LIST = ((str,), "a string"), ((Mapping,), "a mapping"), ((Iterable,), "a list")
# The types of options, and how a message names them.
_TYPES: dict[str, tuple[tuple[Any, ...], str]] = {
    "system_prompt": _TEXT,
    "append_system_prompt": _TEXT,
    "permission_mode": _TEXT,
    "thinking": _TEXT,
    "title": _TEXT,
    "max_turns": ((int,), "a whole number"),
    "max_budget_usd": ((int, float), "a number"),
    "include_partial_messages": ((bool,), "True or False"),
    "mcp_servers": _MAP,
    "hooks": _MAP,
    "env": _MAP,
    "output_format": _MAP,
    "agents": _MAP,
    "can_use_tool": ((Callable,), "a function"),
    "tools": (_LIST[0], "a list of functions"),
    "allowed_tools": (_LIST[0], "a list of names"),
    "disallowed_tools": (_LIST[0], "a list of names"),
    "add_dirs": (_LIST[0], "a list of directories"),
}
_LISTS: dict[str, Any] = {
    "tools": Callable,
    "allowed_tools": str,
    "disallowed_tools": str,
    "add_dirs": (str, os.PathLike),
}
# From the Agent SDK's tool names (WebFetch) to segue's (web_fetch), and back.
_FROM_SDK_NAME = {"".join(map(str.capitalize, name.split("_"))): name for name in BUILT_IN_TOOLS}
_TO_SDK_NAME = {name: sdk_name for sdk_name, name in _FROM_SDK_NAME.items()}
_MCP_PREFIX = "mcp__"


class Options(TypedDict, total=False):
    """How a session runs."""

    system_prompt: str  # replaces the default system prompt
    append_system_prompt: str  # added after the system prompt
    permission_mode: Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]
    max_turns: int  # limit of model requests for one prompt
    mcp_servers: Mapping[str, Mapping[str, Any]]  # by name: command, args, env; or url, headers
    tools: Sequence[Callable[..., Any]]  # functions that the model may call
    allowed_tools: Sequence[str]  # tools that need no permission
    disallowed_tools: Sequence[str]  # tools that the model does not get
    can_use_tool: CanUseTool  # answers permission requests; without it they are refused
    hooks: Mapping[str, Iterable[Any]]  # matchers by event; see hooks.py
    env: Mapping[str, str]  # environment variables for commands and MCP servers
    include_partial_messages: bool  # also stream deltas
    title: str  # of a new session; otherwise its first prompt names it
    add_dirs: Sequence[str | os.PathLike[str]]  # further directories that its tools may use
    max_budget_usd: float  # the most that the session may cost
    thinking: str  # how hard the model thinks: one of THINKING
    output_format: Mapping[str, Any]  # {"type": "json_schema", "schema": {…}}
    agents: Mapping[str, Any]  # by name: description, prompt, tools, model; see subagents.py
    store: StoreLocation  # the default data directory if absent


def without_absent(options: Options) -> Options:
    """Return the options without those that are None."""
    return cast(Options, {name: value for name, value in options.items() if value is not None})


def check_options(model: str, options: Options) -> None:
    """Raise InvalidInput for an unknown or impossible option.

    Options are never ignored: the ignored one could be a safeguard.
    """
    if not model:
        raise InvalidInput("a session needs a model: write provider:name, or demo")
    if not isinstance(model, str):
        raise InvalidInput(f"model must be a string, not {model!r}")
    if model != DEMO and not has_provider(with_provider(model)):
        raise InvalidInput(
            f"{model!r} is not a model: write provider:name, such as openai:gpt-5, or demo"
        )
    known = Options.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise InvalidInput(f"unknown option {unknown[0]!r}; the options are {', '.join(known)}")
    for name, value in options.items():
        _check_type(name, value)
    store = options.get("store")
    if not isinstance(store, str | os.PathLike | Hub | None) and not hasattr(store, "events"):
        raise InvalidInput(
            f"store must be a directory, a database URL, a Store or a Hub, not {store!r}"
        )
    for name, choices in (("permission_mode", PERMISSION_MODES), ("thinking", THINKING)):
        if (choice := options.get(name)) not in (None, *choices):
            raise InvalidInput(f"{name} {choice!r} is not one of {', '.join(choices)}")
    max_turns = options.get("max_turns")
    if max_turns is not None and max_turns < 1:
        raise InvalidInput(f"max_turns must be at least 1, not {max_turns}")
    budget = options.get("max_budget_usd")
    if budget is not None and not 0 < budget < float("inf"):
        raise InvalidInput(f"max_budget_usd must be more than 0, not {budget}")
    for path in options.get("add_dirs") or ():
        if not os.path.isdir(path):
            raise InvalidInput(f"add_dirs: there is no directory {os.fspath(path)}")
    for name in NEED_A_MODEL:
        if model == DEMO and options.get(name):
            raise InvalidInput(f"{name} does not work with the model demo; choose another")
    for name, value in options.get("env", {}).items():
        if not isinstance(name, str) or not isinstance(value, str) or not _ENV_NAME.fullmatch(name):
            raise InvalidInput(
                f"env: {name!r} needs a name of letters, digits and _, and a string as its value"
            )
        if "\0" in value:
            raise InvalidInput(f"env: the value of {name} contains a NUL character")


def _check_type(name: str, value: Any) -> None:
    """Raise InvalidInput if an option has a value of another type."""
    if name not in _TYPES:
        return
    types, description = _TYPES[name]
    is_wrong = not isinstance(value, types) or (bool not in types and isinstance(value, bool))
    if not is_wrong and name in _LISTS:
        is_wrong = isinstance(value, str) or not all(
            isinstance(item, _LISTS[name]) for item in value
        )
    if is_wrong:
        hint = "; use append_system_prompt to add to it" if name == "system_prompt" else ""
        raise InvalidInput(f"{name} must be {description}, not {value!r}{hint}")


def agent_overrides(model: str, options: Options) -> dict[str, Any]:
    """Return the settings of a session that differ from those of the built-in agent."""
    settings = {
        "model": with_provider(model),
        "system": options.get("system_prompt"),
        # A program's own system prompt does not mention the working directory.
        "describe_directories": None if options.get("system_prompt") is None else False,
        "append_system": options.get("append_system_prompt"),
        "max_turns": options.get("max_turns"),
        "thinking": options.get("thinking"),
        "tools": toolsets(options.get("allowed_tools", ()), options.get("disallowed_tools", ())),
    }
    return {name: value for name, value in settings.items() if value is not None}


def with_provider(model: str) -> str:
    """Return provider:name; a bare `claude-` name gets the provider anthropic."""
    return f"anthropic:{model}" if model.startswith("claude-") else model


def toolsets(allowed: Iterable[str], disallowed: Iterable[str]) -> list[dict[str, Any]] | None:
    """Return the toolsets of an agent's record; None if no tool is allowed or disallowed.

    Raises InvalidInput for an unknown tool.
    """
    allow = {"permission_policy": {"type": "always_allow"}}
    switches: dict[str, dict[str, Any]] = {
        name: {**allow} for name in allowed if command_rule(name) is None
    }
    switches |= {name: {"enabled": False} for name in disallowed if command_rule(name) is None}
    if not switches:
        return None
    sets: dict[str, dict[str, Any]] = {"": new_toolset("auto", type=TOOLSET)}
    for name, switch in switches.items():
        server, tool = split_tool_name(name)
        if server not in sets:
            sets[server] = new_toolset("always_ask", type="mcp_toolset", mcp_server_name=server)
        toolset = sets[server]
        if tool is None:
            toolset["default_config"] |= switch
        else:
            toolset["configs"].append({"name": tool, **toolset["default_config"], **switch})
    return list(sets.values())


def new_toolset(policy: str, **fields: str) -> dict[str, Any]:
    default = {"enabled": True, "permission_policy": {"type": policy}}
    return {**fields, "default_config": default, "configs": []}


def split_tool_name(name: str) -> tuple[str, str | None]:
    """Return a tool's MCP server, "" for a built-in tool, and its name; None for all tools."""
    if name.startswith(_MCP_PREFIX):
        server, _, tool = name.removeprefix(_MCP_PREFIX).partition("__")
        if server:
            return server, tool or None
    if (built_in := _FROM_SDK_NAME.get(name, name)) in BUILT_IN_TOOLS:
        return "", built_in
    raise InvalidInput(
        f"there is no tool {name!r}; use {', '.join(BUILT_IN_TOOLS)}, or mcp__SERVER__TOOL"
    )


def sdk_tool_name(name: str, server: str | None) -> str:
    """Return the Agent SDK's name of a tool."""
    if server is not None:
        return f"{_MCP_PREFIX}{server}__{name}"
    return _TO_SDK_NAME.get(name, name)


def always_allow_name(name: str) -> str:
    """Return the name under which a session stores that a tool is always allowed."""
    server, tool = split_tool_name(name)
    if tool is None:
        raise InvalidInput(f"{name!r} names an MCP server; name one tool: {name}__TOOL")
    return tool_name(tool, server or None)


def read_mcp_server(name: str, config: Mapping[str, Any], env: Mapping[str, str]) -> McpServer:
    """Return an MCP server from the Agent SDK's configuration: a command or a URL.

    A command gets the variables in `env`; its own variables take precedence. Raises InvalidInput
    for a configuration of another form.
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"mcp_servers: {name!r} is not a name")
    match config:
        case {"command": str(command)} if command and config.get("type", "stdio") == "stdio":
            args = config.get("args") or ()
            if not isinstance(args, list | tuple) or not all(isinstance(arg, str) for arg in args):
                raise InvalidInput(f"MCP server {name!r}: args must be a list of strings")
            _check_fields(name, config, ("type", "command", "args", "env"))
            variables = {**env, **_strings(name, config, "env")}.items()
            return StdioMcpServer(
                name=name,
                command=command,
                args=list(args),
                env=[EnvVariable(name=key, value=value) for key, value in variables],
            )
        case {"url": str(url)} if config.get("type", "http") == "http":
            if not url.startswith(("http://", "https://")):
                raise InvalidInput(f"MCP server {name!r}: {url!r} is not an http or https URL")
            _check_fields(name, config, ("type", "url", "headers"))
            headers = _strings(name, config, "headers").items()
            return HttpMcpServer(
                name=name,
                url=url,
                headers=[HttpHeader(name=key, value=value) for key, value in headers],
            )
    raise InvalidInput(f"MCP server {name!r} needs a command, or a url with type http")


def _check_fields(server: str, config: Mapping[str, Any], fields: Sequence[str]) -> None:
    if unknown := [field for field in config if field not in fields]:
        raise InvalidInput(
            f"MCP server {server!r} has the unknown field {unknown[0]!r};"
            f" the fields are {', '.join(fields)}"
        )


def _strings(server: str, config: Mapping[str, Any], field: str) -> Mapping[str, str]:
    values = config.get(field) or {}
    if not isinstance(values, Mapping) or not all(
        isinstance(text, str) for item in values.items() for text in item
    ):
        raise InvalidInput(f"MCP server {server!r}: {field} must be a mapping of strings")
    return values
