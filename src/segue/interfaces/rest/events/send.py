"""What clients send to a session, as calls of the hub.

Everything in a request is checked before any of it is done: all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import to_builtins

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
from segue.interfaces.rest.schemas.session import status, thread_id
from segue.model import clock, event, ids
from segue.model.errors import InvalidInput, NotFound
from segue.model.session import Session

from . import blocks, event_requests
from .event_lookup import Lookups, tool_id
from .event_requests import (
    Confirmation,
    CustomToolResult,
    Incoming,
    Interrupt,
    ToolResult,
)

Step = Callable[[Session], Awaitable[dict[str, Any]]]


async def send(request: RestRequest) -> dict[str, Any]:
    """`POST …/events`: the events, as they were taken in."""
    given = await request.body(event_requests.Send)
    session = await request.session()
    if status(session) == "terminated":
        raise InvalidInput(
            f"session {ids.format_id('sesn', session.id)} is terminated and takes no more events"
        )
    if any(isinstance(each, InitialEvent) for each in given.events):
        require_budget_left(session)
    system = system_message(given.events, follows=(CustomToolResult, ToolResult))
    last = len(given.events) - (2 if system else 1)
    steps = [
        await _step(request, session, each, system if place == last else None)
        for place, each in enumerate(given.events[: last + 1])
    ]
    echoes = [await step(session) for step in steps]
    if system is not None:
        content = blocks.text_blocks(system.content)
        echoes.append(_echo("system.message", system.id, None, content=content))
    return {"data": echoes}


async def _step(
    request: RestRequest, session: Session, given: Incoming, system: SystemText | None
) -> Step:
    thread = getattr(given, "session_thread_id", None)
    if thread is not None and thread != thread_id(session.id):
        raise InvalidInput(f"session_thread_id: {thread} is no thread of this session")
    match given:
        case UserMessage():
            return await _message(request, given, system)
        case Interrupt():
            return _interrupt(request, thread)
        case Confirmation():
            return await _confirmation(request, session, given)
        case CustomToolResult() | ToolResult():
            return await _result(request, session, given, system)
        case DefineOutcome():
            return await _outcome(request, given)
        case SystemMessage():
            raise AssertionError("it is no step of its own")


async def _message(
    request: RestRequest, given: UserMessage, system: SystemText | None = None
) -> Step:
    content = await request.hub.first_events.read_content(request.workspace, given.content)

    async def step(session: Session) -> dict[str, Any]:
        turn = await request.hub.turns.submit(
            request.principal, session.id, content, system=system, replay_to_late_stream=True
        )
        # When it begins, the same event comes again with its time.
        return _echo("user.message", turn, None, content=blocks.write(content))

    return step


async def _outcome(request: RestRequest, given: DefineOutcome) -> Step:
    rubric = await request.hub.first_events.read_rubric(request.workspace, given)

    async def step(session: Session) -> dict[str, Any]:
        id = ids.new_id()
        outcome = await request.hub.turns.define_outcome(
            request.principal,
            session.id,
            given.description,
            rubric,
            given.max_iterations or 3,
            turn_id=id,
        )
        return _echo(
            "user.define_outcome",
            id,
            clock.now(),
            outcome_id=ids.format_id("outc", outcome.outcome_id),
            description=outcome.description,
            rubric=to_builtins(given.rubric),
            max_iterations=outcome.max_iterations,
        )

    return step


def _interrupt(request: RestRequest, thread: str | None) -> Step:
    async def step(session: Session) -> dict[str, Any]:
        cancelled = await request.hub.turns.cancel(request.principal, session.id)
        # With nothing to interrupt it is over as soon as it came.
        done = None if cancelled else clock.now()
        return _echo("user.interrupt", cancelled or ids.new_id(), done, session_thread_id=thread)

    return step


async def _confirmation(request: RestRequest, session: Session, given: Confirmation) -> Step:
    asked = await _asked(request, session, given.tool_use_id)
    kinds = ("allow_once", "allow") if given.result == "allow" else ("reject_once", "reject")
    option = next(
        (option for kind in kinds for option in asked.options if option.kind.startswith(kind)), None
    )
    if option is None and given.result == "allow":
        raise InvalidInput(f"tool call {given.tool_use_id} cannot be allowed")

    async def step(session: Session) -> dict[str, Any]:
        chosen = None if option is None else option.id
        answer = await request.hub.turns.answer(
            request.principal, session.id, asked.ask_id, chosen, given.deny_message
        )
        return _echo("user.tool_confirmation", answer, None, **_fields(given))

    return step


async def _asked(request: RestRequest, session: Session, tool_use_id: str) -> event.PermissionAsked:
    """The open question about a tool call."""
    lookups = Lookups(request.hub, request.principal, session.id)
    for ask_id in session.open_asks:
        asked = await lookups.asked(ask_id)
        if asked is not None and ids.parse(tool_use_id, "sevt") == tool_id(asked):
            return asked
    raise InvalidInput(f"tool_use_id: {tool_use_id} does not wait for a confirmation")


async def _result(
    request: RestRequest,
    session: Session,
    given: CustomToolResult | ToolResult,
    system: SystemText | None,
) -> Step:
    custom = isinstance(given, CustomToolResult)
    named = given.custom_tool_use_id if isinstance(given, CustomToolResult) else given.tool_use_id
    called = await Lookups(request.hub, request.principal, session.id).shown_as(named)
    # Another tool's result is the client's to give only while the turn waits for it.
    waits = called is not None and called.custom == custom
    others = custom or (called is not None and called.extra.get(event.RUN_BY_OTHERS))
    if called is None or not waits or not (others or called.call_id in session.pending):
        field = "custom_tool_use_id" if custom else "tool_use_id"
        raise InvalidInput(f"{field}: {named} does not wait for a result")
    result = event.ToolResult(
        call_id=called.call_id,
        status="failed" if given.is_error else "completed",
        content=await request.hub.first_events.read_content(request.workspace, given.content or ()),
        extra={} if custom else {"rest": {"given": True}},
    )
    kind = "user.custom_tool_result" if custom else "user.tool_result"

    async def step(session: Session) -> dict[str, Any]:
        try:
            id = await request.hub.turns.submit_tool_result(
                request.principal, session.id, result, system=system
            )
        except NotFound:  # it has one already, which counts
            id = ids.new_id()
        return _echo(kind, id, clock.now(), **_fields(given))

    return step


def _fields(given: Confirmation | CustomToolResult | ToolResult) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(given)
    del found["type"]
    return found


def _echo(kind: str, id: str, at: int | None, **fields: Any) -> dict[str, Any]:
    """An event as it was taken in; without a time it is still to be processed."""
    done = None if at is None else clock.to_rfc3339(at)
    return {"type": kind, "id": ids.format_id("sevt", id), **fields, "processed_at": done}
