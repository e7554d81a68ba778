"""What clients send to a session, as calls of the hub.

Everything in a request is checked before any of it is done: all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from msgspec import Meta

from ...model import clock, ids
from ...model.content import Content
from ...model.errors import InvalidInput
from ...model.event import PermissionAsked
from ...model.session import Session
from . import blocks
from .bodies import Body
from .call import Call
from .lookups import Lookups, tool_id
from .session_out import status, thread_id

Blocks = Annotated[tuple[blocks.BlockIn, ...], Meta(min_length=1, max_length=1000)]


class UserMessage(Body, frozen=True, tag_field="type", tag="user.message"):
    content: Blocks


class Interrupt(Body, frozen=True, tag_field="type", tag="user.interrupt"):
    session_thread_id: str | None = None


class Confirmation(Body, frozen=True, tag_field="type", tag="user.tool_confirmation"):
    tool_use_id: str
    result: Literal["allow", "deny"]
    deny_message: str | None = None
    session_thread_id: str | None = None


class CustomToolResult(Body, frozen=True, tag_field="type", tag="user.custom_tool_result"):
    custom_tool_use_id: str
    content: Any = None
    is_error: bool | None = None
    session_thread_id: str | None = None


class ToolResult(Body, frozen=True, tag_field="type", tag="user.tool_result"):
    tool_use_id: str
    content: Any = None
    is_error: bool | None = None
    session_thread_id: str | None = None


class DefineOutcome(Body, frozen=True, tag_field="type", tag="user.define_outcome"):
    description: str
    rubric: dict[str, Any]
    max_iterations: Annotated[int, Meta(ge=1, le=20)] | None = None


class SystemMessage(Body, frozen=True, tag_field="type", tag="system.message"):
    content: Any


Incoming = (
    UserMessage
    | Interrupt
    | Confirmation
    | CustomToolResult
    | ToolResult
    | DefineOutcome
    | SystemMessage
)
Initial = UserMessage | DefineOutcome


class Send(Body, frozen=True):
    events: Annotated[tuple[Incoming, ...], Meta(min_length=1, max_length=1000)]


Step = Callable[[], Awaitable[dict[str, Any]]]

_NO_GRADER = "user.define_outcome: this server has no grader to evaluate outcomes with"


async def send(call: Call) -> dict[str, Any]:
    """`POST …/events`: the events, as they were taken in."""
    given = await call.body(Send)
    session = await call.session()
    if status(session) == "terminated":
        raise InvalidInput(
            f"session {ids.spell('sesn', session.id)} is terminated and takes no more events"
        )
    steps = [await _step(call, session, event) for event in given.events]
    return {"data": [await step() for step in steps]}


def initial(event: Initial) -> Content:
    """What a session is to be asked first."""
    if isinstance(event, DefineOutcome):
        raise InvalidInput(_NO_GRADER)
    return blocks.read(event.content)


async def _step(call: Call, session: Session, event: Incoming) -> Step:
    thread = getattr(event, "session_thread_id", None)
    if thread is not None and thread != thread_id(session.id):
        raise InvalidInput(f"session_thread_id: {thread} is no thread of this session")
    match event:
        case UserMessage():
            return _message(call, session, blocks.read(event.content))
        case Interrupt():
            return _interrupt(call, session, thread)
        case Confirmation():
            return await _confirmation(call, session, event)
        case CustomToolResult(custom_tool_use_id=id) | ToolResult(tool_use_id=id):
            raise InvalidInput(f"no tool call {id} of this session waits for a result")
        case DefineOutcome():
            raise InvalidInput(_NO_GRADER)
        case SystemMessage():
            raise InvalidInput("system.message: no agent here takes system messages in a session")


def _message(call: Call, session: Session, content: Content) -> Step:
    async def step() -> dict[str, Any]:
        turn = await call.hub.prompt(call.principal, session.id, content)
        return {
            "type": "user.message",
            "id": ids.spell("sevt", turn),
            "content": blocks.write(content),
            "processed_at": None,  # when it begins, the same event comes again with its time
        }

    return step


def _interrupt(call: Call, session: Session, thread: str | None) -> Step:
    async def step() -> dict[str, Any]:
        cancelled = await call.hub.cancel(call.principal, session.id)
        now = clock.to_rfc3339(clock.now())
        return {
            "type": "user.interrupt",
            "id": ids.spell("sevt", cancelled or ids.new_id()),
            "session_thread_id": thread,
            # With nothing to interrupt it is over as soon as it came.
            "processed_at": None if cancelled else now,
        }

    return step


async def _confirmation(call: Call, session: Session, event: Confirmation) -> Step:
    asked = await _asked(call, session, event.tool_use_id)
    kinds = ("allow_once", "allow") if event.result == "allow" else ("reject_once", "reject")
    option = next(
        (option for kind in kinds for option in asked.options if option.kind.startswith(kind)), None
    )
    if option is None and event.result == "allow":
        raise InvalidInput(f"tool call {event.tool_use_id} cannot be allowed")

    async def step() -> dict[str, Any]:
        chosen = None if option is None else option.id
        answer = await call.hub.answer(
            call.principal, session.id, asked.ask_id, chosen, event.deny_message
        )
        return {
            "type": "user.tool_confirmation",
            "id": ids.spell("sevt", answer),
            "tool_use_id": event.tool_use_id,
            "result": event.result,
            "deny_message": event.deny_message,
            "session_thread_id": event.session_thread_id,
            "processed_at": None,
        }

    return step


async def _asked(call: Call, session: Session, tool_use_id: str) -> PermissionAsked:
    """The open question about a tool call."""
    lookups = Lookups(call.hub, call.principal, session.id)
    for ask_id in session.open_asks:
        asked = await lookups.asked(ask_id)
        if asked is not None and ids.parse(tool_use_id, "sevt") == tool_id(asked):
            return asked
    raise InvalidInput(f"tool_use_id: {tool_use_id} does not wait for a confirmation")
