"""Decide which appended entries are on the active branch, from the entries just before them."""

from __future__ import annotations

from collections.abc import Sequence

from segue.sources.claude.conversation.active_branch import find_active_branch
from segue.sources.claude.conversation.ancestry import (
    SIDE_CONVERSATION,
    is_main_message,
    nearest_ancestor,
)
from segue.sources.claude.conversation.entry_table import (
    ASSISTANT,
    MISSING,
    PROGRESS,
    ROOT,
    USER,
    EntryTable,
    table_from_entries,
)
from segue.sources.claude.format.jsonl import Entry


def active_entries(context: Sequence[Entry], appended: Sequence[Entry]) -> set[int] | None:
    """Return the indexes of the appended entries that are on the active branch.

    `context` are the entries before them. Return None if that depends on entries before the
    context: after a rewind that goes far back, a compaction, or a lost line. An entry that
    follows its own children by more than the context, or repeats the uuid of an entry before the
    context, is not noticed here.
    """
    entries = [*context, *appended]
    table = table_from_entries(entries)
    first = next((n for n in range(len(table)) if table.starts[n] >= len(context)), len(table))
    new = range(first, len(table))
    if not _are_linked(table, new):
        return None
    # The branch ends where the context begins, instead of continuing with an unrelated entry.
    for number, parent in enumerate(table.parents):
        if parent == MISSING:
            table.parents[number] = ROOT
    if not _has_main_messages(table, new):
        return None
    branch = set(find_active_branch(table, lambda number: entries[table.starts[number]]))
    if any(_may_be_parallel(table, number) for number in new if number not in branch):
        return None
    return {table.starts[number] - len(context) for number in new if number in branch}


def _are_linked(table: EntryTable, new: range) -> bool:
    """Return whether all entries that the appended ones refer to are in the table."""
    calls = {
        tool
        for number, kind in enumerate(table.kinds)
        if kind == ASSISTANT
        for tool in table.tool_ids(number)
    }
    return all(
        table.parents[number] >= 0
        and table.source(number) >= 0
        and number not in table.compactions
        and (table.kinds[number] != USER or calls.issuperset(table.tool_ids(number)))
        for number in new
    )


def _has_main_messages(table: EntryTable, new: range) -> bool:
    """Return whether the newest message of every branch with appended entries is in the table."""
    known: dict[int, int] = {}
    return all(
        nearest_ancestor(table.parents, number, lambda at: is_main_message(table, at), known)
        != ROOT
        for number in new
        if table.kinds[number] != PROGRESS and not table.marks[number] & SIDE_CONVERSATION
    )


def _may_be_parallel(table: EntryTable, number: int) -> bool:
    """Return whether an entry may belong to a parallel call whose response is not in the table."""
    if table.marks[number] & SIDE_CONVERSATION:
        return False
    return bool(table.responses[number] or table.tools[number])
