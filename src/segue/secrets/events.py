"""Mask the secrets in a session's events, and in its row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from segue.model.content import Audio, Block, Content, Image, InsertedText, Resource, Text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Event,
    SystemMessage,
    UserMessage,
)
from segue.model.session import Session, Thread
from segue.secrets.masks import MaskedParts, Replacement, SecretLog, mask_parts, mask_value

# Fields that name something or hold data, and never text that a person or a program wrote.
_NAMES = frozenset(
    [
        "thread",
        "turn",
        "request",
        "call_id",
        "ask_id",
        "plan_id",
        "outcome_id",
        "option",
        "native_id",
        "environment_id",
        "deployment_id",
        "memory_store_ids",
        "vault_ids",
        "fork",
        "source",
        "origin",
        "real_cwd",
        "roots",
        "git_branch",
        "pending",
        "kind",
        "status",
        "stop_reason",
        "name",
        "server",
        "policy",
        "verdict",
        "by",
        "mime",
        "dialect",
        "model",
        "usage",
        "before_sha256",
        "after_sha256",
        "retry",
        "code",
        "result",
        "trigger",
        "mode",
        "type",
        "id",
    ]
)
_ADJACENT = 30  # messages over which a secret may be split at the end of a page
_STREAMED = (AgentMessage, AgentThought)
_MESSAGES = (UserMessage, SystemMessage, AgentMessage, AgentThought)
_SESSION_FIELDS = ("title", "tag", "metadata", "resources", "options", "outcomes", "agent", "extra")


class SecretCounter:
    """Counts the secrets that were masked; `log` has their kinds and masks."""

    def __init__(self) -> None:
        self.secrets = 0
        self.log: SecretLog = []


def mask_event(event: Event, counter: SecretCounter | None = None) -> Event:
    """Return an event with masks instead of secrets; the event itself if it has none."""
    counter = counter or SecretCounter()
    body = _mask_struct(event.body, counter)
    return event if body is event.body else replace(event, body=body)


def mask_events(events: Sequence[Event], counter: SecretCounter | None = None) -> list[Event]:
    """Return events that follow each other with masks instead of secrets.

    A secret may begin in one message and end in the next one, if a tool stores the parts of a
    streamed message as messages.
    """
    counter = counter or SecretCounter()
    masked: list[Event] = []
    for group in _groups(events):
        masked += (
            _mask_streamed(group, counter) if len(group) > 1 else [mask_event(group[0], counter)]
        )
    return masked


async def mask_stream(
    events: AsyncIterator[Event], counter: SecretCounter | None = None
) -> AsyncIterator[Event]:
    """Yield the events of a whole history with masks instead of secrets."""
    counter = counter or SecretCounter()
    async for group in message_groups(events):
        for masked in mask_events(group, counter):
            yield masked


async def message_groups(events: AsyncIterator[Event]) -> AsyncIterator[list[Event]]:
    """Yield the events in lists: messages over which a secret may be split are in one."""
    group: list[Event] = []
    async for event in events:
        if group and not continues(group[-1], event):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


ReadEvents = Callable[..., Awaitable[Sequence[Event]]]


async def adjacent_messages(
    events: Sequence[Event], read: ReadEvents
) -> tuple[list[Event], list[Event]]:
    """Return the messages just before and after a page that its first and last one continue.

    A secret that is split over messages may begin on the page before, or end on the one after.
    `read` reads events of the same history.
    """
    if not events:
        return [], []
    before = await _continuing(events[0], read, backward=True)
    return before[::-1], await _continuing(events[-1], read, backward=False)


async def _continuing(message: Event, read: ReadEvents, *, backward: bool) -> list[Event]:
    """Return the messages that a message continues, or that continue it, the nearest first."""
    if not isinstance(message.body, _STREAMED):
        return []
    messages = [message]
    for limit in (1, _ADJACENT - 1):  # most messages are whole, and one event shows it
        if backward:
            events = await read(before=messages[-1].seq, limit=limit, backward=True)
        else:
            events = await read(after=messages[-1].seq, limit=limit)
        for event in reversed(events) if backward else events:
            pair = (event, messages[-1]) if backward else (messages[-1], event)
            if not continues(*pair):
                return messages[1:]
            messages.append(event)
        if len(events) < limit:
            break
    return messages[1:]


def mask_session(session: Session) -> Session:
    """Return a session's row with masks instead of secrets."""
    counter = SecretCounter()
    changes = {}
    for name in _SESSION_FIELDS:
        value = getattr(session, name)
        masked = _mask_field(value, counter)
        if masked is not value:
            changes[name] = masked
    return replace(session, **changes) if changes else session


