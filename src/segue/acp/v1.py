"""The wire types that only ACP version 1 has."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from . import wire
from .wire import ContentBlock, Empty, Implementation, Wire

VERSION = 1


class FileSystem(Wire, frozen=True):
    read_text_file: bool = False
    write_text_file: bool = False


class ClientAuth(Wire, frozen=True):
    terminal: bool = False


class ClientConfigOptions(Wire, frozen=True):
    boolean: dict[str, Any] | None = None


class ClientSession(Wire, frozen=True):
    config_options: ClientConfigOptions | None = None
    notices: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None


class ClientCapabilities(Wire, frozen=True):
    fs: FileSystem = FileSystem()
    terminal: bool = False
    auth: ClientAuth = ClientAuth()
    session: ClientSession | None = None
    elicitation: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None  # unstable
    subagents: dict[str, Any] | None = None  # unstable


class InitializeRequest(Wire, frozen=True):
    protocol_version: int
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None


class PromptCapabilities(Wire, frozen=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Wire, frozen=True):
    http: bool = False
    sse: bool = False
    acp: bool = False  # unstable


class AgentAuth(Wire, frozen=True):
    logout: Empty | UnsetType = UNSET
    status: Empty | UnsetType = UNSET  # unstable


class AgentCapabilities(Wire, frozen=True):
    load_session: bool = False
    prompt_capabilities: PromptCapabilities = PromptCapabilities()
    mcp_capabilities: McpCapabilities = McpCapabilities()
    session_capabilities: wire.SessionCapabilities = wire.SessionCapabilities()
    auth: AgentAuth = AgentAuth()
    providers: Empty | UnsetType = UNSET  # unstable
    transport: dict[str, Any] | UnsetType = UNSET  # of a draft


class AuthMethod(Wire, frozen=True):
    id: str
    name: str
    description: str | None = None
    type: str | UnsetType = UNSET
    args: list[str] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET


class InitializeResponse(Wire, frozen=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities
    agent_info: Implementation
    auth_methods: list[AuthMethod]


class Mode(Wire, frozen=True):
    id: str
    name: str
    description: str | None = None


class ModeState(Wire, frozen=True):
    current_mode_id: str
    available_modes: list[Mode]


class SelectGroup(Wire, frozen=True):
    group: str
    name: str
    options: list[wire.SelectOption]


class ConfigOption(wire.ConfigOption, frozen=True):
    id: str


class SetupResponse(Wire, frozen=True):
    """The result of opening a session; new and fork set `session_id`."""

    session_id: str | UnsetType = UNSET
    modes: ModeState | UnsetType = UNSET
    config_options: list[ConfigOption] | UnsetType = UNSET


class SetConfigResponse(Wire, frozen=True):
    config_options: list[ConfigOption]


class PromptResponse(Wire, frozen=True):
    stop_reason: wire.StopReason
    usage: wire.TokenUsage | UnsetType = UNSET  # unstable


class StatusResponse(Wire, frozen=True):
    status: Literal["open", "saved"]


# Updates that only this version has.


class UserMessageChunk(wire.SessionUpdate, frozen=True, tag="user_message_chunk"):
    content: ContentBlock
    message_id: str | None = None


class AgentMessageChunk(wire.SessionUpdate, frozen=True, tag="agent_message_chunk"):
    content: ContentBlock
    message_id: str | None = None


class AgentThoughtChunk(wire.SessionUpdate, frozen=True, tag="agent_thought_chunk"):
    content: ContentBlock
    message_id: str | None = None


class ToolDiff(Wire, frozen=True, tag_field="type", tag="diff"):
    path: str
    new_text: str
    old_text: str | None = None


ToolCallContent = wire.ToolContent | ToolDiff | wire.ToolTerminal


class ToolCallFields(wire.ToolCallFields, frozen=True):
    """A tool call in a permission request."""

    content: list[ToolCallContent] | UnsetType = UNSET


class ToolCall(ToolCallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call"):
    """A new tool call."""


class ToolCallUpdate(
    ToolCallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    """The result of a tool call."""


Update = wire.SessionUpdate | ToolCall | ToolCallUpdate


class Plan(wire.SessionUpdate, frozen=True, tag="plan"):
    entries: list[wire.PlanEntry]


class CurrentModeUpdate(wire.SessionUpdate, frozen=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(wire.SessionUpdate, frozen=True, tag="config_option_update"):
    config_options: list[ConfigOption]


class CommandInput(Wire, frozen=True):
    hint: str


class Command(Wire, frozen=True):
    name: str
    description: str
    input: CommandInput | None = None


class AvailableCommandsUpdate(wire.SessionUpdate, frozen=True, tag="available_commands_update"):
    available_commands: list[Command]


class PermissionRequest(Wire, frozen=True):
    session_id: str
    tool_call: ToolCallFields
    options: list[wire.PermissionOption]
