"""Show what a tool cannot hold of a session that continues in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from segue.hub.tools import label

from .formats import write_value
from .text import one_line

if TYPE_CHECKING:
    from segue.hub.sync.continuing import Report


def show_report(report: Report, format: str | None, *, to_stderr: bool) -> None:
    """Print a report as a sentence and a table, or in a format."""
    if format is not None:
        write_value(format, to_builtins(report))
        return
    for line in report_lines(report):
        click.echo(line, err=to_stderr)


def report_lines(report: Report) -> list[str]:
    """Return the report as a sentence and a table."""
    from segue.hub.sync.continuing import FATES

    counts = [
        _count(report.prompts, "prompt"),
        _count(report.answers, "answer"),
        _count(report.tool_calls, "tool call"),
        _count(report.images, "image"),
    ]
    lines = [f"For {label(report.target)}: {', '.join(counts)}."]
    rows = [
        (str(loss.count), one_line(loss.what), FATES[loss.becomes], one_line(loss.why))
        for loss in report.losses
    ]
    if not rows:
        return [*lines, "Nothing is lost."]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [row[0].rjust(widths[0]), row[1].ljust(widths[1]), row[2].ljust(widths[2]), row[3]]
        lines.append("  ".join(cells))
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
