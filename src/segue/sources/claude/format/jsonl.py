"""Parse the lines of a transcript into entries, damaged lines included.

Almost every line is one JSON object, which msgspec reads fast. The others are salvaged slowly:
leading NULs after a power loss, invalid UTF-8, lone surrogates, a line torn by a crash and joined
to the next one. Anything that still is not an object is not an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from segue.model import clock
from segue.sources import safe_io

Entry = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)

_MAX_COUNT = 1 << 40
BLANK_BYTES = bytes(range(0x21))
_BLANK_CHARS = BLANK_BYTES.decode()
# Raised by msgspec and json for a line that they cannot parse; RecursionError is deep nesting.
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
# How an entry begins that is joined to the line before it.
_ENTRY_START = re.compile(
    r'\{\s*"(?:type|parentUuid|logicalParentUuid|uuid|sessionId|isSidechain|leafUuid|summary)"\s*:'
)
_DEEP_NESTING_CHARS = 8192
_MAX_SALVAGE_PASSES = 32  # how many times its own length may be read to salvage a broken line
_MAX_FIELD_BYTES = 4096
_json = json.JSONDecoder(strict=False)
_fast = msgspec.json.Decoder()


def parse_entries(line: bytes) -> list[Entry]:
    """Return the entries of a line: one, none if unreadable, several if lines are joined."""
    try:
        value = _fast.decode(line)
    except DECODE_ERRORS:
        return salvage_entries(line)
    return [value] if isinstance(value, dict) else []


def read_object(path: str, limit: int = safe_io.BLOCK_BYTES) -> Entry:
    """Return the JSON object in a small file; empty if there is none or it cannot be read."""
    return next(iter(parse_entries(safe_io.read_small_file(path, limit) or b"")), {})


class FieldDecoder(Generic[T]):
    """Decode only the fields that a struct declares, all optional and of any type.

    A field of type Raw is not decoded; `decode_raw` does that when it is needed.
    """

    def __init__(self, struct: type[T]) -> None:
        self._struct = struct
        decoder = msgspec.json.Decoder(struct)
        self._decode: Callable[[bytes], T] = decoder.decode
        self._decode_lines: Callable[[bytes], list[T]] = decoder.decode_lines

    def decode_line(self, line: bytes) -> list[T]:
        """Return the fields of each entry in a line."""
        if not line:
            return []
        try:
            return [self._decode(line)]
        except DECODE_ERRORS:
            return [self.from_entry(entry) for entry in salvage_entries(line)]

    def decode_block(self, block: bytes) -> list[T]:
        """Return the fields of each entry in a block of lines."""
        try:
            return self._decode_lines(block)
        except DECODE_ERRORS:
            return [fields for line in block.split(b"\n") for fields in self.decode_line(line)]

    def from_entry(self, entry: Entry) -> T:
        """Return the fields of an entry that is already parsed."""
        names = self._struct.__struct_fields__
        return self._struct(**{name: entry[name] for name in names if name in entry})


def decode_raw(value: Any) -> Any:
    """Return the value of a Raw field; None if it is absent or unreadable."""
    if not isinstance(value, msgspec.Raw):
        return value
    data = bytes(value)
    if not data:
        return None
    try:
        return _fast.decode(data)
    except DECODE_ERRORS:
        return _decode_value(data.decode("utf-8", "replace"), 0)[0]


def parse_count(value: Any) -> int | None:
    """Return a count, or None if it is not one. Sums of counts must fit into a store's integers."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT
    return value if is_count else None


