"""A piece of a history as what a page shows of it: one item a thing that happened.

A tool's result is shown with its call and an answer with its question, wherever they stand; what
no reader needs is no item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from segue.model.content import Block, Diff, Text, plain
from segue.model.event import (
    AgentMessage,
    AgentThought,
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
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session, Thread

from .message_parts import PromptMessage, find_inserted_only, summarize_message
from .relative_paths import nearby

# Kinds of events whose outcome comes later, and the kind that brings it.
PAIRS = {"tool_call": "tool_result", "permission_asked": "permission_answered"}
# What tools write in the user's name, as people call it.
REMARKS = {
    "command": "Command",
    "shell": "Shell",
    "output": "Output",
    "notice": "Notice",
    "note": "Note to the model",
}
_NAMES = {
    "user_message": "You",
    "agent_message": "Agent",
    "agent_thought": "Thought",
    "system_message": "System",
    "info_changed": "Name or tag",
    "plan_changed": "Plan",
}
_STOPS = {
    "max_tokens": "Stopped: the answer reached its length limit.",
    "max_turn_requests": "Stopped: the turn reached its limit of model requests.",
    "refusal": "The model refused to go on.",
    "budget_reached": "Stopped: the session has reached its budget.",
}


class Item(NamedTuple):
    """One thing to show. `kind` names the template; `outcome` is the event that completed it.

    `asides` are what agents did that it started.
    """

    kind: str
    event: Event
    outcome: Event | None = None
    words: str = ""
    asides: tuple[Aside, ...] = ()


class Aside(NamedTuple):
    """What another agent did for a session; without `items` a page has where to ask for it."""

    thread: Thread
    items: list[Item] | None = None


def key(event: Event) -> str | None:
    """What ties an event to its pair."""
    match event.body:
        case ToolCall() | ToolResult():
            return f"call {event.body.call_id}"
        case PermissionAsked() | PermissionAnswered():
            return f"ask {event.body.ask_id}"
    return None


def items(
    session: Session,
    events: Iterable[Event],
    outcomes: Mapping[str, Event],
    begun: Mapping[str, Event] | None = None,
) -> list[Item]:
    """What to show of some of a session's events in a row.

    `outcomes` has the events that complete some of these, by `key`; `begun` those earlier ones
    that some of these complete, which are then shown there and not here.
    """
    here = set(begun or ())
    shown: list[Item] = []
    for event in (nearby(each, session) for each in events):
        name = key(event)
        if isinstance(event.body, ToolCall | PermissionAsked):
            here.add(str(name))
            kind = "tool" if isinstance(event.body, ToolCall) else "permission"
            outcome = outcomes.get(str(name))
            shown.append(Item(kind, event, outcome and nearby(outcome, session)))
        elif isinstance(event.body, ToolResult):
            if name not in here:  # its call is not known, so it stands alone
                shown.append(Item("tool", event, event))
        elif item := _item(event):
            shown.append(item)
    return shown


def _item(event: Event) -> Item | None:
    match event.body:
        case UserMessage() | SystemMessage() as body:
            if part := find_inserted_only(body):
                return Item(part.kind, event, words=part.line)
            return Item("user" if isinstance(body, UserMessage) else "system", event)
        case AgentMessage():
            return Item("agent", event)
        case AgentThought():
            return Item("thought", event) if plain(event.body.content).strip() else None
        case Created(fork=None):
            return Item("begun", event, words="Begun")
        case PlanChanged():
            return Item("plan", event)
        case ModelCalled():
            return Item("usage", event)
        case Compacted():
            return Item("compacted", event)
        case Failed(message=message):
            return Item("failed", event, words=message)
        case OutcomeDefined(description=words):
            return Item("mark", event, words=f"Goal: {words}")
        case OutcomeEvaluated() as body:
            words = f"Goal {body.result.replace('_', ' ')}"
            return Item("mark", event, words=f"{words}: {body.explanation or ''}".rstrip(": "))
    words = _mark(event)
    return Item("mark", event, words=words) if words else None


def _mark(event: Event) -> str:
    match event.body:
        case Created():
            return "Forked from another session"
        case Interrupted(reason=reason):
            return "Interrupted" if reason == "cancelled" else f"Interrupted: {reason}"
        case StatusChanged(status="rescheduling"):
            return "The model is busy; trying again"
        case StatusChanged(status="terminated"):
            return "The session has ended"
        case StatusChanged() as body:
            return _STOPS.get(str(body.stop_reason), "")
        case ConfigChanged(mode=str() as mode):
            return f"Mode: {mode}"
        case InfoChanged() as body:
            return _info(body)
    return ""


def _info(body: InfoChanged) -> str:
    if isinstance(body.title, str):
        return f"Named “{body.title}”"
    if isinstance(body.tag, str):
        return f"Tagged {body.tag}"
    if isinstance(body.archived, bool):
        return "Archived" if body.archived else "Unarchived"
    if isinstance(body.deleted, bool):
        return "Moved to the trash" if body.deleted else "Restored from the trash"
    return ""


# What a tool was given and what it gave.


class Part(NamedTuple):
    """A labelled piece of a tool call: a difference, some blocks, or code in a language."""

    label: str
    diff: Diff | None = None
    block: Block | None = None
    code: str = ""
    language: str = ""


def given(call: ToolCall) -> list[Part]:
    """A tool call's input, as legibly as its shape allows."""
    parts = [_part("change", block) for block in call.content]
    value = call.input
    if isinstance(value, dict):
        value = dict(value)
        old, new = value.get("old_string"), value.get("new_string")
        if isinstance(old, str) and isinstance(new, str) and not parts:
            path = str(value.pop("file_path", ""))
            parts.append(Part("change", diff=Diff(path=path, old=old, new=new)))
            del value["old_string"], value["new_string"]
        if isinstance(value.get("command"), str):
            parts.append(Part("command", code=str(value.pop("command")), language="bash"))
            value.pop("description", None)  # the headline has it
    if value not in (None, {}, "", []):
        parts.append(_value("input", value))
    return parts


