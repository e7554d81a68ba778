"""What a conversation streams: the messages of the Agent SDK, typed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from segue.model.content import plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Delta,
    Event,
    Failed,
    ModelCalled,
    StatusChanged,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.model.lifecycle import StopReason
from segue.sources.claude.exchange.jsonl_writer import agent_blocks, result_block, usage

ResultKind = Literal["success", "error_max_turns", "error_max_budget_usd", "error_during_execution"]


class SystemMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`init` opens every stream; `compact_boundary` says that the model's memory was shortened."""

    type: Literal["system"] = "system"
    subtype: Literal["init", "compact_boundary"] = "init"
    session_id: str
    uuid: str
    cwd: str = ""
    model: str | None = None
    permission_mode: str = "default"
    mcp_servers: list[dict[str, str]] = []


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the agent said, thought or called: one block each, when it is whole."""

    type: Literal["assistant"] = "assistant"
    session_id: str
    uuid: str
    message: dict[str, Any]
    parent_tool_use_id: str | None = None

    @property
    def text(self) -> str:
        """What it says, and not what it thinks or calls."""
        content = self.message["content"]
        return "".join(block["text"] for block in content if block["type"] == "text")


class UserMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What came back to the agent: the result of a tool."""

    type: Literal["user"] = "user"
    session_id: str
    uuid: str
    message: dict[str, Any]
    parent_tool_use_id: str | None = None


class PartialMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message that is being written, for those who asked for pieces."""

    type: Literal["stream_event"] = "stream_event"
    session_id: str
    uuid: str
    event: dict[str, Any]


class ResultMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a turn: the last thing said, what it took, and how it went."""

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
    total_cost_usd: float | None = None  # where nobody told what it cost
    usage: dict[str, int] = {}
    permission_denials: list[dict[str, Any]] = []


Message = SystemMessage | AssistantMessage | UserMessage | PartialMessage | ResultMessage


def message(session: str, event: Event) -> Message | None:
    """An event as the message that tells it; None for what the SDK has no message for."""
    body = event.body
    match body:
        case AgentMessage() | AgentThought() | ToolCall():
            if blocks := agent_blocks(body, resumable=False):
                said = {"role": "assistant", "content": blocks}
                return AssistantMessage(session_id=session, uuid=event.id, message=said)
        case ToolResult():
            said = {"role": "user", "content": [result_block(body)]}
            return UserMessage(session_id=session, uuid=event.id, message=said)
        case Compacted():
            return SystemMessage(session_id=session, uuid=event.id, subtype="compact_boundary")
    return None


def partial(delta: Delta) -> PartialMessage:
    """A piece of a message that is being written."""
    piece = {"type": "text_delta", "text": delta.text}
    if delta.kind == "thought":
        piece = {"type": "thinking_delta", "thinking": delta.text}
    event = {"type": "content_block_delta", "index": 0, "delta": piece}
    return PartialMessage(session_id=delta.session, uuid=delta.message, event=event)


class Tally:
    """Adds up one turn, for its result."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._calls = 0
        self._waited = 0
        self._spent = Usage()
        self._said = ""
        self._errors: list[str] = []
        self._called: dict[str, ToolCall] = {}
        self._denied: list[str] = []

    def add(self, event: Event) -> None:
        body = event.body
        self._began = event.at if self._began is None else self._began
        match body:
            case AgentMessage():
                self._said = plain_text(body.content)
            case ToolCall():
                self._called[body.call_id] = body
            case ModelCalled():
                self._calls += 1
                self._waited += body.duration or 0
                self._spent += body.usage
            case Failed():
                self._errors.append(body.message)
            case _:
                pass

    def called(self, call_id: str | None) -> ToolCall | None:
        return self._called.get(call_id or "")

    def denied(self, call_id: str | None) -> None:
        if call_id is not None:
            self._denied.append(call_id)

    def result(self, session: str, event: Event, reason: StopReason) -> ResultMessage:
        failed = reason in ("error", "cancelled")
        kind: ResultKind = "error_during_execution" if failed else "success"
        kind = "error_max_turns" if reason == "max_turn_requests" else kind
        kind = "error_max_budget_usd" if reason == "budget_reached" else kind
        began = event.at if self._began is None else self._began
        return ResultMessage(
            subtype=kind,
            session_id=session,
            uuid=event.id,
            is_error=kind != "success",
            result=self._said,
            errors=self._errors,
            stop_reason=reason,
            num_turns=max(1, self._calls),
            duration_ms=(event.at - began) // 1000,
            duration_api_ms=self._waited // 1000,
            total_cost_usd=self._spent.cost / 1e6 if self._spent.is_priced else None,
            usage=usage(self._spent),
            permission_denials=[self._denial(call) for call in self._denied],
        )

    def _denial(self, call_id: str) -> dict[str, Any]:
        call = self.called(call_id)
        name, given = ("", None) if call is None else (call.name, call.input)
        return {"tool_name": name, "tool_use_id": call_id, "tool_input": given}


def ended(event: Event) -> StopReason | None:
    """How a turn ended, if this is its end."""
    body = event.body
    if isinstance(body, StatusChanged) and body.stop_reason != "requires_action":
        return body.stop_reason
    return None
