"""Divide a conversation for a handoff: what a summary replaces, and the turns that stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from segue.model.content import plain_text
from segue.model.event import Event, UserMessage

from .conversation import Call, Item, Message, Summary

_MAX_OUTPUT_CHARACTERS = 2_000  # of one call


class Divided(NamedTuple):
    """The events of a conversation before its last turns, and those of these turns."""

    earlier: Sequence[Event]
    recent: Sequence[Event]


def divide(events: Sequence[Event], turns: int) -> Divided:
    """Return the events before the last turns and those from there on."""
    prompts = [n for n, event in enumerate(events) if isinstance(event.body, UserMessage)]
    # In sessions of other tools, some messages of the user's role are no prompts.
    starts = [n for n in prompts if events[n].body.starts_turn] or prompts
    if not turns:
        return Divided(events, ())
    first = starts[-turns] if len(starts) >= turns else 0
    return Divided(events[:first], events[first:])


def as_text(items: Iterable[Item]) -> str:
    """Return a conversation as a text for the model that summarises it."""
    return "\n\n".join(_paragraphs(items))


def _paragraphs(items: Iterable[Item]) -> Iterator[str]:
    for item in items:
        match item:
            case Message():
                yield f"{item.role}: {plain_text(item.content)}"
            case Call():
                output = item.output
                if len(output) > _MAX_OUTPUT_CHARACTERS:
                    output = f"{output[:_MAX_OUTPUT_CHARACTERS]} […]"
                failed = " (failed)" if item.result.status == "failed" else ""
                yield f"tool {item.call.name} {item.call.input}{failed}: {output}"
            case Summary():
                yield f"summary of everything before: {item.text}"
