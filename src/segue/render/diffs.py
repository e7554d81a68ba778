"""A change to a file as lines: kept, taken out, put in."""

from __future__ import annotations

import difflib
from typing import NamedTuple

MAX_LINES = 3000  # of both sides together; comparing more takes too long to wait for
CONTEXT = 3


class Line(NamedTuple):
    """`sign` is one of `+`, `-`, a space, and `@` for a gap."""

    sign: str
    text: str


class Change(NamedTuple):
    lines: list[Line]
    added: int
    removed: int
    whole: bool


def change(old: str | None, new: str) -> Change:
    """How `new` differs from `old`; not `whole` when it is too long to be shown in full."""
    before = [] if old is None else old.splitlines()
    after = new.splitlines()
    if len(before) + len(after) > MAX_LINES:
        shown = [Line("+", line) for line in after[: MAX_LINES // 10]]
        return Change(shown, len(after), len(before), False)
    lines: list[Line] = []
    for text in difflib.unified_diff(before, after, n=CONTEXT, lineterm=""):
        if not lines and text.startswith(("---", "+++")):
            continue
        if text.startswith("@@"):
            if lines:
                lines.append(Line("@", "…"))
            else:
                lines.append(Line("@", ""))
            continue
        lines.append(Line(text[0], text[1:]))
    if lines and lines[0] == Line("@", ""):
        del lines[0]
    added = sum(line.sign == "+" for line in lines)
    removed = sum(line.sign == "-" for line in lines)
    return Change(lines, added, removed, True)
