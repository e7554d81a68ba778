"""Encode a session's stored events as the REST API shows them.

A stored event is shown as no event, one or several. One has the stored event's id, the others have
ids derived from it or from their model request. Clients rely on the order within a turn: running,
the message, the agent's events, then idle, with the usage just before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, TypedDict, cast, get_args

import msgspec
from msgspec import UNSET

from segue.hub import Hub
from segue.hub.resources.content_blocks import TextIn
from segue.hub.resources.first_events import FileRubric, TextRubric
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import events as schemas
from segue.interfaces.rest.schemas.session import budget, outcome_id, thread_id, usage
from segue.model import clock, ids, projection
from segue.model.anthropic.agents import SessionAgent
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
    InfoChanged,
    Interrupted,
    ModelAsked,
    OutcomeDefined,
    OutcomeEvaluated,
    PermissionAnswered,
    PermissionAsked,
    Policy,
    Response,
    StatusChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import Principal
from segue.model.requests.spans import (
    RESPONSE_TYPES,
    OpenRequest,
    begun_request,
    decode_request,
    request_end,
)
from segue.model.session import Session
from segue.model.tools.prompt_titles import title_change

from . import blocks
from .event_lookup import EventLookup, event_id, subject_id, tool_use_id
from .event_types import STATE_KINDS

# An event that is shown as several has the ids of the others derived from its own.
DerivedItem = Literal["thread", "usage", "terminated", "title"]
KINDS_WITH_DERIVED_IDS = (
    *("status_changed", "info_changed", "outcome_evaluated", "user_message"),
    *RESPONSE_TYPES,
)
_BATCH_SIZE = 500
_AUTO_VERDICTS: dict[schemas.Verdict, schemas.AutoAllow | schemas.AutoAsk | schemas.AutoDeny] = {
    "allow": schemas.AutoAllow(),
    "ask": schemas.AutoAsk(),
    "deny": schemas.AutoDeny(),
}
_MCP_ERRORS = ("mcp_connection_failed_error", "mcp_authentication_failed_error")
_OTHER_ERRORS = frozenset(get_args(schemas.ErrorType)) - {*_MCP_ERRORS}


class EventFields(TypedDict):
    """The fields of all events."""

    id: str
    processed_at: str


class ThreadFields(EventFields):
    """The fields of all events of the primary thread."""

    session_thread_id: str
    agent_name: str


class StopFields(TypedDict):
    """Why a turn stopped."""

    stop_reason: schemas.StopReason
    stop_details: schemas.RefusalDetails | None


class EventEncoder:
    """Encodes the events of one session in order. `state` is its row before the first of them."""

    def __init__(self, hub: Hub, principal: Principal, state: Session, agent_name: str) -> None:
        self._agents = hub.agent_resolver
        self._state = state
        self._agent_name = agent_name
        self._thread_id = thread_id(state.id)
        self._lookup = EventLookup(hub, principal, state.id)
        self._announced: set[str] = set()

    async def encode(self, event: Event) -> list[schemas.Event]:
        """Return the events as which the next stored event is shown."""
        before = self._state
        self._state = _next_state(before, event)
        self._lookup.remember(event.body)
        return [
            *_request_start(event),
            *[shown async for shown in self._encode(event, event.body, before)],
            *_request_end(event),
        ]

    def encode_request(self, delta: Delta) -> Iterator[schemas.ModelRequestStart]:
        """Yield the start of a model request that has no response yet, once."""
        start = encode_open_request(decode_request(delta.text))
        if start is not None and not self.is_announced(start.id):
            self._announced.add(start.id)
            yield start

    def is_announced(self, id: str) -> bool:
        """Return whether a delta has announced an event."""
        return id in self._announced

    def encode_delta(
        self, delta: Delta, types: frozenset[str]
    ) -> Iterator[schemas.EventStart | schemas.EventDelta]:
        """Yield the events of a delta. Thinking is announced without its text."""
        kind: Literal["agent.thinking", "agent.message"] = (
            "agent.thinking" if delta.kind == "thought" else "agent.message"
        )
        if kind not in types or delta.kind == "output":
            return
        id = ids.format_id("sevt", delta.message)
        if id not in self._announced:
            self._announced.add(id)
            yield schemas.EventStart(event=schemas.StartedEvent(type=kind, id=id))
        if kind == "agent.message":
            content = schemas.ContentDelta(index=0, content=TextIn(text=delta.text))
            yield schemas.EventDelta(event_id=id, delta=content)

    async def _encode(
        self, event: Event, body: AnyBody, before: Session
    ) -> AsyncIterator[schemas.Event]:
        fields = _fields(event)
        match body:
            case UserMessage():
                content = blocks.encode_content(body.content)
                yield schemas.UserMessageEvent(**fields, content=content)
                if (named := title_change(body)) is not None:
                    changed = _fields(event, derive_from="title")
                    yield schemas.SessionUpdated(**changed, title=named.title)
            case SystemMessage():
                text = blocks.encode_as_text(body.content)
                yield schemas.SystemMessageEvent(**fields, content=text)
            case AgentMessage():
                text = blocks.encode_as_text(body.content)
                yield schemas.AgentMessage(**fields, content=text)
            case AgentThought():
                yield schemas.AgentThinking(**fields)
            case ToolCall():
                yield _tool_use(event, body)
            case ToolResult():
                yield await self._tool_result(event, body)
            case PermissionAsked() if body.call_id is None:
                question = {"title": body.title}
                yield schemas.AgentToolUse(**fields, name="permission", input=question)
            case PermissionAnswered():
                if confirmation := await self._confirmation(event, body):
                    yield confirmation
            case InfoChanged():
                for shown in self._info_changes(event, before):
                    yield shown
            case ConfigChanged() if body.agent is not UNSET:
                agent = await self._agents.snapshot(before.workspace, self._state.agent)
                yield schemas.SessionUpdated(**fields, agent=msgspec.convert(agent, SessionAgent))
            case ConfigChanged() if self._state.budget != before.budget:
                yield schemas.SessionUpdated(**fields, budget=budget(self._state.budget))
            case StatusChanged():
                async for shown in self._status_changes(event, body, before):
                    yield shown
            case ModelAsked():
                yield schemas.ModelRequestStart(**fields)
            case Interrupted(reason="cancelled"):
                yield schemas.UserInterrupt(**fields)
            case Interrupted():
                yield _error(event, "unknown_error", body.reason, "exhausted")
            case Failed():
                yield _failure(event, body)
            case Compacted():
                yield schemas.ContextCompacted(**fields)
            case OutcomeDefined():
                yield schemas.UserDefineOutcome(
                    **fields,
                    outcome_id=outcome_id(body.outcome_id),
                    description=body.description,
                    rubric=_rubric(body.rubric),
                    max_iterations=body.max_iterations,
                )
            case OutcomeEvaluated() if body.result not in ("pending", "running"):
                yield _evaluation(event, body)

    async def _tool_result(self, event: Event, body: ToolResult) -> schemas.Event:
        call = await self._lookup.call_of_result(body.call_id, event.seq)
        fields = _fields(event)
        use_id = ids.format_id("sevt", tool_use_id(body.call_id))
        content = blocks.encode_content(body.content) or blocks.encode_output(body.output)
        failed = body.status != "completed"
        if call is not None and call.server is not None:
            return schemas.AgentMCPToolResult(
                **fields, mcp_tool_use_id=use_id, content=content, is_error=failed
            )
        # The server closes the calls of a turn that ends before a client has sent their results.
        by_client = body.status != "cancelled"
        if call is not None and call.custom and by_client:
            return schemas.UserCustomToolResult(
                **fields, custom_tool_use_id=use_id, content=content, is_error=failed
            )
        if "rest" in body.extra and by_client:
            return schemas.UserToolResult(
                **fields, tool_use_id=use_id, content=content, is_error=failed
            )
        return schemas.AgentToolResult(
            **fields, tool_use_id=use_id, content=content, is_error=failed
        )

    async def _confirmation(
        self, event: Event, body: PermissionAnswered
    ) -> schemas.UserToolConfirmation | None:
        """Return the answer to a permission request, or None if the request was withdrawn."""
        request = await self._lookup.permission_request(body.ask_id)
        if request is None or body.option is None:
            return None
        options = {option.id: option.kind for option in request.options}
        allowed = options.get(body.option, "reject").startswith("allow")
        if allowed and body.input is not None and request.call_id is not None:
            # The worker that runs the tool does not know the changed input.
            call = await self._lookup.call_of_result(request.call_id, event.seq)
            allowed = call is None or RUN_BY_OTHERS not in call.extra
        return schemas.UserToolConfirmation(
            **_fields(event),
            tool_use_id=ids.format_id("sevt", subject_id(request)),
            result="allow" if allowed else "deny",
            deny_message=None if allowed else body.note,
        )

    def _info_changes(self, event: Event, before: Session) -> Iterator[schemas.Event]:
        if event.seq == 2 and event.at == before.created_at:
            return  # stored with the creation, and part of it
        after = self._state
        if (after.title, after.metadata) != (before.title, before.metadata):
            yield schemas.SessionUpdated(
                **_fields(event),
                title=UNSET if after.title == before.title else after.title,
                metadata=UNSET if after.metadata == before.metadata else after.metadata,
            )
        if before.archived_at is None and after.archived_at is not None:
            yield schemas.ThreadStatusTerminated(**self._thread_fields(event))
            yield schemas.StatusTerminated(**_fields(event, derive_from="terminated"))

    async def _status_changes(
        self, event: Event, body: StatusChanged, before: Session
    ) -> AsyncIterator[schemas.Event]:
        fields, thread_fields = _fields(event), self._thread_fields(event)
        match body.status:
            case "running":
                if before.status != "running" or before.turn != self._state.turn:
                    yield schemas.StatusRunning(**fields)
                    yield schemas.ThreadStatusRunning(**thread_fields)
            case "idle":
                if body.stop_reason is None:
                    return
                stop = await self._stop_fields(body)
                yield schemas.ThreadStatusIdle(**thread_fields, **stop)
                yield schemas.SessionUsage(
                    **_fields(event, derive_from="usage"),
                    usage=usage(self._state.usage, self._state.active_seconds(event.at)),
                    budget=budget(self._state.budget),
                )
                yield schemas.StatusIdle(**fields, **stop)
            case "rescheduling":
                yield schemas.ThreadStatusRescheduled(**thread_fields)
                yield schemas.StatusRescheduled(**fields)
            case "terminated":
                yield schemas.ThreadStatusTerminated(**thread_fields)
                yield schemas.StatusTerminated(**fields)

    async def _stop_fields(self, body: StatusChanged) -> StopFields:
        """Return why a turn stopped. This API has fewer reasons than the model."""
        match body.stop_reason:
            case "requires_action":
                event_ids = [await self._pending_event_id(id) for id in body.pending]
                return {
                    "stop_reason": schemas.RequiresAction(event_ids=event_ids),
                    "stop_details": None,
                }
            case "error":
                return {"stop_reason": schemas.RetriesExhausted(), "stop_details": None}
            case "budget_reached":
                return {"stop_reason": schemas.BudgetReached(), "stop_details": None}
            case "refusal":
                details = schemas.RefusalDetails(category=None, explanation=body.message)
                return {"stop_reason": schemas.Refusal(), "stop_details": details}
        return {"stop_reason": schemas.EndTurn(), "stop_details": None}

    async def _pending_event_id(self, id: str) -> str:
        """Return the id of an event that waits for the client: a permission request or a call."""
        request = await self._lookup.permission_request(id)
        return ids.format_id("sevt", tool_use_id(id) if request is None else subject_id(request))

    def _thread_fields(self, event: Event) -> ThreadFields:
        return {
            **_fields(event, derive_from="thread"),
            "session_thread_id": self._thread_id,
            "agent_name": self._agent_name,
        }


async def encoder_from(request: RestRequest, session: Session, seq: int) -> EventEncoder:
    """Return an encoder whose first event is `seq`."""
    if seq > session.last_seq:
        return await encoder_with_state(request, session, session)
    state = _initial_state(session)
    after = 0
    while after < seq - 1:
        batch = await request.hub.history.events(
            request.principal,
            session.id,
            after=after,
            before=seq,
            types=STATE_KINDS,
            limit=_BATCH_SIZE,
        )
        for event in batch:
            state = _next_state(state, event)
        if len(batch) < _BATCH_SIZE:
            break
        after = batch[-1].seq
    return await encoder_with_state(request, session, state)


async def encoder_with_state(
    request: RestRequest, session: Session, state: Session
) -> EventEncoder:
    """Return an encoder whose first event follows `state`, an earlier row of the session."""
    agent = await request.hub.agent_resolver.snapshot(
        request.workspace, session.agent, with_roster=False
    )
    return EventEncoder(request.hub, request.principal, state, agent["name"])


def _initial_state(session: Session) -> Session:
    """Return a session's row as it was before its first event."""
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


