"""The values of an agent's specification and of a session's permissions that callers set."""

from __future__ import annotations

import re
from typing import Literal

# The type of the built-in toolset in an agent's `tools`, and the tools that it has.
TOOLSET = "agent_toolset_20260401"
BUILT_IN_TOOLS = ("bash", "read", "write", "edit", "glob", "grep", "web_fetch", "web_search")
# The specification key for custom tools of the program that has the session open.
FUNCTIONS = "functions"
# The model name that selects the demo agent, even if a model is configured.
DEMO = "demo"

# The permission modes that a user can set for a session: the name of each, and what it means.
MODE_LABELS: dict[str, tuple[str, str]] = {
    "default": ("Ask", "Ask before anything that changes files or runs programs"),
    "acceptEdits": ("Accept edits", "Change files without asking; ask before running programs"),
    "plan": ("Plan", "Read and plan only"),
    "bypassPermissions": ("Do not ask", "Never ask for permission"),
}
MODES = tuple(MODE_LABELS)
# In an agent's specification: whether an API key set `tools`, with their permission policies.
TOOLS_BY_KEY = "tools_by_key"
# In an agent's specification: whether an imported file set `mcp_servers`.
UNTRUSTED_SERVERS = "untrusted_servers"
# In an agent's specification: the `networking` of the session's environment.
NETWORKING = "networking"
# In an agent's specification: the packages of the session's environment by manager, and the
# directory of the workspace's cache.
PACKAGES, PACKAGE_CACHE = "packages", "package_cache"
# In an agent's specification: the agents that it may start threads of, resolved by the hub:
# `members`, `advisor` and whether it may define `inline_agents`.
ROSTER = "roster"
# In the overrides of a turn: agents that its program defines, which may get threads as well. Each
# has `name`, `description`, `definition` and the `settings` that differ from the agent's own.
SUBAGENTS = "subagents"
# What the hub adds to a specification for one turn. Stored agents, which may be those of an
# imported file, cannot set it.
REMOTE = "remote"  # whether a worker runs the tools
OF_TURN = (ROSTER, SUBAGENTS, NETWORKING, PACKAGES, PACKAGE_CACHE, REMOTE)
# The tools of an agent with a roster: threads answer them.
DELEGATE, DEFINE, MESSAGE, ADVISE = DELEGATION_TOOLS = (
    "delegate",
    "delegate_to_new_agent",
    "message_thread",
    "consult_advisor",
)
# What a hook decides instead of the agent's policy.
PermissionOverride = Literal["allow", "ask"] | None

_INVALID_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def has_provider(model: str) -> bool:
    """Return True if a model's name has the form provider:name."""
    provider, _, name = model.partition(":")
    return bool(provider.strip() and name.strip())


def tool_name(name: str, server: str | None) -> str:
    """Return a tool name that every provider accepts; an MCP tool is `mcp__SERVER__TOOL`."""
    full_name = name if server is None else f"mcp__{server}__{name}"
    return _INVALID_IN_NAMES.sub("_", full_name)[:64] or "tool"
