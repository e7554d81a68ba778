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


def without_codes(text: str) -> str:
    """A text without them. Where one moves the cursor, a word ends."""
    if ESCAPE not in text:
        return text
    return _code().sub(lambda code: " " if code[1] else "", text)
