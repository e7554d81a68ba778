"""Combine the changes that a session made to files into one diff for each file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from segue.model.content import Diff, FileChange
from segue.model.event import Event, ToolCall, ToolResult
from segue.model.tools.arguments import changes_of
from segue.model.tools.changes import with_changes
from segue.model.tools.patches import as_diffs
from segue.render.text.diffs import file_diff

MAX_COMBINED_CHARACTERS = 400_000  # of one file; further changes are listed one after another
MAX_PARTS = 400  # of one file; further changes are only counted


class ChangedFile(NamedTuple):
    """A file that a session changed, as the parts of one diff.

    `calls` are the seqs of the tool calls that changed it. Without `complete`, the parts are only
    the first changes.
    """

    path: str
    is_new: bool
    parts: list[Diff | FileChange]
    added: int
    removed: int
    calls: list[int]
    complete: bool = True


def changed_files(events: Iterable[Event]) -> list[ChangedFile]:
    """Return the files that completed tool calls among some events changed, by path."""
    by_path: dict[str, _File] = {}
    calls: dict[str, Event] = {}
    for event in with_changes(events):
        if isinstance(event.body, ToolCall):
            calls[event.body.call_id] = event
        elif isinstance(event.body, ToolResult) and event.body.status == "completed":
            opening = calls.get(event.body.call_id)
            call = opening.body if opening is not None else None
            assert call is None or isinstance(call, ToolCall)
            for change in changes_of(call, event.body):
                if change.path:
                    file = by_path.setdefault(change.path, _File(change.path))
                    file.add(change, event.seq if opening is None else opening.seq)
    return [file.combined() for _, file in sorted(by_path.items())]


class _File:
    """The changes of one file so far."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_new = False
        self._parts: list[Diff | FileChange] = []
        self._calls: list[int] = []
        self._characters = 0
        self._complete = True

    def add(self, change: Diff | FileChange, seq: int) -> None:
        """Add the next change."""
        if seq not in self._calls[-1:]:
            self._calls.append(seq)
        diffs = as_diffs(change) if isinstance(change, FileChange) else [change]
        if isinstance(change, FileChange) and not self._parts:
            self._is_new = change.before_sha256 is None
            self._append(change)  # one patch has line numbers
            return
        self._split()
        for diff in diffs:
            self._combine(diff)

    def _split(self) -> None:
        """Replace patches by their hunks, which later changes can be combined with."""
        parts: list[Diff | FileChange] = []
        for part in self._parts:
            parts += as_diffs(part) if isinstance(part, FileChange) else [part]
        self._parts = parts

    def _combine(self, diff: Diff) -> None:
        if diff.old is None and not self._parts:
            self._is_new = True
        elif diff.old is None:  # the whole file is written again
            self._parts = [replace(diff, old=self._first_text())]
            return
        elif self._characters <= MAX_COMBINED_CHARACTERS:
            for index, part in enumerate(self._parts):
                assert isinstance(part, Diff)
                if diff.old and diff.old in part.new:
                    changed = part.new.replace(diff.old, diff.new, 1)
                    self._parts[index] = replace(part, new=changed)
                    self._characters += len(diff.new)
                    return
                if part.new and part.old is not None and part.new in diff.old:
                    diff = replace(diff, old=diff.old.replace(part.new, part.old, 1))
                    self._parts[index] = replace(part, new="", old="")
            self._parts = [part for part in self._parts if not _is_empty(part)]
        self._append(diff)

    def _first_text(self) -> str | None:
        """Return the text before the first change, if all of it is known."""
        if self._is_new or len(self._parts) != 1:
            return None
        part = self._parts[0]
        return part.old if isinstance(part, Diff) else None

    def _append(self, part: Diff | FileChange) -> None:
        if len(self._parts) >= MAX_PARTS:
            self._complete = False
            return
        self._parts.append(part)
        self._characters += len(part.new) if isinstance(part, Diff) else len(part.patch or "")

    def combined(self) -> ChangedFile:
        """Return the file with the parts of its diff that changed something."""
        parts = [part for part in self._parts if not _is_empty(part)]
        diffs = [file_diff(part) for part in parts]
        return ChangedFile(
            self._path,
            self._is_new,
            parts,
            sum(diff.added for diff in diffs),
            sum(diff.removed for diff in diffs),
            self._calls,
            self._complete,
        )


def _is_empty(part: Diff | FileChange) -> bool:
    return isinstance(part, Diff) and part.old == part.new
