"""Text in columns of a terminal: how wide it is, cut to a width, broken into lines."""

from __future__ import annotations

from collections.abc import Iterator
from unicodedata import combining, east_asian_width


def width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_of(char) for char in text)


def fit(text: str, columns: int) -> str:
    """The text in exactly so many columns: cut with an ellipsis, or filled with spaces."""
    text = cut(text, columns)
    return text + " " * (columns - width(text))


def cut(text: str, columns: int) -> str:
    """The text, or as much of it as fits, with an ellipsis."""
    if width(text) <= columns:
        return text
    kept, used = "", 0
    for char in text:
        if used + _of(char) > columns - 1:
            break
        kept += char
        used += _of(char)
    return kept + "…"


def fit_end(text: str, columns: int) -> str:
    """The text, or its end: of a path that is too long, what tells it from others."""
    if width(text) <= columns:
        return text
    while width(text) > columns - 1:
        text = text[1:]
    return "…" + text


def wrap(text: str, columns: int) -> Iterator[str]:
    """The lines of a text, none wider than that, broken at spaces where there are any.

    What is indented stays so, unless little room is left.
    """
    for line in text.expandtabs(4).split("\n"):
        inside = line.lstrip(" ")
        margin = " " * min(len(line) - len(inside), columns // 4)
        for piece in _broken(inside, columns - len(margin)):
            yield margin + piece


def _broken(line: str, columns: int) -> Iterator[str]:
    current = ""
    for word in line.split(" "):
        longer = f"{current} {word}" if current else word
        if width(longer) <= columns:
            current = longer
            continue
        if current:
            yield current
        while width(word) > columns:
            at = _reach(word, columns)
            yield word[:at]
            word = word[at:]
        current = word
    yield current


def _reach(word: str, columns: int) -> int:
    """How many characters of a word that is too wide fit, but at least one."""
    used = 0
    for at, char in enumerate(word):
        used += _of(char)
        if used > columns:
            return max(1, at)
    return len(word)


def _of(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
