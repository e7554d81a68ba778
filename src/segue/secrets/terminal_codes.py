"""A text without terminal codes and escaped slashes, with positions that lead back to it."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache

# One of these is in each text with parts that are removed. An escape has a backslash.
SIGNS = ("\x1b", "\\")


@cache
def _removed() -> re.Pattern[str]:
    """Return the pattern of colour codes, also escaped ones, and of escaped slashes in JSON."""
    code = r"\[[0-9;:]*[mK]"
    return re.compile(rf"\x1b{code}|\\(?:(?:u001[bB]|x1[bB]|033|e){code}|(?=/))")


class PlainView:
    """A text without the parts that hide a secret from the detector."""

    def __init__(self, text: str, removed: list[tuple[int, int]]) -> None:
        pieces: list[str] = []
        self._starts: list[int] = []  # of the pieces in the view
        self._shifts: list[int] = []  # from the view to the text
        end = size = 0
        for start, stop in [*removed, (len(text), len(text))]:
            self._starts.append(size)
            self._shifts.append(end - size)
            pieces.append(text[end:start])
            size += start - end
            end = stop
        self.text = "".join(pieces)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the positions in the whole text of a part of the view."""
        return self._position(start), self._position(end - 1) + 1

    def _position(self, position: int) -> int:
        return position + self._shifts[bisect_right(self._starts, position) - 1]


def plain_view(text: str) -> PlainView | None:
    """Return the text without terminal codes and escaped slashes; None if it has none."""
    if not any(mark in text for mark in ("\x1b[", "\\/", "\\u001", "\\x1", "\\033[", "\\e[")):
        return None
    removed = [match.span() for match in _removed().finditer(text)]
    return PlainView(text, removed) if removed else None
