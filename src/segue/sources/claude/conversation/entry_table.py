"""A transcript by its columns: one pass over the file keeps a few small values an entry.

Text stays on disk. What the conversation is can be told from ids, kinds and marks alone, and the
messages of a page are read again from their places, so memory does not grow with the file.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from segue.sources.claude.format import jsonl, safe_io
from segue.sources.claude.format.jsonl import Entry

KINDS = ("user", "assistant", "system", "attachment", "progress")
USER, ASSISTANT, SYSTEM, ATTACHMENT, PROGRESS = range(len(KINDS))
_KIND = {name: number for number, name in enumerate(KINDS)}
# Marks of an entry.
SIDECHAIN, META, TEAM, QUEUED = (1 << bit for bit in range(4))
# Parents that are no entry: of the first one, and of one whose parent is not in the file.
ROOT, MISSING = -1, -2
_END = 1 << 16  # as much of each end of a long line is searched
_NONE: tuple[int, ...] = ()
EntryLookup = Callable[[int], Entry]  # reads the entry of a number


class _Block(msgspec.Struct, gc=False):
    id: str | None = None
    tool_use_id: str | None = None


class _Message(msgspec.Struct, gc=False):
    id: str | None = None
    content: str | list[_Block] | None = None


class _Attachment(msgspec.Struct, gc=False):
    type: Any = None
    isMeta: Any = None
    prompt: msgspec.Raw = msgspec.Raw()


class EntryHeader(msgspec.Struct, gc=False):
    """The fields of an entry that place it in the conversation."""

    type: Any = None
    subtype: Any = None
    uuid: Any = None
    parentUuid: Any = msgspec.UNSET  # not the same as none: all but a first entry have one
    isSidechain: Any = None
    isMeta: Any = None
    teamName: Any = None
    sourceToolAssistantUUID: Any = None
    compactMetadata: Any = None
    # A line whose message has another shape is read the slow way, and holds what that found.
    message: _Message | None = None
    attachment: _Attachment | None = None


header_decoder = jsonl.FieldDecoder(EntryHeader)


class EntryTable:
    """The entries of the conversation's tree, in file order.

    Ids are kept as the hashes of their text, which take a third of the memory. Among a million
    ids two have the same one with a chance of one in thirty millions, and nobody can make them.
    """

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.marks = bytearray()
        self.parents = array("i")
        self.starts = array("q")
        self.sizes = array("q")
        self.parts: dict[int, int] = {}  # the place in its line, where lines are glued
        # Which entries came from one response, and the first call that each makes or answers;
        # zero for none.
        self.responses = array("q")
        self.tools = array("q")
        self.more_tools: dict[int, tuple[int, ...]] = {}
        self.sources: dict[int, int] = {}  # ids of the callers that are not the parents
        self.compactions: dict[int, dict[str, Any]] = {}
        # An id may occur again; the last entry of that id counts, for its children too.
        self.replaced: dict[int, int] = {}  # an earlier entry: its id
        self._index: dict[int, int] = {}
        self._waiting: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, line: EntryHeader, start: int = 0, size: int = 0, part: int = 0) -> None:
        """Take an entry in, if it is one of the tree."""
        kind = _KIND.get(line.type) if isinstance(line.type, str) else None
        if kind is None or not isinstance(line.uuid, str) or not line.uuid:
            return
        number, id = len(self.kinds), hash(line.uuid)
        self.kinds.append(kind)
        self.starts.append(start)
        self.sizes.append(size)
        if part:
            self.parts[number] = part
        if (earlier := self._index.get(id)) is not None:
            self.replaced[earlier] = id
        self._index[id] = number
        above = line.parentUuid
        parent = ROOT if above is None or above == "" else MISSING
        if above and isinstance(above, str) and above != line.uuid:
            parent = self._index.get(hash(above), MISSING)
            if parent == MISSING:
                self._waiting[number] = hash(above)
        self.parents.append(parent)
        marks = (SIDECHAIN if line.isSidechain else 0) | (TEAM if line.teamName else 0)
        response, tools = 0, _NONE
        if kind == ATTACHMENT:
            marks |= _queued(line.attachment)
        elif line.isMeta:
            marks |= META
        if kind in (USER, ASSISTANT):
            response, tools = _ids(line.message)
            if isinstance(line.sourceToolAssistantUUID, str):
                source = hash(line.sourceToolAssistantUUID)
                if self._index.get(source) != parent:
                    self.sources[number] = source
        elif line.subtype == "compact_boundary":
            told = line.compactMetadata
            self.compactions[number] = told if isinstance(told, dict) else {}
        self.marks.append(marks)
        self.responses.append(response if kind == ASSISTANT else 0)
        self.tools.append(tools[0] if tools else 0)
        if len(tools) > 1:
            self.more_tools[number] = tools

    def finish(self) -> EntryTable:
        """Find the parents that came after their children; call it once, when all are in."""
        for number, above in self._waiting.items():
            self.parents[number] = self._index.get(above, MISSING)
        self._waiting.clear()
        return self

    def find(self, uuid: Any) -> int | None:
        """The entry of an id, the last one where several have it."""
        return self._index.get(hash(uuid)) if isinstance(uuid, str) else None

    def source(self, number: int) -> int:
        """The entry that made the call which this one answers."""
        if number not in self.sources:
            return self.parents[number]
        return self._index.get(self.sources[number], MISSING)

    def last(self, number: int) -> int:
        """The entry that counts for an entry's id."""
        return self._index[self.replaced[number]] if number in self.replaced else number

    def tool_ids(self, number: int) -> tuple[int, ...]:
        """The calls that an entry makes or answers, as hashes."""
        if number in self.more_tools:
            return self.more_tools[number]
        return (self.tools[number],) if self.tools[number] else ()


