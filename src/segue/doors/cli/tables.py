"""Tables for a terminal, by rich; long ones go through the reader's pager."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

from ...hub import Found
from ...model import clock
from ...model.session import Session
from .output import one_line, tilde
from .pager import show_text
from .picker.width import fit_end, width
from .times import age

_AGE = 4  # columns


def show(table: Any) -> None:
    """Print what rich can render."""
    from rich.console import Console

    console = Console(highlight=False, width=columns())
    with console.capture() as captured:
        console.print(table)
    show_text(captured.get())


def columns() -> int:
    """How wide it may be. What is not shown in a terminal is not cut to the width of one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 200


def found_table(results: Sequence[Found]) -> Any:
    """Sessions, each with its snippet below it."""
    from rich.text import Text

    snippets = []
    for found in results:
        snippets.append(Text(found.snippet))
        for mark in found.marks:
            snippets[-1].stylize("bold yellow", mark.start, mark.stop)
    return sessions_table([found.session for found in results], snippets)


def sessions_table(sessions: Sequence[Session], below: Sequence[Any] = ()) -> Any:
    """Which, when, how long, what, where. Where there is little room, the title gives way."""
    from rich.table import Table

    now = clock.now()
    names = short([session.id for session in sessions])
    counts = [str(session.messages) for session in sessions]
    places = [fit_end(one_line(tilde(session.cwd)), columns() // 4) for session in sessions]
    widths = [max(map(width, cells)) for cells in (names, counts, places)]
    room = max(12, columns() - sum(widths) - _AGE - 4 * len("  "))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True, width=widths[0])
    table.add_column(justify="right", no_wrap=True, width=_AGE)
    table.add_column(justify="right", style="dim", no_wrap=True, width=widths[1])
    table.add_column(overflow="ellipsis", no_wrap=True, max_width=room)
    table.add_column(style="dim", no_wrap=True, width=widths[2])
    for at, session in enumerate(sessions):
        when, title = age(session.active_at, now), _title(session, room)
        table.add_row(names[at], when, counts[at], title, places[at])
        if below:
            table.add_row("", "", "", below[at], "")
    return table


def short(ids: Sequence[str]) -> list[str]:
    """As much of each id as tells them apart.

    The first 13 characters are its time of making to the millisecond, and hardly ever shared.
    """
    length = next(each for each in (13, 18, 23, 36) if len({id[:each] for id in ids}) == len(ids))
    return [id[:length] for id in ids]


def _title(session: Session, room: int) -> Any:
    """The title with what is to be said beside it, of which nothing is cut."""
    from rich.text import Text

    beside = Text()
    for mark, style in marks(session):
        beside.append(f" {mark}", style)
    title = Text(one_line(session.title or "(untitled)"), "" if session.title else "dim")
    title.truncate(max(4, room - beside.cell_len), overflow="ellipsis")
    return title + beside


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
