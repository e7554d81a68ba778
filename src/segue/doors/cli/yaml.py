"""Values as YAML, for people and for whatever reads YAML.

Only what JSON has is written. Any string that another reader might take for something else, or
that holds more than plain letters, is written as JSON writes it, which YAML reads alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(
    r"[A-Za-z_/][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+(-][A-Za-z0-9_./@+)-]*)*", re.ASCII
)
# What YAML 1.1 or 1.2 reads as something other than text.
_TAKEN = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def document(value: Any) -> str:
    """One value as a document, with its line end."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _under(f"{_scalar(str(key))}:", item)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _under(head: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict | list | tuple) and value:
        yield head
        yield from (f"  {line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _TAKEN:
        return value
    if isinstance(value, dict | list | tuple):
        return "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, float):  # YAML 1.1 knows `1.0e-9`, and takes `1e-9` for text
        mantissa, e, exponent = json.dumps(value).partition("e")
        return mantissa + ("" if "." in mantissa or not e else ".0") + e + exponent
    # What is not printable is escaped as YAML does it, which for JSON would be two halves at times.
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}"
        for char in json.dumps(value, ensure_ascii=False)
    )
