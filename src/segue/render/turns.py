"""Turns of a session: what each used, and the steps between its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from segue.model.event import (
    ConfigChanged,
    Event,
    Failed,
    InfoChanged,
    ModelCalled,
    Response,
    StatusChanged,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.principal import Principal
from segue.model.session import Session

from .items import Item, starts_turn
from .reader import EventReader
from .tools.rows import STEP_WORDS, ToolRow, meaning_of

MAX_TURN_EVENTS = 500  # read to sum up a turn; of a longer turn, the last ones


MAX_OPEN_LINES = 60  # of an edit; a longer one is closed at first


class TurnSummary(NamedTuple):
    """What a turn did and used. `complete` is False if it has more events than were read."""

    prompt: int | None
    model: str
    tools: int
    failures: int
    duration: int
    usage: Usage
    complete: bool = True


def summarize(events: Sequence[Event], *, complete: bool = True) -> TurnSummary | None:
    """Return the summary of a turn's events; None if no agent has worked in it."""
    usage, models = Usage(), []
    calls: set[str] = set()
    failures = 0
    for event in events:
        body = event.body
        if isinstance(body, Response | ModelCalled):
            if body.usage is not None:
                usage = usage + body.usage
            if body.model:
                models.append(body.model)
        if isinstance(body, ToolCall):
            calls.add(body.call_id)
        failures += is_failure(event)
    worked = any(isinstance(event.body, Response | ModelCalled | Failed) for event in events)
    if not worked:
        return None
    prompt = events[0].seq if isinstance(events[0].body, UserMessage) else None
    # A session can get a title or a tag long after its last turn.
    last = max(
        event.at for event in events if not isinstance(event.body, InfoChanged | ConfigChanged)
    )
    return TurnSummary(
        prompt, models[-1] if models else "", len(calls), failures, last - events[0].at, usage,
        complete,
    )  # fmt: skip


def is_failure(event: Event) -> bool:
    """Return whether an event is a failed tool call or a failure of the session."""
    match event.body:
        case ToolResult(status="failed"):
            return True
        case Failed(retry=retry):
            return retry != "retrying"
    return False


def is_prompt(event: Event) -> bool:
    """Return whether an event begins a turn that the transcript shows."""
    return isinstance(event.body, UserMessage) and starts_turn(event.body)


async def read_turn_before(
    reader: EventReader, principal: Principal, session_id: str, before: int
) -> tuple[list[Event], bool]:
    """Return the events of the turn that ends before a seq, and whether these are all."""
    events = await reader.events(
        principal, session_id, before=before, limit=MAX_TURN_EVENTS, backward=True
    )
    for index in range(len(events) - 1, -1, -1):
        if is_prompt(events[index]):
            return list(events[index:]), True
    return list(events), len(events) < MAX_TURN_EVENTS


async def summarize_turns(
    reader: EventReader, principal: Principal, session: Session, events: Sequence[Event]
) -> dict[int, TurnSummary]:
    """Return the turns that end among consecutive events of a session.

    Each is found by the seq of the event before which its summary is shown: the next prompt. The
    summary of the session's last turn, once it has ended, is found by `last_seq + 1`.
    """
    if not events:
        return {}
    ends = [event.seq for event in events if is_prompt(event)]
    is_last = events[-1].seq >= session.last_seq
    if is_last and session.turn is None and session.status == "idle":
        ends.append(session.last_seq + 1)
    summaries: dict[int, TurnSummary] = {}
    start = 0
    for number, end in enumerate(ends):
        stop = next((i for i, event in enumerate(events) if event.seq >= end), len(events))
        turn, complete = list(events[start:stop]), True
        if number == 0 and not (turn and is_prompt(turn[0])):
            first = turn[0].seq if turn else end
            if first > 1:
                earlier, complete = await read_turn_before(reader, principal, session.id, first)
                turn = earlier + turn
        if turn and (summary := summarize(turn, complete=complete)):
            summaries[end] = summary
        start = stop
    return summaries


async def last_turn(
    reader: EventReader, principal: Principal, session: Session
) -> TurnSummary | None:
    """Return the summary of the session's last turn; None if it is not over."""
    if session.turn is not None or session.status != "idle":
        return None
    events, complete = await read_turn_before(reader, principal, session.id, session.last_seq + 1)
    return summarize(events, complete=complete) if events else None


class Steps(NamedTuple):
    """Consecutive tool calls, and the answered permission requests between them."""

    items: list[Item]
    summary: str


def group_steps(items: Iterable[Item]) -> list[Item | Steps]:
    """Return items in which consecutive tool calls are one group."""
    groups: list[Item | Steps] = []
    run: list[Item] = []
    for item in items:
        if is_step(item):
            run.append(item)
            continue
        groups += _grouped(run)
        run = []
        groups.append(item)
    return groups + _grouped(run)


def is_step(item: Item) -> bool:
    """Return whether an item is part of a group of tool calls."""
    if item.kind == "tool":
        return True
    return item.kind == "permission" and item.outcome is not None


def _grouped(run: list[Item]) -> list[Item | Steps]:
    if not run:
        return []
    return [Steps(run, steps_summary(run))]


def steps_summary(items: Sequence[Item]) -> str:
    """Return what a group of steps did, such as `7 steps · 3 reads · 2 edits · 1 failed`."""
    tools = [item for item in items if item.kind == "tool"]
    counts = Counter(step_meaning(item) for item in tools)
    failed = sum(is_failed(item) for item in tools)
    parts = [f"{len(tools)} step{'s' * (len(tools) != 1)}"]
    for meaning, words in STEP_WORDS.items():
        if count := counts[meaning]:
            parts.append(f"{count} {words[count != 1]}")
    return " · ".join(parts + ([f"{failed} failed"] if failed else []))


def step_meaning(item: Item) -> str:
    """Return what a tool's item does: one of STEP_WORDS."""
    body = item.event.body
    if not isinstance(body, ToolCall):
        return "other"
    return meaning_of(body, starts_threads=bool(item.threads))


def is_failed(item: Item) -> bool:
    """Return whether an item shows a tool call that failed."""
    return item.outcome is not None and is_failure(item.outcome)


def opens(item: Item, row: ToolRow) -> bool:
    """Return whether a tool call is open at first: failures and edits that are not very long."""
    if is_failed(item):
        return True
    if row.meaning != "edit" or row.added is None:
        return False
    return row.added + row.removed <= MAX_OPEN_LINES


def ends_turn(event: Event) -> bool:
    """Return whether an event ends a turn."""
    return isinstance(event.body, StatusChanged) and event.body.status == "idle"
