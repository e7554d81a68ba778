"""Encode records as JSON that programs in any language read."""

from __future__ import annotations

import json
from typing import Any

import msgspec

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


def encode_unicode(record: Any) -> bytes:
    """Return a record of plain types for programs that refuse halves of characters.

    A cut emoji leaves such a half, which becomes U+FFFD.
    """
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
