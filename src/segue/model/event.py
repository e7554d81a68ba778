"""Events: immutable facts, each a small struct.

A session's history is the list of its events. An `Event` has a position, an id and a time; its
`body` says what happened. Bodies are stored as JSON with a format version. A reader converts older
versions with `UPCASTS`, and returns bodies of unknown formats as Foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from . import codec
from .clock import Time
from .content import Content
from .content import InsertedText as InsertedText
from .content import Location as Location
from .content import Option as Option
from .content import PlanEntry as PlanEntry
from .lifecycle import Status, StopReason
from .requests import Usage as Usage

BODY_VERSION = 3  # the format that bodies are written in


def always_encoded(value: str) -> Any:
    """Return a default that is encoded too; fields with other defaults are left out."""
    return msgspec.field(default_factory=lambda: value)


class AgentRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of a session: one version of a record, and overridden fields."""

    id: str
    version: int = 1
    overrides: dict[str, Any] = {}


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fork begins: events up to `seq` are copies of the parent's."""

    session: str
    seq: int


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The fields of all bodies: a thread, and fields that only one protocol has."""

    thread: str | None = None
    extra: dict[str, Any] = {}

    @property
    def is_off_branch(self) -> bool:
        """Return whether this was not on the active branch when it was imported."""
        return "left" in self.extra

    @property
    def is_removed(self) -> bool:
        """Return whether the tool has removed this from the conversation: it does not count."""
        return bool(self.extra) and self.extra.get("left") == REMOVED["left"]

    @property
    def starts_turn(self) -> bool:
        """Return whether this is the prompt of a turn that ran in another tool."""
        return "begins" in self.extra


OFF_BRANCH = {"left": True}  # the `extra` of events that are not on the active branch
REMOVED = {"left": "removed"}  # the same, of events that the tool itself does not count any more
STARTS_TURN = {"begins": True}  # the `extra` of prompts of turns that ran in another tool
RUN_BY_OTHERS = "elsewhere"  # a key in the `extra` of a tool call that a client or worker runs
DELEGATES = "delegates"  # a key in the `extra` of a tool call that a thread of the session answers


class Created(Body, frozen=True, tag="created"):
    """The first event of every session, with its initial fields.

    `real_cwd` is the directory with its links resolved, if that differs from `cwd`. `budget` is the
    most that the session may cost, in millionths of a US dollar. `by_key` says that an API key
    created the session. `origin` is the interface that created it, or the source that owns it.
    """

    cwd: str
    real_cwd: str | None = None
    roots: tuple[str, ...] = ()
    origin: str = always_encoded("python")
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
    by_key: bool = False


class UserMessage(Body, frozen=True, tag="user_message"):
    """A message of the user. `inserted` are the parts that a person did not type.

    `turn` is the id of the turn's first prompt, in the events of turns that segue ran. In events
    that a fork has copied, it is the id of the prompt in the parent session. `names_session` says
    that the session had no title: its automatic title is the first meaningful line of the message.
    """

    content: Content
    turn: str | None = None
    names_session: bool = False
    inserted: tuple[InsertedText, ...] = ()


class SystemMessage(Body, frozen=True, tag="system_message"):
    """A message of the system. `inserted` are the parts that a program marked as its own."""

    content: Content
    inserted: tuple[InsertedText, ...] = ()


class Response(Body, frozen=True, kw_only=True):
    """The fields of messages, thoughts and tool calls of the agent, which are a model's response.

    `turn` is the id of the turn's first prompt, `request` that of the model request. The first
    event of a response has `asked_at`, when the request began. The last one has the `usage`, the
    `model`, the `duration` in microseconds, and how full the context is. The usage of a request
    that failed, or that another program sent, is in a ModelCalled event; `request` may be its id.
    """

    turn: str | None = None
    request: str | None = None
    asked_at: Time | None = None
    model: str | None = None
    usage: Usage | None = None
    duration: int | None = None
    context_used: int | None = None
    context_size: int | None = None


class AgentMessage(Response, frozen=True, tag="agent_message"):
    """A message of the agent; `partial` if a turn was cut off before all of it had arrived.

    `model` is the model that wrote the message.
    """

    content: Content
    partial: bool = False


class AgentThought(Response, frozen=True, tag="agent_thought"):
    """A thought of the agent; `partial` as in AgentMessage."""

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


# Tools of these kinds change nothing.
READ_ONLY_KINDS: frozenset[ToolKind] = frozenset({"read", "search", "think"})
Policy = Literal["always_allow", "always_ask", "auto"]
Verdict = Literal["allow", "ask", "deny"]


def default_verdict(policy: Policy, kind: ToolKind) -> Verdict:
    """Return the verdict that a policy gives if no setting of the session changes it."""
    if policy == "auto":
        return "allow" if kind in READ_ONLY_KINDS else "ask"
    return "allow" if policy == "always_allow" else "ask"


class ToolCall(Response, frozen=True, tag="tool_call"):
    """A tool call begins. `server` is the tool's MCP server; the client runs `custom` tools.

    `title` is left out if it can be computed from the name and the input. `local` says that only
    the local user may submit the result of a custom tool. `policy` is the agent's permission policy
    for the tool; it is left out if segue did not check the call. `verdict` is written if it is not
    the policy's own: allow for `always_allow`, ask for `always_ask`, and for `auto` allow if the
    tool changes nothing and ask otherwise.
    """

    call_id: str
    name: str
    title: str | None = None
    kind: ToolKind = "other"
    input: Any = None
    content: Content = ()
    locations: tuple[Location, ...] = ()
    server: str | None = None
    custom: bool = False
    local: bool = False
    policy: Policy | None = None
    verdict: Verdict | None = None

    @property
    def effective_verdict(self) -> Verdict | None:
        """Return the verdict, also if it is the policy's own; None if there was no check."""
        if self.verdict is not None or self.policy is None:
            return self.verdict
        return default_verdict(self.policy, self.kind)