def _next_state(state: Session, event: Event) -> Session:
    try:
        if isinstance(event.body, Created):
            return projection.start(state.workspace, state.id, event)
        return projection.apply(state, event)
    except SegueError:  # the history of another tool need not follow our lifecycle
        return state


def derived_ids(event: Event) -> set[str]:
    """Return the ids, besides its own, with which an event may be shown."""
    spans: set[str] = set()
    if (begun := begun_request(event.body)) is not None:
        spans.add(event_id(begun))
    if (end := request_end(event.body)) is not None and end.asked is not None:
        spans.add(ids.derived_id(end.asked, "end"))
    return spans | _derived_ids(event)


def _derived_ids(event: Event) -> set[str]:
    match event.body:
        case ToolCall():
            return {tool_use_id(event.body.call_id)}
        case OutcomeEvaluated():
            return {_evaluation_start_id(event.body)}
        case StatusChanged() | InfoChanged() | UserMessage(names_session=True):
            return {ids.derived_id(event.id, name) for name in get_args(DerivedItem)}
    return set()


def _fields(event: Event, *, derive_from: DerivedItem | None = None) -> EventFields:
    id = event_id(event.id) if derive_from is None else ids.derived_id(event.id, derive_from)
    return {"id": ids.format_id("sevt", id), "processed_at": clock.to_rfc3339(event.at)}


