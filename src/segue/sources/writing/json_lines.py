"""Encode records as lines of JSON that programs in any language read."""

from __future__ import annotations

from typing import Any

from segue.model import codec

# Node ends a line at these characters too: the line separator and the paragraph separator.
_LINE_ENDS = ("\u2028", "\u2029")
_ESCAPES = {end.encode(): f"\\u{ord(end):04x}".encode() for end in _LINE_ENDS}


def encode_line(record: Any) -> bytes:
    """Return a record as one line, without white space between its fields."""
    line = codec.encode(record)
    for end, escape in _ESCAPES.items():
        line = line.replace(end, escape)
    return line + b"\n"
