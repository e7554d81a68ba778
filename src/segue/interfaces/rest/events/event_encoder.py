"""The model's events as this dialect shows them.

One of ours may be none of theirs, one, or several: the first is named by its own id, the others by
ids derived from it. The order within a turn is the one that clients know: running, the message,
what the agent did, then idle with the usage just before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from msgspec import UNSET

from segue.hub import Hub
from segue.hub.resources.agents import AgentResolver
from segue.interfaces.rest.schemas.events import Wrong
from segue.interfaces.rest.schemas.session import budget, thread_id, usage
from segue.model import clock, ids, projection
from segue.model.errors import SegueError
from segue.model.event import (
    RUN_BY_OTHERS,
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    ConfigChanged,
    Created,
    Delta,
    Event,
    Failed,
    Foreign,
    InfoChanged,
    Interrupted,
    ModelAsked,
    ModelCalled,
    OutcomeDefined,
    OutcomeEvaluated,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import Principal
from segue.model.session import Session

from . import blocks
from .event_lookup import Lookups, call_id_of, tool_id

Shown = dict[str, Any]

# Their types, by the kind of ours that they come from.
TYPES: dict[str, tuple[str, ...]] = {
    "user_message": ("user.message",),
    "system_message": ("system.message",),
    "agent_message": ("agent.message",),
    "agent_thought": ("agent.thinking",),
    "tool_call": ("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"),
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
    "model_asked": ("span.model_request_start",),
    "model_called": ("span.model_request_end",),
    "interrupted": ("user.interrupt", "session.error"),
    "compacted": ("agent.thread_context_compacted",),
    "failed": ("session.error",),
    "outcome_defined": ("user.define_outcome",),
    "outcome_evaluated": ("span.outcome_evaluation_start", "span.outcome_evaluation_end"),
}
# Types that exist but that nothing here makes; a filter may name them.
UNMADE = (
    "agent.thread_message_sent",
    "agent.thread_message_received",
    "session.thread_created",
    "span.outcome_evaluation_ongoing",
    "workflow_run.created",
    "workflow_run.status_running",
    "workflow_run.status_idle",
    "workflow_run.status_ended",
    "workflow_run.error",
    "workflow_run.phase_started",
    "workflow_run.phase_ended",
)
# The kinds whose meaning depends on what was before, all of which moves the state below.
STATE = ("created", "status_changed", "model_called", "info_changed", "config_changed")

_SERVER_ERRORS = ("mcp_connection_failed_error", "mcp_authentication_failed_error")
_ERRORS = frozenset(get_args(Wrong)) - {*_SERVER_ERRORS}


class View:
    """Shows one session's events, in their order, from wherever it begins.

    `state` is the session's row as it was before the first of them.
    """

    def __init__(
        self, hub: Hub, principal: Principal, agents: AgentResolver, state: Session, agent_name: str
    ) -> None:
        self._agents = agents
        self._state = state
        self._agent_name = agent_name
        self._thread = thread_id(state.id)
        self._lookups = Lookups(hub, principal, state.id)
        self._started: set[str] = set()

    async def show(self, event: Event) -> list[Shown]:
        before = self._state
        self._state = _moved(before, event)
        self._lookups.add(event.body)
        return [shown async for shown in self._show(event, event.body, before)]

    def delta(self, delta: Delta, wanted: frozenset[str]) -> Iterator[Shown]:
        """Yield the events of a delta. Thinking is announced without its text."""
        kind = "agent.thinking" if delta.kind == "thought" else "agent.message"
        if kind not in wanted or delta.kind == "output":
            return
        id = ids.format_id("sevt", delta.message)
        if id not in self._started:
            self._started.add(id)
            yield {"type": "event_start", "event": {"type": kind, "id": id}}
        if kind == "agent.message":
            content = {"type": "text", "text": delta.text}
            piece = {"type": "content_delta", "index": 0, "content": content}
            yield {"type": "event_delta", "event_id": id, "delta": piece}

    async def _show(self, event: Event, body: AnyBody, before: Session) -> Any:
        match body:
            case UserMessage():
                yield _event(event, "user.message", content=blocks.write(body.content))
            case SystemMessage():
                yield _event(event, "system.message", content=blocks.text_blocks(body.content))
            case AgentMessage():
                yield _event(event, "agent.message", content=blocks.text_blocks(body.content))
            case AgentThought():
                yield _event(event, "agent.thinking")
            case ToolCall():
                yield _tool_use(event, body)
            case ToolResult():
                yield await self._tool_result(event, body)
            case PermissionAsked() if body.call_id is None:
                asked = {"title": body.title}
                yield _event(event, "agent.tool_use", name="permission", input=asked)
            case PermissionAnswered():
                if answered := await self._confirmation(event, body):
                    yield answered
            case InfoChanged():
                for shown in self._info(event, body, before):
                    yield shown
            case ConfigChanged() if body.agent is not UNSET:
                agent = await self._agents.snapshot(before.workspace, self._state.agent)
                yield _event(event, "session.updated", agent=agent)
            case ConfigChanged() if self._state.budget != before.budget:
                yield _event(event, "session.updated", budget=budget(self._state.budget))
            case StatusChanged():
                async for shown in self._status(event, body, before):
                    yield shown
            case ModelAsked():
                yield _event(event, "span.model_request_start")
            # A request without a recorded start has no span. The session's usage includes it.
            case ModelCalled(asked=str(asked)):
                yield _event(
                    event,
                    "span.model_request_end",
                    model_request_start_id=ids.format_id("sevt", asked),
                    is_error=body.is_error,
                    model_usage=_model_usage(body.usage),
                )
            case Interrupted(reason="cancelled"):
                yield _event(event, "user.interrupt")
            case Interrupted():
                yield _error(event, "unknown_error", body.reason, "exhausted")
            case Failed():
                yield _failure(event, body)
            case Compacted():
                yield _event(event, "agent.thread_context_compacted")
            case OutcomeDefined():
                yield _event(
                    event,
                    "user.define_outcome",
                    outcome_id=_outcome_id(body.outcome_id),
                    description=body.description,
                    rubric=_rubric(body.rubric),
                    max_iterations=body.max_iterations,
                )
            case OutcomeEvaluated() if body.result not in ("pending", "running"):
                yield _evaluation(event, body)
            case Foreign(dialect="rest", raw=raw) if isinstance(raw, dict):
                yield {**raw, **_event(event, str(raw.get("type")))}

    async def _tool_result(self, event: Event, body: ToolResult) -> Shown:
        call = await self._lookups.called(body.call_id, event.seq)
        kind, name = "agent.tool_result", "tool_use_id"
        if call is not None and call.server is not None:
            kind, name = "agent.mcp_tool_result", "mcp_tool_use_id"
        elif call is not None and call.custom:
            kind, name = "user.custom_tool_result", "custom_tool_use_id"
        elif "rest" in body.extra or (call is not None and call.extra.get(RUN_BY_OTHERS)):
            # A client sent it through this API, or a client was to send it and did not.
            kind = "user.tool_result"
        return _event(
            event,
            kind,
            **{name: ids.format_id("sevt", call_id_of(body.call_id))},
            content=blocks.write(body.content) or blocks.output(body.output),
            is_error=body.status != "completed",
        )

    async def _confirmation(self, event: Event, body: PermissionAnswered) -> Shown | None:
        asked = await self._lookups.asked(body.ask_id)
        if asked is None or body.option is None:  # withdrawn without an answer
            return None
        kind = next((option.kind for option in asked.options if option.id == body.option), "reject")
        allowed = kind.startswith("allow")
        if allowed and body.input is not None and asked.call_id is not None:
            # The changed input is unknown to the worker that runs the tool.
            call = await self._lookups.called(asked.call_id, event.seq)
            allowed = call is None or RUN_BY_OTHERS not in call.extra
        return _event(
            event,
            "user.tool_confirmation",
            tool_use_id=ids.format_id("sevt", tool_id(asked)),
            result="allow" if allowed else "deny",
            deny_message=None if allowed else body.note,
        )

    def _info(self, event: Event, body: InfoChanged, before: Session) -> Iterator[Shown]:
        if event.seq == 2 and event.at == before.created_at:
            return  # stored with the creation, and part of it
        after = self._state
        changed: Shown = {}
        if after.title != before.title:
            changed["title"] = after.title
        if after.metadata != before.metadata:
            changed["metadata"] = after.metadata
        if changed:
            yield _event(event, "session.updated", **changed)
        if before.archived_at is None and after.archived_at is not None:
            yield self._on_thread(event, "session.thread_status_terminated")
            yield _event(event, "session.status_terminated", extra_id="terminated")

    async def _status(self, event: Event, body: StatusChanged, before: Session) -> Any:
        match body.status:
            case "running":
                if before.status != "running" or before.turn != self._state.turn:
                    yield _event(event, "session.status_running")
                    yield self._on_thread(event, "session.thread_status_running")
            case "idle":
                if body.stop_reason is None:
                    return
                ended = await self._ended(body)
                yield self._on_thread(event, "session.thread_status_idle", **ended)
                spent = usage(self._state.usage, self._state.active_seconds(event.at))
                most = budget(self._state.budget)
                yield _event(event, "session.usage", extra_id="usage", usage=spent, budget=most)
                yield _event(event, "session.status_idle", **ended)
            case "rescheduling":
                yield self._on_thread(event, "session.thread_status_rescheduled")
                yield _event(event, "session.status_rescheduled")
            case "terminated":
                yield self._on_thread(event, "session.thread_status_terminated")
                yield _event(event, "session.status_terminated")

    async def _ended(self, body: StatusChanged) -> Shown:
        """Why a turn rests. This dialect has fewer reasons than the model."""
        reason: Shown = {"type": "end_turn"}
        details = None
        match body.stop_reason:
            case "requires_action":
                # Questions, and tool calls whose results are to come from outside.
                asks = [(waited, await self._lookups.asked(waited)) for waited in body.pending]
                about = [call_id_of(waited) if a is None else tool_id(a) for waited, a in asks]
                event_ids = [ids.format_id("sevt", id) for id in about]
                reason = {"type": "requires_action", "event_ids": event_ids}
            case "error":
                reason = {"type": "retries_exhausted"}
            case "budget_reached":
                reason = {"type": "budget_reached"}
            case "refusal":
                reason = {"type": "refusal"}
                details = {"type": "refusal", "category": None, "explanation": body.message}
        return {"stop_reason": reason, "stop_details": details}

    def _on_thread(self, event: Event, kind: str, **fields: Any) -> Shown:
        return _event(
            event,
            kind,
            extra_id="thread",
            session_thread_id=self._thread,
            agent_name=self._agent_name,
            **fields,
        )


def blank(session: Session) -> Session:
    """A session's row as it was before anything happened."""
    return Session(
        id=session.id,
        workspace=session.workspace,
        cwd=session.cwd,
        created_at=session.created_at,
        active_at=session.created_at,
        updated_at=session.created_at,
        last_seq=0,
        agent=session.agent,
        fork=session.fork,
    )


