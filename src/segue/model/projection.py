"""Compute the session row from its events.

`start` returns the row after the first event and `apply` the row after one more. A store writes the
row in the transaction that writes the event, so a row always agrees with its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from . import clock, lifecycle
from .errors import InvalidInput
from .event import (
    AgentMessage,
    AgentThought,
    Body,
    Compacted,
    ConfigChanged,
    Created,
    Event,
    Failed,
    InfoChanged,
    Interrupted,
    ModelCalled,
    OutcomeDefined,
    OutcomeEvaluated,
    PermissionAnswered,
    PermissionAsked,
    PlanChanged,
    StatusChanged,
    SystemMessage,
    ThreadChanged,
    ThreadMessage,
    ThreadStarted,
    ToolCall,
    ToolCallChanged,
    ToolResult,
    Usage,
    UserMessage,
)
from .session import ALWAYS_ALLOWED, ChangedLines, OpenThread, Outcome, Session

_SETTLED = frozenset({"satisfied", "max_iterations_reached", "failed", "interrupted"})

# Events of the conversation, which set `active_at`. Renaming or archiving a session does not.
_ACTIVITY = frozenset(
    {
        UserMessage,
        SystemMessage,
        AgentMessage,
        AgentThought,
        ToolCall,
        ToolCallChanged,
        ToolResult,
        PermissionAsked,
        PermissionAnswered,
        PlanChanged,
        Interrupted,
        Compacted,
        Failed,
        ThreadMessage,
    }
)

Changes = dict[str, Any]
B = TypeVar("B", bound=Body)


def project(workspace: str, id: str, events: Iterable[Event]) -> Session:
    """Return the row after all events of a history."""
    remaining = iter(events)
    first = next(remaining, None)
    if first is None:
        raise InvalidInput("a session needs at least one event, its creation")
    projection = Projection(start(workspace, id, first))
    for event in remaining:
        projection.add(event)
    return projection.session


def start(workspace: str, id: str, event: Event) -> Session:
    """Return the row after the first event, which must be Created."""
    body = event.body
    if not isinstance(body, Created):
        raise InvalidInput("a session's first event must be its creation")
    return Session(
        id=id,
        workspace=workspace,
        cwd=body.cwd,
        real_cwd=body.real_cwd,
        created_at=event.at,
        active_at=event.at,
        updated_at=event.at,
        last_seq=event.seq,
        owner=body.source,
        native_id=body.native_id,
        origin=body.origin,
        agent=body.agent,
        environment_id=body.environment_id,
        deployment_id=body.deployment_id,
        memory_store_ids=body.memory_store_ids,
        vault_ids=body.vault_ids,
        resources=body.resources,
        roots=body.roots,
        metadata=body.metadata,
        git_branch=body.git_branch,
        fork=body.fork,
        budget=body.budget,
        agent_by_key=body.by_key,
        tool_calls=0,
        lines=ChangedLines(),
        extra=body.extra,
    )


def apply(session: Session, event: Event) -> Session:
    """Return the row after one more event. Raises IllegalTransition if the lifecycle forbids it."""
    return replace(session, **_changes(session, event))


class Projection:
    """Computes a row from many events: faster than a new row after each event."""

    def __init__(self, session: Session) -> None:
        # The functions that compute changes only read attributes, so they take it for a row.
        self._row: Any = SimpleNamespace(
            **{name: getattr(session, name) for name in session.__struct_fields__}
        )

    def add(self, event: Event) -> None:
        """Add the next event. Raises IllegalTransition if the lifecycle forbids it."""
        self._row.__dict__.update(_changes(self._row, event))

    def change(self, **fields: Any) -> None:
        """Change fields of the row."""
        self._row.__dict__.update(fields)

    @property
    def session(self) -> Session:
        """The row after the last event."""
        return Session(**self._row.__dict__)


def _changes(session: Session, event: Event) -> Changes:
    """Return the fields that an event changes."""
    body = event.body
    kind = type(body)
    changes: Changes = {}
    counts = not body.is_removed  # the tokens of removed events are paid
    if counts and (step := _STEPS.get(kind)):
        changes = step(session, event, body)
    if (end := _late_functions().request_end(body)) is not None and not _inherited(session, event):
        changes |= _usage(session, end)
    changes["last_seq"] = event.seq
    changes["updated_at"] = max(session.updated_at, event.at)
    if kind in _ACTIVITY and counts:
        changes["active_at"] = max(session.active_at, event.at)
    return changes


class _LateFunctions(NamedTuple):
    request_end: Callable[[Body], ModelCalled | None]
    title_change: Callable[[Body], InfoChanged | None]
    count_lines: Callable[[ChangedLines, Body], ChangedLines]


@cache
def _late_functions() -> _LateFunctions:
    """Return functions that are imported late: a list does not project events."""
    from .requests.spans import request_end
    from .tools.changed_lines import count_lines
    from .tools.prompt_titles import title_change

    return _LateFunctions(request_end, title_change, count_lines)


def _inherited(session: Session, event: Event) -> bool:
    """Return whether a fork copied the event from its parent, which has paid for it."""
    return session.fork is not None and event.seq <= session.fork.seq


def _created(session: Session, event: Event, body: Created) -> Changes:
    raise InvalidInput("a session has only one creation event")


def _message(session: Session, event: Event, body: Body) -> Changes:
    changes: Changes = {"messages": session.messages + 1}
    if body.starts_turn and session.turn is None:
        changes["turns"] = session.turns + 1
    if not _inherited(session, event):
        day = str(event.at // clock.DAY)
        changes["days"] = {**session.days, day: session.days.get(day, 0) + 1}
    named = _late_functions().title_change(body)
    return changes if named is None else changes | _info(session, event, named)


def _tool_call(session: Session, event: Event, body: ToolCall) -> Changes:
    if body.call_id in session.open_calls:
        return {}
    changes: Changes = {"open_calls": (*session.open_calls, body.call_id)}
    if session.tool_calls is not None:
        changes["tool_calls"] = session.tool_calls + 1
    return changes | _lines(session, body) | _opened_in(session, body, body.call_id)


def _tool_call_changed(session: Session, event: Event, body: ToolCallChanged) -> Changes:
    return _lines(session, body)


def _lines(session: Session, body: Body) -> Changes:
    """Return the change of the numbers of added and removed lines, if they are counted."""
    if session.lines is None:
        return {}
    lines = _late_functions().count_lines(session.lines, body)
    return {} if lines is session.lines else {"lines": lines}


def _tool_result(session: Session, event: Event, body: ToolResult) -> Changes:
    return {
        "open_calls": tuple(call for call in session.open_calls if call != body.call_id),
        "pending": tuple(id for id in session.pending if id != body.call_id),
        **_lines(session, body),
    } | _closed_in_thread(session, body.call_id)


def _asked(session: Session, event: Event, body: PermissionAsked) -> Changes:
    opened = _opened_in(session, body, body.ask_id)
    return {"open_asks": (*session.open_asks, body.ask_id), **opened}


def _answered(session: Session, event: Event, body: PermissionAnswered) -> Changes:
    return {
        "open_asks": tuple(ask for ask in session.open_asks if ask != body.ask_id),
        "pending": tuple(id for id in session.pending if id != body.ask_id),
    } | _closed_in_thread(session, body.ask_id)


def _opened_in(session: Session, body: Body, id: str) -> Changes:
    """Return the change that notes the thread of an open call or request."""
    return {} if body.thread is None else {"thread_of": {**session.thread_of, id: body.thread}}


def _closed_in_thread(session: Session, id: str) -> Changes:
    if id not in session.thread_of:
        return {}
    return {"thread_of": {open: thread for open, thread in session.thread_of.items() if open != id}}


def _thread_started(session: Session, event: Event, body: ThreadStarted) -> Changes:
    return {"threads": session.threads + 1}


def _thread_changed(session: Session, event: Event, body: ThreadChanged) -> Changes:
    id = body.thread or ""
    before = session.open_threads.get(id)
    others = {other: thread for other, thread in session.open_threads.items() if other != id}
    call_id = body.call_id or (None if before is None else before.call_id)
    waits = body.status == "idle" and body.stop_reason == "requires_action"
    if call_id is None or not (waits or body.status in lifecycle.RUNNING_STATUSES):
        return {"open_threads": others}
    thread = OpenThread(
        call_id=call_id,
        parent=session.thread_of.get(call_id),
        running_since=event.at if body.status == "running" else None,
        running_time=body.running_time,
        usage=Usage() if body.usage is None or _inherited(session, event) else body.usage,
        pending=body.pending,
    )
    return {"open_threads": {**others, id: thread}}


def _info(session: Session, event: Event, body: InfoChanged) -> Changes:
    changes: Changes = {}
    if body.title is not UNSET and not (body.by == "auto" and session.title_by == "person"):
        changes["title"] = body.title
        changes["title_by"] = body.by
    if body.tag is not UNSET:
        changes["tag"] = body.tag
    if body.metadata is not UNSET:
        merged = {**session.metadata, **body.metadata}
        changes["metadata"] = {name: value for name, value in merged.items() if value is not None}
    if body.archived is not UNSET:
        since = session.archived_at if session.archived_at is not None else event.at
        changes["archived_at"] = since if body.archived else None
    if body.deleted is not UNSET:
        since = session.deleted_at if session.deleted_at is not None else event.at
        changes["deleted_at"] = since if body.deleted else None
    return changes


def _config(session: Session, event: Event, body: ConfigChanged) -> Changes:
    changes: Changes = {
        name: value
        for name in ("mode", "roots", "agent", "resources", "git_branch")
        if (value := getattr(body, name)) is not UNSET
    }
    if body.cwd is not UNSET and not _inherited(session, event):
        # The event may change the protocol's own fields too. A fork has its own directory.
        extra = {
            name: {**session.extra.get(name, {}), **fields} for name, fields in body.extra.items()
        }
        changes |= {"cwd": body.cwd, "real_cwd": None, "extra": {**session.extra, **extra}}
    if body.budget is not UNSET and not _inherited(session, event):
        changes["budget"] = body.budget  # a fork has its own budget
    if body.options is not UNSET:
        changes["options"] = {**session.options, **body.options}
    if body.agent is not UNSET:
        changes["agent_by_key"] = body.by_key
    return changes | _local_settings(session, body)


def _local_settings(session: Session, body: ConfigChanged) -> Changes:
    """Keep the local user's settings when an API key changes them."""
    before: dict[str, Any] = {}
    if body.mode is not UNSET:
        before["mode"] = session.mode
    if body.options is not UNSET and ALWAYS_ALLOWED in body.options:
        before[ALWAYS_ALLOWED] = session.options.get(ALWAYS_ALLOWED, ())
    if body.agent is not UNSET:
        before["agent"] = to_builtins(session.agent)
    if not before:
        return {}
    if body.by_key:
        if session.agent_by_key:  # the agent before was not the local user's
            before.pop("agent", None)
        return {"local_settings": {**before, **session.local_settings}}
    kept = {name: value for name, value in session.local_settings.items() if name not in before}
    return {"local_settings": kept}


