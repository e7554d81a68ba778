"""Turn events into the items that a page or document shows.

A tool's result is shown with its call, and an answer with its permission request. Events that
readers do not need have no item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from segue.model.content import Block, Diff, FileChange, Text, plain_text
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
    PermissionAsked,
    PlanChanged,
    Response,
    StatusChanged,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session, Thread
from segue.model.tools.changes import with_changes
from segue.model.tools.patches import with_texts
from segue.model.tools.titles import call_title, request_title

from .message_parts import PromptMessage, find_inserted_only, summarize_message
from .pairing import Pairs, call_key, pair_events, pair_key
from .relative_paths import NESTED_TOO_DEEPLY, with_relative_paths

# Labels of text that a program inserted into a message, by its kind.
INSERTED_LABELS = {
    "command": "Command",
    "shell": "Shell",
    "output": "Output",
    "notice": "Notice",
    "note": "Note to the model",
}
_EVENT_LABELS = {
    "user_message": "You",
    "agent_message": "Agent",
    "agent_thought": "Thought",
    "system_message": "System",
    "info_changed": "Name or tag",
    "plan_changed": "Plan",
}
CREATED_SEQ = 1  # of the event that begins a session
MAX_INDENTED_DEPTH = 20  # of JSON that is shown on several lines
_STOP_TEXTS = {
    "max_tokens": "Stopped: the answer reached its length limit.",
    "max_turn_requests": "Stopped: the turn reached its limit of model requests.",
    "refusal": "The model refused to continue.",
    "budget_reached": "Stopped: the session has reached its budget.",
}


class Item(NamedTuple):
    """One thing to show.

    `kind` selects how the template shows it, `outcome` is the event that completed it, and
    `threads` are the threads that it started.
    """

    kind: str
    event: Event
    outcome: Event | None = None
    text: str = ""
    threads: tuple[StartedThread, ...] = ()


class StartedThread(NamedTuple):
    """A thread that a tool call started; `items` is None where a page links to the thread."""

    thread: Thread
    items: list[Item] | None = None


def build_items(session: Session, events: Iterable[Event], pairs: Pairs) -> list[Item]:
    """Return the items of some consecutive events of a session.

    A tool result whose call is among `pairs.openings` is shown there, not here. The text of a
    permission request's item is its title. In a fork, an item of the kind `fork` follows the last
    event of its parent.
    """
    opened = set(pairs.openings)
    calls = dict(pairs.openings)
    items: list[Item] = []
    shared: Event | None = None  # the last event so far, while it is one of the parent
    fork_seq = 0 if session.fork is None else session.fork.seq
    for event in (with_relative_paths(event, session) for event in with_changes(events)):
        if shared is not None and event.seq > fork_seq:
            items.append(_fork_item(shared))
        shared = event if CREATED_SEQ < event.seq <= fork_seq else None
        key = str(pair_key(event))
        if isinstance(event.body, ToolCall | PermissionAsked):
            opened.add(key)
            outcome = pairs.outcomes.get(key)
            shown_outcome = outcome and with_relative_paths(outcome, session)
            if isinstance(event.body, ToolCall):
                calls[key] = event
                items.append(Item("tool", event, shown_outcome))
            else:
                call = _shown_call(calls.get(call_key(event.body.call_id)), session)
                title = request_title(event.body, call)
                items.append(Item("permission", event, shown_outcome, title))
        elif isinstance(event.body, ToolResult):
            if key not in opened:  # a result without a known call is an item of its own
                items.append(Item("tool", event, event))
        elif item := _item(event):
            items.append(item)
        if isinstance(event.body, Response) and event.body.usage is not None:
            items.append(Item("usage", event))
    if shared is not None and shared.seq == fork_seq:
        items.append(_fork_item(shared))
    return items


def build_thread_items(session: Session, events: Sequence[Event]) -> list[Item]:
    """Return the items of all events of a session's thread, which have a seq of their own."""
    return build_items(replace(session, fork=None), events, pair_events(events))


def _fork_item(event: Event) -> Item:
    return Item(
        "fork", event, text="Continued from here; everything above is from the original session"
    )


def _shown_call(event: Event | None, session: Session) -> ToolCall | None:
    body = None if event is None else with_relative_paths(event, session).body
    return body if isinstance(body, ToolCall) else None


def _item(event: Event) -> Item | None:
    match event.body:
        case UserMessage() | SystemMessage() as body:
            if part := find_inserted_only(body):
                return Item(part.kind, event, text=part.line)
            return Item("user" if isinstance(body, UserMessage) else "system", event)
        case AgentMessage():
            return Item("agent", event)
        case AgentThought():
            return Item("thought", event) if plain_text(event.body.content).strip() else None
        case Created(fork=None):
            return Item("started", event, text="Started")
        case PlanChanged():
            return Item("plan", event)
        case ModelCalled():
            return Item("usage", event)
        case Compacted():
            return Item("compacted", event)
        case Failed(message=message):
            return Item("failed", event, text=message)
        case OutcomeDefined(description=description):
            return Item("mark", event, text=f"Goal: {description}")
        case OutcomeEvaluated() as body:
            result = f"Goal {body.result.replace('_', ' ')}"
            return Item("mark", event, text=f"{result}: {body.explanation or ''}".rstrip(": "))
    text = _change_text(event)
    return Item("mark", event, text=text) if text else None


