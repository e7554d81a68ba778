"""Find the active branch: the path through a transcript's message tree that the model sees.

Every entry names its parent, and going back in a conversation starts a second branch. The model
sees one path, from the newest leaf up to the root or to the point where the history was compacted.
Three things complicate that. A compaction may preserve messages from before it, which then follow
its summary. Tool calls made in parallel are siblings, though all of them belong to the path. And a
damaged line leaves children whose parent is missing.
"""

from __future__ import annotations

from array import array
from typing import Any

from .ancestry import SIDE_CONVERSATION, branch_to, is_main_message, is_message
from .entry_table import META, MISSING, PROGRESS, ROOT, SYSTEM, EntryLookup, EntryTable
from .parallel_calls import add_parallel_calls
from .queued_prompts import drop_resent_prompts, waiting_prompts

# States of an entry while circles are searched.
_ON_PATH, _LEADS_TO_ROOT = 1, 2


def find_active_branch(table: EntryTable, read_entry: EntryLookup) -> array[int]:
    """Return the numbers of the entries on the path to the newest leaf, in order.

    `read_entry` is called only for entries whose ids and marks do not decide.
    """
    parents = move_preserved_messages(table, repair_parents(table))
    leaf = _find_leaf(table, parents)
    if leaf is None:
        return array("i")
    branch = add_parallel_calls(
        table, parents, branch_to(parents, leaf), read_entry, SIDE_CONVERSATION
    )
    return drop_resent_prompts(table, branch, read_entry) + waiting_prompts(table, parents, leaf)


def find_newest_branch(table: EntryTable, read_entry: EntryLookup) -> array[int]:
    """Return the path to the last message of the file, whatever its marks: a subagent's history."""
    for number in range(len(table) - 1, -1, -1):
        if is_message(table, number) and number not in table.replaced:
            parents = move_preserved_messages(table, repair_parents(table))
            return add_parallel_calls(table, parents, branch_to(parents, number), read_entry, 0)
    return array("i")


def is_visible(table: EntryTable, number: int, *, include_system: bool = False) -> bool:
    """Return whether an entry of a branch is a message to show."""
    if table.marks[number] & (SIDE_CONVERSATION | META):
        return False
    return is_message(table, number) or (include_system and table.kinds[number] == SYSTEM)


def repair_parents(table: EntryTable) -> array[int]:
    """Return the parents, where an entry without a known parent follows the entry before it.

    The parent's line was lost or never written, but the conversation before it was not. A circle,
    which only damage can create, is cut at its first entry.
    """
    parents = table.parents[:]
    previous = [ROOT, ROOT]  # the last entry of the main conversation, and of side conversations
    all_point_back = True
    for number, parent in enumerate(parents):
        is_side = bool(table.marks[number] & SIDE_CONVERSATION)
        if parent == MISSING:
            parents[number] = previous[is_side]
        elif table.replaced and parent >= 0:
            parents[number] = parent = table.last(parent)
        all_point_back = all_point_back and parent < number
        if number not in table.replaced:
            previous[is_side] = number
    return parents if all_point_back else _cut_circles(parents)


def _cut_circles(parents: array[int]) -> array[int]:
    """Return the parents without circles: no entry is its own ancestor."""
    states = bytearray(len(parents))
    for start in range(len(parents)):
        path, number = [], start
        while number >= 0 and not states[number]:
            states[number] = _ON_PATH
            path.append(number)
            number = parents[number]
        if number >= 0 and states[number] == _ON_PATH:
            first = min(path[path.index(number) :])
            can_follow = first and states[first - 1] == _LEADS_TO_ROOT
            parents[first] = first - 1 if can_follow else ROOT
        for number in path:
            states[number] = _LEADS_TO_ROOT
    return parents


def move_preserved_messages(table: EntryTable, parents: array[int]) -> array[int]:
    """Return the parents, with the messages that a compaction preserved after its summary."""
    if not table.compactions:
        return parents
    anchors = {boundary: preserved_anchor(table, boundary) for boundary in table.compactions}
    children: dict[int, list[int]] = {anchor: [] for anchor in anchors.values()}
    for number, parent in enumerate(parents):
        if parent in children:
            children[parent].append(number)
    for boundary, anchor in anchors.items():
        preserved = _preserved_messages(table, parents, boundary, anchor)
        if not preserved:
            continue
        followers, children[anchor] = children[anchor], [preserved[0]]
        for number, parent in zip(preserved, [anchor, *preserved], strict=False):
            parents[number] = parent
        moved = set(preserved)
        for number in followers:
            if number not in moved:
                parents[number] = preserved[-1]
                children.get(preserved[-1], []).append(number)
    return parents


def _metadata_section(table: EntryTable, boundary: int, name: str) -> dict[str, Any]:
    section = table.compactions[boundary].get(name)
    return section if isinstance(section, dict) else {}


def preserved_anchor(table: EntryTable, boundary: int) -> int:
    """Return the entry that preserved messages follow: the summary, or the boundary without one."""
    for name in ("preservedMessages", "preservedSegment"):
        if section := _metadata_section(table, boundary, name):
            anchor = table.find(section.get("anchorUuid"))
            return boundary if anchor is None else anchor
    return boundary


def _preserved_messages(
    table: EntryTable, parents: array[int], boundary: int, anchor: int
) -> list[int]:
    """Return the entries that a compaction preserved, in order."""
    uuids = _metadata_section(table, boundary, "preservedMessages").get("uuids")
    numbers = [table.find(uuid) for uuid in uuids] if isinstance(uuids, list) else [None]
    known = [n for n in dict.fromkeys(numbers) if n is not None and n != anchor]
    if None not in numbers:
        return known
    # Older versions name only the two ends. Newer ones name both, in case the list is damaged.
    return _preserved_segment(table, parents, boundary, anchor) or known


def _preserved_segment(
    table: EntryTable, parents: array[int], boundary: int, anchor: int
) -> list[int]:
    section = _metadata_section(table, boundary, "preservedSegment")
    head, number = table.find(section.get("headUuid")), table.find(section.get("tailUuid"))
    segment: list[int] = []
    # Stop at another boundary, and in a circle that a wrong anchor made.
    while number is not None and number >= 0 and number not in table.compactions:
        if number == anchor or len(segment) >= len(table):
            break
        segment.append(number)
        if number == head:
            return segment[::-1]
        number = parents[number]
    return []


def _find_leaf(table: EntryTable, parents: array[int]) -> int | None:
    """Return the last main message of the newest branch, or None."""
    has_children = _entries_with_children(table, parents)
    tried = bytearray(len(table))
    for leaf in range(len(table) - 1, -1, -1):
        if not _is_on_main_branch(table, leaf) or has_children[leaf]:
            continue
        number = leaf
        while number >= 0 and not tried[number]:
            if is_main_message(table, number):
                return number
            tried[number] = 1
            number = parents[number]
    return None


def _entries_with_children(table: EntryTable, parents: array[int]) -> bytearray:
    """Return a flag for each entry: whether another one follows it in the main conversation."""
    has_children = bytearray(len(table))
    for number, parent in enumerate(parents):
        if not _is_on_main_branch(table, number):
            continue
        # Progress reports come and go between two entries; they do not end a branch.
        while parent >= 0 and not has_children[parent]:
            has_children[parent] = 1
            parent = parents[parent] if table.kinds[parent] == PROGRESS else ROOT
    return has_children


def _is_on_main_branch(table: EntryTable, number: int) -> bool:
    is_side = table.kinds[number] == PROGRESS or table.marks[number] & SIDE_CONVERSATION
    return not is_side and number not in table.replaced
