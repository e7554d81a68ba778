"""Prompts that a person sent while the model was busy.

They wait as attachments. A prompt that the model received is a message like any other. A prompt
that it did not receive before the turn ended is sent again as a message, and must not be shown
twice.
"""

from __future__ import annotations

from array import array

from segue.sources.claude.format.jsonl import Entry, message_content
from segue.sources.claude.format.prompt import INTERRUPTION_PREFIX

from .ancestry import (
    SIDE_CONVERSATION,
    is_main_message,
    nearest_ancestor,
)
from .entry_table import (
    ASSISTANT,
    META,
    QUEUED,
    USER,
    EntryLookup,
    EntryTable,
)


def drop_resent_prompts(table: EntryTable, path: array[int], entry: EntryLookup) -> array[int]:
    """Return the path without the prompts that the user's next message repeats."""
    if not any(table.marks[number] & QUEUED for number in path):
        return path
    remaining, is_resent = array("i"), True
    for number in reversed(path):
        if table.marks[number] & QUEUED:
            if is_resent:
                continue
        elif table.kinds[number] == ASSISTANT:
            is_resent = False
        elif table.kinds[number] == USER and not table.marks[number] & META:
            is_resent = not table.tool_ids(number) and _is_typed(entry(number))
        remaining.append(number)
    remaining.reverse()
    return remaining


def _is_typed(entry: Entry) -> bool:
    content = message_content(entry)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    interrupted = isinstance(content, str) and content.startswith(INTERRUPTION_PREFIX)
    return not interrupted and not entry.get("isCompactSummary")


def waiting_prompts(table: EntryTable, parents: array[int], leaf: int) -> array[int]:
    """Return the prompts that still wait after the last message."""
    queued = [
        number
        for number in range(leaf + 1, len(table))
        if table.marks[number] & QUEUED
        and not table.marks[number] & SIDE_CONVERSATION
        and number not in table.replaced
    ]
    if not queued:
        return array("i")
    has_children = bytearray(len(table))
    for number, at in enumerate(parents):
        while at >= 0 and not has_children[at] and is_main_message(table, number):
            has_children[at] = 1
            at = parents[at]
    known: dict[int, int] = {}

    def last_message(number: int) -> int:
        return nearest_ancestor(parents, number, lambda at: is_main_message(table, at), known)

    return array("i", (at for at in queued if not has_children[at] and last_message(at) == leaf))
