"""The shapes of the messages that an agent may send, for both protocol versions.

Fields that the protocol does not know are allowed: they may come from a newer schema.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from segue.acp.wire import ContentBlock
from segue.model import codec

Kind = Literal[
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
]


class _Shape(msgspec.Struct, rename="camel"):
    pass


class _Update(_Shape, tag_field="sessionUpdate"):
    pass


class _Implementation(_Shape):
    name: str
    version: str
    title: str | None = None


# Version 1.


class _PromptContent1(_Shape):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class _Mcp1(_Shape):
    http: bool = False
    sse: bool = False


class _Capabilities1(_Shape):
    load_session: bool = False
    prompt_capabilities: _PromptContent1 = msgspec.field(default_factory=_PromptContent1)
    mcp_capabilities: _Mcp1 = msgspec.field(default_factory=_Mcp1)
    session_capabilities: dict[str, dict[str, Any] | None] = {}
    auth: dict[str, Any] = {}


class _AuthMethod1(_Shape):
    id: str
    name: str
    description: str | None = None
    type: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None


class Initialize1(_Shape):
    protocol_version: int
    agent_capabilities: _Capabilities1 = msgspec.field(default_factory=_Capabilities1)
    agent_info: _Implementation | None = None
    auth_methods: list[_AuthMethod1] | None = None


class _Mode(_Shape):
    id: str
    name: str
    description: str | None = None


class _Modes(_Shape):
    current_mode_id: str
    available_modes: list[_Mode]


class _Option1(_Shape):
    id: str
    name: str
    type: Literal["select", "boolean"]
    current_value: str | bool
    options: list[dict[str, Any]] | None = None


class Setup1(_Shape):
    modes: _Modes | None = None
    config_options: list[_Option1] | None = None


class New1(Setup1, kw_only=True):
    session_id: str


class Prompt1(_Shape):
    stop_reason: Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class Config1(_Shape):
    config_options: list[_Option1]


class _Chunk1(_Update):
    content: ContentBlock
    message_id: str | None = None


class _UserChunk1(_Chunk1, tag="user_message_chunk"):
    pass


class _AgentChunk1(_Chunk1, tag="agent_message_chunk"):
    pass


class _ThoughtChunk1(_Chunk1, tag="agent_thought_chunk"):
    pass


class _CallContent(_Shape, tag_field="type", tag="content"):
    content: ContentBlock


class _Diff1(_Shape, tag_field="type", tag="diff"):
    path: str
    new_text: str
    old_text: str | None = None


class _Terminal(_Shape, tag_field="type", tag="terminal"):
    terminal_id: str


class _Location(_Shape):
    path: str
    line: int | None = None


class _CallFields1(_Shape):
    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: Kind | None = None
    status: Literal["pending", "in_progress", "completed", "failed"] | None = None
    content: list[_CallContent | _Diff1 | _Terminal] | None = None
    locations: list[_Location] | None = None


class _Call1(_Update, tag="tool_call"):
    tool_call_id: str
    title: str
    name: str | None = None
    kind: Kind = "other"
    status: Literal["pending", "in_progress", "completed", "failed"] = "pending"
    content: list[_CallContent | _Diff1 | _Terminal] = []
    locations: list[_Location] = []


class _CallUpdate1(_CallFields1, tag_field="sessionUpdate", tag="tool_call_update"):
    pass


class _PlanEntry1(_Shape):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class _Plan1(_Update, tag="plan"):
    entries: list[_PlanEntry1]


class _Hint(_Shape):
    hint: str


class _Command1(_Shape):
    name: str
    description: str
    input: _Hint | None = None


class _Commands1(_Update, tag="available_commands_update"):
    available_commands: list[_Command1]


class _CurrentMode(_Update, tag="current_mode_update"):
    current_mode_id: str


class _ConfigUpdate1(_Update, tag="config_option_update"):
    config_options: list[_Option1]


class _Info(_Update, tag="session_info_update"):
    title: str | None = None
    updated_at: str | None = None


class _Cost(_Shape):
    amount: float
    currency: str


class _Usage(_Update, tag="usage_update"):
    used: int
    size: int
    cost: _Cost | None = None


class _Notice(_Update, tag="notice"):
    severity: str
    title: str
    description: str | None = None


class _Compaction(_Update, tag="compaction_update"):
    compaction_id: str
    status: str


class _CompactionChunk(_Update, tag="compaction_summary_chunk"):
    compaction_id: str
    content: ContentBlock


UPDATES_1 = (
    _UserChunk1
    | _AgentChunk1
    | _ThoughtChunk1
    | _Call1
    | _CallUpdate1
    | _Plan1
    | _Commands1
    | _CurrentMode
    | _ConfigUpdate1
    | _Info
    | _Usage
    | _Notice
    | _Compaction
    | _CompactionChunk
)


class _PermissionOption(_Shape):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Permission1(_Shape):
    session_id: str
    tool_call: _CallFields1
    options: list[_PermissionOption]


# Version 2.


class _Capabilities2(_Shape):
    session: dict[str, Any] | None = None
    auth: dict[str, Any] | None = None


class _AuthMethod2(_Shape):
    type: str
    method_id: str
    name: str
    description: str | None = None
    args: list[str] | None = None


class Initialize2(_Shape):
    protocol_version: int
    info: _Implementation
    capabilities: _Capabilities2 = msgspec.field(default_factory=_Capabilities2)
    auth_methods: list[_AuthMethod2] = []


class _Option2(_Shape):
    config_id: str
    name: str
    type: str
    current_value: Any = None
    options: list[dict[str, Any]] | None = None


class _Command2(_Shape):
    type: str
    name: str
    description: str


class Setup2(_Shape):
    config_options: list[_Option2] = []
    available_commands: list[_Command2] = []


class New2(Setup2, kw_only=True):
    session_id: str


class Prompt2(_Shape):
    message_id: str


class Config2(_Shape):
    config_options: list[_Option2]


class _Message2(_Update):
    message_id: str
    content: list[ContentBlock] | None = None


class _User2(_Message2, tag="user_message"):
    pass


class _Agent2(_Message2, tag="agent_message"):
    pass


class _Thought2(_Message2, tag="agent_thought"):
    pass


class _Chunk2(_Update):
    message_id: str
    content: ContentBlock


class _UserChunk2(_Chunk2, tag="user_message_chunk"):
    pass


class _AgentChunk2(_Chunk2, tag="agent_message_chunk"):
    pass


class _ThoughtChunk2(_Chunk2, tag="agent_thought_chunk"):
    pass


class _State2(_Update, tag="state_update"):
    state: str
    stop_reason: str | None = None


class _CallUpdate2(_Update, tag="tool_call_update"):
    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: str | None = None
    status: str | None = None
    content: list[dict[str, Any]] | None = None
    locations: list[_Location] | None = None


class _CallChunk2(_Update, tag="tool_call_content_chunk"):
    tool_call_id: str
    content: dict[str, Any]


class _PlanUpdate2(_Update, tag="plan_update"):
    plan: dict[str, Any]


class _Commands2(_Update, tag="available_commands_update"):
    available_commands: list[_Command2]


class _ConfigUpdate2(_Update, tag="config_option_update"):
    config_options: list[_Option2]


UPDATES_2 = (
    _User2
    | _Agent2
    | _Thought2
    | _UserChunk2
    | _AgentChunk2
    | _ThoughtChunk2
    | _State2
    | _CallUpdate2
    | _CallChunk2
    | _PlanUpdate2
    | _Commands2
    | _ConfigUpdate2
    | _Info
    | _Usage
    | _Notice
    | _Compaction
    | _CompactionChunk
)


class Permission2(_Shape):
    session_id: str
    title: str
    options: list[_PermissionOption]


# Both versions.


class _Row(_Shape):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None
    additional_directories: list[str] | None = None


class List(_Shape):
    sessions: list[_Row]
    next_cursor: str | None = None


class Empty(_Shape):
    pass


class Title(_Shape):
    title: str


class Status(_Shape):
    status: str


class Error(_Shape):
    code: int
    message: str
    data: Any = None


RESPONSES: dict[tuple[str, int], Any] = {
    ("initialize", 1): Initialize1,
    ("initialize", 2): Initialize2,
    ("session/new", 1): New1,
    ("session/new", 2): New2,
    ("session/fork", 1): New1,
    ("session/fork", 2): New2,
    ("session/load", 1): Setup1,
    ("session/resume", 1): Setup1,
    ("session/resume", 2): Setup2,
    ("session/prompt", 1): Prompt1,
    ("session/prompt", 2): Prompt2,
    ("session/set_mode", 1): Empty,
    ("session/set_config_option", 1): Config1,
    ("session/set_config_option", 2): Config2,
    **{
        (method, version): shape
        for version in (1, 2)
        for method, shape in (
            ("session/list", List),
            ("session/close", Empty),
            ("session/delete", Empty),
            ("session/archive", Empty),
            ("session/unarchive", Empty),
            ("session/set_title", Title),
            ("session/status", Status),
        )
    },
}
_UPDATES: dict[int, tuple[Any, frozenset[str]]] = {
    version: (
        union,
        frozenset(str(shape.__struct_config__.tag) for shape in union.__args__),
    )
    for version, union in ((1, UPDATES_1), (2, UPDATES_2))
}
_PERMISSIONS = {1: Permission1, 2: Permission2}


def problem_with_response(method: str, version: int, result: Any) -> str | None:
    """Return what is wrong with the result of a method, or None."""
    if method == "initialize" and isinstance(result, dict):  # the agent chooses the version
        version = 2 if result.get("protocolVersion") == 2 and "info" in result else 1
    shape = RESPONSES.get((method, version))
    if shape is None:
        return None
    return _problem(f"the response to {method}", result, shape)


def problem_with_error(error: Any) -> str | None:
    """Return what is wrong with an error, or None."""
    return _problem("an error", error, Error)


def problem_with_params(method: str, version: int, params: Any) -> str | None:
    """Return what is wrong with a request or notification of the agent, or None."""
    if method == "session/request_permission":
        return _problem(method, params, _PERMISSIONS[version])
    if method != "session/update":
        return None
    update = params.get("update") if isinstance(params, dict) else None
    if not isinstance(update, dict) or not isinstance(params.get("sessionId"), str):
        return "session/update needs a sessionId and an update"
    kind = update.get("sessionUpdate")
    if not isinstance(kind, str):
        return "an update needs a sessionUpdate"
    union, known = _UPDATES[version]
    if kind not in known:  # an unstable one in version 1, any in version 2
        return None
    return _problem(kind, update, union)


def _problem(what: str, value: Any, shape: Any) -> str | None:
    try:
        codec.convert(value, shape)
    except msgspec.ValidationError as error:
        return f"{what}: {error}"
    return None
