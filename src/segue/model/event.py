"""The event vocabulary: immutable facts, each a small struct.

A session's history is the list of its events. An `Event` is the envelope (position, id, time);
its `body` says what happened. Bodies are stored as JSON with a format version beside them; a
reader lifts older versions to today's with `UPCASTS`, and keeps what it does not know as Foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from . import codec
from .content import Content
from .lifecycle import Status, StopReason

BODY_VERSION = 1  # of the format that bodies are written in


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens and money. `cost` is in millionths of a US dollar, so that sums are exact.

    It is 0 where nobody told what the tokens cost.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_5m_tokens: int = 0
    cache_1h_tokens: int = 0
    cost: int = 0

    @property
    def is_priced(self) -> bool:
        """Whether it is known what the tokens cost."""
        return self.cost > 0 or self == Usage()

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_5m_tokens=self.cache_5m_tokens + other.cache_5m_tokens,
            cache_1h_tokens=self.cache_1h_tokens + other.cache_1h_tokens,
            cost=self.cost + other.cost,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cache_read_tokens=self.cache_read_tokens - other.cache_read_tokens,
            cache_5m_tokens=self.cache_5m_tokens - other.cache_5m_tokens,
            cache_1h_tokens=self.cache_1h_tokens - other.cache_1h_tokens,
            cost=self.cost - other.cost,
        )


class AgentRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent a session was made with: one version of a record, and what was overridden."""

    id: str
    version: int = 1
    overrides: dict[str, Any] = {}


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fork left its parent: events up to `seq` are the parent's."""

    session: str
    seq: int


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: str
    priority: Literal["high", "medium", "low"] = "medium"
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a permission question offers."""

    id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a file that a tool call touches."""

    path: str
    line: int | None = None


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all bodies share: a thread, and room for what one dialect says beyond the vocabulary."""

    thread: str | None = None
    extra: dict[str, Any] = {}

    @property
    def is_off_branch(self) -> bool:
        """Whether this is on a branch that the conversation had left when it was taken in."""
        return "left" in self.extra

    @property
    def starts_turn(self) -> bool:
        """Whether this is the prompt of a turn that was had elsewhere."""
        return "begins" in self.extra


OFF_BRANCH = {"left": True}  # the `extra` of those on such a branch
STARTS_TURN = {"begins": True}  # and of such a prompt
RUN_BY_OTHERS = "elsewhere"  # in the `extra` of a tool call that the agent leaves to others


class Created(Body, frozen=True, tag="created"):
    """The first event of every session: all that it was made with.

    `real_cwd` is the directory with its links resolved, where that differs from `cwd` as given.
    `budget` is what the session may cost, as Usage has it.
    """

    cwd: str
    real_cwd: str | None = None
    roots: tuple[str, ...] = ()
    origin: str = "python"
    source: str = "segue"
    native_id: str | None = None
    agent: AgentRef | None = None
    environment_id: str | None = None
    deployment_id: str | None = None
    memory_store_ids: tuple[str, ...] = ()
    vault_ids: tuple[str, ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, str] = {}
    git_branch: str | None = None
    fork: ForkPoint | None = None
    budget: int | None = None


InsertedKind = Literal["command", "shell", "output", "notice", "note"]


class InsertedText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a message's text that a program inserted and no person typed.

    `start` and `end` are offsets in the text of the block with index `block`; `inside_start` and
    `inside_end` leave out the markup around it. `label` is a line to show instead of the text.
    """

    kind: InsertedKind
    block: int = 0
    start: int = 0
    end: int
    inside_start: int
    inside_end: int
    label: str | None = None


class UserMessage(Body, frozen=True, tag="user_message"):
    """A message of the user. `inserted` are the parts that a person did not type."""

    content: Content
    inserted: tuple[InsertedText, ...] = ()


class SystemMessage(Body, frozen=True, tag="system_message"):
    """A message of the system. `inserted` are the parts that a program marked as its own."""

    content: Content
    inserted: tuple[InsertedText, ...] = ()


class AgentMessage(Body, frozen=True, tag="agent_message"):
    """What the agent said. `partial` marks the part that had arrived when a turn was cut off."""

    content: Content
    partial: bool = False


class AgentThought(Body, frozen=True, tag="agent_thought"):
    content: Content
    partial: bool = False


