"""All of a session's history: every branch, and what was said before each compaction.

A conversation is one path through it. Going back in Claude Code leaves the old branch in the
file, and a compaction cuts the path but keeps the entries, with a note of where it cut.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from segue.sources.claude.format import safe_io
from segue.sources.claude.format.jsonl import Entry

from . import active_branch, entry_table
from .entry_table import KINDS, ROOT, EntryLookup, EntryTable


@dataclass
class TreeEntry:
    """One entry of a session's history."""

    type: str
    uuid: str
    # The entry before it; for a compaction's boundary the last one before the compaction.
    parent_uuid: str | None
    timestamp: str | None
    subtype: str | None
    message: Any
    is_meta: bool
    is_sidechain: bool
    is_compact_summary: bool
    # Whether it is on the path that the model sees on resume.
    active: bool
    children: list[str] = field(default_factory=list)


@dataclass
class SessionTree:
    """A session's entries by id, in the order of the file."""

    session_id: str
    entries: dict[str, TreeEntry]
    roots: list[str]
    # The end of each branch; `leaf` is the newest message of the conversation.
    leaves: list[str]
    leaf: str | None

    def path(self, uuid: str | None = None) -> list[TreeEntry]:
        """All that led to an entry, from the very beginning, across compactions.

        Without an id: the whole history of the conversation.
        """
        way: list[TreeEntry] = []
        at = self.leaf if uuid is None else uuid
        seen: set[str] = set()
        while at is not None and at in self.entries and at not in seen:
            seen.add(at)
            way.append(self.entries[at])
            at = way[-1].parent_uuid
        way.reverse()
        return way


def read_session_tree(path: str, session_id: str) -> SessionTree:
    """The tree of a transcript. Raises Unreadable."""
    with safe_io.open_for_reading(path) as (descriptor, _):
        t = entry_table.table_from_file(descriptor)
        entry = entry_table.EntryReader(descriptor, t)
        conversation = active_branch.find_active_branch(t, entry)
        numbers = [number for number in range(len(t)) if number not in t.replaced]
        read = {number: found for number in numbers if (found := entry(number))}
    parents = history_parents(t, lambda number: read.get(number, {}))
    active = set(conversation)
    entries: dict[str, TreeEntry] = {}
    for number, found in read.items():
        above = read.get(parents[number])
        made = _tree_entry(t, number, found, above, number in active)
        entries[made.uuid] = made
    return _grown(session_id, entries, conversation, read)


def history_parents(t: EntryTable, entry: EntryLookup) -> array[int]:
    """The parents, with each boundary behind the last entry before its compaction."""
    parents = active_branch.repair_parents(t)
    for boundary in t.compactions:
        if parents[boundary] == ROOT and boundary not in t.replaced:
            before = t.find(entry(boundary).get("logicalParentUuid"))
            parents[boundary] = boundary - 1 if before is None or before >= boundary else before
    return parents


def _tree_entry(
    t: EntryTable, number: int, found: Entry, above: Entry | None, active: bool
) -> TreeEntry:
    marks = t.marks[number]
    return TreeEntry(
        type=KINDS[t.kinds[number]],
        uuid=found["uuid"],
        parent_uuid=above["uuid"] if above else None,
        timestamp=_text(found.get("timestamp")),
        subtype=_text(found.get("subtype")),
        message=found.get("message", found.get("attachment", found.get("content"))),
        is_meta=bool(marks & entry_table.META),
        is_sidechain=bool(marks & entry_table.SIDECHAIN),
        is_compact_summary=bool(found.get("isCompactSummary")),
        active=active,
    )


def _grown(
    session_id: str,
    entries: dict[str, TreeEntry],
    conversation: array[int],
    read: dict[int, Entry],
) -> SessionTree:
    roots = []
    for uuid, entry in entries.items():
        if entry.parent_uuid in entries:
            entries[entry.parent_uuid].children.append(uuid)
        else:
            roots.append(uuid)
    leaves = [uuid for uuid, entry in entries.items() if not entry.children]
    said = [read[number]["uuid"] for number in conversation if number in read]
    return SessionTree(session_id, entries, roots, leaves, said[-1] if said else None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