def mask_thread(thread: Thread) -> Thread:
    """Return a thread with masks instead of the secrets in its title."""
    title, _ = mask_value(thread.title)
    return thread._replace(title=title)


def _groups(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield the events, messages of one kind that follow each other together."""
    group: list[Event] = []
    for event in events:
        if group and not continues(group[-1], event):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def continues(event: Event, following: Event) -> bool:
    """Return whether a message may continue the message before it."""
    body, next_body = event.body, following.body
    return (
        type(body) is type(next_body)
        and isinstance(body, _STREAMED)
        and body.thread == getattr(next_body, "thread", None)
    )


def _mask_streamed(events: Sequence[Event], counter: SecretCounter) -> list[Event]:
    """Mask messages one by one, and the secrets that are split over several of them."""
    bodies = [event.body for event in events]
    contents: list[Content] = [body.content for body in bodies if isinstance(body, _MESSAGES)]
    texts = [_text(block) for content in contents for block in content]
    split = mask_parts([text for text in texts if text is not None], counter.log)
    if not split.total:
        return [mask_event(event, counter) for event in events]
    counter.secrets += split.total
    remaining = iter(split.texts)
    masked = []
    for event, content in zip(events, contents, strict=True):
        blocks = tuple(
            block if _text(block) is None else replace(block, text=next(remaining))
            for block in content
        )
        # The texts have no secrets any more; other fields may.
        body = _mask_struct(replace(event.body, content=blocks), counter)
        masked.append(replace(event, body=body))
    return masked


def _text(block: Block) -> str | None:
    return block.text if isinstance(block, Text | Resource) else None


def _mask_struct(value: Any, counter: SecretCounter) -> Any:
    """Return a struct with masks in every field that is text; the struct itself if it has none."""
    if isinstance(value, Image | Audio):
        return value
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        if name in _NAMES:
            continue
        field = getattr(value, name)
        if field is None or field is UNSET or isinstance(field, bool | int | float):
            continue
        if name in ("content", "summary") and isinstance(field, tuple):
            masked, parts = _mask_content(field, counter)
            if parts is not None and isinstance(value, UserMessage | SystemMessage):
                changes["inserted"] = tuple(_move(part, field, parts) for part in value.inserted)
        elif name == "inserted":
            continue
        else:
            masked = _mask_field(field, counter)
        if masked is not field:
            changes[name] = masked
    return replace(value, **changes) if changes else value


def _mask_field(field: Any, counter: SecretCounter) -> Any:
    if isinstance(field, msgspec.Struct):
        return _mask_struct(field, counter)
    if isinstance(field, tuple):
        items = tuple(_mask_field(item, counter) for item in field)
        return (
            items if any(new is not old for new, old in zip(items, field, strict=True)) else field
        )
    masked, count = mask_value(field, counter.log)
    counter.secrets += count
    return masked if count else field


def _mask_content(content: Content, counter: SecretCounter) -> tuple[Content, MaskedParts | None]:
    """Mask the blocks of a message; a secret may begin in one block and end in the next one."""
    texts = [text for block in content if (text := _text(block)) is not None]
    parts = mask_parts(texts, counter.log)
    counter.secrets += parts.total
    remaining = iter(parts.texts)
    blocks: list[Block] = []
    for block in content:
        if _text(block) is not None:
            text = next(remaining)
            if parts.total and text != _text(block):
                block = replace(block, text=text)
            for name in ("extra", "data"):
                value = getattr(block, name, None)
                if value is not None and (masked := _mask_field(value, counter)) is not value:
                    block = replace(block, **{name: masked})
            blocks.append(block)
        else:
            blocks.append(_mask_struct(block, counter))
    changed = any(new is not old for new, old in zip(blocks, content, strict=True))
    return (tuple(blocks) if changed else content), (parts if parts.total else None)


def _move(part: InsertedText, content: Content, parts: MaskedParts) -> InsertedText:
    """Return a part of a text with its positions in the masked text."""
    if part.block >= len(content) or _text(content[part.block]) is None:
        return part
    index = sum(_text(block) is not None for block in content[: part.block])
    replaced = parts.replaced[index]
    return replace(
        part,
        start=_moved(part.start, replaced),
        end=_moved(part.end, replaced),
        inside_start=_moved(part.inside_start, replaced),
        inside_end=_moved(part.inside_end, replaced),
    )


def _moved(position: int, replaced: Sequence[Replacement]) -> int:
    """Return where a position of a text is in the masked text."""
    shift = 0
    for start, end, length in replaced:
        if position >= end:
            shift += length - (end - start)
        elif position > start:
            return start + shift + length
    return position + shift
