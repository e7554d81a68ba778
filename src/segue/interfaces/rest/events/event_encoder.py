"""Encode a session's stored events as the REST API shows them.

A stored event is shown as no event, one or several. One has the stored event's id, the others have
ids derived from it or from their model request. Clients rely on the order within a turn: running,
the message, the agent's events, then idle, with the usage just before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Literal, TypedDict, get_args

import msgspec
from msgspec import UNSET

from segue.hub import Hub
from segue.hub.resources.content_blocks import TextIn
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import events as schemas
from segue.interfaces.rest.schemas.session import budget, outcome_id, thread_id, usage
from segue.model import ids, projection
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
    Response,
    StatusChanged,
    SystemMessage,
    ThreadChanged,
    ThreadMessage,
    ThreadStarted,
    ToolCall,
    ToolResult,
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
from .event_parts import (
    DerivedItem,
    EventFields,
    error,
    evaluation,
    evaluation_start_id,
    event_fields,
    failure,
    model_usage,
    rubric,
    tool_use,
)
from .event_types import STATE_KINDS

KINDS_WITH_DERIVED_IDS = (
    *("status_changed", "info_changed", "outcome_evaluated", "user_message", "thread_message"),
    *RESPONSE_TYPES,
)
_BATCH_SIZE = 500
_CROSS_POSTED = (ToolCall, ToolResult, PermissionAsked, PermissionAnswered, Interrupted)


class ThreadFields(EventFields):
    """The fields of all events about a thread."""

    session_thread_id: str
    agent_name: str


class StopFields(TypedDict):
    """Why a turn stopped."""

    stop_reason: schemas.StopReason
    stop_details: schemas.RefusalDetails | None


class EventEncoder:
    """Encodes the events of one session in order, for one of its threads.

    `state` is the session's row before the first event. `names` has the names of the agents by
    thread; None is the primary thread.
    """

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        state: Session,
        names: dict[str | None, str],
        thread: str | None = None,
    ) -> None:
        self._agents = hub.agent_resolver
        self._state = state
        self._names = names
        self._thread = thread
        self._lookup = EventLookup(hub, principal, state.id)
        self._announced: set[str] = set()

    async def encode(self, event: Event) -> list[schemas.Event]:
        """Return the events as which the next stored event is shown."""
        before = self._state
        self._state = _next_state(before, event)
        self._lookup.remember(event.body)
        body = event.body
        if isinstance(body, ThreadStarted):
            self._names[body.id] = body.name
        if isinstance(body, ThreadStarted | ThreadMessage | ThreadChanged):
            return [encoded async for encoded in self._encode_threads(event, body)]
        if body.thread == self._thread:
            return [
                *_request_start(event),
                *[encoded async for encoded in self._encode(event, body, before)],
                *_request_end(event),
            ]
        if self._thread is not None:
            is_end = isinstance(body, InfoChanged) and body.archived is True
            return list(self._info_changes(event, before)) if is_end else []
        return [item async for item in self._cross_post(event, body, before)]

    async def _cross_post(
        self, event: Event, body: AnyBody, before: Session
    ) -> AsyncIterator[schemas.Event]:
        """Yield how the primary thread shows an event of another one that concerns clients.

        That is a tool call that waits for a client, and what a client has sent to the thread.
        """
        if not isinstance(body, _CROSS_POSTED):
            return
        if isinstance(body, ToolCall) and not _waits_for_client(body):
            return
        thread = thread_id(self._state.id, body.thread)
        async for encoded in self._encode(event, body, before):
            if hasattr(encoded, "session_thread_id"):
                yield msgspec.structs.replace(encoded, session_thread_id=thread)

    def ends_stream(self, event: schemas.Event) -> bool:
        """Return whether no event of this thread can follow."""
        if isinstance(event, schemas.ThreadStatusTerminated) and self._thread is not None:
            return True
        return isinstance(event, schemas.StatusTerminated)

    def encode_request(self, delta: Delta) -> Iterator[schemas.ModelRequestStart]:
        """Yield the start of a model request that has no response yet, once."""
        if delta.thread != self._thread:
            return
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
        if kind not in types or delta.kind == "output" or delta.thread != self._thread:
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
        fields = event_fields(event)
        match body:
            case UserMessage():
                content = blocks.encode_content(body.content)
                yield schemas.UserMessageEvent(**fields, content=content)
                if (named := title_change(body)) is not None:
                    changed = event_fields(event, derive_from="title")
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
                yield tool_use(event, body)
            case ToolResult():
                yield await self._tool_result(event, body)
            case PermissionAsked() if body.call_id is None:
                question = {"title": body.title}
                yield schemas.AgentToolUse(**fields, name="permission", input=question)
            case PermissionAnswered():
                if confirmation := await self._confirmation(event, body):
                    yield confirmation
            case InfoChanged():
                for encoded in self._info_changes(event, before):
                    yield encoded
            case ConfigChanged() if body.agent is not UNSET:
                agent = await self._agents.snapshot(before.workspace, self._state.agent)
                yield schemas.SessionUpdated(**fields, agent=msgspec.convert(agent, SessionAgent))
            case ConfigChanged() if self._state.budget != before.budget:
                yield schemas.SessionUpdated(**fields, budget=budget(self._state.budget))
            case StatusChanged():
                async for encoded in self._status_changes(event, body, before):
                    yield encoded
            case ModelAsked():
                yield schemas.ModelRequestStart(**fields)
            case Interrupted(reason="cancelled"):
                yield schemas.UserInterrupt(**fields)
            case Interrupted():
                yield error(event, "unknown_error", body.reason, "exhausted")
            case Failed():
                yield failure(event, body)
            case Compacted():
                yield schemas.ContextCompacted(**fields)
            case OutcomeDefined():
                yield schemas.UserDefineOutcome(
                    **fields,
                    outcome_id=outcome_id(body.outcome_id),
                    description=body.description,
                    rubric=rubric(body.rubric),
                    max_iterations=body.max_iterations,
                )
            case OutcomeEvaluated() if body.result not in ("pending", "running"):
                yield evaluation(event, body)

    async def _encode_threads(
        self, event: Event, body: ThreadStarted | ThreadMessage | ThreadChanged
    ) -> AsyncIterator[schemas.Event]:
        """Yield how this thread shows what happens between threads."""
        match body:
            case ThreadStarted() if body.thread == self._thread:
                yield schemas.ThreadCreated(**self._thread_fields(event, body.id))
            case ThreadMessage() if body.sender == self._thread:
                yield schemas.ThreadMessageSent(
                    **event_fields(event),
                    to_session_thread_id=thread_id(self._state.id, body.thread),
                    content=blocks.encode_content(body.content),
                    to_agent_name=UNSET
                    if body.thread is None
                    else self._names.get(body.thread, ""),
                )
            case ThreadMessage() if body.thread == self._thread:
                yield schemas.ThreadMessageReceived(
                    **event_fields(event, derive_from="received"),
                    from_session_thread_id=thread_id(self._state.id, body.sender),
                    content=blocks.encode_content(body.content),
                    from_agent_name=UNSET
                    if body.sender is None
                    else self._names.get(body.sender, ""),
                )
            case ThreadChanged() if self._thread in (None, body.thread):
                fields = self._thread_fields(event, body.thread)
                match body.status:
                    case "running":
                        yield schemas.ThreadStatusRunning(**fields)
                    case "rescheduling":
                        yield schemas.ThreadStatusRescheduled(**fields)
                    case "idle":
                        stop = await self._stop_fields(body)
                        yield schemas.ThreadStatusIdle(**fields, **stop)
                    case "terminated":
                        yield schemas.ThreadStatusTerminated(**fields)

    async def _tool_result(self, event: Event, body: ToolResult) -> schemas.Event:
        call = await self._lookup.call_of_result(body.call_id, event.seq)
        fields = event_fields(event)
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
            **event_fields(event),
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
                **event_fields(event),
                title=UNSET if after.title == before.title else after.title,
                metadata=UNSET if after.metadata == before.metadata else after.metadata,
            )
        if before.archived_at is None and after.archived_at is not None:
            yield schemas.ThreadStatusTerminated(**self._thread_fields(event, self._thread))
            yield schemas.StatusTerminated(**event_fields(event, derive_from="terminated"))

    async def _status_changes(
        self, event: Event, body: StatusChanged, before: Session
    ) -> AsyncIterator[schemas.Event]:
        fields, thread_fields = event_fields(event), self._thread_fields(event, None)
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
                    **event_fields(event, derive_from="usage"),
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

    async def _stop_fields(self, body: StatusChanged | ThreadChanged) -> StopFields:
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

    def _thread_fields(self, event: Event, thread: str | None) -> ThreadFields:
        return {
            **event_fields(event, derive_from="thread" if thread is None else None),
            "session_thread_id": thread_id(self._state.id, thread),
            "agent_name": self._names.get(thread, ""),
        }


async def encoder_from(
    request: RestRequest, session: Session, seq: int, thread: str | None = None
) -> EventEncoder:
    """Return an encoder whose first event is `seq`, for a thread."""
    if seq > session.last_seq:
        return await encoder_with_state(request, session, session, thread)
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
    return await encoder_with_state(request, session, state, thread)


async def encoder_with_state(
    request: RestRequest, session: Session, state: Session, thread: str | None = None
) -> EventEncoder:
    """Return an encoder whose first event follows `state`, an earlier row of the session."""
    agent = await request.hub.agent_resolver.snapshot(
        request.workspace, session.agent, with_roster=False
    )
    names: dict[str | None, str] = {None: agent["name"]}
    if session.threads:
        for started in await request.hub.history.threads(request.principal, session.id):
            names[started.id] = started.kind or ""
    return EventEncoder(request.hub, request.principal, state, names, thread)


def _waits_for_client(call: ToolCall) -> bool:
    """Return whether a tool call needs a client's permission, or its result."""
    verdict = call.effective_verdict
    return call.custom or verdict == "ask" or (RUN_BY_OTHERS in call.extra and verdict != "deny")


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
    if (start := begun_request(event.body)) is not None:
        spans.add(event_id(start))
    if (end := request_end(event.body)) is not None and end.asked is not None:
        spans.add(ids.derived_id(end.asked, "end"))
    return spans | _derived_ids(event)


def _derived_ids(event: Event) -> set[str]:
    match event.body:
        case ToolCall():
            return {tool_use_id(event.body.call_id)}
        case OutcomeEvaluated():
            return {evaluation_start_id(event.body)}
        case StatusChanged() | InfoChanged() | UserMessage(names_session=True) | ThreadMessage():
            return {ids.derived_id(event.id, name) for name in get_args(DerivedItem)}
    return set()


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
    fields = event_fields(event)
    if isinstance(event.body, Response):
        fields["id"] = ids.format_id("sevt", ids.derived_id(end.asked, "end"))
    yield schemas.ModelRequestEnd(
        **fields,
        model_request_start_id=_span_id(end.asked),
        is_error=end.is_error,
        model_usage=model_usage(end.usage),
    )
