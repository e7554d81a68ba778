"""The event types of the REST API, and the kinds of stored events that they are made from."""

from __future__ import annotations

from segue.model.requests.spans import RESPONSE_TYPES

_SPAN = ("span.model_request_start", "span.model_request_end")
# For each kind of stored event, the types of the events that it can be shown as.
TYPES: dict[str, tuple[str, ...]] = {
    "user_message": ("user.message", "session.updated"),
    "system_message": ("system.message",),
    "agent_message": ("agent.message", *_SPAN),
    "agent_thought": ("agent.thinking", *_SPAN),
    "tool_call": ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use", *_SPAN),
    "tool_result": (
        "agent.tool_result",
        "agent.mcp_tool_result",
        "user.custom_tool_result",
        "user.tool_result",
    ),
    "permission_asked": ("agent.tool_use",),
    "permission_answered": ("user.tool_confirmation",),
    "info_changed": (
        "session.updated",
        "session.thread_status_terminated",
        "session.status_terminated",
    ),
    "config_changed": ("session.updated",),
    "status_changed": (
        "session.status_running",
        "session.thread_status_running",
        "session.status_idle",
        "session.thread_status_idle",
        "session.usage",
        "session.status_rescheduled",
        "session.thread_status_rescheduled",
        "session.status_terminated",
        "session.thread_status_terminated",
    ),
    "model_asked": _SPAN[:1],
    "model_called": _SPAN,
    "interrupted": ("user.interrupt", "session.error"),
    "compacted": ("agent.thread_context_compacted",),
    "failed": ("session.error",),
    "outcome_defined": ("user.define_outcome",),
    "outcome_evaluated": (
        "span.outcome_evaluation_start",
        "span.outcome_evaluation_ongoing",
        "span.outcome_evaluation_end",
    ),
    "thread_started": ("session.thread_created",),
    "thread_message": ("agent.thread_message_sent", "agent.thread_message_received"),
    "thread_changed": (
        "session.thread_status_running",
        "session.thread_status_idle",
        "session.thread_status_rescheduled",
        "session.thread_status_terminated",
    ),
}
# Types that the API defines and segue never sends: it has no workflows. A filter may name them.
NEVER_SENT = (
    "workflow_run.created",
    "workflow_run.status_running",
    "workflow_run.status_idle",
    "workflow_run.status_ended",
    "workflow_run.error",
    "workflow_run.phase_started",
    "workflow_run.phase_ended",
)
# How events of these kinds are shown depends on the session's row before them.
DEPENDENT_KINDS = ("created", "status_changed", "info_changed", "config_changed")
# The kinds that change these parts of the row. A prompt may name the session, and the usage is in
# the events of responses.
STATE_KINDS = (*DEPENDENT_KINDS, "user_message", *RESPONSE_TYPES)

KINDS_BY_TYPE = {
    name: {kind for kind, names in TYPES.items() if name in names}
    for name in sum(TYPES.values(), ())
}