class ToolCallChanged(Body, frozen=True, tag="tool_call_changed"):
    """The fields of a tool call that its agent changed after the call had begun.

    A field that is left out has not changed. `content` and `locations` are complete.
    """

    call_id: str
    name: str | UnsetType = UNSET
    title: str | UnsetType = UNSET
    kind: ToolKind | UnsetType = UNSET
    input: Any = UNSET
    content: Content | UnsetType = UNSET
    locations: tuple[Location, ...] | UnsetType = UNSET
    turn: str | None = None


class ToolResult(Body, frozen=True, tag="tool_result"):
    """A tool call ends. `status` is always written. `turn` is the id of the turn's first prompt.

    `exit_code` is that of the command that a shell tool ran, 128 and more after a signal. It is
    left out if there was no command, if the command was killed, or if its agent does not report it.
    """

    call_id: str
    status: Literal["completed", "failed", "cancelled"] = always_encoded("completed")
    content: Content = ()
    output: Any = None
    exit_code: int | None = None
    turn: str | None = None


class PermissionAsked(Body, frozen=True, tag="permission_asked"):
    """A permission request. `local` says that only the local user may answer it.

    `call_id` is the tool call that it is about. `title` is left out if it is that of the call.
    """

    ask_id: str
    options: tuple[Option, ...]
    title: str | None = None
    call_id: str | None = None
    local: bool = False


class PermissionAnswered(Body, frozen=True, tag="permission_answered"):
    """A permission request was answered, or withdrawn if `option`, the id of the choice, is None.

    `input` replaces the input that the tool was called with.
    """

    ask_id: str
    option: str | None = None
    note: str | None = None
    input: dict[str, Any] | None = None


class PlanChanged(Body, frozen=True, tag="plan_changed"):
    """The complete plan after the change."""

    entries: tuple[PlanEntry, ...]
    plan_id: str = "plan"


class InfoChanged(Body, frozen=True, tag="info_changed"):
    """The fields that changed. None clears a title or tag, and removes a metadata value.

    `by` is the author of the change: an automatic title never replaces a person's.
    """

    title: str | UnsetType | None = UNSET
    tag: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    deleted: bool | UnsetType = UNSET
    by: Literal["person", "agent", "auto"] = "person"


class ConfigChanged(Body, frozen=True, tag="config_changed"):
    """The settings that changed; `options` is a patch by key. `cwd` has its links resolved.

    `by_key` says that an API key, or a turn that it started, made the change. It then applies only
    to turns that API keys start.
    """

    cwd: str | UnsetType = UNSET
    mode: str | UnsetType | None = UNSET
    options: dict[str, Any] | UnsetType = UNSET
    roots: tuple[str, ...] | UnsetType = UNSET
    agent: AgentRef | UnsetType = UNSET
    resources: tuple[dict[str, Any], ...] | UnsetType = UNSET
    git_branch: str | UnsetType | None = UNSET
    budget: int | UnsetType | None = UNSET
    by_key: bool = False


class StatusChanged(Body, frozen=True, tag="status_changed"):
    """The session's status changed. `turn` is the id of the turn's first prompt.

    `pending` lists the requests that an idle session with an open turn waits for.
    """

    status: Status
    turn: str | None = None
    stop_reason: StopReason | None = None
    pending: tuple[str, ...] = ()
    message: str | None = None


class ModelAsked(Body, frozen=True, tag="model_asked"):
    """A request to a model began. Only versions 1 and 2 wrote this event."""

    model: str | None = None


class ModelCalled(Body, frozen=True, tag="model_called"):
    """A request to a model has ended, and no event of its response has its usage.

    `asked` is the id of the request. `asked_at` is the time at which it began; it is left out if an
    earlier event has it, or if it is unknown.
    """

    usage: Usage
    asked: str | None = None
    asked_at: Time | None = None
    model: str | None = None
    is_error: bool = False
    duration: int | None = None
    context_used: int | None = None
    context_size: int | None = None


class Interrupted(Body, frozen=True, tag="interrupted"):
    """A turn was cut off: a client cancelled it, or its process died."""

    reason: str = "cancelled"


