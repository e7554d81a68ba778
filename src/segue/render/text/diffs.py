"""Show two versions of a file, or a patch, line by line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from segue.model.content import Diff, FileChange
from segue.model.tools.patches import find_changes, hunks
from segue.render import threads

MAX_PAGE_LINES = 300  # of one diff on a page, which links to the rest
MAX_WORD_PAIRS = 200  # lines of one diff whose words are compared
MAX_WORD_CHARACTERS = 400  # of a line whose words are compared
MIN_SIMILARITY = 0.65  # of two lines; the words of others are not compared
_HEADER = re.compile(r"^@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})", re.MULTILINE)
_WORD = re.compile(r"\w+|\s+|.")


class DiffLine(NamedTuple):
    """`sign` is `+`, `-`, a space, or `@` for a gap.

    `old` and `new` are the numbers of the line in both versions, as far as they are known. `words`
    has the parts of a line that replaced another one, and whether each is changed.
    """

    sign: str
    text: str
    old: int | None = None
    new: int | None = None
    words: tuple[tuple[str, bool], ...] = ()


class FileDiff(NamedTuple):
    """The lines of a diff; without `complete` only those of the new version that are known."""

    lines: list[DiffLine]
    added: int
    removed: int
    complete: bool


def file_diff(block: Diff | FileChange) -> FileDiff:
    """Return how a file was changed."""
    if isinstance(block, Diff):
        return compare_texts(block.old, block.new, 1 if block.old is None else None)
    lines: list[DiffLine] = []
    patch = block.patch or ""
    starts = _HEADER.findall(patch)
    for hunk, start in zip_longest(hunks(patch), starts):
        if hunk is None:
            break
        if lines:
            lines.append(DiffLine("@", "…"))
        old, new = (int(start[0]), int(start[1])) if start else (None, None)
        signed = ((line[0], line[1:].removesuffix("\r")) for line in hunk.lines)
        lines += _numbered(signed, old, new)
    threads.use_characters(4 * len(lines))
    added, removed = (sum(line.sign == sign for line in lines) for sign in "+-")
    is_too_long = block.patch is None and block.before_sha256 is not None
    return FileDiff(lines, added, removed, complete=not is_too_long)


def is_new_file(block: Diff | FileChange) -> bool:
    """Return whether a change creates its file."""
    return (block.old if isinstance(block, Diff) else block.before_sha256) is None


def compare_texts(old: str | None, new: str, first_line: int | None = None) -> FileDiff:
    """Return how `new` differs from `old`; `old` is None for a new file.

    `first_line` is the number of the first line in the file, if it is known.
    """
    before = [] if old is None else old.splitlines()
    after = new.splitlines()
    threads.use_characters(4 * (len(before) + len(after)))
    groups = find_changes(before, after) if before else None
    if groups is None:  # a new file, or texts that cannot be compared
        numbered = _numbered([("+", line) for line in after], None, first_line)
        return FileDiff(list(numbered), len(after), len(before), complete=not before)
    lines: list[DiffLine] = []
    for group in groups:
        if lines:
            lines.append(DiffLine("@", "…"))
        signed: list[tuple[str, str]] = []
        for tag, old_start, old_end, new_start, new_end in group:
            sign = " " if tag == "equal" else "-"
            signed += [(sign, line) for line in before[old_start:old_end]]
            if tag != "equal":
                signed += [("+", line) for line in after[new_start:new_end]]
        if first_line is None:
            lines += [DiffLine(sign, line) for sign, line in signed]
        else:
            lines += _numbered(signed, first_line + group[0][1], first_line + group[0][3])
    added = sum(line.sign == "+" for line in lines)
    removed = sum(line.sign == "-" for line in lines)
    return FileDiff(lines, added, removed, complete=True)


def _numbered(
    signed: Iterator[tuple[str, str]] | list[tuple[str, str]], old: int | None, new: int | None
) -> Iterator[DiffLine]:
    """Yield the lines of a hunk with the numbers that they have in both versions."""
    for sign, text in signed:
        yield DiffLine(sign, text, None if sign == "+" else old, None if sign == "-" else new)
        if old is not None and sign != "+":
            old += 1
        if new is not None and sign != "-":
            new += 1


def with_words(lines: list[DiffLine]) -> list[DiffLine]:
    """Return the lines of a diff; lines that replace similar ones have their changed words."""
    result = list(lines)
    pairs = 0
    index = 0
    while index < len(lines):
        removed = _run(lines, index, "-")
        added = _run(lines, removed, "+")
        for old, new in zip(range(index, removed), range(removed, added), strict=False):
            pairs += 1
            if pairs <= MAX_WORD_PAIRS and (words := _compare_words(lines[old], lines[new])):
                result[old] = lines[old]._replace(words=words[0])
                result[new] = lines[new]._replace(words=words[1])
        index = max(added, index + 1)
    return result


def _run(lines: list[DiffLine], start: int, sign: str) -> int:
    """Return the end of a run of lines with one sign."""
    while start < len(lines) and lines[start].sign == sign:
        start += 1
    return start


Words = tuple[tuple[str, bool], ...]


def _compare_words(old: DiffLine, new: DiffLine) -> tuple[Words, Words] | None:
    """Return the parts of two lines; None if they are too long or too different."""
    if max(len(old.text), len(new.text)) > MAX_WORD_CHARACTERS:
        return None
    threads.use_characters(len(old.text) + len(new.text))
    before, after = _WORD.findall(old.text), _WORD.findall(new.text)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if matcher.quick_ratio() < MIN_SIMILARITY or matcher.ratio() < MIN_SIMILARITY:
        return None
    old_words: list[tuple[str, bool]] = []
    new_words: list[tuple[str, bool]] = []
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        changed = tag != "equal"
        if old_end > old_start:
            old_words.append(("".join(before[old_start:old_end]), changed))
        if new_end > new_start:
            new_words.append(("".join(after[new_start:new_end]), changed))
    return tuple(old_words), tuple(new_words)