def _moved(state: Session, event: Event) -> Session:
    try:
        if isinstance(event.body, Created):
            return projection.start(state.workspace, state.id, event)
        return projection.apply(state, event)
    except SegueError:  # another tool's history need not keep to our lifecycle
        return state


def folded(session: Session, events: list[Event]) -> Session:
    """The row that the STATE events of a history's beginning come to."""
    state = blank(session)
    for event in events:
        state = _moved(state, event)
    return state


def _event(event: Event, kind: str, *, extra_id: str | None = None, **fields: Any) -> Shown:
    id = event.id if extra_id is None else ids.derived_id(event.id, extra_id)
    return {
        "type": kind,
        "id": ids.format_id("sevt", id),
        **fields,
        "processed_at": clock.to_rfc3339(event.at),
    }


def _tool_use(event: Event, body: ToolCall) -> Shown:
    given = body.input if isinstance(body.input, dict) else {}
    if body.input is not None and not isinstance(body.input, dict):
        given = {"input": body.input}
    shown = _event(event, "agent.tool_use", name=body.name, input=given)
    if body.custom:
        shown["type"] = "agent.custom_tool_use"
    elif body.server is not None:
        shown |= {"type": "agent.mcp_tool_use", "mcp_server_name": body.server}
    shown["id"] = ids.format_id("sevt", call_id_of(body.call_id))
    if (decided := body.extra.get("permission")) and not body.custom:
        verdict = {"evaluated_permission": decided["verdict"]}
        policy = {"type": decided["policy"]}
        shown |= {**verdict, "evaluation": policy | (verdict if policy["type"] == "auto" else {})}
    return shown