def _span_id(request: str) -> str:
    """Return the id of the event that shows the start of a model request."""
    return ids.format_id("sevt", event_id(request))


def encode_open_request(request: OpenRequest | None) -> schemas.ModelRequestStart | None:
    """Return the start of a model request that has no response so far."""
    if request is None or request.asked_at is None:
        return None
    return schemas.ModelRequestStart(id=_span_id(request.id), processed_at=request.asked_at)


def _request_start(event: Event) -> Iterator[schemas.Event]:
    """Yield the start of the model request whose first event this is."""
    request, asked_at = begun_request(event.body), getattr(event.body, "asked_at", None)
    if request is not None and asked_at is not None:
        yield schemas.ModelRequestStart(id=_span_id(request), processed_at=asked_at)


def _request_end(event: Event) -> Iterator[schemas.Event]:
    """Yield the end of the model request whose last event this is.

    A request without a recorded start has no span. The session's usage includes it.
    """
    end = request_end(event.body)
    if end is None or end.asked is None:
        return
    fields = _fields(event)
    if isinstance(event.body, Response):
        fields["id"] = ids.format_id("sevt", ids.derived_id(end.asked, "end"))
    yield schemas.ModelRequestEnd(
        **fields,
        model_request_start_id=_span_id(end.asked),
        is_error=end.is_error,
        model_usage=_model_usage(end.usage),
    )


