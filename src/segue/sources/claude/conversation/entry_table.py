"""A transcript as a table of columns: a few small values per entry, read in one pass.

The text stays on disk. Ids, kinds and marks are enough to find the conversation, and the messages
of a page are read again at their offsets, so memory does not grow with the text.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from segue.sources import safe_io
from segue.sources.claude.format import jsonl
from segue.sources.claude.format.jsonl import Entry

KINDS = ("user", "assistant", "system", "attachment", "progress")
USER, ASSISTANT, SYSTEM, ATTACHMENT, PROGRESS = range(len(KINDS))
_KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}
# Marks of an entry, as bits.
SIDECHAIN, META, TEAM, QUEUED = (1 << bit for bit in range(4))
# Parent numbers that are not entries: of a first entry, and of one whose parent is not in the file.
ROOT, MISSING = -1, -2
_END_BYTES = 1 << 16  # of each end of a long line that are searched
EntryLookup = Callable[[int], Entry]  # reads the entry with a number


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
    parentUuid: Any = msgspec.UNSET  # unset differs from null: only a first entry has null
    isSidechain: Any = None
    isMeta: Any = None
    teamName: Any = None
    sourceToolAssistantUUID: Any = None
    compactMetadata: Any = None
    # If a message has another shape, its line is salvaged and these fields hold dictionaries.
    message: _Message | None = None
    attachment: _Attachment | None = None


header_decoder = jsonl.FieldDecoder(EntryHeader)


class EntryTable:
    """The entries of a transcript's message tree, numbered in file order.

    Ids are stored as hashes of their text, which take a third of the memory. Among a million ids
    the chance of a collision is one in thirty million, and it cannot be provoked.
    """

    def __init__(self) -> None:
        self.kinds = bytearray()
        self.marks = bytearray()
        self.parents = array("i")
        self.starts = array("q")
        self.sizes = array("q")
        self.parts: dict[int, int] = {}  # the position in its line, where lines are joined
        # The response that an entry is part of, and the first tool call that it makes or answers;
        # 0 for none.
        self.responses = array("q")
        self.tools = array("q")
        self.more_tools: dict[int, tuple[int, ...]] = {}
        self.sources: dict[int, int] = {}  # ids of calling entries that are not the parent
        self.compactions: dict[int, dict[str, Any]] = {}
        # If an id occurs again, its last entry counts, also as the parent of earlier entries.
        self.replaced: dict[int, int] = {}  # number of an earlier entry: its id
        self._numbers: dict[int, int] = {}  # id: number
        self._unresolved: dict[int, int] = {}  # number: id of a parent that has not been read yet

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, header: EntryHeader, start: int = 0, size: int = 0, part: int = 0) -> None:
        """Add an entry, unless it is not part of the message tree."""
        kind = _KIND_NUMBERS.get(header.type) if isinstance(header.type, str) else None
        if kind is None or not isinstance(header.uuid, str) or not header.uuid:
            return
        number = len(self.kinds)
        self.kinds.append(kind)
        self.starts.append(start)
        self.sizes.append(size)
        if part:
            self.parts[number] = part
        self._add_id(number, header.uuid)
        self._add_parent(number, header)
        self.marks.append(_parse_marks(header, kind))
        self._add_tools(number, header, kind)
        if kind not in (USER, ASSISTANT) and header.subtype == "compact_boundary":
            metadata = header.compactMetadata
            self.compactions[number] = metadata if isinstance(metadata, dict) else {}

    def _add_id(self, number: int, uuid: str) -> None:
        id = hash(uuid)
        if (earlier := self._numbers.get(id)) is not None:
            self.replaced[earlier] = id
        self._numbers[id] = number

    def _add_parent(self, number: int, header: EntryHeader) -> None:
        uuid = header.parentUuid
        parent = ROOT if uuid is None or uuid == "" else MISSING
        if uuid and isinstance(uuid, str) and uuid != header.uuid:
            parent = self._numbers.get(hash(uuid), MISSING)
            if parent == MISSING:
                self._unresolved[number] = hash(uuid)
        self.parents.append(parent)

    def _add_tools(self, number: int, header: EntryHeader, kind: int) -> None:
        response = 0
        tools: tuple[int, ...] = ()
        if kind in (USER, ASSISTANT):
            response, tools = _parse_message_ids(header.message)
            if isinstance(header.sourceToolAssistantUUID, str):
                source = hash(header.sourceToolAssistantUUID)
                if self._numbers.get(source) != self.parents[number]:
                    self.sources[number] = source
        self.responses.append(response if kind == ASSISTANT else 0)
        self.tools.append(tools[0] if tools else 0)
        if len(tools) > 1:
            self.more_tools[number] = tools

    def finish(self) -> EntryTable:
        """Resolve the parents that come after their children. Call it once, after the last add."""
        for number, parent_id in self._unresolved.items():
            self.parents[number] = self._numbers.get(parent_id, MISSING)
        self._unresolved.clear()
        return self

    def find(self, uuid: Any) -> int | None:
        """Return the number of the last entry with an id, or None."""
        return self._numbers.get(hash(uuid)) if isinstance(uuid, str) else None

    def source(self, number: int) -> int:
        """Return the entry with the tool call that this entry answers."""
        if number not in self.sources:
            return self.parents[number]
        return self._numbers.get(self.sources[number], MISSING)

    def last(self, number: int) -> int:
        """Return the last entry that has the id of this one."""
        return self._numbers[self.replaced[number]] if number in self.replaced else number

    def tool_ids(self, number: int) -> tuple[int, ...]:
        """Return the hashed ids of the tool calls that an entry makes or answers."""
        if number in self.more_tools:
            return self.more_tools[number]
        return (self.tools[number],) if self.tools[number] else ()


def _parse_marks(header: EntryHeader, kind: int) -> int:
    marks = (SIDECHAIN if header.isSidechain else 0) | (TEAM if header.teamName else 0)
    if kind == ATTACHMENT:
        return marks | _parse_attachment_marks(header.attachment)
    return marks | META if header.isMeta else marks


def _parse_attachment_marks(attachment: Any) -> int:
    """Return the marks of an attachment: QUEUED for a prompt sent while the model worked."""
    if isinstance(attachment, _Attachment):
        has_prompt = bytes(attachment.prompt)[:1] in (b'"', b"[")
        kind, is_meta = attachment.type, attachment.isMeta
    elif isinstance(attachment, dict):
        has_prompt = isinstance(attachment.get("prompt"), str | list)
        kind, is_meta = attachment.get("type"), attachment.get("isMeta")
    else:
        return 0
    is_queued = has_prompt and kind == "queued_command"
    return (QUEUED | (META if is_meta else 0)) if is_queued else 0


def _parse_message_ids(message: Any) -> tuple[int, tuple[int, ...]]:
    """Return the hashes of a message's id and of the tool calls in it."""
    if isinstance(message, _Message):
        response, content = message.id, message.content
        if not isinstance(content, list):
            return hash(response) if response else 0, ()
        ids = [block.id or block.tool_use_id for block in content]
    elif isinstance(message, dict):
        response, content = message.get("id"), message.get("content")
        blocks = content if isinstance(content, list) else []
        ids = [
            block.get("id") or block.get("tool_use_id")
            for block in blocks
            if isinstance(block, dict)
        ]
    else:
        return 0, ()
    tools = tuple(hash(id) for id in ids if id and isinstance(id, str))
    return hash(response) if response and isinstance(response, str) else 0, tools


