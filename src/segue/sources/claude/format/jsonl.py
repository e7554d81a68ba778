"""Lines to entries, whatever happened to the lines.

The usual line is one JSON object, and msgspec reads it. The rest is met in the wild and read
the slow way: leading NULs after a power loss, bytes that are no UTF-8, lone surrogates, a line
torn by a crash with the next one glued to it. What still is no object counts as no entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from segue.model import clock

from . import safe_io

Entry = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)

_MAX_COUNT = 1 << 40  # of anything that is counted
BLANK_BYTES = bytes(range(0x21))
_BLANK_TEXT = BLANK_BYTES.decode()
# What msgspec and json raise for a line they cannot read; RecursionError is for deep nesting.
DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
# How an entry that another line was glued to begins.
_ENTRY_START = re.compile(
    r'\{\s*"(?:type|parentUuid|logicalParentUuid|uuid|sessionId|isSidechain|leafUuid|summary)"\s*:'
)
_DEEP_NESTING_CHARS = 8192
_MAX_SALVAGE_PASSES = 32  # how many times its own length may be read to sort a broken line out
_json = json.JSONDecoder(strict=False)
_fast = msgspec.json.Decoder()


def parse_entries(line: bytes) -> list[Entry]:
    """The entries of a line: one; none when it cannot be read; several when lines were glued."""
    try:
        value = _fast.decode(line)
    except DECODE_ERRORS:
        return salvage_entries(line)
    return [value] if isinstance(value, dict) else []


class FieldDecoder(Generic[T]):
    """Reads only the fields that a struct names, all of them optional and of any type.

    A field of type Raw is left as it is, for `opened` to read when it is wanted.
    """

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        decoder = msgspec.json.Decoder(kind)
        self._one: Callable[[bytes], T] = decoder.decode
        self._all: Callable[[bytes], list[T]] = decoder.decode_lines

    def __call__(self, line: bytes) -> list[T]:
        if not line:
            return []
        try:
            return [self._one(line)]
        except DECODE_ERRORS:
            return [self.pick(entry) for entry in salvage_entries(line)]

    def all(self, lines: bytes) -> list[T]:
        """The same of a block of lines."""
        try:
            return self._all(lines)
        except DECODE_ERRORS:
            return [found for line in lines.split(b"\n") for found in self(line)]

    def pick(self, entry: Entry) -> T:
        """The same fields of an entry that is already read."""
        names = self._kind.__struct_fields__
        return self._kind(**{name: entry[name] for name in names if name in entry})


def decode_raw(value: Any) -> Any:
    """What a field of type Raw holds; None when it is absent or cannot be read."""
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
    """A number of something, if it can be one: sums of them must fit into what stores keep."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT
    return value if is_one else None


def parse_timestamp(value: Any) -> int | None:
    """A timestamp in microseconds, if it is one."""
    try:
        return clock.from_rfc3339(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None


def salvage_entries(line: bytes) -> list[Entry]:
    """The entries of a line that msgspec refused."""
    return salvage_line(line)[0]


def salvage_line(line: bytes) -> tuple[list[Entry], bool]:
    """The entries of any line, and whether they are all that it holds."""
    text = line.strip(BLANK_BYTES).decode("utf-8", "replace")
    found: list[Entry] = []
    first, end = _decode_value(text, 0)
    if isinstance(first, dict):
        found.append(first)
    after = end = end if found else 0  # where the last good entry ended
    clean = True  # whether nothing was skipped before it
    work = _MAX_SALVAGE_PASSES * len(text) + safe_io.BLOCK_BYTES
    while work > 0 and (match := _ENTRY_START.search(text, end)):
        start = match.start()
        value, end = _decode_value(text, start)
        if not isinstance(value, dict):
            work -= end  # not from `start`: an error counts the lines before it
            end = start + 1
            continue
        work -= end - start
        joined = not text[after:start].strip(_BLANK_TEXT + ",")
        if (joined and found) or _is_complete(value):
            clean = clean and joined
            found.append(value)
            after = end
    return found, clean and not text[after:].strip(_BLANK_TEXT)


def _decode_value(text: str, start: int) -> tuple[Any, int]:
    """The value that begins here and where it ends, or None and where it broke."""
    try:
        return _json.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return None, max(start, error.pos)
    except DECODE_ERRORS:
        return (
            None,
            start + _DEEP_NESTING_CHARS,
        )  # a thousand brackets, or a number of thousands of digits


def _is_complete(entry: Entry) -> bool:
    """Whether this is an entry and not a part of the torn one before it."""
    return isinstance(entry.get("type"), str) and (
        "parentUuid" in entry or isinstance(entry.get("sessionId"), str)
    )


def head_field(line: bytes, name: str) -> Any:
    """A field of an entry of which only the beginning is there; None when it is not seen.

    A key belongs to the entry itself, and not to something inside it, exactly when the text
    before it needs one more brace to be an object.
    """
    key = f'"{name}":'.encode()
    at = -1
    while (at := line.find(key, at + 1)) >= 0:
        try:
            _skip.decode(line[:at] + b'"":0}')
            text = line[at + len(key) : at + len(key) + 4096].decode("utf-8", "ignore")
            return _json.raw_decode(text.lstrip())[0]
        except DECODE_ERRORS:
            continue
    return None


def head_text(line: bytes, name: str) -> str | None:
    """The beginning of a text that is cut off, wherever in the entry it stands."""
    match = re.search(rb'"%s":\s*"' % name.encode(), line)
    if match is None:
        return None
    # Up to the last character that is surely whole, escapes counted as one.
    text = re.match(rb'(?:[^"\\]|\\u....|\\[^u])*', line[match.end() : match.end() + 4096], re.S)
    piece = text[0].decode("utf-8", "ignore") if text else ""
    value = _decode_value(f'"{piece}"', 0)[0]
    return value if isinstance(value, str) else None


def tail_field(line: bytes, name: str) -> Any:
    """A field of an entry of which only the end is there; the same idea from the other side."""
    key = f'"{name}":'.encode()
    at = len(line)
    while (at := line.rfind(key, 0, at)) >= 0:
        try:
            entry = _fast.decode(b"{" + line[at:])
        except DECODE_ERRORS:
            continue
        if isinstance(entry, dict):
            return entry[name]
    return None


class _Skipped(msgspec.Struct):
    pass


_skip = msgspec.json.Decoder(_Skipped)