class Compacted(Body, frozen=True, tag="compacted"):
    """For the model, `summary` replaces all earlier events. The history keeps them."""

    summary: Content = ()
    trigger: Literal["auto", "manual"] = "auto"
    tokens_before: int | None = None
    tokens_after: int | None = None


class Failed(Body, frozen=True, tag="failed"):
    """An error; `retry` says what happens next, `server` is the MCP server it concerns.

    `remote_message` is for callers other than the local user, if `message` names paths or hosts.
    """

    message: str
    remote_message: str | None = None
    code: str = "unknown"
    retry: Literal["retrying", "exhausted", "terminal"] = "exhausted"
    server: str | None = None


class OutcomeDefined(Body, frozen=True, tag="outcome_defined"):
    """A client has defined an outcome: work that is repeated until a grader is satisfied.

    `rubric` has the criteria. At most `max_iterations` attempts are graded.
    """

    outcome_id: str
    description: str
    rubric: dict[str, Any] = {}
    max_iterations: int = 3


class OutcomeEvaluated(Body, frozen=True, tag="outcome_evaluated"):
    """A grader has judged the work for an outcome, or begins to.

    `usage` is the sum of the grader's requests, each of which has a ModelCalled event. If
    `ongoing`, the evaluation that was reported before still runs.
    """

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
    ongoing: bool = False


class ThreadStarted(Body, frozen=True, tag="thread_started"):
    """`thread` delegates work to an agent in a new thread, which answers the tool call `call_id`.

    `name` is the name of the agent, `title` says what the agent is asked to do. An agent without a
    record has a `definition`: an advisor has a model, an inline agent has its settings.
    """

    id: str
    name: str
    call_id: str
    title: str | None = None
    agent: AgentRef | None = None
    definition: dict[str, Any] = {}


class ThreadMessage(Body, frozen=True, tag="thread_message"):
    """A message to `thread` from the thread `sender`; None stands for the session's own agent.

    `call_id` is the tool call that the message hands over or, if it is a `reply`, answers.
    """

    content: Content
    call_id: str
    sender: str | None = None
    reply: bool = False


class ThreadChanged(Body, frozen=True, tag="thread_changed"):
    """The status of `thread` changed. One that begins to run answers the call `call_id`.

    `usage` and `running_time`, in microseconds, are the sums up to this event.
    """

    status: Status
    call_id: str | None = None
    stop_reason: StopReason | None = None
    pending: tuple[str, ...] = ()
    message: str | None = None
    usage: Usage | None = None
    running_time: int = 0


class Foreign(Body, frozen=True, tag="foreign"):
    """An event of one protocol (`dialect`), stored unchanged and sent to that protocol only.

    `words` is its searchable text.
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
    | ToolCallChanged
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
    | ThreadStarted
    | ThreadMessage
    | ThreadChanged
    | Foreign
)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a session: `seq` counts from 1, `at` is in microseconds."""

    seq: int
    id: str
    at: int
    body: AnyBody

    @property
    def type(self) -> str:
        return body_type(self.body)

    def for_caller(self, *, local: bool) -> Event:
        """Return the event for the local user, or without locations for any other caller."""
        body = self.body
        if local or not isinstance(body, Failed) or body.remote_message is None:
            return self
        replaced = msgspec.structs.replace(body, message=body.remote_message, remote_message=None)
        return msgspec.structs.replace(self, body=replaced)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it has a seq. A draft with an id that the session has is not added again."""

    body: AnyBody
    id: str | None = None
    at: int | None = None


Drafts = Sequence[AnyBody | Draft]


DeltaKind = Literal["message", "thought", "output", "request"]


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message that is still being written: `text` is at `offset` of it.

    The kind `request` is a model request without a response so far. It may be of a `thread`.
    """

    session: str
    message: str
    kind: DeltaKind
    offset: int
    text: str
    thread: str | None = None


BODIES: dict[str, type[Body]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyBody)}
_TAGS: dict[type[Body], str] = {cls: tag for tag, cls in BODIES.items()}


def _from_version_1(body: dict[str, Any]) -> dict[str, Any]:
    from .formats import version_1  # late: only stores and files of older versions need it

    return version_1.convert(body)


# By version: a function that converts a body to the next version.
UPCASTS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_version_1}

_decode: codec.Decoder[AnyBody] = codec.Decoder(AnyBody)
_decode_raw: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])


def body_type(body: Body) -> str:
    """Return a body's type as it is stored: `user_message` …"""
    return _TAGS[type(body)]


def decode_body(data: bytes, version: int = BODY_VERSION) -> AnyBody:
    """Return a stored body. Older versions are converted, unknown newer ones become Foreign."""
    if version == BODY_VERSION:
        return _decode(data)
    raw = _decode_raw(data)
    is_newer = version > BODY_VERSION
    while version < BODY_VERSION:
        if upcast := UPCASTS.get(version):
            raw = upcast(raw)
        version += 1
    try:
        body: AnyBody = codec.convert(raw, AnyBody)
        return body
    except msgspec.ValidationError:
        if not is_newer:
            raise
        return Foreign(dialect="segue", raw=raw)
