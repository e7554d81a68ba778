"""What a program says when it opens a session, and what that means for the session's agent."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from segue.acp.wire import EnvVariable, HttpHeader, HttpMcpServer, McpServer, StdioMcpServer
from segue.agents.model.settings import DEMO, TOOLSET, has_provider
from segue.agents.permission import MODES
from segue.agents.tools import BUILT_IN
from segue.model.errors import InvalidInput

from .opening import Where

# With a third argument, as the Agent SDK has it; see permission.py.
Ask = Callable[..., Awaitable[Any]]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Tools as the Agent SDK names them.
_NAMES = {"".join(map(str.capitalize, name.split("_"))): name for name in BUILT_IN}
_SDK_NAMES = {own: name for name, own in _NAMES.items()}
_MCP = "mcp__"


class Options(TypedDict, total=False):
    """How a session is run."""

    system_prompt: str  # instead of the usual one
    append_system_prompt: str  # after it
    permission_mode: str  # one of MODES
    max_turns: int  # requests to the model for one prompt
    mcp_servers: Mapping[str, Mapping[str, Any]]  # by name: command, args, env; or url, headers
    tools: Sequence[Callable[..., Any]]  # functions of the program's that the model may call
    allowed_tools: Sequence[str]  # used without asking
    disallowed_tools: Sequence[str]  # not there at all
    can_use_tool: Ask  # asked before a tool that needs it is run; without one it is refused
    hooks: Mapping[str, Iterable[Any]]  # by event, each with its matchers; see hooks.py
    env: Mapping[str, str]  # variables of the programs that tools run
    include_partial_messages: bool  # also pieces of messages that are being written
    store: Where  # a data directory, a database's URL, a Store or a Hub; else the default store


def check(model: str, options: Options) -> None:
    """Refuse what makes no sense: an option that is not heeded may be one that protects."""
    if not model:
        raise InvalidInput("a session needs a model: provider:name, or demo")
    if model != DEMO and not has_provider(_full(model)):
        raise InvalidInput(
            f"{model!r} is no model: write provider:name, as in openai:gpt-5, or demo"
        )
    known = Options.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise InvalidInput(f"there is no option {unknown[0]!r}; there are {', '.join(known)}")
    if options.get("permission_mode") not in (None, *MODES):
        raise InvalidInput(f"permission_mode is one of {', '.join(MODES)}")
    most = options.get("max_turns")
    if most is not None and most < 1:
        raise InvalidInput("max_turns is at least 1")
    for name in ("hooks", "env"):
        if model == DEMO and options.get(name):
            raise InvalidInput(f"{name}: the demo agent heeds none; name a model")
    for name, value in options.get("env", {}).items():
        if not isinstance(name, str) or not isinstance(value, str) or not _VARIABLE.fullmatch(name):
            raise InvalidInput(f"env: {name!r} needs a name of letters and a value that is text")


def overrides(model: str, options: Options) -> dict[str, Any]:
    """What the session has of its own beside the built-in agent."""
    named = {
        "model": _full(model),
        "system": options.get("system_prompt"),
        # The prompt is the program's alone.
        "place": None if options.get("system_prompt") is None else False,
        "append_system": options.get("append_system_prompt"),
        "max_turns": options.get("max_turns"),
        "tools": toolsets(options.get("allowed_tools", ()), options.get("disallowed_tools", ())),
    }
    return {name: value for name, value in named.items() if value is not None}


def _full(model: str) -> str:
    """A bare name of Claude's is Anthropic's."""
    return f"anthropic:{model}" if model.startswith("claude-") else model


def toolsets(allowed: Iterable[str], disallowed: Iterable[str]) -> list[dict[str, Any]] | None:
    """The tools, as an agent's record has them; None where nothing is said of them."""
    allow = {"permission_policy": {"type": "always_allow"}}
    switches: dict[str, dict[str, Any]] = {name: {**allow} for name in allowed}
    switches |= {name: {"enabled": False} for name in disallowed}
    if not switches:
        return None
    sets: dict[str, dict[str, Any]] = {"": _toolset("auto", type=TOOLSET)}
    for name, switch in switches.items():
        server, tool = _place(name)
        if server not in sets:
            sets[server] = _toolset("always_ask", type="mcp_toolset", mcp_server_name=server)
        found = sets[server]
        if tool is None:
            found["default_config"] |= switch
        else:
            found["configs"].append({"name": tool, **found["default_config"], **switch})
    return list(sets.values())


def _toolset(policy: str, **fields: str) -> dict[str, Any]:
    default = {"enabled": True, "permission_policy": {"type": policy}}
    return {**fields, "default_config": default, "configs": []}


def _place(name: str) -> tuple[str, str | None]:
    """The MCP server of a tool, or "" for our own, and its name there; None for all of them."""
    if name.startswith(_MCP):
        server, _, tool = name.removeprefix(_MCP).partition("__")
        return server, tool or None
    if (own := _NAMES.get(name, name)) in BUILT_IN:
        return "", own
    raise InvalidInput(
        f"there is no tool {name!r}; there are {', '.join(BUILT_IN)}, and mcp__SERVER__TOOL"
    )


def sdk_name(name: str, server: str | None) -> str:
    """A tool's name as the Agent SDK has it."""
    return f"{_MCP}{server}__{name}" if server is not None else _SDK_NAMES.get(name, name)


def key(name: str) -> str:
    """A tool's name as sessions remember that it is always allowed."""
    from segue.agents.model.conversation import tool_name

    server, tool = _place(name)
    if tool is None:
        raise InvalidInput(f"{name!r} is a server and no tool")
    return tool_name(tool, server or None)


def server(name: str, given: Mapping[str, Any], env: Mapping[str, str]) -> McpServer:
    """An MCP server as the Agent SDK spells it: a command to start, or an address.

    A command has the variables of `env`, and its own before them.
    """
    match given:
        case {"command": str(command)}:
            variables = {**env, **given.get("env", {})}.items()
            env_list = [EnvVariable(name=key, value=value) for key, value in variables]
            return StdioMcpServer(
                name=name, command=command, args=list(given.get("args", ())), env=env_list
            )
        case {"url": str(url)} if given.get("type", "http") == "http":
            headers = given.get("headers", {}).items()
            sent = [HttpHeader(name=key, value=value) for key, value in headers]
            return HttpMcpServer(name=name, url=url, headers=sent)
    raise InvalidInput(f"the MCP server {name!r} needs a command, or a url with type http")
