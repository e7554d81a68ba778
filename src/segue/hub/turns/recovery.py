"""The events that end the turn of a process that died.

Another process stores them when it takes the lease over. Until then, reads show the session as if
they were stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from segue.agents.base import Answer
from segue.agents.permission import DENIED_CALL, INPUT_CHANGED, read_answers, refusal
from segue.model.content import as_content
from segue.model.event import (
    DELEGATES,
    RUN_BY_OTHERS,
    AnyBody,
    Draft,
    Interrupted,
    PermissionAnswered,
    PermissionAsked,
    StatusChanged,
    ThreadChanged,
    ToolCall,
    ToolResult,
)
from segue.model.lifecycle import StopReason
from segue.model.requests.spans import RESPONSE_TYPES, failed_request, find_open_request
from segue.model.session import Session
from segue.store.base import InboxItem, Store, append_drafts

from .attribution import attribute
from .end_turn import end_turn_events, partial_messages, thread_changed
from .inbox import cancel_of, sent_before, sent_events
from .turn_events import status_with_pending

PROCESS_ENDED = "the process that ran this turn ended before it did"
CANCELLED = "the turn was cancelled"
OUTCOME_UNKNOWN = (
    "the process that ran this tool ended before it did; the outcome is unknown, and the tool was"
    " not run again"
)
NOT_ASKED = (
    "the process that ran this turn ended before it asked for permission; the tool was not run"
)
RESUMED = "the process that ran this turn ended; another one continues it with the answers"
MAX_EVENTS = 1500  # among which open calls and requests are searched


async def end_of_dead_turn(store: Store, session: Session) -> list[AnyBody | Draft]:
    """Return the events with which recovery ends the turn of a process that died.

    A turn that can be resumed is not ended if it has open requests or unseen answers.
    """
    items = await store.inbox(session.workspace, session.id)
    cancel = cancel_of(items, session.turn)
    turn = next((item for item in items if item.kind == "turn"), None)
    if cancel is None and turn is not None and turn.body.get("resumable"):
        decide = await resumption(store, session)
        if events := decide(session):
            return events
    why = PROCESS_ENDED if cancel is None else CANCELLED
    return closing_events(session, why, cancel, sent_before(items, cancel))


async def unstored_events(store: Store, session: Session) -> list[AnyBody | Draft]:
    """Return the messages and the model request that a process which died had not ended."""
    name = (session.workspace, session.id)
    deltas = await store.deltas(*name)
    last = await store.events(*name, types=RESPONSE_TYPES, limit=MAX_EVENTS, backward=True)
    request = find_open_request(reversed(last), deltas)
    drafts = [*partial_messages(deltas), *failed_request(request)]
    return list(attribute(drafts, session.turn, request))


def closing_events(
    session: Session, why: str, cancel: InboxItem | None = None, sent: Sequence[InboxItem] = ()
) -> list[AnyBody | Draft]:
    """Return the events that close a turn that has no task, because of a cancel or an error.

    First come the answers and results that clients had `sent`.
    """
    answers, session = accepted(session, sent)
    interrupted = Interrupted() if cancel is not None else Interrupted(reason=why)
    end = Draft(id=None if cancel is None else cancel.id, body=interrupted)
    reason: StopReason = "error" if cancel is None else "cancelled"
    return [*answers, end, *end_turn_events(session, why, reason)]


def accepted(session: Session, sent: Sequence[InboxItem]) -> tuple[list[Draft], Session]:
    """Return the events of answers and results, and the row after them."""
    drafts: list[Draft] = []
    for item in sent:
        added = list(attribute(sent_events(session, item), session.turn, None))
        session, _ = append_drafts(session, added, session.updated_at)
        drafts += added
    return drafts, session


async def resumption(store: Store, session: Session) -> Callable[[Session], list[AnyBody | Draft]]:
    """Return a function of the current row: the events after which its turn can be resumed.

    The turn waits for its open requests. If all were answered and the agent has not seen an answer
    yet, the turn continues at once. Tools that may have begun are not run again: their results say
    that the outcome is unknown. Calls that were denied, or that were not asked about in time, get
    results that say so. Threads continue with the turn. Without open requests and unseen answers,
    there are no events.
    """
    bodies = await _calls_and_answers(store, session)
    asked = {
        body.ask_id: body.call_id
        for body in bodies
        if isinstance(body, PermissionAsked) and body.ask_id in session.open_asks
    }
    calls = {body.call_id: body for body in bodies if isinstance(body, ToolCall)}
    answers = read_answers(bodies)
    refusals = {id: _refusal(call, answers.get(id)) for id, call in calls.items()}
    waiting = {
        id for id, call in calls.items() if _is_run_by_clients(call) and refusals[id] is None
    }
    answered = _unseen_answers(bodies)
    delegated = {id for id, call in calls.items() if call.extra.get(DELEGATES)}
    not_begun = {*asked.values(), *waiting, *answered, *delegated}

    def decide(current: Session) -> list[AnyBody | Draft]:
        pending = (*asked, *(id for id in current.open_calls if id in waiting))
        if current.turn != session.turn or not (pending or answered):
            return []
        begun = [id for id in current.open_calls if id not in not_begun]
        status = StatusChanged(status="rescheduling", turn=current.turn, message=RESUMED)
        if pending:
            status = status_with_pending(current, pending)
        return [*_ended_calls(current, begun, refusals), *_resumed_threads(current), status]

    return decide


def _ended_calls(
    session: Session, calls: Sequence[str], refusals: Mapping[str, str | None]
) -> list[ToolResult]:
    """Return the results of calls that are not run again."""
    return [
        ToolResult(
            call_id=id,
            status="failed",
            content=as_content(refusals.get(id) or OUTCOME_UNKNOWN),
            turn=session.turn,
            thread=session.thread_of.get(id),
        )
        for id in calls
    ]


def _resumed_threads(session: Session) -> list[ThreadChanged]:
    """Return the events after which the threads that ran continue with the turn."""
    return [
        thread_changed(session, id, "rescheduling", message=RESUMED)
        for id, thread in session.open_threads.items()
        if thread.running_since is not None
    ]


async def _calls_and_answers(store: Store, session: Session) -> list[AnyBody]:
    """Return the latest tool calls, requests, answers, results and statuses."""
    types = (
        "tool_call",
        "tool_result",
        "permission_asked",
        "permission_answered",
        "status_changed",
        "thread_changed",
    )
    events = await store.events(
        session.workspace, session.id, types=types, limit=MAX_EVENTS, backward=True
    )
    return [event.body for event in events]


def _unseen_answers(bodies: Sequence[AnyBody]) -> set[str | None]:
    """Return the calls of the answers and of the clients' results that no agent has read.

    An agent reads them when the turn runs again, a thread when it runs again.
    """
    starts: dict[str | None, int] = {}
    for index, body in enumerate(bodies):
        if isinstance(body, StatusChanged | ThreadChanged) and body.status == "running":
            starts[body.thread] = index
    asked = {body.ask_id: body.call_id for body in bodies if isinstance(body, PermissionAsked)}
    calls = [body for body in bodies if isinstance(body, ToolCall)]
    by_clients = {call.call_id for call in calls if _is_run_by_clients(call)}
    unseen: set[str | None] = set()
    for index, body in enumerate(bodies):
        if index < starts.get(body.thread, starts.get(None, 0)):
            continue
        if isinstance(body, PermissionAnswered) and body.ask_id in asked:
            unseen.add(asked[body.ask_id])
        elif isinstance(body, ToolResult) and body.call_id in by_clients:
            unseen.add(body.call_id)
    return unseen


def _refusal(call: ToolCall, answer: Answer | None) -> str | None:
    """Return why no client may run a call, as far as that is stored; None if one may.

    A call that the process has not asked about yet cannot be asked about any more.
    """
    if answer is not None:
        if not answer.allowed:
            return refusal(answer)
        return None if answer.input is None or not _is_run_by_clients(call) else INPUT_CHANGED
    if call.custom or call.effective_verdict == "allow" or not _is_run_by_clients(call):
        return None
    return DENIED_CALL if call.effective_verdict == "deny" else NOT_ASKED


def _is_run_by_clients(call: ToolCall) -> bool:
    """Return whether a client or a worker runs a tool call, so that no process has begun it."""
    return call.custom or bool(call.extra.get(RUN_BY_OTHERS))
