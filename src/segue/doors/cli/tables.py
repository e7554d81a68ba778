"""Tables for a terminal, by rich; long ones go through the reader's pager."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...hub import Found
from ...model import clock
from ...model.session import Session
from .output import one_line, tilde
from .pager import show_text
from .times import age


def show(table: Any) -> None:
    """Print what rich can render."""
    from rich.console import Console

    # What is not shown in a terminal is not cut to the width of one.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    with console.capture() as captured:
        console.print(table)
    show_text(captured.get())


def sessions_table(sessions: Sequence[Session]) -> Any:
    """When, how long, what, where."""
    table, names = _table(), short([session.id for session in sessions])
    for name, session in zip(names, sessions, strict=True):
        _session_row(table, name, session, clock.now())
    return table


def found_table(results: Sequence[Found]) -> Any:
    """The same, each with its snippet below it."""
    from rich.text import Text

    table, names = _table(), short([found.session.id for found in results])
    for name, found in zip(names, results, strict=True):
        _session_row(table, name, found.session, clock.now())
        snippet = Text(found.snippet)
        for mark in found.marks:
            snippet.stylize("bold yellow", mark.start, mark.stop)
        table.add_row("", "", "", snippet, "")
    return table


def _table() -> Any:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, expand=False)
    table.add_column(style="dim", no_wrap=True, min_width=13)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True, ratio=3)
    table.add_column(overflow="ellipsis", no_wrap=True, style="dim", ratio=1)
    return table


def short(ids: Sequence[str]) -> list[str]:
    """As much of each id as tells them apart.

    The first 13 characters are its time of making to the millisecond, and hardly ever shared.
    """
    length = next(each for each in (13, 18, 23, 36) if len({id[:each] for id in ids}) == len(ids))
    return [id[:length] for id in ids]


def _session_row(table: Any, name: str, session: Session, now: int) -> None:
    from rich.text import Text

    title = Text(one_line(session.title or "(untitled)"))
    if session.title is None:
        title.stylize("dim")
    for mark, style in marks(session):
        title.append(f" {mark}", style)
    where = tilde(session.cwd)
    table.add_row(name, age(session.active_at, now), str(session.messages), title, one_line(where))


def marks(session: Session) -> Sequence[tuple[str, str]]:
    """What is to be said of a session beside its title, with a colour for it."""
    found = []
    if session.tag:
        found.append((f"#{one_line(session.tag)}", "cyan"))
    if session.source != "segue":
        found.append((session.source, "magenta"))
    if session.status != "idle":
        found.append((session.status, "green" if session.status == "running" else "red"))
    elif session.pending:
        found.append(("waiting for an answer", "yellow"))
    if session.shelf != "live":
        found.append((session.shelf, "dim"))
    return found
