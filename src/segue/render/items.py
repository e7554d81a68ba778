"""Turn events into the items that a page or document shows.

A tool's result is shown with its call, and an answer with its permission request. Events that
readers do not need have no item.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from segue.model.content import plain_text
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
from segue.model.tools.changes import with_changes
from segue.model.tools.titles import request_title

from .message_parts import PromptMessage, find_inserted_only, summarize_message
from .pairing import Pairs, call_key, pair_events, pair_key
from .relative_paths import with_relative_paths
from .tools.rows import meaning_of

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
# A prompt with more is clamped.
MAX_PROMPT_CHARACTERS, MAX_PROMPT_LINES = 700, 8
_STOP_TEXTS = {
    "max_tokens": "Stopped: the answer reached its length limit.",
    "max_turn_requests": "Stopped: the turn reached its limit of model requests.",
    "refusal": "The model refused to continue.",
    "budget_reached": "Stopped: the session has reached its budget.",
}


class Item(NamedTuple):
    """One thing to show.

    `kind` selects the template. `outcome` is the event that completed the item, and `threads` are
    the threads that it started. `call` is the tool call that a permission request is about, and
    `call_seq` is the seq of its event.
    """

    kind: str
    event: Event
    outcome: Event | None = None
    text: str = ""
    threads: tuple[StartedThread, ...] = ()
    call: ToolCall | None = None
    call_seq: int = 0

    @property
    def is_loud(self) -> bool:
        """Return whether the item stays visible while the steps around it are folded."""
        if self.kind == "permission":
            return _is_rejected(self)
        body = self.event.body
        if self.outcome is not None and getattr(self.outcome.body, "status", "") == "failed":
            return True
        return isinstance(body, ToolCall) and meaning_of(body) == "edit"


class StartedThread(NamedTuple):
    """A thread that a tool call started; `items` is None where a page links to the thread."""

    thread: Thread
    items: list[Item] | None = None


def build_items(session: Session, events: Iterable[Event], pairs: Pairs) -> list[Item]:
    """Return the items of some consecutive events of a session.

    A tool result whose call is among `pairs.openings` is shown there, not here. The item of a
    permission request has its title as text, and as `call` the tool call to permit. In a fork, an
    item of the kind `fork` follows the last event of its parent.
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
                opening = calls.get(call_key(event.body.call_id))
                call, seq = _shown_call(opening, session), opening.seq if opening else 0
                title = request_title(event.body, call)
                items.append(Item("permission", event, shown_outcome, title, (), call, seq))
        elif isinstance(event.body, ToolResult):
            if key not in opened:  # a result without a known call is an item of its own
                items.append(Item("tool", event, event))
        elif item := _item(event):
            items.append(item)
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
            return None
        case Created():
            return Item("forked", event, text="Forked from another session")
        case PlanChanged():
            return Item("plan", event)
        case Compacted():
            return Item("compacted", event)
        case Failed(message=message):
            return Item("failed", event, text=message)
        case OutcomeDefined(description=description):
            return Item("mark", event, text=f"Goal: {description}")
        case OutcomeEvaluated(ongoing=False) as body:
            result = f"Goal {body.result.replace('_', ' ')}"
            return Item("mark", event, text=f"{result}: {body.explanation or ''}".rstrip(": "))
    text = _end_text(event)
    return Item("mark", event, text=text) if text else None


def _end_text(event: Event) -> str:
    """Return a sentence about the end of a turn; empty for events without an item."""
    match event.body:
        case Interrupted(reason=reason):
            return "Interrupted" if reason == "cancelled" else f"Interrupted: {reason}"
        case StatusChanged(status="rescheduling", message=message):
            return message or "Trying again"
        case StatusChanged(status="terminated"):
            return "The session has ended"
        case StatusChanged() as body:
            return _STOP_TEXTS.get(str(body.stop_reason), "")
    return ""


def change_text(event: Event) -> str:
    """Return a sentence for a change of the session's name or settings; empty for other events."""
    match event.body:
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


def _is_rejected(item: Item) -> bool:
    """Return whether a permission request was answered with no."""
    request, answer = item.event.body, item.outcome and item.outcome.body
    if not isinstance(request, PermissionAsked) or not isinstance(answer, PermissionAnswered):
        return False
    kinds = {option.id: option.kind for option in request.options}
    return not kinds.get(str(answer.option), "reject_once").startswith("allow")


def is_long(message: PromptMessage) -> bool:
    """Return whether a page shows only the first lines of a prompt until it is opened."""
    text = plain_text(message.content)
    return len(text) > MAX_PROMPT_CHARACTERS or text.count("\n") > MAX_PROMPT_LINES


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
