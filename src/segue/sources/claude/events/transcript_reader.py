"""Read the events of a transcript, from any position on.

The history is all events, in the order of the file. The conversation is the active branch: the
events that led to the newest message, with those before each compaction.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from typing import NamedTuple, Unpack

from segue.model.event import Event, ModelCalled
from segue.model.query import EventWindow, WindowOptions
from segue.sources import safe_io
from segue.sources.claude.conversation import active_branch, entry_table, tree
from segue.sources.claude.conversation.ancestry import SIDE_CONVERSATION, branch_to
from segue.sources.claude.conversation.parallel_calls import add_parallel_calls
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry

from .translator import CONTEXT_BYTES, CREATED_SEQ, Translator

_BACKWARD_BYTES = 1 << 18  # read first when reading backwards
_BEFORE_BYTES = 64  # a seq is at most so far after the start of its line, if that is short
_SHORT_LINE_BYTES = 1 << 14  # in which most lines end


class FileLine(NamedTuple):
    """A line of a file; `data` has only the two ends of a line that is too long to hold."""

    offset: int
    size: int
    data: bytes

    @property
    def is_held(self) -> bool:
        return self.size == len(self.data)


def read_file_lines(
    descriptor: int, start: int, translator: Translator, *, include_incomplete: bool = False
) -> Iterator[FileLine]:
    """Return the lines from `start` on, after passing the lines just before to the translator.

    A last line that is still being written is left out, unless `include_incomplete` is set.
    """
    begin = max(0, start - CONTEXT_BYTES)
    if begin:
        begin = next_line_start(descriptor, begin - 1)
    size = os.fstat(descriptor).st_size
    for line in map(FileLine._make, safe_io.read_lines(descriptor, begin)):
        if line.offset < start:
            if line.is_held:
                translator.translate_line(line.offset, line.data)
        elif (
            include_incomplete
            or line.offset + line.size < size
            or is_complete_line(descriptor, *line)
        ):
            yield line


def is_complete_line(descriptor: int, offset: int, size: int, data: bytes) -> bool:
    """Return whether the last line of a file has a newline, or at least an end.

    `data` may be the two ends of a line that is too long to hold.
    """
    if os.pread(descriptor, 1, offset + size) == b"\n":
        return True
    entries, is_clean = jsonl.salvage_line(data) if size == len(data) else ([], False)
    return bool(entries) and is_clean


def line_start(descriptor: int, offset: int) -> int:
    """Return the offset of the line that a byte is in."""
    while offset > 0:
        size = min(CONTEXT_BYTES, offset)
        at = safe_io.read_at(descriptor, offset - size, size).rfind(b"\n")
        if at >= 0:
            return offset - size + at + 1
        offset -= size
    return 0


def next_line_start(descriptor: int, offset: int) -> int:
    """Return the offset of the next line."""
    while block := os.pread(descriptor, CONTEXT_BYTES, offset):
        if (at := block.find(b"\n")) >= 0:
            return offset + at + 1
        offset += len(block)
    return offset


class TranscriptReader:
    """Reads the events of one open transcript.

    `created` is the event of the session's creation, which has no line.
    """

    def __init__(self, descriptor: int, session: str, created: Event) -> None:
        self._descriptor = descriptor
        self._session = session
        self.created = created

    def all(self, after: int = 0, *, include_incomplete: bool = False) -> Iterator[Event]:
        """Return every event after a seq, in order."""
        if after < CREATED_SEQ:
            yield self.created
        for _, events in self._events_by_line(after, include_incomplete=include_incomplete):
            for event in events:
                if event.seq > after:
                    yield event

    def page(
        self,
        **window: Unpack[WindowOptions],
    ) -> list[Event]:
        """Return the events of an EventWindow, in order."""
        selection = EventWindow(**window)
        if selection.limit < 1:
            return []
        if selection.backward:
            return self._last_events(selection)
        events: list[Event] = []
        for event in self.all(selection.after):
            if selection.before is not None and event.seq >= selection.before:
                break
            if selection.matches(event):
                events.append(event)
                if len(events) == selection.limit:
                    break
        return events

    def read_event(self, seq: int) -> Event | None:
        """Return the event of a seq."""
        event = _read_standalone_event(self._descriptor, self._session, seq)
        return event or next(iter(self.page(after=seq - 1, before=seq + 1, limit=1)), None)

    def _last_events(self, window: EventWindow) -> list[Event]:
        end = os.fstat(self._descriptor).st_size + CREATED_SEQ + 1
        top = end if window.before is None else min(window.before, end)
        step, events = _BACKWARD_BYTES, list[Event]()
        while top > window.after + 1 and len(events) < window.limit:
            low = max(window.after, top - step)
            earlier = []
            for event in self.all(low):
                if event.seq >= top:
                    break
                if window.matches(event):
                    earlier.append(event)
            events = earlier + events
            top, step = low + 1, step * 4
        return window.cut(events)

    def find_seq(self, id: str) -> int | None:
        """Return the seq of an event, None if there is no such event."""
        return next((event.seq for event in self.all() if event.id == id), None)

    def conversation(self) -> Iterator[Event]:
        """Return the events on the active branch."""
        offsets = active_offsets(self._descriptor)
        yield self.created
        index = 0
        for offset, events in self._events_by_line(0, include_incomplete=False):
            while index < len(offsets) and offsets[index] < offset:
                index += 1
            if index < len(offsets) and offsets[index] == offset:
                yield from events

    def _events_by_line(
        self, after: int, *, include_incomplete: bool
    ) -> Iterator[tuple[int, list[Event]]]:
        """Return the offset and the events of each line, from the line of a seq on."""
        translator = Translator(self._session, self.created.at)
        start = line_start(self._descriptor, max(0, after - CREATED_SEQ - 1))
        for line in read_file_lines(
            self._descriptor, start, translator, include_incomplete=include_incomplete
        ):
            data = line.data
            if not line.is_held:
                if after - line.offset > CREATED_SEQ + 1 + line.size // 2:
                    continue  # an event takes more than a byte, so all of these are before
                data = safe_io.read_at(self._descriptor, line.offset, line.size)
            yield line.offset, translator.translate_line(line.offset, data)


def _read_standalone_event(descriptor: int, session: str, seq: int) -> Event | None:
    """Return the event of a seq, if its line is short and does not depend on earlier lines."""
    offset = max(0, seq - CREATED_SEQ - 1)
    low = max(0, offset - _BEFORE_BYTES)
    block = safe_io.read_at(descriptor, low, _SHORT_LINE_BYTES)
    begin = block.rfind(b"\n", 0, offset - low) + 1
    end = block.find(b"\n", begin)
    if end < 0 or (low and not begin):
        return None
    data = block[begin:end]
    entries = jsonl.parse_entries(data)
    if entries and all(map(_is_standalone, entries)):
        for event in Translator(session).translate_line(low + begin, data, entries):
            if event.seq == seq and not isinstance(event.body, ModelCalled):
                return event
    return None


def _is_standalone(entry: Entry) -> bool:
    """Return whether an entry's events, except ModelCalled, do not depend on earlier lines."""
    return jsonl.parse_timestamp(entry.get("timestamp")) is not None and not entry.get(
        "isCompactSummary"
    )


def active_offsets(descriptor: int) -> array[int]:
    """Return the offsets of the lines on the active branch, in the order of the file."""
    table = entry_table.table_from_file(descriptor)
    entry = entry_table.EntryReader(descriptor, table)
    branch = set(active_branch.find_active_branch(table, entry))
    if boundaries := [number for number in table.compactions if number in branch]:
        parents = tree.history_parents(table, entry)
        before = branch_to(parents, max(boundaries))
        branch.update(add_parallel_calls(table, parents, before, entry, SIDE_CONVERSATION))
    return array("q", sorted({table.starts[number] for number in branch}))
