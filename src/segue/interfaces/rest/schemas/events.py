"""Events as answers and streams show them, type by type: what the OpenAPI document says of them.

They are made as plain dicts (events_out.py); the tests hold each that is shown to its type here.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from segue.hub.resources.content_blocks import DocumentIn, ImageIn, SearchResultIn, TextIn
from segue.hub.resources.first_events import FileRubric, TextRubric

from .agent import SessionAgent
from .requests import Out
from .session import BudgetOut, UsageOut

Block = TextIn | ImageIn | DocumentIn
ResultBlock = TextIn | ImageIn | DocumentIn | SearchResultIn
Verdict = Literal["allow", "ask", "deny"]


class Shape(Out, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """A part of an event, which has these fields and no others."""


class EventShape(Shape, frozen=True):
    """`processed_at` is null while the event waits to be taken up."""

    id: str
    processed_at: str | None


class OnThread(EventShape, frozen=True):
    session_thread_id: str
    agent_name: str


# What clients say.


class UserMessageEvent(EventShape, frozen=True, tag="user.message"):
    content: list[Block | SearchResultIn]


class UserInterrupt(EventShape, frozen=True, tag="user.interrupt"):
    session_thread_id: str | UnsetType | None = UNSET


class UserToolConfirmation(EventShape, frozen=True, tag="user.tool_confirmation"):
    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: str | None
    session_thread_id: str | UnsetType | None = UNSET


class UserCustomToolResult(EventShape, frozen=True, tag="user.custom_tool_result"):
    custom_tool_use_id: str
    content: list[ResultBlock] | None
    is_error: bool | None
    session_thread_id: str | UnsetType | None = UNSET


class UserToolResult(EventShape, frozen=True, tag="user.tool_result"):
    tool_use_id: str
    content: list[ResultBlock] | None
    is_error: bool | None
    session_thread_id: str | UnsetType | None = UNSET


class UserDefineOutcome(EventShape, frozen=True, tag="user.define_outcome"):
    outcome_id: str
    description: str
    rubric: TextRubric | FileRubric
    max_iterations: int


class SystemMessageEvent(EventShape, frozen=True, tag="system.message"):
    content: list[TextIn]


# What the agent says and does.


class AgentMessage(EventShape, frozen=True, tag="agent.message"):
    content: list[TextIn]


class AgentThinking(EventShape, frozen=True, tag="agent.thinking"):
    """The agent was thinking. The text is not shown."""


class AlwaysAllow(Shape, frozen=True, tag="always_allow"):
    """Its policy allows it."""


class AlwaysAsk(Shape, frozen=True, tag="always_ask"):
    """Its policy is to ask."""


class Auto(Shape, frozen=True, tag="auto"):
    evaluated_permission: Verdict


class Use(EventShape, frozen=True):
    name: str
    input: dict[str, Any]


class Evaluated(Use, frozen=True):
    evaluated_permission: Verdict | UnsetType = UNSET
    evaluation: AlwaysAllow | AlwaysAsk | Auto | UnsetType = UNSET


class AgentToolUse(Evaluated, frozen=True, tag="agent.tool_use"):
    """Of a tool that runs here."""


class AgentMCPToolUse(Evaluated, frozen=True, kw_only=True, tag="agent.mcp_tool_use"):
    mcp_server_name: str


class AgentCustomToolUse(Use, frozen=True, tag="agent.custom_tool_use"):
    """Of a tool that the client runs."""


class Result(EventShape, frozen=True):
    content: list[ResultBlock]
    is_error: bool


class AgentToolResult(Result, frozen=True, tag="agent.tool_result"):
    tool_use_id: str


class AgentMCPToolResult(Result, frozen=True, tag="agent.mcp_tool_result"):
    mcp_tool_use_id: str


class ContextCompacted(EventShape, frozen=True, tag="agent.thread_context_compacted"):
    """What came before is a summary from here on."""


# What becomes of the session.


class StatusRunning(EventShape, frozen=True, tag="session.status_running"):
    """A turn has begun or was resumed."""


class StatusRescheduled(EventShape, frozen=True, tag="session.status_rescheduled"):
    """A request to the model failed, and is tried again."""


class StatusTerminated(EventShape, frozen=True, tag="session.status_terminated"):
    """Nothing more will come."""


class EndTurn(Shape, frozen=True, tag="end_turn"):
    """It is done."""


class RequiresAction(Shape, frozen=True, tag="requires_action"):
    event_ids: list[str]


class RetriesExhausted(Shape, frozen=True, tag="retries_exhausted"):
    """It failed."""


class Refusal(Shape, frozen=True, tag="refusal"):
    """The model declined."""


class RefusalDetails(Shape, frozen=True, tag="refusal"):
    category: None
    explanation: str | None


class BudgetReached(Shape, frozen=True, tag="budget_reached"):
    """The session may not cost more."""


StopReason = EndTurn | RequiresAction | RetriesExhausted | Refusal | BudgetReached


class StatusIdle(EventShape, frozen=True, tag="session.status_idle"):
    stop_reason: StopReason
    stop_details: RefusalDetails | None


class ThreadStatusRunning(OnThread, frozen=True, tag="session.thread_status_running"):
    """The same, of the session's thread."""


