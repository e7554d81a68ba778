"""Read the whole history of a session: every branch, and the messages before each compaction.

A conversation is one path through it. Going back in Claude Code leaves the old branch in the
file, and a compaction cuts the path but keeps the entries, with a note of where it cut.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from segue.sources import safe_io
from segue.sources.claude.format.jsonl import Entry

from . import active_branch, entry_table
from .entry_table import KINDS, ROOT, EntryLookup, EntryTable


@dataclass
class TreeEntry:
    """One entry of a session's history."""

    type: str
    uuid: str
    # The entry before it; for a compaction boundary the last one before the compaction.
    parent_uuid: str | None
    timestamp: str | None
    subtype: str | None
    message: Any
    is_meta: bool
    is_sidechain: bool
    # Whether it is on the path that the model sees on resume.
    active: bool
    children: list[str] = field(default_factory=list)


@dataclass
class SessionTree:
    """A session's entries by id, in file order."""

    session_id: str
    entries: dict[str, TreeEntry]
    roots: list[str]
    # The end of each branch; `leaf` is the newest message of the conversation.
    leaves: list[str]
    leaf: str | None

    def path(self, uuid: str | None = None) -> list[TreeEntry]:
        """Return all entries that led to an entry, from the first one, across compactions.

        Without an id, return the whole history of the conversation.
        """
        branch: list[TreeEntry] = []
        current = self.leaf if uuid is None else uuid
        seen: set[str] = set()
        while current is not None and current in self.entries and current not in seen:
            seen.add(current)
            branch.append(self.entries[current])
            current = branch[-1].parent_uuid
        branch.reverse()
        return branch


def read_session_tree(path: str, session_id: str) -> SessionTree:
    """Return the tree of a transcript. Raise UnreadableFile."""
    with safe_io.open_for_reading(path) as (descriptor, _):
        table = entry_table.table_from_file(descriptor)
        read_entry = entry_table.EntryReader(descriptor, table)
        branch = active_branch.find_active_branch(table, read_entry)
        numbers = [number for number in range(len(table)) if number not in table.replaced]
        loaded = {number: entry for number in numbers if (entry := read_entry(number))}
    parents = history_parents(table, lambda number: loaded.get(number, {}))
    active = set(branch)
    entries: dict[str, TreeEntry] = {}
    for number, entry in loaded.items():
        tree_entry = _tree_entry(
            table, number, entry, loaded.get(parents[number]), active=number in active
        )
        entries[tree_entry.uuid] = tree_entry
    conversation = [loaded[number]["uuid"] for number in branch if number in loaded]
    return _link_entries(session_id, entries, conversation[-1] if conversation else None)


def history_parents(table: EntryTable, read_entry: EntryLookup) -> array[int]:
    """Return the parents, with each boundary after the last entry before its compaction."""
    parents = active_branch.repair_parents(table)
    for boundary in table.compactions:
        if parents[boundary] == ROOT and boundary not in table.replaced:
            before = table.find(read_entry(boundary).get("logicalParentUuid"))
            parents[boundary] = boundary - 1 if before is None or before >= boundary else before
    return parents


def _tree_entry(
    table: EntryTable, number: int, entry: Entry, parent: Entry | None, *, active: bool
) -> TreeEntry:
    marks = table.marks[number]
    return TreeEntry(
        type=KINDS[table.kinds[number]],
        uuid=entry["uuid"],
        parent_uuid=parent["uuid"] if parent else None,
        timestamp=_optional_string(entry.get("timestamp")),
        subtype=_optional_string(entry.get("subtype")),
        message=entry.get("message", entry.get("attachment", entry.get("content"))),
        is_meta=bool(marks & entry_table.META),
        is_sidechain=bool(marks & entry_table.SIDECHAIN),
        active=active,
    )


def _link_entries(session_id: str, entries: dict[str, TreeEntry], leaf: str | None) -> SessionTree:
    """Return the tree of entries whose parents are known."""
    roots = []
    for uuid, entry in entries.items():
        if entry.parent_uuid in entries:
            entries[entry.parent_uuid].children.append(uuid)
        else:
            roots.append(uuid)
    leaves = [uuid for uuid, entry in entries.items() if not entry.children]
    return SessionTree(session_id, entries, roots, leaves, leaf)


def _optional_string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