def _failure(event: Event, body: Failed) -> Shown:
    if body.server is not None and body.code in _SERVER_ERRORS:
        named = {"mcp_server_name": body.server}
        return _error(event, body.code, body.message, body.retry, named)
    kind = body.code if body.code in _ERRORS else "unknown_error"
    return _error(event, kind, body.message, body.retry)


def _error(
    event: Event, kind: str, message: str, retry: str, more: dict[str, str] | None = None
) -> Shown:
    error = {"type": kind, "message": message, "retry_status": {"type": retry}, **(more or {})}
    return _event(event, "session.error", error=error)


def _model_usage(spent: Usage) -> Shown:
    return {
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cache_read_input_tokens": spent.cache_read_tokens,
        "cache_creation_input_tokens": spent.cache_5m_tokens + spent.cache_1h_tokens,
        "speed": None,
    }


def _rubric(rubric: dict[str, Any]) -> Shown:
    """As it was given: a file by its id, without what was read from it."""
    if rubric.get("type") == "file":
        return {"type": "file", "file_id": rubric.get("file_id")}
    return rubric


def _outcome_id(id: str) -> str:
    known = ids.parse(id)
    return id if known is None else ids.format_id("outc", known)


def _evaluation(event: Event, body: OutcomeEvaluated) -> Shown:
    outcome: Shown = {"outcome_id": _outcome_id(body.outcome_id), "iteration": body.iteration}
    start = ids.derived_id("evaluation", body.outcome_id, str(body.iteration))
    if body.result == "evaluating":
        shown = _event(event, "span.outcome_evaluation_start", **outcome)
        return {**shown, "id": ids.format_id("sevt", start)}
    return _event(
        event,
        "span.outcome_evaluation_end",
        **outcome,
        outcome_evaluation_start_id=ids.format_id("sevt", start),
        result=body.result,
        explanation=body.explanation or "",
        usage=_model_usage(body.usage or Usage()),
    )
