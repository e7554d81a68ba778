"""The events that responses and streams send, by type."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from segue.hub.resources.content_blocks import DocumentIn, ImageIn, SearchResultIn, TextIn
from segue.hub.resources.first_events import FileRubric, TextRubric
from segue.model.anthropic.agents import SessionAgent

from .requests import Out
from .session import BudgetOut, UsageOut

Block = TextIn | ImageIn | DocumentIn
ResultBlock = TextIn | ImageIn | DocumentIn | SearchResultIn
Verdict = Literal["allow", "ask", "deny"]


class EventPart(Out, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """An event or an object in it. It has these fields and no others."""


class SessionEvent(EventPart, frozen=True):
    """`processed_at` is null while the event waits to be processed."""

    id: str
    processed_at: str | None


class ThreadEvent(SessionEvent, frozen=True):
    """An event of a thread. The primary stream has it too if it changes the thread's status."""

    session_thread_id: str
    agent_name: str


# Events that clients send.


class UserMessageEvent(SessionEvent, frozen=True, tag="user.message"):
    content: list[Block | SearchResultIn]


class UserInterrupt(SessionEvent, frozen=True, tag="user.interrupt"):
    session_thread_id: str | UnsetType | None = UNSET


class UserToolConfirmation(SessionEvent, frozen=True, tag="user.tool_confirmation"):
    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: str | None
    session_thread_id: str | UnsetType | None = UNSET


class UserCustomToolResult(SessionEvent, frozen=True, tag="user.custom_tool_result"):
    custom_tool_use_id: str
    content: list[ResultBlock] | None
    is_error: bool | None
    session_thread_id: str | UnsetType | None = UNSET


class UserToolResult(SessionEvent, frozen=True, tag="user.tool_result"):
    tool_use_id: str
    content: list[ResultBlock] | None
    is_error: bool | None
    session_thread_id: str | UnsetType | None = UNSET


class UserDefineOutcome(SessionEvent, frozen=True, tag="user.define_outcome"):
    outcome_id: str
    description: str
    rubric: TextRubric | FileRubric
    max_iterations: int


class SystemMessageEvent(SessionEvent, frozen=True, tag="system.message"):
    content: list[TextIn]


# Events of the agent.


class AgentMessage(SessionEvent, frozen=True, tag="agent.message"):
    content: list[TextIn]


class AgentThinking(SessionEvent, frozen=True, tag="agent.thinking"):
    """The agent was thinking. The text is not shown."""


class AlwaysAllow(EventPart, frozen=True, tag="always_allow"):
    """The tool's policy allows the call."""


class AlwaysAsk(EventPart, frozen=True, tag="always_ask"):
    """The tool's policy is to ask."""


class AutoAllow(EventPart, frozen=True, tag="allow"):
    """The call may run."""


class AutoAsk(EventPart, frozen=True, tag="ask"):
    """The call waits for the client's confirmation."""

    reason_code: str = "indeterminate"


class AutoDeny(EventPart, frozen=True, tag="deny"):
    """The call does not run: the session's mode or a hook forbids it."""

    reason_code: str = "not_permitted"


class Auto(EventPart, frozen=True, tag="auto"):
    evaluated_permission: AutoAllow | AutoAsk | AutoDeny


Evaluation = AlwaysAllow | AlwaysAsk | Auto


class ToolUse(SessionEvent, frozen=True):
    """`session_thread_id` is present on the primary stream if another thread waits for a client."""

    name: str
    input: dict[str, Any]
    session_thread_id: str | UnsetType = UNSET


class EvaluatedToolUse(ToolUse, frozen=True):
    evaluated_permission: Verdict | UnsetType = UNSET
    evaluation: Evaluation | UnsetType = UNSET


class AgentToolUse(EvaluatedToolUse, frozen=True, tag="agent.tool_use"):
    """The agent calls a tool that the server or a worker runs."""


class AgentMCPToolUse(EvaluatedToolUse, frozen=True, kw_only=True, tag="agent.mcp_tool_use"):
    mcp_server_name: str


class AgentCustomToolUse(ToolUse, frozen=True, tag="agent.custom_tool_use"):
    """The agent calls a tool that the client runs."""


class AgentResult(SessionEvent, frozen=True):
    content: list[ResultBlock]
    is_error: bool


class AgentToolResult(AgentResult, frozen=True, tag="agent.tool_result"):
    tool_use_id: str


class AgentMCPToolResult(AgentResult, frozen=True, tag="agent.mcp_tool_result"):
    mcp_tool_use_id: str


class ThreadMessageSent(SessionEvent, frozen=True, tag="agent.thread_message_sent"):
    """The agent of this thread sent a message. The primary agent is not named."""

    to_session_thread_id: str
    content: list[Block | SearchResultIn]
    to_agent_name: str | UnsetType = UNSET


class ThreadMessageReceived(SessionEvent, frozen=True, tag="agent.thread_message_received"):
    """The agent of this thread received a message. The primary agent is not named."""

    from_session_thread_id: str
    content: list[Block | SearchResultIn]
    from_agent_name: str | UnsetType = UNSET


class ContextCompacted(SessionEvent, frozen=True, tag="agent.thread_context_compacted"):
    """The model receives a summary in place of the events before this one."""


# Events of the session.


class StatusRunning(SessionEvent, frozen=True, tag="session.status_running"):
    """A turn has started or was resumed."""


class StatusRescheduled(SessionEvent, frozen=True, tag="session.status_rescheduled"):
    """A request to the model failed and is sent again."""


