"""The codes by which programs drive terminals, and text as a terminal shows it."""

from __future__ import annotations

import re
from functools import cache

ESCAPE = "\x1b"  # with which every code begins
LINE_WIDTH = 200  # characters


@cache
def _code() -> re.Pattern[str]:
    """Compiled when a text first has one."""
    return re.compile(
        r"\x1b(?:"
        r"\[[0-?]*[ -/]*(?:([A-H`adef])|[@-~]|\Z)"  # colours and the like; these move the cursor
        r"|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # titles, links and other strings
        r"|[#%(-/]?[0-~]?"  # all others, and what is left of a code that was cut
        r")"
    )


def strip_codes(text: str, most: int | None = None) -> str:
    """A text without them, or so many characters of that. Where one moves the cursor, a word ends.

    No more is looked at than is needed: programs colour outputs of any length.
    """
    if ESCAPE not in text:
        return text[:most]
    parts: list[str] = []
    size = end = 0
    for code in _code().finditer(text):
        part = text[end : code.start()] + (" " if code[1] else "")
        parts.append(part)
        size, end = size + len(part), code.end()
        if most is not None and size >= most:
            break
    else:
        parts.append(text[end:])
    return "".join(parts)[:most]


def strip_colors(text: str) -> str:
    """Return the text without color codes; other codes stay."""
    return _color().sub("", text) if ESCAPE in text else text


@cache
def _color() -> re.Pattern[str]:
    return re.compile(r"\x1b\[[0-9;:]*m")


def one_line(text: str, width: int = LINE_WIDTH) -> str:
    """Return the beginning of a text on one line of at most `width` characters."""
    line = " ".join(strip_colors(text[: 8 * width]).split())
    return line if len(line) <= width else line[: width - 1] + "…"
