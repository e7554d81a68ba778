"""Show what a tool call would change in files, before a person allows it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import click
from msgspec.structs import replace

from segue.interfaces.cli.output.text import one_line, safe
from segue.model.content import Diff, FileChange
from segue.model.event import ToolCall
from segue.model.tools.arguments import changes_of
from segue.render.text.diffs import DiffLine, file_diff

MAX_SHOWN_LINES = 80  # of one file
_MAX_COMPARED_BYTES = 1_000_000  # of the file as it is now
_COLORS = {"+": "green", "-": "red", "@": "cyan"}


def planned_changes(call: ToolCall | None, directory: str) -> Iterator[str]:
    """Yield the lines of a diff for each file that a call would change.

    A path that is not absolute is in `directory`. A file that would be written as a whole is
    compared with the file that is there now.
    """
    for change in changes_of(call, None):
        diff = file_diff(_compared(change, directory))
        counts = f"+{diff.added} -{diff.removed}"
        yield click.style(f"  {one_line(change.path)}  {counts}", bold=True)
        for line in diff.lines[:MAX_SHOWN_LINES]:
            yield _diff_line(line)
        hidden = len(diff.lines) - MAX_SHOWN_LINES
        if hidden > 0:
            yield click.style(f"  … {hidden} more lines", dim=True)


def _diff_line(line: DiffLine) -> str:
    sign = "…" if line.sign == "@" else line.sign
    text = "" if line.sign == "@" else safe(line.text).replace("\t", "    ")
    return click.style(f"  {sign} {text}".rstrip(), fg=_COLORS.get(line.sign), dim=sign == " ")


def _compared(change: Diff | FileChange, directory: str) -> Diff | FileChange:
    """Return a change of a whole file with the text that the file has now, if it can be read."""
    if not isinstance(change, Diff) or change.old is not None:
        return change
    old = _read_text(os.path.join(directory, change.path))
    return change if old is None else replace(change, old=old)


def _read_text(path: str) -> str | None:
    """Return the text of a regular file that is not large; None for all others."""
    try:
        # Opening a FIFO would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(_MAX_COMPARED_BYTES + 1)
    except (OSError, ValueError):
        return None
    return None if len(data) > _MAX_COMPARED_BYTES else data.decode("utf-8", "replace")
