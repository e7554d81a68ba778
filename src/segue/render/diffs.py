"""Compare two versions of a file line by line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from . import threads

Change = tuple[str, int, int, int, int]  # tag, and the ranges of lines before and after

# Of both versions together. In longer texts, equal beginnings and ends are not compared.
MAX_COMPARED_LINES = 3000
MAX_CHANGED_LINES = 10_000  # of both versions together, without equal beginnings and ends
MAX_STEPS = 100_000  # of a comparison, which takes about 10 ms; most need a few thousand
STEPS_PER_LINE = 5  # that each line adds to MAX_STEPS
MAX_SHOWN_LINES = 300  # of a new version that cannot be compared
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
    threads.use_characters(4 * (len(before) + len(after)))
    groups = find_changes(before, after)
    if groups is None:
        beginning = [DiffLine("+", line) for line in after[:MAX_SHOWN_LINES]]
        return FileDiff(beginning, len(after), len(before), complete=False)
    lines: list[DiffLine] = []
    for group in groups:
        if lines:
            lines.append(DiffLine("@", "…"))
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                lines += [DiffLine(" ", line) for line in before[old_start:old_end]]
                continue
            lines += [DiffLine("-", line) for line in before[old_start:old_end]]
            lines += [DiffLine("+", line) for line in after[new_start:new_end]]
    added = sum(line.sign == "+" for line in lines)
    removed = sum(line.sign == "-" for line in lines)
    return FileDiff(lines, added, removed, complete=True)


def find_changes(before: Sequence[str], after: Sequence[str]) -> list[list[Change]] | None:
    """Return the changes with the lines around them, in groups of neighbours.

    None if the lines are too many, or repeat so often that a comparison takes too long.
    """
    start = 0
    if len(before) + len(after) > MAX_COMPARED_LINES:
        start, end = _equal_ends(before, after)
        before, after = before[start : len(before) - end], after[start : len(after) - end]
    if len(before) + len(after) > MAX_CHANGED_LINES:
        return None
    try:
        groups = list(_LimitedMatcher(before, after).get_grouped_opcodes(CONTEXT_LINES))
    except _TooManySteps:
        return None
    return [[_shift(change, start) for change in group] for group in groups]


def _shift(change: Change, lines: int) -> Change:
    """Return a change with line numbers that are higher by `lines`."""
    tag, *ranges = change
    old_start, old_end, new_start, new_end = (line + lines for line in ranges)
    return tag, old_start, old_end, new_start, new_end


def _equal_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return how many lines are equal at the beginning and at the end, without the context."""
    pairs = zip(before, after, strict=False)
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(0, equal - CONTEXT_LINES)
    pairs = zip(reversed(before[start:]), reversed(after[start:]), strict=False)
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return start, max(0, equal - CONTEXT_LINES)


class _TooManySteps(Exception):
    """A comparison takes too long."""


class _LimitedMatcher(difflib.SequenceMatcher[str]):
    """Compares lines in a limited number of steps.

    The time to find the longest match grows with the number of pairs of equal lines in a range.
    After each match, the lines before and after it are searched again.
    """

    b2j: dict[str, list[int]]  # where each line occurs in the new version

    def __init__(self, before: Sequence[str], after: Sequence[str]) -> None:
        super().__init__(None, before, after)
        pairs = (1 + len(self.b2j.get(line, ())) for line in before)
        self._pairs_before = list(accumulate(pairs, initial=0))
        self._steps = MAX_STEPS + STEPS_PER_LINE * (len(before) + len(after))

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        end = len(self._pairs_before) - 1 if ahi is None else ahi
        self._steps -= self._pairs_before[end] - self._pairs_before[alo]
        if self._steps < 0:
            raise _TooManySteps
        return super().find_longest_match(alo, ahi, blo, bhi)