def table_from_entries(entries: Iterable[Entry]) -> EntryTable:
    """Return the table of parsed entries. `starts` holds their positions in `entries`."""
    table = EntryTable()
    for position, entry in enumerate(entries):
        table.add(header_decoder.from_entry(entry), position)
    return table.finish()


def table_from_file(descriptor: int) -> EntryTable:
    """Return the table of an open transcript."""
    table = EntryTable()
    decode_line = header_decoder.decode_line
    for start, size, line in safe_io.read_lines(descriptor):
        if size == len(line):
            headers = decode_line(line)
        else:
            headers = _headers_of_long_line(descriptor, start, size, line)
        for part, header in enumerate(headers):
            table.add(header, start, size, part)
    return table.finish()


def _headers_of_long_line(descriptor: int, start: int, size: int, ends: bytes) -> list[EntryHeader]:
    header = header_from_ends(ends)
    if header.type and header.uuid:
        return [header]
    # They are in the middle. Losing the entry would be worse than reading the whole line once.
    return header_decoder.decode_line(safe_io.read_at(descriptor, start, size))


def header_from_ends(data: bytes) -> EntryHeader:
    """Return the fields that the two ends of a long line contain."""
    head, tail = data[:_END_BYTES], data[-_END_BYTES:]
    header = EntryHeader()
    for name in ("type", "subtype", "uuid", "parentUuid", "isSidechain", "isMeta", "teamName"):
        value = jsonl.head_field(head, name)
        setattr(header, name, jsonl.tail_field(tail, name) if value is None else value)
    header.sourceToolAssistantUUID = jsonl.tail_field(tail, "sourceToolAssistantUUID")
    return header


class EntryReader:
    """Read entries of an open transcript again, by number."""

    def __init__(self, descriptor: int, table: EntryTable) -> None:
        self._descriptor = descriptor
        self._table = table
        self._joined_line: tuple[int, list[Entry]] = (-1, [])

    def __call__(self, number: int) -> Entry:
        """Return the entry with a number; an empty one if the file has changed since."""
        table = self._table
        start, part = table.starts[number], table.parts.get(number, 0)
        cached_start, entries = self._joined_line
        if cached_start != start:
            entries = self._read_line(start, table.sizes[number])
        return entries[part] if part < len(entries) else {}

    def _read_line(self, start: int, size: int) -> list[Entry]:
        entries = jsonl.parse_entries(safe_io.read_at(self._descriptor, start, size))
        if len(entries) > 1:  # the next number is probably another entry of this line
            self._joined_line = start, entries
        return entries
