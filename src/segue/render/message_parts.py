"""Split a user or system message into what a person typed and what a program inserted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from segue.model.ansi import one_line
from segue.model.content import InsertedKind, Text
from segue.model.event import InsertedText, SystemMessage, UserMessage

PromptMessage = UserMessage | SystemMessage


class MessagePart(NamedTuple):
    """A part of a text that one author wrote.

    `text` includes the markup around an inserted part, `inside` does not. `line` is a summary of
    at most one line. The texts of all parts, joined, are the whole text.
    """

    kind: Literal["typed"] | InsertedKind
    text: str
    inside: str
    line: str


def split_blocks(message: PromptMessage) -> list[list[MessagePart]]:
    """Return the parts of each block; none for blocks that are not text."""
    inserted: dict[int, list[InsertedText]] = {}
    for part in message.inserted:
        inserted.setdefault(part.block, []).append(part)
    return [
        _split_text(block.text, inserted.get(index, ())) if isinstance(block, Text) else []
        for index, block in enumerate(message.content)
    ]


def split_message(message: PromptMessage) -> list[MessagePart]:
    """Return the parts of all text blocks of a message."""
    return [part for parts in split_blocks(message) for part in parts]


def find_inserted_only(message: PromptMessage) -> MessagePart | None:
    """Return the first part of a message that a program wrote alone; None if a person typed."""
    if not all(isinstance(block, Text) for block in message.content):
        return None
    parts = [part for part in split_message(message) if part.kind != "typed" or part.inside]
    if any(part.kind == "typed" for part in parts):
        return None
    return parts[0] if parts else None


def summarize_message(message: PromptMessage) -> str:
    """Return one line: the first typed line, or else the first inserted one."""
    parts = [part for part in split_message(message) if part.line]
    typed = [part for part in parts if part.kind == "typed"]
    return next((part.line for part in typed or parts), "")


def _split_text(text: str, inserted: Iterable[InsertedText]) -> list[MessagePart]:
    parts: list[MessagePart] = []
    end = 0
    for part in inserted:
        if not end <= part.start <= part.inside_start <= part.inside_end <= part.end:
            continue  # an imported file may hold any offsets
        if end < part.start:
            parts.append(_typed(text[end : part.start]))
        parts.append(_inserted(text, part))
        end = part.end
    if end < len(text) or not parts:
        parts.append(_typed(text[end:]))
    return parts


def _typed(text: str) -> MessagePart:
    return MessagePart("typed", text, text.strip(), one_line(text))


def _inserted(text: str, part: InsertedText) -> MessagePart:
    inside = text[part.inside_start : part.inside_end]
    line = part.label
    if line is None:
        line = one_line(f"! {inside}" if part.kind == "shell" else inside)
    return MessagePart(part.kind, text[part.start : part.end], inside, line)
