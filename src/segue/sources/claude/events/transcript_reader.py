"""Reading a transcript's events, from any place on.

All of them are the session's history, in the order of the file. The conversation is the part of
it that led to its newest message: without branches that were left, and with what was said before
each compaction.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from segue.model.event import Event, ModelCalled
from segue.sources.claude.conversation import active_branch, entry_table, tree
from segue.sources.claude.conversation.ancestry import SIDE_CONVERSATION, branch_to
from segue.sources.claude.format import jsonl, safe_io
from segue.sources.claude.format.jsonl import Entry

from .parallel_calls import with_parallels
from .translator import FIRST, WINDOW, Translator

_STEP = 1 << 18  # as much is read at first when reading backwards
_BEFORE = 64  # bytes before a place, which is that of the line's beginning or just behind it
_SHORT = 1 << 14  # bytes in which most lines end


class Line(NamedTuple):
    """A line in its place: of one that is too long to be held, the two ends."""

    offset: int
    size: int
    data: bytes

    @property
    def is_held(self) -> bool:
        return self.size == len(self.data)


def walk(
    descriptor: int, start: int, translator: Translator, *, torn: bool = False
) -> Iterator[Line]:
    """The lines from the one at `start` on; the translator hears of those just before them.

    A last line that is still being written comes when it is whole; with `torn` what there is of
    it comes too.
    """
    begin = max(0, start - WINDOW)
    if begin:
        begin = line_after(descriptor, begin - 1)
    size = os.fstat(descriptor).st_size
    for line in map(Line._make, safe_io.read_lines(descriptor, begin)):
        if line.offset < start:
            if line.is_held:
                translator.line(line.offset, line.data)
        elif torn or line.offset + line.size < size or is_complete_line(descriptor, *line):
            yield line


def is_complete_line(descriptor: int, offset: int, size: int, data: bytes) -> bool:
    """Return whether the last line of a file has a newline, or at least an end.

    `data` may be the two ends of a line that is too long to hold.
    """
    if os.pread(descriptor, 1, offset + size) == b"\n":
        return True
    entries, is_clean = jsonl.salvage_line(data) if size == len(data) else ([], False)
    return bool(entries) and is_clean


def line_of(descriptor: int, offset: int) -> int:
    """Where the line begins that a byte is in."""
    while offset > 0:
        size = min(WINDOW, offset)
        at = safe_io.read_at(descriptor, offset - size, size).rfind(b"\n")
        if at >= 0:
            return offset - size + at + 1
        offset -= size
    return 0


def line_after(descriptor: int, offset: int) -> int:
    """Where the next line begins."""
    while block := os.pread(descriptor, WINDOW, offset):
        if (at := block.find(b"\n")) >= 0:
            return offset + at + 1
        offset += len(block)
    return offset


class Reader:
    """The events of one transcript that is open for reading.

    `created` is the event of the session's creation, which no line tells.
    """

    def __init__(self, descriptor: int, session: str, created: Event) -> None:
        self._descriptor = descriptor
        self._session = session
        self.created = created

    def all(self, after: int = 0, *, torn: bool = False) -> Iterator[Event]:
        """Every event above a seq, in order."""
        if after < FIRST:
            yield self.created
        for _, events in self._lines(after, torn):
            for event in events:
                if event.seq > after:
                    yield event

    def page(
        self,
        *,
        after: int = 0,
        before: int | None = None,
        types: Sequence[str] = (),
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        backward: bool = False,
    ) -> list[Event]:
        """Events with `after < seq < before` of these types and times; the last ones backward."""

        def wanted(event: Event) -> bool:
            return (
                (not types or event.type in types)
                and (since is None or event.at >= since)
                and (until is None or event.at <= until)
            )

        if limit < 1:
            return []
        if backward:
            return self._last(after, before, limit, wanted)
        found: list[Event] = []
        for event in self.all(after):
            if before is not None and event.seq >= before:
                break
            if wanted(event):
                found.append(event)
                if len(found) == limit:
                    break
        return found

    def one(self, seq: int) -> Event | None:
        """The event at a place."""
        found = alone(self._descriptor, self._session, seq)
        return found or next(iter(self.page(after=seq - 1, before=seq + 1, limit=1)), None)

    def _last(
        self, after: int, before: int | None, limit: int, wanted: Callable[[Event], bool]
    ) -> list[Event]:
        end = os.fstat(self._descriptor).st_size + FIRST + 1
        top = end if before is None else min(before, end)
        step, found = _STEP, list[Event]()
        while top > after + 1 and len(found) < limit:
            low = max(after, top - step)
            more = []
            for event in self.all(low):
                if event.seq >= top:
                    break
                if wanted(event):
                    more.append(event)
            found = more + found
            top, step = low + 1, step * 4
        return found[-limit:]

    def find(self, id: str) -> int | None:
        """The seq of an event."""
        return next((event.seq for event in self.all() if event.id == id), None)

    def conversation(self) -> Iterator[Event]:
        """The events that led to the newest message."""
        path = conversation(self._descriptor)
        yield self.created
        at = 0
        for offset, events in self._lines(0, torn=False):
            while at < len(path) and path[at] < offset:
                at += 1
            if at < len(path) and path[at] == offset:
                yield from events

    def _lines(self, after: int, torn: bool) -> Iterator[tuple[int, list[Event]]]:
        """The events of each line, from that of a seq on."""
        translator = Translator(self._session, self.created.at)
        start = line_of(self._descriptor, max(0, after - FIRST - 1))
        for line in walk(self._descriptor, start, translator, torn=torn):
            data = line.data
            if not line.is_held:
                if after - line.offset > FIRST + 1 + line.size // 2:
                    continue  # an event is longer than that: all of these are before
                data = safe_io.read_at(self._descriptor, line.offset, line.size)
            yield line.offset, translator.line(line.offset, data)


def alone(descriptor: int, session: str, seq: int) -> Event | None:
    """The event at a place, if its line says all of it and is not long."""
    place = max(0, seq - FIRST - 1)
    low = max(0, place - _BEFORE)
    block = safe_io.read_at(descriptor, low, _SHORT)
    begin = block.rfind(b"\n", 0, place - low) + 1
    end = block.find(b"\n", begin)
    if end < 0 or (low and not begin):
        return None
    data = block[begin:end]
    found = jsonl.parse_entries(data)
    if found and all(map(_stands_alone, found)):
        for event in Translator(session).line(low + begin, data, found):
            if event.seq == seq and not isinstance(event.body, ModelCalled):
                return event
    return None


def _stands_alone(entry: Entry) -> bool:
    """Whether no line before an entry says more of what it says, but of what a response cost."""
    return jsonl.parse_timestamp(entry.get("timestamp")) is not None and not entry.get(
        "isCompactSummary"
    )


def conversation(descriptor: int) -> array[int]:
    """The places of the lines that the conversation is made of, in the order of the file."""
    t = entry_table.table_from_file(descriptor)
    entry = entry_table.EntryReader(descriptor, t)
    on = set(active_branch.find_active_branch(t, entry))
    if cut := [boundary for boundary in t.compactions if boundary in on]:
        parents = tree.history_parents(t, entry)
        whole = branch_to(parents, max(cut))
        on.update(with_parallels(t, parents, whole, entry, SIDE_CONVERSATION))
    return array("q", sorted({t.starts[number] for number in on}))
