"""Going up the tree of a transcript."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from .entry_table import ASSISTANT, QUEUED, ROOT, SIDECHAIN, TEAM, USER, EntryTable

SIDE_CONVERSATION = SIDECHAIN | TEAM  # marks of what runs beside the conversation


def is_message(t: EntryTable, number: int) -> bool:
    """Whether an entry is a message of the user or the model."""
    return t.kinds[number] in (USER, ASSISTANT) or bool(t.marks[number] & QUEUED)


def is_main_message(t: EntryTable, number: int) -> bool:
    """Whether an entry is one that the conversation goes on from."""
    return t.kinds[number] in (USER, ASSISTANT) and not t.marks[number] & SIDE_CONVERSATION


def branch_to(parents: array[int], leaf: int) -> array[int]:
    """The way from the root to an entry."""
    way, seen, at = array("i"), bytearray(len(parents)), leaf
    while at >= 0 and not seen[at]:
        seen[at] = 1
        way.append(at)
        at = parents[at]
    way.reverse()
    return way


def nearest_ancestor(
    parents: array[int], number: int, is_end: Callable[[int], object], known: dict[int, int]
) -> int:
    """The nearest entry upwards that is an end, or ROOT.

    `known` keeps what was found on the way, so that many questions cost one pass in all.
    """
    way, at = [], number
    while at >= 0 and at not in known and not is_end(at):
        known[at] = ROOT  # should the way lead back here
        way.append(at)
        at = parents[at]
    found = known.get(at, at) if at >= 0 else ROOT
    for number in way:
        known[number] = found
    return found
