"""Walk up the message tree of a transcript."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from .entry_table import ASSISTANT, QUEUED, ROOT, SIDECHAIN, TEAM, USER, EntryTable

SIDE_CONVERSATION = SIDECHAIN | TEAM  # marks of entries that are not in the main conversation


def is_message(table: EntryTable, number: int) -> bool:
    """Return whether an entry is a message of the user or the model."""
    return table.kinds[number] in (USER, ASSISTANT) or bool(table.marks[number] & QUEUED)


def is_main_message(table: EntryTable, number: int) -> bool:
    """Return whether an entry is a message from which the main conversation can continue."""
    is_turn = table.kinds[number] in (USER, ASSISTANT)
    return is_turn and not table.marks[number] & SIDE_CONVERSATION


def branch_to(parents: array[int], leaf: int) -> array[int]:
    """Return the entries from the root to `leaf`."""
    branch, seen, number = array("i"), bytearray(len(parents)), leaf
    while number >= 0 and not seen[number]:
        seen[number] = 1
        branch.append(number)
        number = parents[number]
    branch.reverse()
    return branch


def nearest_ancestor(
    parents: array[int], number: int, matches: Callable[[int], object], known: dict[int, int]
) -> int:
    """Return the nearest entry upwards, `number` included, that matches, or ROOT.

    `known` caches the answers for all entries on the path, so that many calls cost one pass.
    """
    path, current = [], number
    while current >= 0 and current not in known and not matches(current):
        known[current] = ROOT  # in case of a circle
        path.append(current)
        current = parents[current]
    ancestor = known.get(current, current) if current >= 0 else ROOT
    for visited in path:
        known[visited] = ancestor
    return ancestor