def parse_timestamp(value: Any) -> int | None:
    """Return a timestamp in microseconds, or None if it is not one."""
    try:
        return clock.from_rfc3339(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def format_timestamp(at: int) -> str:
    """Return a timestamp as Claude Code writes it, with milliseconds."""
    return clock.to_rfc3339(at)[:-4] + "Z"


def message_content(entry: Entry) -> Any:
    """Return the content of an entry's message: a string, a list of blocks, or None."""
    message = entry.get("message")
    return message.get("content") if isinstance(message, dict) else None


def parse_text(value: Any) -> str | None:
    """Return a string that is not empty, or None."""
    return value if value and isinstance(value, str) else None


def salvage_entries(line: bytes) -> list[Entry]:
    """Return the entries of a line that msgspec cannot parse."""
    return salvage_line(line)[0]


def salvage_line(line: bytes) -> tuple[list[Entry], bool]:
    """Return the entries of any line, and whether the line holds nothing else."""
    text = line.strip(BLANK_BYTES).decode("utf-8", "replace")
    entries: list[Entry] = []
    first, end = _decode_value(text, 0)
    if isinstance(first, dict):
        entries.append(first)
    last_end = end = end if entries else 0  # where the last good entry ended
    nothing_skipped = True  # before that end
    budget = _MAX_SALVAGE_PASSES * len(text) + safe_io.BLOCK_BYTES
    while budget > 0 and (match := _ENTRY_START.search(text, end)):
        start = match.start()
        value, end = _decode_value(text, start)
        if not isinstance(value, dict):
            budget -= end  # not `end - start`: building the error counts the lines before it
            end = start + 1
            continue
        budget -= end - start
        adjacent = not text[last_end:start].strip(_BLANK_CHARS + ",")
        if (adjacent and entries) or _is_complete(value):
            nothing_skipped = nothing_skipped and adjacent
            entries.append(value)
            last_end = end
    return entries, nothing_skipped and not text[last_end:].strip(_BLANK_CHARS)


def _decode_value(text: str, start: int) -> tuple[Any, int]:
    """Return the value at `start` and where it ends, or None and where decoding failed."""
    try:
        return _json.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, max(start, error.pos)
    except DECODE_ERRORS:
        # A thousand brackets, or a number with thousands of digits.
        return None, start + _DEEP_NESTING_CHARS


def _is_complete(entry: Entry) -> bool:
    """Return whether this is an entry, not an object inside the torn entry before it."""
    return isinstance(entry.get("type"), str) and (
        "parentUuid" in entry or isinstance(entry.get("sessionId"), str)
    )


def head_field(line: bytes, name: str) -> Any:
    """Return a field of an entry whose end is missing; None if it is not in the head.

    A key belongs to the entry itself, not to an object inside it, exactly when the text before it
    needs one more brace to be an object.
    """
    key = f'"{name}":'.encode()
    start = -1
    while (start := line.find(key, start + 1)) >= 0:
        try:
            _no_fields.decode(line[:start] + b'"":0}')
            value_start = start + len(key)
            value = line[value_start : value_start + _MAX_FIELD_BYTES]
            return _json.raw_decode(value.decode("utf-8", "ignore").lstrip())[0]
        except DECODE_ERRORS:
            continue
    return None


def head_text(line: bytes, name: str) -> str | None:
    """Return the beginning of a string that is cut off, at any depth of the entry."""
    match = re.search(rb'"%s":\s*"' % name.encode(), line)
    if match is None:
        return None
    # Up to the last complete character; an escape sequence is one character.
    value = line[match.end() : match.end() + _MAX_FIELD_BYTES]
    complete = re.match(rb'(?:[^"\\]|\\u....|\\[^u])*', value, re.S)
    text = complete[0].decode("utf-8", "ignore") if complete else ""
    decoded = _decode_value(f'"{text}"', 0)[0]
    return decoded if isinstance(decoded, str) else None


def tail_field(line: bytes, name: str) -> Any:
    """Return a field of an entry whose beginning is missing; None if it is not in the tail.

    A key belongs to the entry itself exactly when the text after it needs one more brace before it.
    """
    key = f'"{name}":'.encode()
    start = len(line)
    while (start := line.rfind(key, 0, start)) >= 0:
        try:
            entry = _fast.decode(b"{" + line[start:])
        except DECODE_ERRORS:
            continue
        if isinstance(entry, dict):
            return entry[name]
    return None


class _NoFields(msgspec.Struct):
    pass


_no_fields = msgspec.json.Decoder(_NoFields)