def _tool_use(event: Event, body: ToolCall) -> schemas.Event:
    fields = _fields(event)
    fields["id"] = ids.format_id("sevt", tool_use_id(body.call_id))
    if isinstance(body.input, dict):
        arguments = body.input
    else:
        arguments = {} if body.input is None else {"input": body.input}
    if body.custom:
        return schemas.AgentCustomToolUse(**fields, name=body.name, input=arguments)
    verdict: schemas.Verdict | msgspec.UnsetType = UNSET
    evaluation: schemas.Evaluation | msgspec.UnsetType = UNSET
    if body.policy is not None and (decided := body.effective_verdict) is not None:
        verdict = decided
        evaluation = _permission_evaluation(body.policy, decided)
    if body.server is not None:
        return schemas.AgentMCPToolUse(
            **fields,
            name=body.name,
            input=arguments,
            evaluated_permission=verdict,
            evaluation=evaluation,
            mcp_server_name=body.server,
        )
    return schemas.AgentToolUse(
        **fields,
        name=body.name,
        input=arguments,
        evaluated_permission=verdict,
        evaluation=evaluation,
    )


def _permission_evaluation(policy: Policy, verdict: schemas.Verdict) -> schemas.Evaluation:
    """Return the policy that decided about a tool call."""
    if policy == "auto":
        return schemas.Auto(evaluated_permission=_AUTO_VERDICTS[verdict])
    return schemas.AlwaysAllow() if policy == "always_allow" else schemas.AlwaysAsk()


