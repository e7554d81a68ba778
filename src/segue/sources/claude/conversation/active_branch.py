"""The conversation, out of the tree that a transcript is.

Every entry names its parent, and going back in a conversation grows a second branch. What the
model sees is one path: from the newest leaf up to the root, or to the point where the history was
compacted. Three things make that harder than it sounds: a compaction may keep messages from
before it, which then belong after its summary; calls made in parallel hang side by side, though
all of them were said; and a damaged line leaves children whose parent is gone.
"""

from __future__ import annotations

from array import array
from typing import Any

from segue.sources.claude.events.parallel_calls import with_parallels
from segue.sources.claude.events.queued_prompts import waiting, without_resent

from .ancestry import SIDE_CONVERSATION, branch_to, is_main_message, is_message
from .entry_table import META, MISSING, PROGRESS, ROOT, SYSTEM, EntryLookup, EntryTable


def find_active_branch(t: EntryTable, entry: EntryLookup) -> array[int]:
    """The numbers of the entries on the path to the newest leaf, in order.

    `entry` reads one of them; only what ids and marks cannot decide is asked for.
    """
    parents = move_preserved_messages(t, repair_parents(t))
    leaf = _leaf(t, parents)
    if leaf is None:
        return array("i")
    whole = with_parallels(t, parents, branch_to(parents, leaf), entry, SIDE_CONVERSATION)
    return without_resent(t, whole, entry) + waiting(t, parents, leaf)


def find_newest_branch(t: EntryTable, entry: EntryLookup) -> array[int]:
    """The path to the last message of the file, whatever marks it has: all that an agent did."""
    for number in range(len(t) - 1, -1, -1):
        if is_message(t, number) and number not in t.replaced:
            parents = move_preserved_messages(t, repair_parents(t))
            return with_parallels(t, parents, branch_to(parents, number), entry, 0)
    return array("i")


def is_visible(t: EntryTable, number: int, system: bool = False) -> bool:
    """Whether an entry of the path is a message to show."""
    if t.marks[number] & (SIDE_CONVERSATION | META):
        return False
    return is_message(t, number) or (system and t.kinds[number] == SYSTEM)


def repair_parents(t: EntryTable) -> array[int]:
    """The parents, where an entry whose parent is gone follows the one before it in the file.

    The parent's line was lost or never written; the conversation before it was not. A circle,
    which only damage can make, is cut open at the entry that stands first.
    """
    parents = t.parents[:]
    before = [ROOT, ROOT]  # the last entry of the conversation, and of what runs aside
    backward = True
    for number, parent in enumerate(parents):
        aside = bool(t.marks[number] & SIDE_CONVERSATION)
        if parent == MISSING:
            parents[number] = before[aside]
        elif t.replaced and parent >= 0:
            parents[number] = parent = t.last(parent)
        backward = backward and parent < number
        if number not in t.replaced:
            before[aside] = number
    return parents if backward else _opened(parents)


def _opened(parents: array[int]) -> array[int]:
    """The parents without circles: no entry is its own ancestor."""
    known = bytearray(len(parents))  # 1: on the way that is being gone, 2: leads to a root
    for start in range(len(parents)):
        way, at = [], start
        while at >= 0 and not known[at]:
            known[at] = 1
            way.append(at)
            at = parents[at]
        if at >= 0 and known[at] == 1:
            first = min(way[way.index(at) :])
            parents[first] = first - 1 if first and known[first - 1] == 2 else ROOT
        for number in way:
            known[number] = 2
    return parents


def move_preserved_messages(t: EntryTable, parents: array[int]) -> array[int]:
    """The parents, with the messages that a compaction kept moved behind its summary."""
    if not t.compactions:
        return parents
    anchors = {boundary: preserved_anchor(t, boundary) for boundary in t.compactions}
    children: dict[int, list[int]] = {at: [] for at in anchors.values()}
    for number, parent in enumerate(parents):
        if parent in children:
            children[parent].append(number)
    for boundary, at in anchors.items():
        if not (kept := _kept(t, parents, boundary, at)):
            continue
        after, children[at] = children[at], [kept[0]]
        for number, parent in zip(kept, [at, *kept], strict=False):
            parents[number] = parent
        moved = set(kept)
        for number in after:
            if number not in moved:
                parents[number] = kept[-1]
                children.get(kept[-1], []).append(number)
    return parents


def _section(t: EntryTable, boundary: int, name: str) -> dict[str, Any]:
    section = t.compactions[boundary].get(name)
    return section if isinstance(section, dict) else {}


def preserved_anchor(t: EntryTable, boundary: int) -> int:
    """The entry that kept messages follow: the summary, or the boundary if that was lost."""
    for name in ("preservedMessages", "preservedSegment"):
        if section := _section(t, boundary, name):
            found = t.find(section.get("anchorUuid"))
            return boundary if found is None else found
    return boundary


def _kept(t: EntryTable, parents: array[int], boundary: int, after: int) -> list[int]:
    """The entries that a compaction kept, in order."""
    uuids = _section(t, boundary, "preservedMessages").get("uuids")
    found = [t.find(uuid) for uuid in uuids] if isinstance(uuids, list) else [None]
    known = [number for number in dict.fromkeys(found) if number is not None and number != after]
    if None not in found:
        return known
    # Older programs name only the two ends. Newer ones name both: a damaged list has a spare.
    return _segment(t, parents, boundary, after) or known


def _segment(t: EntryTable, parents: array[int], boundary: int, after: int) -> list[int]:
    section = _section(t, boundary, "preservedSegment")
    head, at = t.find(section.get("headUuid")), t.find(section.get("tailUuid"))
    way: list[int] = []
    # Never beyond another boundary, nor for ever in a circle that a false anchor made.
    while at is not None and at >= 0 and at not in t.compactions and len(way) < len(t):
        if at == after:
            break
        way.append(at)
        if at == head:
            return way[::-1]
        at = parents[at]
    return []


def _leaf(t: EntryTable, parents: array[int]) -> int | None:
    """The message that the newest end of a branch leads up to."""
    followed = bytearray(len(t))
    for number, at in enumerate(parents):
        if (
            t.kinds[number] == PROGRESS
            or t.marks[number] & SIDE_CONVERSATION
            or number in t.replaced
        ):
            continue
        # Progress reports come and go between two entries, and end no branch.
        while at >= 0 and not followed[at]:
            followed[at] = 1
            at = parents[at] if t.kinds[at] == PROGRESS else ROOT
    tried = bytearray(len(t))
    for number in range(len(t) - 1, -1, -1):
        if (
            t.kinds[number] == PROGRESS
            or t.marks[number] & SIDE_CONVERSATION
            or number in t.replaced
        ):
            continue
        at = ROOT if followed[number] else number
        while at >= 0 and not tried[at]:
            if is_main_message(t, at):
                return at
            tried[at] = 1
            at = parents[at]
    return None
