"""Show the colours of terminal output. All other terminal codes are removed."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from segue.model.ansi import ESCAPE, strip_codes

MAX_COLOR_CHANGES = 2000  # in one text; the rest has no colours
_COLOR = re.compile(r"\x1b\[([0-9;:]{0,64})m")
_LEVELS = (0, 95, 135, 175, 215, 255)  # of the colour cube of 256-colour codes
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class _Style:
    """The style that is set at one point of a text."""

    def __init__(self) -> None:
        self.color = ""
        self.flags: set[str] = set()

    def apply(self, codes: Sequence[int]) -> None:
        """Change the style as the numbers of one code say."""
        numbers = iter(codes)
        for code in numbers:
            if code == 0:
                self.color, self.flags = "", set()
            elif code in (1, 2, 3, 4):
                self.flags.add(("bold", "dim", "italic", "underline")[code - 1])
            elif code in (22, 23, 24):
                self.flags -= {22: {"bold", "dim"}, 23: {"italic"}, 24: {"underline"}}[code]
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.color = _NAMES[code % 10]
            elif code == 39:
                self.color = ""
            elif code in (38, 48):
                color = _extended(numbers)
                if code == 38:
                    self.color = color

    @property
    def classes(self) -> str:
        names = sorted(self.flags) + ([self.color] if self.color else [])
        return " ".join(f"a-{name}" for name in names)


def colored(text: str) -> str:
    """Return a text as HTML with its colours."""
    if ESCAPE not in text:
        return html.escape(text)
    parts: list[str] = []
    style, end = _Style(), 0
    for count, match in enumerate(_COLOR.finditer(text)):
        if count == MAX_COLOR_CHANGES:
            break
        parts.append(_span(text[end : match.start()], style.classes))
        style.apply([int(code or 0) for code in re.split("[;:]", match[1])])
        end = match.end()
    parts.append(_span(text[end:], style.classes))
    return "".join(parts)


def _span(text: str, classes: str) -> str:
    escaped = html.escape(strip_codes(text))
    return f'<span class="{classes}">{escaped}</span>' if classes and escaped else escaped


def _extended(numbers: Iterator[int]) -> str:
    """Return the basic colour that is nearest to a 256-colour or RGB code."""
    kind = next(numbers, 0)
    if kind == 2:
        rgb = [next(numbers, 0) for _ in range(3)]
    elif kind == 5:
        number = next(numbers, 0)
        if number < 16:
            return _NAMES[number % 8]
        if number >= 232:
            return "white" if number >= 244 else "black"
        number = min(number, 231) - 16
        rgb = [_LEVELS[number // 36], _LEVELS[number // 6 % 6], _LEVELS[number % 6]]
    else:
        return ""
    strongest = max(rgb)
    if strongest < 64:
        return "black"
    return _NAMES[sum(1 << bit for bit, value in enumerate(rgb) if value > 0.6 * strongest)]