def _failure(event: Event, body: Failed) -> schemas.SessionError:
    if body.server is not None and body.code in _MCP_ERRORS:
        return _error(event, body.code, body.message, body.retry, server=body.server)
    code = body.code if body.code in _OTHER_ERRORS else "unknown_error"
    return _error(event, code, body.message, body.retry)


def _error(
    event: Event,
    code: str,
    message: str,
    retry: schemas.RetryStatus,
    *,
    server: str | msgspec.UnsetType = UNSET,
) -> schemas.SessionError:
    error = schemas.SessionErrorDetail(
        type=cast(schemas.ErrorType, code),
        message=message,
        retry_status=schemas.Retry(type=retry),
        mcp_server_name=server,
    )
    return schemas.SessionError(**_fields(event), error=error)


def _model_usage(tokens: Usage) -> schemas.ModelUsage:
    return schemas.ModelUsage(
        input_tokens=tokens.input_tokens or 0,
        output_tokens=tokens.output_tokens or 0,
        cache_read_input_tokens=tokens.cache_read_tokens or 0,
        cache_creation_input_tokens=tokens.cache_write_tokens or 0,
        speed=None,
    )


def _rubric(rubric: dict[str, Any]) -> TextRubric | FileRubric:
    """Return a rubric as the client sent it: of a file only the id."""
    if rubric.get("type") == "file":
        return FileRubric(file_id=str(rubric.get("file_id")))
    return TextRubric(content=str(rubric.get("content")))


def _evaluation_start_id(body: OutcomeEvaluated) -> str:
    return ids.derived_id("evaluation", body.outcome_id, str(body.iteration))


def _evaluation(
    event: Event, body: OutcomeEvaluated
) -> schemas.OutcomeEvaluationStart | schemas.OutcomeEvaluationEnd:
    fields = _fields(event)
    outcome = outcome_id(body.outcome_id)
    start_id = ids.format_id("sevt", _evaluation_start_id(body))
    if body.result == "evaluating":
        return schemas.OutcomeEvaluationStart(
            id=start_id,
            processed_at=fields["processed_at"],
            outcome_id=outcome,
            iteration=body.iteration,
        )
    return schemas.OutcomeEvaluationEnd(
        **fields,
        outcome_id=outcome,
        iteration=body.iteration,
        outcome_evaluation_start_id=start_id,
        result=body.result,
        explanation=body.explanation or "",
        usage=_model_usage(body.usage or Usage()),
    )
