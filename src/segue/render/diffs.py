"""Compare two versions of a file line by line."""

from __future__ import annotations

import difflib
from typing import NamedTuple

MAX_COMPARED_LINES = 3000  # of both versions together; comparing more takes too long
CONTEXT_LINES = 3


class DiffLine(NamedTuple):
    """`sign` is `+`, `-`, a space, or `@` for a gap."""

    sign: str
    text: str


class FileDiff(NamedTuple):
    """The lines of a diff; without `complete` only the beginning of the new version."""

    lines: list[DiffLine]
    added: int
    removed: int
    complete: bool


def compare_texts(old: str | None, new: str) -> FileDiff:
    """Return how `new` differs from `old`; `old` is None for a new file."""
    before = [] if old is None else old.splitlines()
    after = new.splitlines()
    if len(before) + len(after) > MAX_COMPARED_LINES:
        beginning = [DiffLine("+", line) for line in after[: MAX_COMPARED_LINES // 10]]
        return FileDiff(beginning, len(after), len(before), complete=False)
    lines: list[DiffLine] = []
    for text in difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm=""):
        if not lines and text.startswith(("---", "+++")):
            continue
        if text.startswith("@@"):
            lines.append(DiffLine("@", "…" if lines else ""))
            continue
        lines.append(DiffLine(text[0], text[1:]))
    if lines and lines[0] == DiffLine("@", ""):
        del lines[0]
    added = sum(line.sign == "+" for line in lines)
    removed = sum(line.sign == "-" for line in lines)
    return FileDiff(lines, added, removed, complete=True)