class StatusTerminated(SessionEvent, frozen=True, tag="session.status_terminated"):
    """The session has ended. No more events follow."""


class EndTurn(EventPart, frozen=True, tag="end_turn"):
    """The agent has finished."""


class RequiresAction(EventPart, frozen=True, tag="requires_action"):
    event_ids: list[str]


class RetriesExhausted(EventPart, frozen=True, tag="retries_exhausted"):
    """The turn failed."""


class Refusal(EventPart, frozen=True, tag="refusal"):
    """The model declined to answer."""


class RefusalDetails(EventPart, frozen=True, tag="refusal"):
    category: None
    explanation: str | None


class BudgetReached(EventPart, frozen=True, tag="budget_reached"):
    """The session has used up its budget."""


StopReason = EndTurn | RequiresAction | RetriesExhausted | Refusal | BudgetReached


class StatusIdle(SessionEvent, frozen=True, tag="session.status_idle"):
    stop_reason: StopReason
    stop_details: RefusalDetails | None


class ThreadCreated(ThreadEvent, frozen=True, tag="session.thread_created"):
    """A thread has started another one."""

    workflow_run_id: None = None


class ThreadStatusRunning(ThreadEvent, frozen=True, tag="session.thread_status_running"):
    """A turn has started or was resumed."""


class ThreadStatusRescheduled(ThreadEvent, frozen=True, tag="session.thread_status_rescheduled"):
    """A request to the model failed and is sent again."""


class ThreadStatusTerminated(ThreadEvent, frozen=True, tag="session.thread_status_terminated"):
    """The session has ended. No more events follow."""


class ThreadStatusIdle(ThreadEvent, frozen=True, tag="session.thread_status_idle"):
    stop_reason: StopReason
    stop_details: RefusalDetails | None


class SessionUsage(SessionEvent, frozen=True, tag="session.usage"):
    usage: UsageOut
    budget: BudgetOut | None


class SessionUpdated(SessionEvent, frozen=True, tag="session.updated"):
    """A client changed the session. Only the changed fields are present."""

    title: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    agent: SessionAgent | UnsetType = UNSET
    budget: BudgetOut | UnsetType | None = UNSET


class SessionDeletedEvent(SessionEvent, frozen=True, tag="session.deleted"):
    """The session was deleted. It is the last event of a stream and never in a list."""


RetryStatus = Literal["retrying", "exhausted", "terminal"]


class Retry(Out, frozen=True, forbid_unknown_fields=True):
    type: RetryStatus


# Other causes are shown as unknown_error.
ErrorType = Literal[
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


class SessionErrorDetail(Out, frozen=True, forbid_unknown_fields=True):
    type: ErrorType
    message: str
    retry_status: Retry
    mcp_server_name: str | UnsetType = UNSET


class SessionError(SessionEvent, frozen=True, tag="session.error"):
    error: SessionErrorDetail


# Spans.


class ModelUsage(Out, frozen=True, forbid_unknown_fields=True):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    speed: None


class ModelRequestStart(SessionEvent, frozen=True, tag="span.model_request_start"):
    """A request to the model has started."""


class ModelRequestEnd(SessionEvent, frozen=True, tag="span.model_request_end"):
    model_request_start_id: str
    is_error: bool
    model_usage: ModelUsage


class OutcomeEvaluationStart(SessionEvent, frozen=True, tag="span.outcome_evaluation_start"):
    outcome_id: str
    iteration: int


class OutcomeEvaluationOngoing(SessionEvent, frozen=True, tag="span.outcome_evaluation_ongoing"):
    """The evaluation is still running."""

    outcome_id: str
    iteration: int


class OutcomeEvaluationEnd(SessionEvent, frozen=True, tag="span.outcome_evaluation_end"):
    outcome_id: str
    iteration: int
    outcome_evaluation_start_id: str
    result: str
    explanation: str
    usage: ModelUsage


SentEvent = (
    UserMessageEvent
    | UserInterrupt
    | UserToolConfirmation
    | UserCustomToolResult
    | UserToolResult
    | UserDefineOutcome
    | SystemMessageEvent
)
Event = (
    SentEvent
    | AgentMessage
    | AgentThinking
    | AgentToolUse
    | AgentMCPToolUse
    | AgentCustomToolUse
    | AgentToolResult
    | AgentMCPToolResult
    | ThreadMessageSent
    | ThreadMessageReceived
    | ContextCompacted
    | StatusRunning
    | StatusRescheduled
    | StatusTerminated
    | StatusIdle
    | ThreadCreated
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
    | OutcomeEvaluationOngoing
    | OutcomeEvaluationEnd
)


class EventPage(Out, frozen=True):
    data: list[Event]
    next_page: str | None


class SentEvents(Out, frozen=True):
    """The events that a request sent, as the session stores them."""

    data: list[SentEvent]


# Events of streams only.


class StartedEvent(Out, frozen=True, forbid_unknown_fields=True):
    type: Literal["agent.message", "agent.thinking"]
    id: str


class EventStart(EventPart, frozen=True, tag="event_start"):
    event: StartedEvent


class ContentDelta(EventPart, frozen=True, tag="content_delta"):
    index: int
    content: TextIn


class EventDelta(EventPart, frozen=True, tag="event_delta"):
    event_id: str
    delta: ContentDelta


class Ping(EventPart, frozen=True, tag="ping"):
    """The connection is still open."""


Streamed = Event | SessionDeletedEvent | EventStart | EventDelta | Ping


def type_of(part: EventPart) -> str:
    """Return the value of a struct's `type` field."""
    return str(part.__struct_config__.tag)
