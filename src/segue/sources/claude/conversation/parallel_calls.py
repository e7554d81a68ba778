"""Add parallel tool calls and their results to a path through a transcript's tree.

A response with several calls is written as a chain of entries, one per call, and the result of
each call is the child of its own entry. A path through the tree has one of the results, and
perhaps not all of the calls. The others are inserted after the response's last entry on the path.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping

from .ancestry import nearest_ancestor
from .entry_table import (
    ASSISTANT,
    MISSING,
    ROOT,
    USER,
    EntryLookup,
    EntryTable,
)


def add_parallel_calls(
    table: EntryTable, parents: array[int], path: array[int], entry: EntryLookup, without: int
) -> array[int]:
    """Return the path with parallel calls and results; entries with marks `without` stay out."""
    on_path = bytearray(len(table))
    for number in path:
        on_path[number] = 1
    off_path = _candidates(table, on_path, without)
    if not off_path:
        return path
    responses = _PathResponses(table, path, off_path)
    calls = _group_calls(table, off_path, responses)
    results = _group_results(table, parents, on_path, off_path, responses)
    return _insert_groups(path, (calls, results), entry)


def _candidates(table: EntryTable, on_path: bytearray, without: int) -> list[int]:
    """Return the entries off the path that belong to a response or answer a call."""
    return [
        number
        for number, on in enumerate(on_path)
        if not on
        and (table.responses[number] or table.tools[number])
        and not table.marks[number] & without
        and number not in table.replaced
    ]


class _PathResponses:
    """The responses on the path that entries off the path may belong to."""

    def __init__(self, table: EntryTable, path: array[int], off_path: list[int]) -> None:
        self.last_entries: dict[int, int] = {}  # of each response, on the path
        self.by_call: dict[int, int] = {}  # the response that made a call
        self.answered: set[int] = set()  # calls of entries off the path that the path answers
        calls = {call for number in off_path for call in table.tool_ids(number)}
        relevant = self._relevant_responses(table, path, off_path, calls)
        for number in path:
            if (response := table.responses[number]) in relevant:
                self.last_entries[response] = number
                self.add_calls(table, number, response)
            elif table.kinds[number] == USER:
                self.answered.update(calls.intersection(table.tool_ids(number)))

    @staticmethod
    def _relevant_responses(
        table: EntryTable, path: array[int], off_path: list[int], calls: set[int]
    ) -> set[int]:
        callers = {
            at for number in off_path for at in (table.parents[number], table.source(number))
        }
        relevant = {table.responses[number] for number in off_path}
        relevant.update(table.responses[at] for at in callers if at >= 0)
        relevant.update(
            table.responses[at] for at in path if not calls.isdisjoint(table.tool_ids(at))
        )
        relevant.discard(0)
        return relevant

    def add_calls(self, table: EntryTable, number: int, response: int) -> None:
        """Note that an entry's calls were made by a response."""
        self.by_call.update(dict.fromkeys(table.tool_ids(number), response))

    def last_entry_of_caller(self, table: EntryTable, number: int) -> int:
        """Return the last entry on the path of the response that a result answers, or ROOT."""
        callers = (table.parents[number], table.source(number))
        responses = (table.responses[at] for at in callers if at >= 0)
        made_call = self.by_call.get(table.tool_ids(number)[0], 0)
        response = next(
            (
                response_on_path
                for response_on_path in responses
                if response_on_path in self.last_entries
            ),
            made_call,
        )
        return self.last_entries.get(response, ROOT)


def _group_calls(
    table: EntryTable, off_path: list[int], responses: _PathResponses
) -> dict[int, list[int]]:
    """Return the calls off the path by the entry on the path that they follow."""
    groups: dict[int, list[int]] = defaultdict(list)
    for number in off_path:
        if (response := table.responses[number]) in responses.last_entries:
            groups[responses.last_entries[response]].append(number)
            responses.add_calls(table, number, response)
    return groups


def _group_results(
    table: EntryTable,
    parents: array[int],
    on_path: bytearray,
    off_path: list[int],
    responses: _PathResponses,
) -> dict[int, list[int]]:
    """Return the results off the path by the entry on the path that they follow."""
    groups: dict[int, list[int]] = defaultdict(list)
    known: dict[int, int] = {}
    for number in off_path:
        calls = table.tool_ids(number)
        if table.kinds[number] != USER or not calls or responses.answered.issuperset(calls):
            continue
        follows = responses.last_entry_of_caller(table, number)
        if follows == ROOT and _lost_its_call(table, number):
            follows = nearest_ancestor(parents, number, on_path.__getitem__, known)
        if follows != ROOT:
            groups[follows].append(number)
            responses.answered.update(calls)
    return groups


def _insert_groups(
    path: array[int], groups: tuple[Mapping[int, list[int]], ...], entry: EntryLookup
) -> array[int]:
    """Return the path with each group after its entry, ordered by time."""
    complete = array("i")
    for number in path:
        complete.append(number)
        for group in groups:
            if members := group.get(number):
                complete.extend(sorted(members, key=lambda number: _timestamp(entry, number)))
    return complete


def _lost_its_call(table: EntryTable, number: int) -> bool:
    """Return whether a result's parent is missing, or is an answer without content."""
    caller = table.parents[number]
    if caller < 0:
        return caller == MISSING
    is_empty = not table.responses[caller] and not table.tools[caller]
    return is_empty and table.kinds[caller] == ASSISTANT


def _timestamp(entry: EntryLookup, number: int) -> str:
    time = entry(number).get("timestamp")
    return time if isinstance(time, str) else ""
