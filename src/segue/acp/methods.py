"""The methods of each protocol version: their names and the wire types of their requests."""

from __future__ import annotations

from . import v1, v2, wire
from .wire import Empty, SessionRequest, Wire

# Requests from a client to an agent, by method and version. A version has a method if and only if
# the table has an entry for both.
REQUEST_TYPES: dict[tuple[str, int], type[Wire]] = {
    ("initialize", 1): v1.InitializeRequest,
    ("initialize", 2): v2.InitializeRequest,
    ("authenticate", 1): wire.AuthRequest,
    ("auth/login", 2): wire.AuthRequest,
    ("logout", 1): Empty,
    ("auth/logout", 2): Empty,
    ("session/new", 1): wire.SetupRequest,
    ("session/new", 2): wire.SetupRequest,
    ("session/load", 1): wire.SetupRequest,
    ("session/load", 2): wire.SetupRequest,  # from an earlier draft of version 2
    ("session/resume", 1): wire.SetupRequest,
    ("session/resume", 2): wire.SetupRequest,
    ("session/fork", 1): wire.SetupRequest,
    ("session/fork", 2): wire.SetupRequest,
    ("session/close", 1): SessionRequest,
    ("session/close", 2): SessionRequest,
    ("session/list", 1): wire.ListRequest,
    ("session/list", 2): wire.ListRequest,
    ("session/delete", 1): SessionRequest,
    ("session/delete", 2): SessionRequest,
    ("session/prompt", 1): wire.PromptRequest,
    ("session/prompt", 2): wire.PromptRequest,
    ("tool_call/cancel", 2): wire.CancelToolCallRequest,
    ("terminal/cancel", 2): wire.CancelTerminalRequest,
    ("session/set_mode", 1): wire.SetModeRequest,
    ("session/set_config_option", 1): wire.SetConfigRequest,
    ("session/set_config_option", 2): wire.SetConfigRequest,
    ("session/set_title", 1): wire.SetTitleRequest,
    ("session/set_title", 2): wire.SetTitleRequest,
    ("session/archive", 1): SessionRequest,
    ("session/archive", 2): SessionRequest,
    ("session/unarchive", 1): SessionRequest,
    ("session/unarchive", 2): SessionRequest,
    ("session/status", 1): SessionRequest,
    ("session/status", 2): SessionRequest,
}

# Requests from an agent to a client that advertised them. Version 2 has only elicitation.
READ_FILE = "fs/read_text_file"
WRITE_FILE = "fs/write_text_file"
TERMINAL_OUTPUT = "terminal/output"
TERMINAL_RELEASE = "terminal/release"
TERMINAL_METHODS = (
    "terminal/create",
    TERMINAL_OUTPUT,
    "terminal/wait_for_exit",
    "terminal/kill",
    TERMINAL_RELEASE,
)
ELICITATION_CREATE = "elicitation/create"
ELICITATION_COMPLETE = "elicitation/complete"


# Unstable capabilities that only an external agent may have, and the methods that they announce.
SYSTEM_PROMPT = "systemPrompt"
AUTH_STATUS = "auth.status"
PROVIDERS = "providers"
MCP_OVER_ACP = "mcp.acp"
OPTIONAL_METHODS = {
    "auth/status": AUTH_STATUS,
    "providers/list": PROVIDERS,
    "providers/set": PROVIDERS,
    "providers/disable": PROVIDERS,
}
AUTH_STATUS_UPDATE = "auth/status_update"
MCP_MESSAGE = "mcp/message"  # a request to the client, a notification from it


def is_extension(method: str) -> bool:
    """Return whether a method is not part of the protocol."""
    return method.startswith("_")
