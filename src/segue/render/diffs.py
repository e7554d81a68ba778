"""Show two versions of a file, or a patch, line by line."""

from __future__ import annotations

from typing import NamedTuple

from segue.model.content import Diff, FileChange
from segue.model.tools.patches import MAX_CHANGED_LINES, find_changes, hunks

from . import threads

MAX_SHOWN_LINES = 300  # of a new version that cannot be compared


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


def file_diff(block: Diff | FileChange) -> FileDiff:
    """Return how a file was changed."""
    if isinstance(block, Diff):
        return compare_texts(block.old, block.new)
    lines: list[DiffLine] = []
    for hunk in hunks(block.patch or ""):
        if lines:
            lines.append(DiffLine("@", "…"))
        lines += [DiffLine(line[0], line[1:].removesuffix("\r")) for line in hunk.lines]
    threads.use_characters(4 * len(lines))
    added, removed = (sum(line.sign == sign for line in lines) for sign in "+-")
    is_too_long = block.patch is None and block.before_sha256 is not None
    complete = not is_too_long and len(lines) <= MAX_CHANGED_LINES
    if not complete:
        lines = [line for line in lines if line.sign == "+"][:MAX_SHOWN_LINES]
    return FileDiff(lines, added, removed, complete)


def is_new_file(block: Diff | FileChange) -> bool:
    """Return whether a change creates its file."""
    return (block.old if isinstance(block, Diff) else block.before_sha256) is None


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
