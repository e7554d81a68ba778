"""Remove terminal (ANSI) codes from text, and make text harmless in terminals and tables."""

from __future__ import annotations

import re
from functools import cache

ESCAPE = "\x1b"  # every code begins with it
MAX_LINE_CHARACTERS = 200  # characters
# Characters that change the order of the text on a line.
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"


@cache
def controls() -> re.Pattern[str]:
    """Return the pattern of a character that controls a terminal. Compiled on first use."""
    return re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTIONS}]")


@cache
def _formula() -> re.Pattern[str]:
    return re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


@cache
def _number() -> re.Pattern[str]:
    return re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)


def csv_cell(text: str) -> str:
    """Return text that neither controls a terminal nor is a formula; numbers stay as they are."""
    text = controls().sub("\ufffd", text.replace("\r\n", "\n"))
    return f"'{text}" if _formula().match(text) and not _number().fullmatch(text) else text


@cache
def _code() -> re.Pattern[str]:
    """Return the pattern of a code. Compiled on first use."""
    return re.compile(
        r"\x1b(?:"
        r"\[[0-?]*[ -/]*(?:([A-H`adef])|[@-~]|\Z)"  # colours and others; the group moves the cursor
        r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles, links and other strings
        r"|[#%(-/]?[0-~]?"  # all others, and codes that are cut off
        r")"
    )


def strip_codes(text: str, max_chars: int | None = None) -> str:
    """Return a text without terminal codes, at most `max_chars` of it.

    A code that moves the cursor becomes a space. The scan stops early, because outputs can be long.
    """
    if ESCAPE not in text:
        return text[:max_chars]
    parts: list[str] = []
    size = end = 0
    for code in _code().finditer(text):
        part = text[end : code.start()] + (" " if code[1] else "")
        parts.append(part)
        size, end = size + len(part), code.end()
        if max_chars is not None and size >= max_chars:
            break
    else:
        parts.append(text[end:])
    return "".join(parts)[:max_chars]


def strip_colors(text: str) -> str:
    """Return the text without color codes; other codes stay."""
    return _color().sub("", text) if ESCAPE in text else text


@cache
def _color() -> re.Pattern[str]:
    return re.compile(r"\x1b\[[0-9;:]*m")


def one_line(text: str, width: int = MAX_LINE_CHARACTERS) -> str:
    """Return the beginning of a text on one line of at most `width` characters."""
    line = " ".join(strip_colors(text[: 8 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"