class ThreadStatusRescheduled(OnThread, frozen=True, tag="session.thread_status_rescheduled"):
    """The same, of the session's thread."""


class ThreadStatusTerminated(OnThread, frozen=True, tag="session.thread_status_terminated"):
    """The same, of the session's thread."""


class ThreadStatusIdle(OnThread, frozen=True, tag="session.thread_status_idle"):
    stop_reason: StopReason
    stop_details: RefusalDetails | None


class SessionUsage(EventShape, frozen=True, tag="session.usage"):
    usage: UsageOut
    budget: BudgetOut | None


class SessionUpdated(EventShape, frozen=True, tag="session.updated"):
    """With what has changed, and nothing else."""

    title: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    agent: SessionAgent | UnsetType = UNSET
    budget: BudgetOut | UnsetType | None = UNSET


class SessionDeletedEvent(EventShape, frozen=True, tag="session.deleted"):
    """The last of a stream; in no list."""


class Retry(Out, frozen=True, forbid_unknown_fields=True):
    type: Literal["retrying", "exhausted", "terminal"]


# What can have gone wrong; what is none of these is unknown.
Wrong = Literal[
    "unknown_error",
    "model_overloaded_error",
    "model_rate_limited_error",
    "model_request_failed_error",
    "mcp_connection_failed_error",
    "mcp_authentication_failed_error",
    "billing_error",
    "tool_use_limit_reached_error",
    "compaction_limit_reached_error",
    "repository_authentication_error",
    "repository_checkout_error",
    "repository_clone_error",
    "repository_forbidden_error",
    "repository_not_found_error",
]


class Mistake(Out, frozen=True, forbid_unknown_fields=True):
    type: Wrong
    message: str
    retry_status: Retry
    mcp_server_name: str | UnsetType = UNSET


class SessionError(EventShape, frozen=True, tag="session.error"):
    error: Mistake


# Spans.


class ModelUsage(Out, frozen=True, forbid_unknown_fields=True):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    speed: None


class ModelRequestStart(EventShape, frozen=True, tag="span.model_request_start"):
    """A request to the model has begun."""


class ModelRequestEnd(EventShape, frozen=True, tag="span.model_request_end"):
    model_request_start_id: str
    is_error: bool
    model_usage: ModelUsage


class OutcomeEvaluationStart(EventShape, frozen=True, tag="span.outcome_evaluation_start"):
    outcome_id: str
    iteration: int


class OutcomeEvaluationEnd(EventShape, frozen=True, tag="span.outcome_evaluation_end"):
    outcome_id: str
    iteration: int
    outcome_evaluation_start_id: str
    result: str
    explanation: str
    usage: ModelUsage


Taken = (
    UserMessageEvent
    | UserInterrupt
    | UserToolConfirmation
    | UserCustomToolResult
    | UserToolResult
    | UserDefineOutcome
    | SystemMessageEvent
)
Event = (
    Taken
    | AgentMessage
    | AgentThinking
    | AgentToolUse
    | AgentMCPToolUse
    | AgentCustomToolUse
    | AgentToolResult
    | AgentMCPToolResult
    | ContextCompacted
    | StatusRunning
    | StatusRescheduled
    | StatusTerminated
    | StatusIdle
    | ThreadStatusRunning
    | ThreadStatusRescheduled
    | ThreadStatusTerminated
    | ThreadStatusIdle
    | SessionUsage
    | SessionUpdated
    | SessionError
    | ModelRequestStart
    | ModelRequestEnd
    | OutcomeEvaluationStart
    | OutcomeEvaluationEnd
)


class EventPage(Out, frozen=True):
    data: list[Event]
    next_page: str | None


class Sent(Out, frozen=True):
    """The events as they were taken in."""

    data: list[Taken]


# On streams only.


class Announced(Out, frozen=True, forbid_unknown_fields=True):
    type: Literal["agent.message", "agent.thinking"]
    id: str


class EventStart(Shape, frozen=True, tag="event_start"):
    event: Announced


class ContentDelta(Shape, frozen=True, tag="content_delta"):
    index: int
    content: TextIn


class EventDelta(Shape, frozen=True, tag="event_delta"):
    event_id: str
    delta: ContentDelta


class Ping(Shape, frozen=True, tag="ping"):
    """That the connection lives."""


Streamed = Event | SessionDeletedEvent | EventStart | EventDelta | Ping