def _queued(attached: Any) -> int:
    """The marks of an attachment: a prompt sent while the model was busy is one."""
    if isinstance(attached, _Attachment):
        said = bytes(attached.prompt)[:1] in (b'"', b"[")
        kind, meta = attached.type, attached.isMeta
    elif isinstance(attached, dict):
        said = isinstance(attached.get("prompt"), str | list)
        kind, meta = attached.get("type"), attached.get("isMeta")
    else:
        return 0
    return (QUEUED | (META if meta else 0)) if said and kind == "queued_command" else 0


def _ids(message: Any) -> tuple[int, tuple[int, ...]]:
    """The hash of a message's id, and those of the calls in it."""
    if isinstance(message, _Message):
        response, content = message.id, message.content
        if not isinstance(content, list):
            return hash(response) if response else 0, ()
        found = [block.id or block.tool_use_id for block in content]
    elif isinstance(message, dict):
        response, content = message.get("id"), message.get("content")
        blocks = content if isinstance(content, list) else []
        found = [
            block.get("id") or block.get("tool_use_id")
            for block in blocks
            if isinstance(block, dict)
        ]
    else:
        return 0, ()
    tools = tuple(hash(id) for id in found if id and isinstance(id, str))
    return hash(response) if response and isinstance(response, str) else 0, tools


def table_from_entries(entries: Iterable[Entry]) -> EntryTable:
    """The transcript of entries that are already read; their numbers stand for places."""
    transcript = EntryTable()
    for number, entry in enumerate(entries):
        transcript.add(header_decoder.pick(entry), number)
    return transcript.finish()


def table_from_file(descriptor: int) -> EntryTable:
    """The transcript in an open file."""
    transcript = EntryTable()
    for start, size, line in safe_io.read_lines(descriptor):
        found = header_decoder(line) if size == len(line) else _long(descriptor, start, size, line)
        for part, entry in enumerate(found):
            transcript.add(entry, start, size, part)
    return transcript.finish()


def _long(descriptor: int, start: int, size: int, data: bytes) -> list[EntryHeader]:
    """An entry too long to be held, from the two ends of its line."""
    line = header_from_ends(data)
    if line.type and line.uuid:
        return [line]
    # They stand somewhere between: to lose the entry would be worse than to hold it once.
    return header_decoder(safe_io.read_at(descriptor, start, size))


def header_from_ends(data: bytes) -> EntryHeader:
    """What the two ends of a long line show of its entry."""
    head, tail = data[:_END], data[-_END:]
    line = EntryHeader()
    for name in ("type", "subtype", "uuid", "parentUuid", "isSidechain", "isMeta", "teamName"):
        value = jsonl.head_field(head, name)
        setattr(line, name, jsonl.tail_field(tail, name) if value is None else value)
    line.sourceToolAssistantUUID = jsonl.tail_field(tail, "sourceToolAssistantUUID")
    return line


class EntryReader:
    """Reads the entries of an open transcript again, each from its place."""

    def __init__(self, descriptor: int, transcript: EntryTable) -> None:
        self._descriptor = descriptor
        self._transcript = transcript
        self._glued: tuple[int, list[Entry]] = (-1, [])

    def __call__(self, number: int) -> Entry:
        """An entry by its number; an empty one when the file was changed meanwhile."""
        t = self._transcript
        start, part = t.starts[number], t.parts.get(number, 0)
        found = self._glued[1] if self._glued[0] == start else self._line(start, t.sizes[number])
        return found[part] if part < len(found) else {}

    def _line(self, start: int, size: int) -> list[Entry]:
        found = jsonl.parse_entries(safe_io.read_at(self._descriptor, start, size))
        if len(found) > 1:  # the next number is most likely another one of these
            self._glued = start, found
        return found