def gave(result: ToolResult) -> list[Part]:
    """A tool's result: its content, or its raw output where that is all there is."""
    parts = [_part("output", block) for block in result.content]
    if not parts and result.output not in (None, "", {}, []):
        parts.append(_value("output", result.output))
    return parts


def _part(label: str, block: Block) -> Part:
    if isinstance(block, Diff):
        return Part("change", diff=block)
    if isinstance(block, Text):
        return Part(label, code=block.text)
    return Part(label, block=block)


def _value(label: str, value: Any) -> Part:
    if isinstance(value, str):
        return Part(label, code=value)
    import json

    return Part(label, code=json.dumps(value, indent=2, ensure_ascii=False), language="json")


def headline(call: ToolCall) -> str:
    """One line that says what a tool call does."""
    if call.title:
        return call.title
    if isinstance(call.input, Mapping):
        for name in ("description", "command", "file_path", "path", "pattern", "query", "url"):
            if isinstance(call.input.get(name), str):
                return str(call.input[name])
    return call.name


def kind_of(event: Event) -> str:
    """What an event is, in a list of events."""
    if isinstance(event.body, UserMessage | SystemMessage) and (
        part := find_inserted_only(event.body)
    ):
        return REMARKS[part.kind]
    return _NAMES.get(event.type, event.type.replace("_", " ").capitalize())


def begins(message: UserMessage) -> bool:
    """Whether a turn begins with a message: not with what a command printed, or a reminder."""
    part = find_inserted_only(message)
    return part is None or part.kind not in ("output", "note")


def first_line(message: PromptMessage, width: int = 120) -> str:
    """The beginning of a message, for an outline."""
    line = summarize_message(message)
    if not line:
        kinds = ", ".join(type(block).__name__.lower() for block in message.content)
        return f"({kinds or 'empty'})"
    return line if len(line) <= width else line[: width - 1] + "…"
