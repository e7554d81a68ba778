"""Compare texts, and write and read patches in the unified format."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import accumulate, takewhile
from typing import NamedTuple

from segue.model.content import Content, Diff, FileChange
from segue.model.event import ToolCall

Change = tuple[str, int, int, int, int]  # tag, and the ranges of lines before and after

# Of both versions together. In longer texts, equal beginnings and ends are not compared.
MAX_COMPARED_LINES = 3000
MAX_CHANGED_LINES = 10_000  # of both versions together, without equal beginnings and ends
MAX_STEPS = 100_000  # of a comparison, which takes about 10 ms; most need a few thousand
STEPS_PER_LINE = 5  # each line adds this many to MAX_STEPS
CONTEXT_LINES = 3
MAX_PATCHED_CHARACTERS = 200_000  # of both versions together; larger changes have no patch
_NO_NEWLINE = "\\ No newline at end of file"


class Hunk(NamedTuple):
    """One part of a patch: its lines, each with a sign (` `, `-` or `+`), and both texts."""

    lines: list[str]
    old: str
    new: str


def file_change(
    path: str, before: bytes | None, after: bytes, input_text: str | None = None
) -> FileChange:
    """Return the change of a file from `before` to `after`; without `before` it is new.

    The patch is left out if the file is new and `input_text`, the text in the call's input, is all
    of it.
    """
    new = after.decode("utf-8", "replace")
    old = None if before is None else before.decode("utf-8", "replace")
    patch: str | None = None
    is_short = len(old or "") + len(new) <= MAX_PATCHED_CHARACTERS
    if is_short and (old is not None or new != input_text):
        patch = "".join(patch_lines(old or "", new))
    return FileChange(
        path=path,
        before_sha256=None if before is None else sha256(before).hexdigest(),
        after_sha256=sha256(after).hexdigest(),
        patch=patch,
    )


def with_texts(content: Content, call: ToolCall | None) -> Content:
    """Return the content of a result with the text of a new file that is only in its call."""
    return tuple(
        (_new_file(block, call) or block) if isinstance(block, FileChange) else block
        for block in content
    )


def _new_file(block: FileChange, call: ToolCall | None) -> Diff | None:
    """Return a new file with its text, if the call's input has it."""
    arguments = call.input if call is not None and block.patch is None else None
    text = arguments.get("content") if isinstance(arguments, dict) else None
    if not isinstance(text, str):
        return None
    data = text.encode("utf-8", "surrogatepass")
    if sha256(data).hexdigest() != block.after_sha256:
        return None  # a person changed the input
    return Diff(path=block.path, new=text)


def as_diffs(block: FileChange) -> list[Diff]:
    """Return a diff of each hunk; a patch does not contain the rest of the file."""
    is_new = block.before_sha256 is None
    return [
        Diff(path=block.path, old=None if is_new else hunk.old, new=hunk.new)
        for hunk in hunks(block.patch or "")
    ]


def hunks(patch: str) -> list[Hunk]:
    """Return the hunks of a patch without headers of files."""
    hunks: list[tuple[list[str], list[str], list[str]]] = []
    for line in split_lines(patch):
        if line.startswith("@@"):
            hunks.append(([], [], []))
        elif not hunks:
            continue
        elif line.startswith("\\"):
            _remove_newline(*hunks[-1])
        else:
            lines, old, new = hunks[-1]
            line = line if line[0] in " -+" else f" {line}"
            lines.append(line.removesuffix("\n"))
            if line[0] in " -":
                old.append(line[1:])
            if line[0] in " +":
                new.append(line[1:])
    return [Hunk(lines, "".join(old), "".join(new)) for lines, old, new in hunks]


def _remove_newline(lines: list[str], old: list[str], new: list[str]) -> None:
    """Remove the newline of the last line, from the texts that it belongs to."""
    sign = lines[-1][0] if lines else ""
    for side, signs in ((old, " -"), (new, " +")):
        if side and sign and sign in signs:
            side[-1] = side[-1].removesuffix("\n")


def patch_lines(old: str, new: str) -> Iterator[str]:
    """Yield the hunks of a unified patch; all lines if the texts cannot be compared."""
    before, after = split_lines(old), split_lines(new)
    groups: Iterable[Sequence[Change]] | None = find_changes(before, after)
    if groups is None:
        groups = [[("replace", 0, len(before), 0, len(after))]]
    for group in groups:
        first, last = group[0], group[-1]
        old_range, new_range = _line_range(first[1], last[2]), _line_range(first[3], last[4])
        yield f"@@ -{old_range} +{new_range} @@\n"
        for tag, old_start, old_end, new_start, new_end in group:
            sign = " " if tag == "equal" else "-"
            yield from (_patch_line(sign, line) for line in before[old_start:old_end])
            if tag != "equal":
                yield from (_patch_line("+", line) for line in after[new_start:new_end])


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their newlines. Patches know no other line ends."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _line_range(start: int, end: int) -> str:
    """Return a range of lines as a hunk's header has it."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _patch_line(sign: str, line: str) -> str:
    ending = "" if line.endswith("\n") else f"\n{_NO_NEWLINE}\n"
    return f"{sign}{line}{ending}"


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