ToolKind = Literal[
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


class ToolCall(Body, frozen=True, tag="tool_call"):
    """A tool begins. `server` is the MCP server it belongs to; `custom` is one the client runs."""

    call_id: str
    name: str
    title: str | None = None
    kind: ToolKind = "other"
    input: Any = None
    content: Content = ()
    locations: tuple[Location, ...] = ()
    server: str | None = None
    custom: bool = False


class ToolResult(Body, frozen=True, tag="tool_result"):
    """A tool ends, and its call is closed."""

    call_id: str
    status: Literal["completed", "failed", "cancelled"] = "completed"
    content: Content = ()
    output: Any = None


class PermissionAsked(Body, frozen=True, tag="permission_asked"):
    ask_id: str
    title: str
    options: tuple[Option, ...]
    call_id: str | None = None


class PermissionAnswered(Body, frozen=True, tag="permission_answered"):
    """`option` is the id of the chosen option; None when the question was withdrawn.

    `input` is what the tool was given instead of what it was called with.
    """

    ask_id: str
    option: str | None = None
    note: str | None = None
    input: dict[str, Any] | None = None


class PlanChanged(Body, frozen=True, tag="plan_changed"):
    """The whole plan as it is now."""

    entries: tuple[PlanEntry, ...]
    plan_id: str = "plan"


class InfoChanged(Body, frozen=True, tag="info_changed"):
    """Only what changed. A title or tag of None clears it; a metadata value of None removes it.

    `by` says who: what a person set is never replaced by what was made automatically.
    """

    title: str | UnsetType | None = UNSET
    tag: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    deleted: bool | UnsetType = UNSET
    by: Literal["person", "agent", "auto"] = "person"


class ConfigChanged(Body, frozen=True, tag="config_changed"):
    """Only what changed of how and where the session is run; `options` is a patch by key.

    A new `cwd` is given with its links resolved.
    """

    cwd: str | UnsetType = UNSET
    mode: str | UnsetType | None = UNSET
    options: dict[str, Any] | UnsetType = UNSET
    roots: tuple[str, ...] | UnsetType = UNSET
    agent: AgentRef | UnsetType = UNSET
    resources: tuple[dict[str, Any], ...] | UnsetType = UNSET
    git_branch: str | UnsetType | None = UNSET
    budget: int | UnsetType | None = UNSET


class StatusChanged(Body, frozen=True, tag="status_changed"):
    """The session moved along its lifecycle. `turn` names the turn: the id of its first prompt.

    `pending` lists what an idle session with an open turn waits for.
    """

    status: Status
    turn: str | None = None
    stop_reason: StopReason | None = None
    pending: tuple[str, ...] = ()
    message: str | None = None


class ModelAsked(Body, frozen=True, tag="model_asked"):
    """A request to a model begins."""

    model: str | None = None


class ModelCalled(Body, frozen=True, tag="model_called"):
    """One request to a model has ended. `asked` is the id of the event with which it began."""

    usage: Usage
    asked: str | None = None
    model: str | None = None
    is_error: bool = False
    duration: int | None = None
    context_used: int | None = None
    context_size: int | None = None


class Interrupted(Body, frozen=True, tag="interrupted"):
    """A turn was cut off: cancelled by somebody, or its process died."""

    reason: str = "cancelled"


class Compacted(Body, frozen=True, tag="compacted"):
    """Everything before is replaced, for the model, by `summary`. The history stays."""

    summary: Content = ()
    trigger: Literal["auto", "manual"] = "auto"
    tokens_before: int | None = None
    tokens_after: int | None = None


class Failed(Body, frozen=True, tag="failed"):
    """Something went wrong; `retry` says what happens next, `server` with which MCP server."""

    message: str
    code: str = "unknown"
    retry: Literal["retrying", "exhausted", "terminal"] = "exhausted"
    server: str | None = None


class OutcomeDefined(Body, frozen=True, tag="outcome_defined"):
    outcome_id: str
    description: str
    rubric: dict[str, Any] = {}
    max_iterations: int = 3


class OutcomeEvaluated(Body, frozen=True, tag="outcome_evaluated"):
    """`usage` is what the grader's requests came to, each of which is a ModelCalled too."""

    outcome_id: str
    iteration: int
    result: Literal[
        "pending",
        "running",
        "evaluating",
        "needs_revision",
        "satisfied",
        "max_iterations_reached",
        "failed",
        "interrupted",
    ]
    explanation: str | None = None
    usage: Usage | None = None


class Foreign(Body, frozen=True, tag="foreign"):
    """What one dialect says and the vocabulary cannot: kept whole, shown by that dialect only.

    `words` are those by which it is found.
    """

    dialect: str
    raw: Any
    words: str = ""


AnyBody = (
    Created
    | UserMessage
    | SystemMessage
    | AgentMessage
    | AgentThought
    | ToolCall
    | ToolResult
    | PermissionAsked
    | PermissionAnswered
    | PlanChanged
    | InfoChanged
    | ConfigChanged
    | StatusChanged
    | ModelAsked
    | ModelCalled
    | Interrupted
    | Compacted
    | Failed
    | OutcomeDefined
    | OutcomeEvaluated
    | Foreign
)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One fact at its place: `seq` counts from 1 in each session, `at` is in microseconds."""

    seq: int
    id: str
    at: int
    body: AnyBody

    @property
    def type(self) -> str:
        return body_type(self.body)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it has its place. An id that the session already holds is not added twice."""

    body: AnyBody
    id: str | None = None
    at: int | None = None


Drafts = Sequence[AnyBody | Draft]


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message that is still being written: `text` belongs at `offset` of it."""

    session: str
    message: str
    kind: Literal["message", "thought", "output"]
    offset: int
    text: str


BODIES: dict[str, type[Body]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyBody)}
_TAGS: dict[type[Body], str] = {cls: tag for tag, cls in BODIES.items()}

# (type, version) → the same body one version on. Empty until a body's format first changes.
UPCASTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}

_decode: codec.Decoder[AnyBody] = codec.Decoder(AnyBody)
_decode_raw: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])


def body_type(body: Body) -> str:
    """The name of a body's kind, as stored: `user_message` …"""
    return _TAGS[type(body)]


def decode_body(data: bytes, version: int = BODY_VERSION) -> AnyBody:
    """A stored body; one from an older program is lifted, one from a newer is kept as Foreign."""
    if version == BODY_VERSION:
        return _decode(data)
    raw = _decode_raw(data)
    while version < BODY_VERSION:
        if lift := UPCASTS.get((raw["type"], version)):
            raw = lift(raw)
        version += 1
    try:
        body: AnyBody = codec.convert(raw, AnyBody)
        return body
    except msgspec.ValidationError:
        return Foreign(dialect="segue", raw=raw)
