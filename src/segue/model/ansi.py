"""The codes by which programs drive terminals, and text as a terminal shows it."""

from __future__ import annotations

import re
from functools import cache

ESCAPE = "\x1b"  # with which every code begins


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


def without_codes(text: str, most: int | None = None) -> str:
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
