"""Make the events that turns append, and change those that agents emit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from segue.agents.base import PermissionRequest
from segue.model import codec
from segue.model.errors import Conflict, InvalidInput, SegueError, without_locations
from segue.model.event import (
    AnyBody,
    Compacted,
    ConfigChanged,
    Delta,
    Draft,
    Event,
    Failed,
    InfoChanged,
    PermissionAsked,
    StatusChanged,
    ToolCall,
    UserMessage,
    decode_body,
)
from segue.model.session import Session
from segue.model.tools.prompt_titles import title_from_prompt
from segue.model.tools.titles import request_title_of

from .inbox import Prompt


def first_events(session: Session, turn_id: str, prompt: Prompt) -> list[AnyBody | Draft]:
    """Return the events that begin a turn. Raises Conflict if it was resumed already."""
    running = StatusChanged(status="running", turn=turn_id)
    if prompt.resumes:
        if session.stop_reason != "budget_reached" or session.at_budget:
            message = "the turn that the budget stopped was resumed already"
            raise Conflict(message, session=session.id)
        return [Draft(id=turn_id, body=running)]
    bodies: list[AnyBody | Draft] = [running, *prompt.drafts(turn_id)]
    untitled = session.title is None and session.title_by is None
    if untitled and (title := title_from_prompt(prompt.content)):
        if prompt.outcome is None:
            bodies = [with_body(draft, naming_session) for draft in bodies]
        else:
            bodies.append(InfoChanged(title=title, by="auto"))
    if session.archived_at is not None:
        bodies.append(InfoChanged(archived=False))
    return bodies


def with_body(draft: AnyBody | Draft, change: Callable[[AnyBody], AnyBody]) -> AnyBody | Draft:
    """Return a draft with the body that `change` returns for its own."""
    if not isinstance(draft, Draft):
        return change(draft)
    return replace(draft, body=change(draft.body))


def naming_session(body: AnyBody) -> AnyBody:
    """Return a message of the user as the one that names the session; other events unchanged."""
    return replace(body, names_session=True) if isinstance(body, UserMessage) else body


def marked_by_key(body: AnyBody) -> AnyBody:
    """Return a change of settings as one that an API key made; other events unchanged."""
    return replace(body, by_key=True) if isinstance(body, ConfigChanged) else body


def marked_local(body: AnyBody) -> AnyBody:
    """Return a custom tool call as one for the local user only; other events unchanged."""
    custom = isinstance(body, ToolCall) and body.custom
    return replace(body, local=True) if custom else body


def permission_asked(
    request: PermissionRequest, ask_id: str, call: ToolCall | None, *, local: bool
) -> PermissionAsked:
    """Return the event of a permission request, without a title that is that of its call."""
    is_of_call = call is not None and request_title_of(call) == request.title
    return PermissionAsked(
        ask_id=ask_id,
        title=None if is_of_call else request.title,
        options=request.options,
        call_id=request.call_id,
        local=local,
        extra=request.extra,
    )


def last_compaction(events: Sequence[Event]) -> int | None:
    """Return the index of the last compaction: the agent remembers nothing before it."""
    for index in range(len(events) - 1, -1, -1):
        body = events[index].body
        if isinstance(body, Compacted) and body.thread is None:
            return index
    return None


def status_with_pending(session: Session, pending: tuple[str, ...]) -> StatusChanged:
    """Return the status of a turn that waits for `pending`, or runs if it is empty."""
    if pending:
        return StatusChanged(
            status="idle", stop_reason="requires_action", turn=session.turn, pending=pending
        )
    return StatusChanged(status="running", turn=session.turn)


def can_continue(session: Session) -> bool:
    """Return whether a turn that waits for clients has something to do, itself or in a thread."""
    return any(thread_can_continue(session, thread) for thread in (None, *session.open_threads))


def thread_can_continue(session: Session, thread: str | None) -> bool:
    """Return whether a thread that waits has something to do; None is the session's own agent.

    That is so after the last answer, or after the last permission if it lets a call run or end. An
    agent that has delegated all its open calls waits for its threads.
    """
    thread_of = session.thread_of.get
    if any(thread_of(ask) == thread for ask in session.open_asks):
        return False
    delegated = {state.call_id for state in session.open_threads.values()}
    calls = [call for call in session.open_calls if thread_of(call) == thread]
    # While the session runs, only the thread itself has what it waits for.
    own = () if thread is None else session.open_threads[thread].pending
    waited_for = {*session.pending, *own}
    pending = [call for call in calls if call in waited_for]
    if pending or any(call in delegated for call in calls):
        return any(call not in pending and call not in delegated for call in calls)
    return True


def join_deltas(deltas: Sequence[Delta]) -> list[Delta]:
    """Return the deltas with neighbouring deltas of one message joined."""
    return [
        replace(neighbours[0], text="".join(delta.text for delta in neighbours))
        for neighbours in (list(group) for _, group in groupby(deltas, lambda d: d.message))
    ]


def failed_event(error: Exception, *, prefix: str = "", code: str | None = None) -> Failed:
    """Return the event that reports an error; its code is by default the error's type."""
    name = type(error).__name__
    remote: str | None
    extra: dict[str, Any] = {}
    if isinstance(error, SegueError):
        message, extra = error.message, error.data.get("extra", {})
        remote = None if error.remote_message == message else error.remote_message
    else:
        message = f"{name}: {error}" if str(error) else name
        remote = without_locations(message)
    return Failed(
        message=prefix + message,
        remote_message=remote and prefix + remote,
        code=code or name,
        extra=extra,
    )


def check_values(drafts: Sequence[AnyBody | Draft]) -> None:
    """Raise InvalidInput if an agent gave an event a value that no store could read again."""
    for draft in drafts:
        body = draft.body if isinstance(draft, Draft) else draft
        try:
            decode_body(codec.encode(body))
        except msgspec.ValidationError as error:
            kind = type(body).__name__
            raise InvalidInput(f"the agent's {kind} event is not valid: {error}") from None