def _status(session: Session, event: Event, body: StatusChanged) -> Changes:
    status = body.status
    if status == "terminated" and _inherited(session, event):
        status = "idle"  # the parent has ended, its fork has not
    lifecycle.check_transition(session.status, status)
    changes: Changes = {
        "status": status,
        "stop_reason": body.stop_reason,
        "pending": body.pending,
    }
    if session.running_since is not None and status != "running":
        # The running time of a fork starts with the fork, not with the turns it copied.
        since = max(session.running_since, session.created_at)
        changes["running_time"] = session.running_time + max(0, event.at - since)
        changes["running_since"] = None
    if status == "running":
        changes["running_since"] = (
            event.at if session.running_since is None else session.running_since
        )
        if body.turn is not None and body.turn != session.turn:
            changes["turns"] = session.turns + 1
            changes["turn"] = body.turn
    elif status == "terminated" or (status == "idle" and body.stop_reason != "requires_action"):
        changes["turn"] = None
    if status == "terminated" and session.terminated_at is None:
        changes["terminated_at"] = event.at
    return changes


def _usage(session: Session, body: ModelCalled) -> Changes:
    changes: Changes = {"usage": session.usage + body.usage}
    if (thread := session.open_threads.get(body.thread or "")) is not None:
        used = replace(thread, usage=thread.usage + body.usage)
        changes["open_threads"] = {**session.open_threads, str(body.thread): used}
    if body.model is not None:
        models = {**session.models}
        models[body.model] = models.pop(body.model, Usage()) + body.usage
        changes["models"] = models
    return changes


