"""The wire types that only ACP version 2 has.

Capabilities of an earlier draft (list, load, resume, close) are still advertised.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from . import wire
from .wire import ContentBlock, Empty, Implementation, Wire

VERSION = 2


class ClientAuth(Wire, frozen=True):
    terminal: Empty | None = None


class ClientCapabilities(Wire, frozen=True):
    auth: ClientAuth | None = None
    elicitation: dict[str, Any] | None = None


class InitializeRequest(Wire, frozen=True):
    protocol_version: int
    info: Implementation
    capabilities: ClientCapabilities = ClientCapabilities()


class PromptCapabilities(Wire, frozen=True):
    image: Empty | UnsetType = UNSET
    audio: Empty | UnsetType = UNSET
    embedded_context: Empty | UnsetType = UNSET


class McpCapabilities(Wire, frozen=True):
    stdio: Empty | UnsetType = UNSET
    http: Empty | UnsetType = UNSET
    acp: Empty | UnsetType = UNSET  # unstable


class SessionCapabilities(wire.SessionCapabilities, frozen=True):
    prompt: PromptCapabilities | UnsetType = UNSET
    mcp: McpCapabilities | UnsetType = UNSET
    load: Empty | UnsetType = UNSET  # of the earlier draft


class AgentAuth(Wire, frozen=True):
    status: Empty | UnsetType = UNSET  # unstable


class AgentCapabilities(Wire, frozen=True):
    session: SessionCapabilities
    auth: AgentAuth | UnsetType = UNSET
    providers: Empty | UnsetType = UNSET  # unstable
    transport: dict[str, Any] | UnsetType = UNSET  # of a draft


class AuthMethod(Wire, frozen=True):
    type: Literal["agent", "terminal"]
    method_id: str
    name: str
    description: str | None = None
    args: list[str] | UnsetType = UNSET
    env: list[wire.EnvVariable] | UnsetType = UNSET


class InitializeResponse(Wire, frozen=True):
    protocol_version: int
    info: Implementation
    capabilities: AgentCapabilities
    auth_methods: list[AuthMethod]


class SelectGroup(Wire, frozen=True):
    group_id: str
    name: str
    options: list[wire.SelectOption]


class ConfigOption(wire.ConfigOption, frozen=True):
    config_id: str


class CommandInput(Wire, frozen=True, tag_field="type", tag="text"):
    hint: str


class Command(Wire, frozen=True, tag_field="type", tag="command"):
    name: str
    description: str
    input: CommandInput | None = None


class SetupResponse(Wire, frozen=True):
    session_id: str | UnsetType = UNSET
    config_options: list[ConfigOption] | UnsetType = UNSET
    available_commands: list[Command] | UnsetType = UNSET


class SetConfigResponse(Wire, frozen=True):
    config_options: list[ConfigOption]


class PromptResponse(Wire, frozen=True):
    message_id: str


class StatusResponse(Wire, frozen=True):
    status: Literal["open", "saved"]
    state: dict[str, Any] | UnsetType = UNSET


# Updates that only this version has.


class UserMessage(wire.SessionUpdate, frozen=True, tag="user_message"):
    message_id: str
    content: list[ContentBlock]


class AgentMessage(wire.SessionUpdate, frozen=True, tag="agent_message"):
    message_id: str
    content: list[ContentBlock]


class AgentThought(wire.SessionUpdate, frozen=True, tag="agent_thought"):
    message_id: str
    content: list[ContentBlock]


class AgentMessageChunk(wire.SessionUpdate, frozen=True, tag="agent_message_chunk"):
    message_id: str
    content: ContentBlock


class AgentThoughtChunk(wire.SessionUpdate, frozen=True, tag="agent_thought_chunk"):
    message_id: str
    content: ContentBlock


class StateUpdate(wire.SessionUpdate, frozen=True, tag="state_update"):
    state: str
    stop_reason: str | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET
    background: list[dict[str, Any]] | UnsetType | None = UNSET
    usage: dict[str, Any] | wire.TokenUsage | UnsetType | None = UNSET


class DiffChange(Wire, frozen=True):
    operation: str
    path: str
    file_type: str | None = None


class DiffPatch(Wire, frozen=True):
    format: str
    text: str


class ToolDiff(Wire, frozen=True, tag_field="type", tag="diff"):
    changes: list[DiffChange]
    patch: DiffPatch | None = None


ToolCallContent = wire.ToolContent | ToolDiff


class ToolCallFields(wire.ToolCallFields, frozen=True):
    """A tool call in a permission request."""

    content: list[ToolCallContent] | UnsetType = UNSET


class ToolCallUpdate(
    ToolCallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    """A new tool call, or the result of one."""


Update = wire.SessionUpdate | ToolCallUpdate


class PlanItems(Wire, frozen=True, tag_field="type", tag="items"):
    plan_id: str
    entries: list[wire.PlanEntry]


class PlanUpdate(wire.SessionUpdate, frozen=True, tag="plan_update"):
    plan: PlanItems


class ConfigOptionUpdate(wire.SessionUpdate, frozen=True, tag="config_option_update"):
    config_options: list[ConfigOption]


class AvailableCommandsUpdate(wire.SessionUpdate, frozen=True, tag="available_commands_update"):
    available_commands: list[Command]


class ToolCallSubject(Wire, frozen=True, tag_field="type", tag="tool_call"):
    tool_call: ToolCallFields


class PermissionRequest(Wire, frozen=True):
    session_id: str
    title: str
    options: list[wire.PermissionOption]
    subject: ToolCallSubject | UnsetType = UNSET
