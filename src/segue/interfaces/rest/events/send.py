"""Send a client's events to a session.

All events of a request are checked before the first is sent: all of them are sent, or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from segue.hub.resources.first_events import (
    DefineOutcome,
    InitialEvent,
    SystemMessage,
    UserMessage,
    system_message,
)
from segue.hub.turns.budgets import require_budget_left
from segue.hub.turns.inbox import SystemText
from segue.interfaces.rest.request import RestRequest
from segue.interfaces.rest.schemas import events as schemas
from segue.interfaces.rest.schemas.session import outcome_id, status, thread_id
from segue.model import clock, event, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.session import Session

from . import blocks
from .event_lookup import EventLookup, subject_id
from .event_requests import (
    Confirmation,
    CustomToolResult,
    Incoming,
    Interrupt,
    ToolResult,
)

# Sends a checked event, and returns it as the session stores it.
SendStep = Callable[[], Awaitable[schemas.SentEvent]]

DEFAULT_MAX_ITERATIONS = 3


async def send_events(
    request: RestRequest, session: Session, events: Sequence[Incoming]
) -> schemas.SentEvents:
    """Send events to a session. Raises InvalidInput if one of them cannot be sent."""
    if status(session) == "terminated":
        state = "terminated" if session.archived_at is None else "archived and thereby terminated"
        raise InvalidInput(
            f"session {ids.format_id('sesn', session.id)} is {state}; it takes no more events"
        )
    if any(isinstance(sent, InitialEvent) for sent in events):
        require_budget_left(session)
    system = system_message(events, follows=(CustomToolResult, ToolResult))
    if system is not None:
        events = events[:-1]
    steps = [
        await _prepare(request, session, sent, system if index == len(events) - 1 else None)
        for index, sent in enumerate(events)
    ]
    stored = [await step() for step in steps]
    if system is not None:
        text = blocks.encode_as_text(system.content)
        system_id = ids.format_id("sevt", system.id)
        stored.append(schemas.SystemMessageEvent(id=system_id, processed_at=None, content=text))
    return schemas.SentEvents(data=stored)


async def _prepare(
    request: RestRequest, session: Session, sent: Incoming, system: SystemText | None
) -> SendStep:
    thread = await _named_thread(request, session, getattr(sent, "session_thread_id", None))
    match sent:
        case UserMessage():
            return await _prepare_message(request, session, sent, system)
        case Interrupt():
            return _prepare_interrupt(request, session, sent, thread)
        case Confirmation():
            return await _prepare_confirmation(request, session, sent)
        case CustomToolResult() | ToolResult():
            return await _prepare_result(request, session, sent, system)
        case DefineOutcome():
            return await _prepare_outcome(request, session, sent)
        case SystemMessage():
            raise AssertionError("a system message is sent with the event before it")


async def _named_thread(request: RestRequest, session: Session, name: str | None) -> str | None:
    """Return the thread that an event names; None for the primary one, or if it names none.

    Raises InvalidInput if the session has no such thread.
    """
    if name is None or name == thread_id(session.id):
        return None
    for thread in await request.hub.history.threads(request.principal, session.id):
        if name == thread_id(session.id, thread.id):
            return thread.id
    raise InvalidInput(f"session_thread_id: {name} is not a thread of this session")


async def _prepare_message(
    request: RestRequest, session: Session, sent: UserMessage, system: SystemText | None
) -> SendStep:
    content = await request.hub.first_events.read_content(request.workspace, sent.content)

    async def step() -> schemas.SentEvent:
        turn = await request.hub.turns.submit(
            request.principal, session.id, content, system=system, replay_to_late_stream=True
        )
        # The history shows the same event with a time once the turn has started.
        return schemas.UserMessageEvent(
            id=ids.format_id("sevt", turn),
            processed_at=None,
            content=blocks.encode_content(content),
        )

    return step


async def _prepare_outcome(request: RestRequest, session: Session, sent: DefineOutcome) -> SendStep:
    rubric = await request.hub.first_events.read_rubric(request.workspace, sent)

    async def step() -> schemas.SentEvent:
        id = ids.new_id()
        outcome = await request.hub.turns.define_outcome(
            request.principal,
            session.id,
            sent.description,
            rubric,
            sent.max_iterations or DEFAULT_MAX_ITERATIONS,
            turn_id=id,
        )
        return schemas.UserDefineOutcome(
            id=ids.format_id("sevt", id),
            processed_at=_now(),
            outcome_id=outcome_id(outcome.outcome_id),
            description=outcome.description,
            rubric=sent.rubric,
            max_iterations=outcome.max_iterations,
        )

    return step


def _prepare_interrupt(
    request: RestRequest, session: Session, sent: Interrupt, thread: str | None
) -> SendStep:
    """Prepare an interrupt of one thread, or of the turn with all its threads."""

    async def step() -> schemas.SentEvent:
        turns, principal = request.hub.turns, request.principal
        if thread is None:
            cancelled = await turns.cancel(principal, session.id)
        else:
            cancelled = await turns.cancel_thread(principal, session.id, thread)
        return schemas.UserInterrupt(
            id=ids.format_id("sevt", cancelled or ids.new_id()),
            # Without a turn to interrupt, the interrupt is processed at once.
            processed_at=None if cancelled else _now(),
            session_thread_id=sent.session_thread_id,
        )

    return step


async def _prepare_confirmation(
    request: RestRequest, session: Session, sent: Confirmation
) -> SendStep:
    if sent.result == "allow" and sent.deny_message is not None:
        raise InvalidInput("deny_message: only a confirmation with result deny has one")
    permission = await _open_request(request, session, sent.tool_use_id)
    kinds = ("allow_once", "allow") if sent.result == "allow" else ("reject_once", "reject")
    option = next(
        (option for kind in kinds for option in permission.options if option.kind.startswith(kind)),
        None,
    )
    if option is None and sent.result == "allow":
        raise InvalidInput(f"tool call {sent.tool_use_id} cannot be allowed")

    async def step() -> schemas.SentEvent:
        try:
            answer = await request.hub.turns.answer(
                request.principal,
                session.id,
                permission.ask_id,
                None if option is None else option.id,
                sent.deny_message,
            )
        except NotFound:  # it was answered, and not like this
            raise _not_waiting(sent.tool_use_id) from None
        return schemas.UserToolConfirmation(
            id=ids.format_id("sevt", answer),
            processed_at=None,
            tool_use_id=sent.tool_use_id,
            result=sent.result,
            deny_message=sent.deny_message,
            session_thread_id=sent.session_thread_id,
        )

    return step


async def _open_request(
    request: RestRequest, session: Session, tool_use_id: str
) -> event.PermissionAsked:
    """Return the permission request of a tool call. Raises InvalidInput if it has none.

    It may have been answered already: a client may repeat its answer.
    """
    lookup = EventLookup(request.hub, request.principal, session.id)
    for permission in await lookup.recent_requests(session.open_asks):
        if ids.parse(tool_use_id, "sevt") == subject_id(permission):
            return permission
    raise _not_waiting(tool_use_id)


def _not_waiting(tool_use_id: str) -> InvalidInput:
    return InvalidInput(f"tool_use_id: {tool_use_id} does not wait for a confirmation")


async def _prepare_result(
    request: RestRequest,
    session: Session,
    sent: CustomToolResult | ToolResult,
    system: SystemText | None,
) -> SendStep:
    custom = isinstance(sent, CustomToolResult)
    call = await _waiting_call(request, session, sent)
    result = event.ToolResult(
        call_id=call.call_id,
        status="failed" if sent.is_error else "completed",
        content=await request.hub.first_events.read_content(request.workspace, sent.content or ()),
        extra={} if custom else {"rest": {"sent_by_client": True}},
    )

    async def step() -> schemas.SentEvent:
        try:
            id = await request.hub.turns.submit_tool_result(
                request.principal, session.id, result, system=system
            )
        except InvalidInput:
            raise InvalidInput(f"tool call {_use_id(sent)} has another result already") from None
        except NotFound:
            # The server closed the call with its turn. The official tool runner runs the tool again
            # after an error, because only results of clients count as answers for it.
            id = ids.new_id()
        return _stored_result(sent, ids.format_id("sevt", id))

    return step


async def _waiting_call(
    request: RestRequest, session: Session, sent: CustomToolResult | ToolResult
) -> event.ToolCall:
    """Return the tool call of a result. Raises InvalidInput unless it waits for the client's."""
    lookup = EventLookup(request.hub, request.principal, session.id)
    custom, use_id = isinstance(sent, CustomToolResult), _use_id(sent)
    call = await lookup.call_shown_as(use_id)
    if call is not None and call.custom == custom:
        # A client may send the result of a tool that the server runs only while the turn waits.
        runs_elsewhere = custom or call.extra.get(event.RUN_BY_OTHERS)
        waits = runs_elsewhere or call.call_id in session.pending
        if waits or await lookup.has_client_result(call.call_id):  # it may be repeated
            return call
    field = "custom_tool_use_id" if custom else "tool_use_id"
    raise InvalidInput(f"{field}: {use_id} does not wait for a result")


def _use_id(sent: CustomToolResult | ToolResult) -> str:
    return sent.custom_tool_use_id if isinstance(sent, CustomToolResult) else sent.tool_use_id


def _stored_result(
    sent: CustomToolResult | ToolResult, id: str
) -> schemas.UserCustomToolResult | schemas.UserToolResult:
    content = None if sent.content is None else list(sent.content)
    if isinstance(sent, CustomToolResult):
        return schemas.UserCustomToolResult(
            id=id,
            processed_at=_now(),
            custom_tool_use_id=sent.custom_tool_use_id,
            content=content,
            is_error=sent.is_error,
            session_thread_id=sent.session_thread_id,
        )
    return schemas.UserToolResult(
        id=id,
        processed_at=_now(),
        tool_use_id=sent.tool_use_id,
        content=content,
        is_error=sent.is_error,
        session_thread_id=sent.session_thread_id,
    )


def _now() -> str:
    return clock.to_rfc3339(clock.now())