def _change_text(event: Event) -> str:
    """Return a sentence for a change of the session; empty for events without an item."""
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
            return _STOP_TEXTS.get(str(body.stop_reason), "")
        case ConfigChanged(mode=str() as mode):
            return f"Mode: {mode}"
        case InfoChanged() as body:
            return _info_text(body)
    return ""


def _info_text(body: InfoChanged) -> str:
    if isinstance(body.title, str):
        return f"Named “{body.title}”"
    if isinstance(body.tag, str):
        return f"Tagged {body.tag}"
    if isinstance(body.archived, bool):
        return "Archived" if body.archived else "Unarchived"
    if isinstance(body.deleted, bool):
        return "Moved to the trash" if body.deleted else "Restored from the trash"
    return ""


# The input and output of tool calls.


class ToolPart(NamedTuple):
    """A labelled part of a tool's input or output: a diff, a block, or code in a language."""

    label: str
    diff: Diff | FileChange | None = None
    block: Block | None = None
    code: str = ""
    language: str = ""


def call_parts(call: ToolCall) -> list[ToolPart]:
    """Return the input of a tool call; edits become diffs, commands become code."""
    parts = [_block_part("change", block) for block in call.content]
    value = call.input
    if isinstance(value, dict):
        value = dict(value)
        old, new = value.get("old_string"), value.get("new_string")
        if isinstance(old, str) and isinstance(new, str) and not parts:
            path = str(value.pop("file_path", ""))
            parts.append(ToolPart("change", diff=Diff(path=path, old=old, new=new)))
            del value["old_string"], value["new_string"]
        if isinstance(value.get("command"), str):
            parts.append(ToolPart("command", code=str(value.pop("command")), language="bash"))
            value.pop("description", None)  # the headline shows it
    if value not in (None, {}, "", []):
        parts.append(_value_part("input", value))
    return parts


def result_parts(result: ToolResult, call: ToolCall | None) -> list[ToolPart]:
    """Return the content of a tool's result, or its raw output if it has no content.

    `call` is the tool call, if it is known.
    """
    parts = [_block_part("output", block) for block in with_texts(result.content, call)]
    if not parts and result.output not in (None, "", {}, []):
        parts.append(_value_part("output", result.output))
    return parts


def _block_part(label: str, block: Block) -> ToolPart:
    if isinstance(block, Diff | FileChange):
        return ToolPart("change", diff=block)
    if isinstance(block, Text):
        return ToolPart(label, code=block.text)
    return ToolPart(label, block=block)


def _value_part(label: str, value: Any) -> ToolPart:
    if isinstance(value, str):
        return ToolPart(label, code=value)
    return ToolPart(label, code=to_json(value), language="json")


def to_json(value: Any) -> str:
    """Return a value as JSON for people; a note if it is nested too deeply."""
    import json

    # Each line of a deeply nested value would begin with hundreds of spaces.
    indent = None if _is_deeper(value, MAX_INDENTED_DEPTH) else 2
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False)
    except RecursionError:
        return NESTED_TOO_DEEPLY


def _is_deeper(value: Any, depth: int) -> bool:
    """Return True if lists and objects are nested deeper than `depth`."""
    level = [value]
    for _ in range(depth + 1):
        nested = [item for item in level if isinstance(item, dict | list)]
        level = [
            item
            for container in nested
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True


def headline(call: ToolCall) -> str:
    """Return one line that describes a tool call."""
    if (title := call_title(call)) != call.name:
        return title
    if isinstance(call.input, Mapping):
        for name in ("description", "command", "file_path", "path", "pattern", "query", "url"):
            if isinstance(call.input.get(name), str):
                return str(call.input[name])
    return call.name


def event_label(event: Event) -> str:
    """Return what kind of event this is, for a list of search results."""
    if isinstance(event.body, UserMessage | SystemMessage) and (
        part := find_inserted_only(event.body)
    ):
        return INSERTED_LABELS[part.kind]
    return _EVENT_LABELS.get(event.type, event.type.replace("_", " ").capitalize())


def starts_turn(message: UserMessage) -> bool:
    """Return True if the message is a prompt, False for a command's output or a reminder."""
    part = find_inserted_only(message)
    return part is None or part.kind not in ("output", "note")


def outline_line(message: PromptMessage, width: int = 120) -> str:
    """Return the beginning of a message on one line, for an outline."""
    line = summarize_message(message)
    if not line:
        types = ", ".join(type(block).__name__.lower() for block in message.content)
        return f"({types or 'empty'})"
    return line if len(line) <= width else line[: width - 1] + "…"
