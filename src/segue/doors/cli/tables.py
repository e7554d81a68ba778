"""Tables for a terminal, by rich; long ones go through the reader's pager."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ...hub import Found
from ...model import clock
from ...model.session import Session
from .output import one_line
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


def sessions_table(sessions: Iterable[Session]) -> Any:
    """When, how long, what, where."""
    table = _table()
    for session in sessions:
        _session_row(table, session, clock.now())
    return table


def found_table(results: Iterable[Found]) -> Any:
    """The same, each with its snippet below it."""
    from rich.text import Text

    table = _table()
    for found in results:
        _session_row(table, found.session, clock.now())
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


def _session_row(table: Any, session: Session, now: int) -> None:
    from rich.text import Text

    title = Text(one_line(session.title or "(untitled)"))
    if session.title is None:
        title.stylize("dim")
    for mark, style in marks(session):
        title.append(f" {mark}", style)
    where = tilde(session.cwd)
    # 13 characters of an id are its time of making to the millisecond, and hardly ever shared.
    table.add_row(
        session.id[:13], age(session.active_at, now), str(session.messages), title, one_line(where)
    )


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


def tilde(path: str) -> str:
    """A path as people write it."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path == home or path.startswith(home + os.sep) else path
