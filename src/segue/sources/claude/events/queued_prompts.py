"""Prompts that were sent while the model was busy.

They wait as attachments. One that the model got is a message like any other; one that it did not
get before the turn was over is sent again as a message, and must not be shown twice.
"""

from __future__ import annotations

from array import array

from segue.sources.claude.conversation.ancestry import (
    SIDE_CONVERSATION,
    is_main_message,
    nearest_ancestor,
)
from segue.sources.claude.conversation.entry_table import (
    ASSISTANT,
    META,
    QUEUED,
    USER,
    EntryLookup,
    EntryTable,
)
from segue.sources.claude.format.jsonl import Entry


def without_resent(t: EntryTable, path: array[int], entry: EntryLookup) -> array[int]:
    """The path without prompts that the user's next message says again."""
    if not any(t.marks[number] & QUEUED for number in path):
        return path
    kept, resent = array("i"), True
    for number in reversed(path):
        if t.marks[number] & QUEUED:
            if resent:
                continue
        elif t.kinds[number] == ASSISTANT:
            resent = False
        elif t.kinds[number] == USER and not t.marks[number] & META:
            resent = not t.tool_ids(number) and _is_typed(entry(number))
        kept.append(number)
    kept.reverse()
    return kept


def _is_typed(entry: Entry) -> bool:
    said = entry.get("message")
    content = said.get("content") if isinstance(said, dict) else None
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    interrupted = isinstance(content, str) and content.startswith("[Request interrupted by user")
    return not interrupted and not entry.get("isCompactSummary")


def waiting(t: EntryTable, parents: array[int], leaf: int) -> array[int]:
    """The prompts that still wait behind the last message."""
    found = [
        number
        for number in range(leaf + 1, len(t))
        if t.marks[number] & QUEUED
        and not t.marks[number] & SIDE_CONVERSATION
        and number not in t.replaced
    ]
    if not found:
        return array("i")
    followed = bytearray(len(t))
    for number, at in enumerate(parents):
        while at >= 0 and not followed[at] and is_main_message(t, number):
            followed[at] = 1
            at = parents[at]
    known: dict[int, int] = {}

    def said_above(number: int) -> int:
        return nearest_ancestor(parents, number, lambda at: is_main_message(t, at), known)

    return array("i", (at for at in found if not followed[at] and said_above(at) == leaf))
