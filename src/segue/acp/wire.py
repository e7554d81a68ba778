"""Wire types that both protocol versions share.

Field names are camelCase on the wire. Every type accepts `_meta`; unknown fields are ignored, as
the protocol requires. A field is UNSET by default where absent and null have different meanings.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

Meta = dict[str, Any] | None


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all wire types."""

    meta: Meta = field(default=None, name="_meta")


class Empty(Wire, frozen=True):
    """The value of a capability, or a result without fields."""


class Implementation(Wire, frozen=True):
    name: str
    version: str
    title: str | None = None


# Content.


class Annotations(Wire, frozen=True):
    audience: list[str] | None = None
    last_modified: str | None = None
    priority: float | None = None


class Icon(Wire, frozen=True):
    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: str | None = None


class TextBlock(Wire, frozen=True, tag_field="type", tag="text"):
    text: str
    annotations: Annotations | None = None


class ImageBlock(Wire, frozen=True, tag_field="type", tag="image"):
    data: str
    mime_type: str
    uri: str | None = None
    annotations: Annotations | None = None


class AudioBlock(Wire, frozen=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str
    annotations: Annotations | None = None


class ResourceLinkBlock(Wire, frozen=True, tag_field="type", tag="resource_link"):
    name: str
    uri: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None


class ResourceContents(Wire, frozen=True):
    """Text or a blob, never both, of a resource."""

    uri: str
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    mime_type: str | None = None


class ResourceBlock(Wire, frozen=True, tag_field="type", tag="resource"):
    resource: ResourceContents
    annotations: Annotations | None = None


ContentBlock = TextBlock | ImageBlock | AudioBlock | ResourceLinkBlock | ResourceBlock


# Sessions.


class SessionCapabilities(Wire, frozen=True):
    """The optional session methods that an agent offers in both versions."""

    list: Empty | UnsetType = UNSET
    resume: Empty | UnsetType = UNSET
    close: Empty | UnsetType = UNSET
    delete: Empty | UnsetType = UNSET
    additional_directories: Empty | UnsetType = UNSET
    fork: Empty | UnsetType = UNSET
    title: Empty | UnsetType = UNSET
    archive: Empty | UnsetType = UNSET
    status: Empty | UnsetType = UNSET
    system_prompt: dict[str, Any] | UnsetType = UNSET


class SessionInfo(Wire, frozen=True):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None
    additional_directories: list[str] | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


class ListSessionsResponse(Wire, frozen=True):
    sessions: list[SessionInfo]
    next_cursor: str | UnsetType = UNSET


class SetTitleResponse(Wire, frozen=True):
    title: str


class PlanEntry(Wire, frozen=True):
    content: str
    priority: str
    status: str


class Location(Wire, frozen=True):
    path: str
    line: int | None = None


class ToolCallFields(Wire, frozen=True):
    """What both versions say about a tool call, besides its content."""

    tool_call_id: str
    name: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    locations: list[Location] | UnsetType = UNSET
    raw_input: Any = UNSET
    raw_output: Any = UNSET


class PermissionOption(Wire, frozen=True):
    option_id: str
    name: str
    kind: str


class Cost(Wire, frozen=True):
    amount: float
    currency: str


class EnvVariable(Wire, frozen=True):
    name: str
    value: str


HttpHeader = EnvVariable


class StdioMcpServer(Wire, frozen=True):
    """An MCP server that is started as a process."""

    name: str
    command: str
    args: list[str] = []
    env: list[EnvVariable] = []


class HttpMcpServer(Wire, frozen=True):
    """An MCP server that is called over HTTP."""

    name: str
    url: str
    headers: list[HttpHeader] = []


class AcpMcpServer(Wire, frozen=True):
    """An MCP server of the client, which the agent calls over the same connection; unstable."""

    name: str
    server_id: str


McpServer = StdioMcpServer | HttpMcpServer | AcpMcpServer


# Updates that are the same in both versions.


class SessionUpdate(Wire, frozen=True, tag_field="sessionUpdate"):
    """The base of the updates that `session/update` carries."""


class ToolContent(Wire, frozen=True, tag_field="type", tag="content"):
    content: ContentBlock


class ToolTerminal(Wire, frozen=True, tag_field="type", tag="terminal"):
    terminal_id: str


class SessionInfoUpdate(SessionUpdate, frozen=True, tag="session_info_update"):
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType = UNSET


class UsageUpdate(SessionUpdate, frozen=True, tag="usage_update"):
    used: int
    size: int
    cost: Cost | None = None


class Notice(SessionUpdate, frozen=True, tag="notice"):
    severity: str
    title: str
    description: str | None = None


class CompactionUpdate(SessionUpdate, frozen=True, tag="compaction_update"):
    compaction_id: str
    status: str
    summary: list[ContentBlock] | UnsetType = UNSET


class SubagentUpdate(SessionUpdate, frozen=True, tag="subagent_update"):
    """A thread of the session; unstable. Its `session_id` cannot be loaded."""

    session_id: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    state: dict[str, Any] | UnsetType = UNSET


# Requests that are the same in both versions.


class SessionRequest(Wire, frozen=True):
    """A request that names only a session: close, delete, cancel, archive, status."""

    session_id: str


class CancelToolCallRequest(Wire, frozen=True):
    session_id: str
    tool_call_id: str


class CancelTerminalRequest(Wire, frozen=True):
    session_id: str
    terminal_id: str


class ListRequest(Wire, frozen=True):
    cwd: str | None = None
    cursor: str | None = None
    archived: str | None = None
    # From an earlier proposal; today's schemas ignore them.
    search: str | None = None
    created_after: str | None = None


class TokenUsage(Wire, frozen=True):
    """The tokens of all turns of a session; unstable."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class SystemPrompt(Wire, frozen=True):
    """Instructions of the client for a session; unstable."""

    mode: str
    content: list[dict[str, Any]]


class SetupRequest(Wire, frozen=True):
    """A request that opens a session: new, load, resume, fork.

    The shape of `mcp_servers` depends on the version.
    """

    cwd: str
    session_id: str = ""
    additional_directories: list[str] | None = None
    mcp_servers: list[dict[str, Any]] | UnsetType | None = UNSET
    system_prompt: SystemPrompt | None = None  # unstable
    replay_from: Any = None  # version 2 only


class PromptRequest(Wire, frozen=True):
    session_id: str
    prompt: list[dict[str, Any]]


class SetTitleRequest(Wire, frozen=True):
    session_id: str
    title: str


class SetModeRequest(Wire, frozen=True):
    session_id: str
    mode_id: str


class SetConfigRequest(Wire, frozen=True):
    session_id: str
    config_id: str
    value: str | bool
    type: str | None = None


class AuthRequest(Wire, frozen=True):
    method_id: str


class LoginMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A login method, independent of the protocol version.

    With `args`, a person logs in in a terminal where the agent runs with these arguments.
    """

    id: str
    name: str
    description: str | None = None
    args: tuple[str, ...] | None = None
    env: dict[str, str] = {}


class SelectOption(Wire, frozen=True):
    value: str
    name: str
    description: str | None = None


class ConfigOption(Wire, frozen=True, kw_only=True):
    """An option of a session; each version adds the id under a name of its own.

    Each version has a type of its own for groups of values.
    """

    name: str
    type: Literal["select", "boolean"]
    current_value: str | bool
    options: list[Any] | UnsetType = UNSET
    category: str | None = None
    description: str | None = None


StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