def _failed(session: Session, event: Event, body: Failed) -> Changes:
    return {"errors": session.errors + 1}


def _outcome_defined(session: Session, event: Event, body: OutcomeDefined) -> Changes:
    outcome = Outcome(outcome_id=body.outcome_id, description=body.description)
    return {"outcomes": (*session.outcomes, outcome)}


def _outcome_evaluated(session: Session, event: Event, body: OutcomeEvaluated) -> Changes:
    def move(outcome: Outcome) -> Outcome:
        if outcome.outcome_id != body.outcome_id:
            return outcome
        return replace(
            outcome,
            result=body.result,
            iteration=body.iteration,
            explanation=body.explanation,
            completed_at=event.at if body.result in _SETTLED else None,
        )

    return {"outcomes": tuple(move(outcome) for outcome in session.outcomes)}


_STEPS: dict[type[Body], Callable[[Session, Event, Any], Changes]] = {
    Created: _created,
    UserMessage: _message,
    AgentMessage: _message,
    ToolCall: _tool_call,
    ToolCallChanged: _tool_call_changed,
    ToolResult: _tool_result,
    PermissionAsked: _asked,
    PermissionAnswered: _answered,
    InfoChanged: _info,
    ConfigChanged: _config,
    StatusChanged: _status,
    Failed: _failed,
    OutcomeDefined: _outcome_defined,
    OutcomeEvaluated: _outcome_evaluated,
    ThreadStarted: _thread_started,
    ThreadChanged: _thread_changed,
}
