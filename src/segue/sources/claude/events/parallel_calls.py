"""Calls that the model made at once, and their results.

A response with several calls is written as a chain of entries, one a call, and the result of each
call hangs on its own entry. A path through the tree has one of the results, and perhaps not even
all of the calls; the rest goes back in here, behind the last entry of the response on the path.
"""

from __future__ import annotations

from array import array
from collections import defaultdict

from segue.sources.claude.conversation.ancestry import nearest_ancestor
from segue.sources.claude.conversation.entry_table import (
    ASSISTANT,
    MISSING,
    ROOT,
    USER,
    EntryLookup,
    EntryTable,
)


def with_parallels(
    t: EntryTable, parents: array[int], path: array[int], entry: EntryLookup, without: int
) -> array[int]:
    """The path with the calls and results beside it; entries with marks `without` stay out."""
    on_path = bytearray(len(t))
    for number in path:
        on_path[number] = 1
    beside = [
        number
        for number, on in enumerate(on_path)
        if not on
        and (t.responses[number] or t.tools[number])
        and not t.marks[number] & without
        and number not in t.replaced
    ]
    if not beside:
        return path
    last, made, answered = _responses(t, path, beside)
    calls: dict[int, list[int]] = defaultdict(list)
    for number in beside:
        if (response := t.responses[number]) in last:
            calls[last[response]].append(number)
            made.update(dict.fromkeys(t.tool_ids(number), response))
    results: dict[int, list[int]] = defaultdict(list)
    known: dict[int, int] = {}
    for number in beside:
        uses = t.tool_ids(number)
        if t.kinds[number] != USER or not uses or answered.issuperset(uses):
            continue
        near = (t.responses[at] for at in (t.parents[number], t.source(number)) if at >= 0)
        response = next((one for one in near if one in last), made.get(uses[0], 0))
        place = last.get(response, ROOT)
        if place == ROOT and _lost_its_call(t, number):
            place = nearest_ancestor(parents, number, on_path.__getitem__, known)
        if place != ROOT:
            results[place].append(number)
            answered.update(uses)
    whole = array("i")
    for number in path:
        whole.append(number)
        for group in (calls.get(number), results.get(number)):
            if group:
                whole.extend(sorted(group, key=lambda number: _time(entry, number)))
    return whole


def _responses(
    t: EntryTable, path: array[int], beside: list[int]
) -> tuple[dict[int, int], dict[int, int], set[int]]:
    """The responses on the path that any of the entries beside it may belong to.

    Their last entries on the path, the responses by the calls they made, and the calls of the
    entries beside that the path answers already.
    """
    tools = {tool for number in beside for tool in t.tool_ids(number)}
    callers = {at for number in beside for at in (t.parents[number], t.source(number))}
    wanted = {t.responses[number] for number in beside}
    wanted.update(t.responses[at] for at in callers if at >= 0)
    wanted.update(t.responses[at] for at in path if not tools.isdisjoint(t.tool_ids(at)))
    wanted.discard(0)
    last: dict[int, int] = {}
    made: dict[int, int] = {}
    answered: set[int] = set()
    for number in path:
        if (response := t.responses[number]) in wanted:
            last[response] = number
            made.update(dict.fromkeys(t.tool_ids(number), response))
        elif t.kinds[number] == USER:
            answered.update(tools.intersection(t.tool_ids(number)))
    return last, made, answered


def _lost_its_call(t: EntryTable, number: int) -> bool:
    """Whether the line that a result hangs on is gone, or is an answer of which nothing is left."""
    caller = t.parents[number]
    if caller < 0:
        return caller == MISSING
    nothing = not t.responses[caller] and not t.tools[caller]
    return nothing and t.kinds[caller] == ASSISTANT


def _time(entry: EntryLookup, number: int) -> str:
    time = entry(number).get("timestamp")
    return time if isinstance(time, str) else ""
