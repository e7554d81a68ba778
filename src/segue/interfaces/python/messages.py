"""The messages that a session streams: those of Claude's Agent SDK, with types."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from segue.model.anthropic.content_blocks import agent_blocks, result_block, usage
from segue.model.content import plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Delta,
    Event,
    Failed,
    StatusChanged,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.model.lifecycle import StopReason
from segue.model.requests.spans import request_end

ResultKind = Literal[
    "success",
    "error_max_turns",
    "error_max_budget_usd",
    "error_max_structured_output_retries",
    "error_during_execution",
]


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`init` starts every stream; `compact_boundary` marks a compaction of the context."""

    type: Literal["system"] = "system"
    subtype: Literal["init", "compact_boundary"] = "init"
    session_id: str
    uuid: str
    cwd: str = ""
    model: str | None = None
    permission_mode: str = "default"
    mcp_servers: list[dict[str, str]] = []


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One complete block of the agent: text, a thought or a tool call."""

    type: Literal["assistant"] = "assistant"
    session_id: str
    uuid: str
    message: dict[str, Any]
    parent_tool_use_id: str | None = None

    @property
    def text(self) -> str:
        """The text of the message, without thoughts and tool calls."""
        content = self.message["content"]
        return "".join(block["text"] for block in content if block["type"] == "text")


class UserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to the agent: the result of a tool."""

    type: Literal["user"] = "user"
    session_id: str
    uuid: str
    message: dict[str, Any]
    parent_tool_use_id: str | None = None


class PartialMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A delta of a message, sent if the session has `include_partial_messages`."""

    type: Literal["stream_event"] = "stream_event"
    session_id: str
    uuid: str
    event: dict[str, Any]


class ResultMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn: its last text, its outcome and its usage."""

    type: Literal["result"] = "result"
    subtype: ResultKind = "success"
    session_id: str
    uuid: str
    is_error: bool = False
    result: str = ""
    errors: list[str] = []
    stop_reason: StopReason = "end_turn"
    num_turns: int = 0
    duration_ms: int = 0
    duration_api_ms: int = 0
    total_cost_usd: float | None = None  # None if the cost is unknown
    usage: dict[str, int] = {}
    permission_denials: list[dict[str, Any]] = []
    structured_output: Any = None  # the answer in the form of the option `output_format`


Message = SystemMessage | AssistantMessage | UserMessage | PartialMessage | ResultMessage


def message_from_event(session_id: str, event: Event) -> Message | None:
    """Return the message for an event; None if the SDK has no message for it."""
    body = event.body
    match body:
        case AgentMessage() | AgentThought() | ToolCall():
            if blocks := agent_blocks(body, resumable=False):
                message = {"role": "assistant", "content": blocks}
                return AssistantMessage(session_id=session_id, uuid=event.id, message=message)
        case ToolResult():
            message = {"role": "user", "content": [result_block(body)]}
            return UserMessage(session_id=session_id, uuid=event.id, message=message)
        case Compacted():
            return SystemMessage(session_id=session_id, uuid=event.id, subtype="compact_boundary")
    return None


def message_from_delta(delta: Delta) -> PartialMessage:
    """Return the message for a delta."""
    block_delta = {"type": "text_delta", "text": delta.text}
    if delta.kind == "thought":
        block_delta = {"type": "thinking_delta", "thinking": delta.text}
    event = {"type": "content_block_delta", "index": 0, "delta": block_delta}
    return PartialMessage(session_id=delta.session, uuid=delta.message, event=event)


class TurnSummary:
    """Collects the events of one turn for its result."""

    def __init__(self) -> None:
        self._started_at: int | None = None
        self._model_calls = 0
        self._model_time = 0  # microseconds
        self._usage = Usage()
        self._last_text = ""
        self._errors: list[str] = []
        self._tool_calls: dict[str, ToolCall] = {}
        self._denied_calls: list[str] = []

    def add(self, event: Event) -> None:
        """Add an event of the turn."""
        body = event.body
        self._started_at = event.at if self._started_at is None else self._started_at
        match body:
            case AgentMessage():
                self._last_text = plain_text(body.content)
            case ToolCall():
                self._tool_calls[body.call_id] = body
            case Failed():
                self._errors.append(body.message)
            case _:
                pass
        if (end := request_end(body)) is not None:
            self._model_calls += 1
            self._model_time += end.duration or 0
            self._usage += end.usage

    def tool_call(self, call_id: str | None) -> ToolCall | None:
        """Return a tool call of the turn; None if the id is unknown."""
        return self._tool_calls.get(call_id or "")

    def deny(self, call_id: str | None) -> None:
        """Record that a tool call was denied."""
        if call_id is not None:
            self._denied_calls.append(call_id)

    def result(self, session_id: str, event: Event, reason: StopReason) -> ResultMessage:
        """Return the result of the turn that `event` ended."""
        failed = reason in ("error", "cancelled")
        kind: ResultKind = "error_during_execution" if failed else "success"
        kind = "error_max_turns" if reason == "max_turn_requests" else kind
        kind = "error_max_budget_usd" if reason == "budget_reached" else kind
        started_at = event.at if self._started_at is None else self._started_at
        return ResultMessage(
            subtype=kind,
            session_id=session_id,
            uuid=event.id,
            is_error=kind != "success",
            result=self._last_text,
            errors=self._errors,
            stop_reason=reason,
            num_turns=max(1, self._model_calls),
            duration_ms=(event.at - started_at) // 1000,
            duration_api_ms=self._model_time // 1000,
            total_cost_usd=(self._usage.cost or 0) / 1e6 if self._usage.is_priced else None,
            usage=usage(self._usage),
            permission_denials=[self._denial(call_id) for call_id in self._denied_calls],
        )

    def _denial(self, call_id: str) -> dict[str, Any]:
        call = self.tool_call(call_id)
        name, tool_input = ("", None) if call is None else (call.name, call.input)
        return {"tool_name": name, "tool_use_id": call_id, "tool_input": tool_input}


def turn_end(event: Event) -> StopReason | None:
    """Return how the turn ended if this event ends it, else None."""
    body = event.body
    if isinstance(body, StatusChanged) and body.stop_reason != "requires_action":
        return body.stop_reason
    return None
