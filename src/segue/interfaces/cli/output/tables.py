"""Sessions and numbers in the columns of a terminal; what is long goes through the pager."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from segue.hub import SearchMatch
from segue.interfaces.cli.durations import age
from segue.interfaces.cli.output.width import cut, fit_end, width
from segue.model import clock
from segue.model.session import Session

from .pager import show_text
from .text import one_line, safe, tilde

_AGE = 4  # columns
NARROW = 60  # columns; in fewer there is no room for places


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


def session_lines(sessions: Sequence[Session], found: Sequence[SearchMatch] = ()) -> str:
    """Which, when, how long, what, where; below each session the snippet that a search found.

    Where there is little room, the title gives way; where there is very little, the place goes.

    By hand: rich takes longer to import than the list to read, and minutes for a long one.
    """
    now = clock.now()
    names = short([session.id for session in sessions])
    counts = [str(session.messages) for session in sessions]
    part = columns() // 4 if columns() >= NARROW else 0
    places = [fit_end(one_line(tilde(session.cwd)), part) if part else "" for session in sessions]
    titles = [one_line(session.title or "(untitled)") for session in sessions]
    besides = [marks(session) for session in sessions]
    lengths = [sum(1 + width(mark) for mark, _ in beside) for beside in besides]
    most = max(map(len, counts))
    indent = len(names[0]) + _AGE + most + 3 * len("  ")
    longest = max(width(title) + length for title, length in zip(titles, lengths, strict=True))
    room = min(longest, max(8, columns() - indent - len("  ") - max(map(width, places))))
    lines = []
    for at, session in enumerate(sessions):
        title = cut(titles[at], max(4, room - lengths[at]))
        space = " " * (room - width(title) - lengths[at])
        beside = "".join(" " + click.style(mark, **style) for mark, style in besides[at])
        lines.append(
            f"{click.style(names[at], dim=True)}  {age(session.active_at, now):>{_AGE}}"
            f"  {click.style(counts[at].rjust(most), dim=True)}"
            f"  {title if session.title else click.style(title, dim=True)}{beside}{space}"
            f"  {click.style(places[at], dim=True)}"
        )
        if found:
            below = indent if part else 4
            lines.append(" " * below + _highlighted(found[at], columns() - below))
    return "".join(f"{line}\n" for line in lines)


def _highlighted(found: SearchMatch, room: int) -> str:
    """A snippet with the words that were found in it marked, as much as there is room for."""
    shown = cut(safe(found.snippet), room)
    text, end = "", 0
    for mark in found.marks:
        start, stop = (min(each, len(shown)) for each in (mark.start, mark.stop))
        text += shown[end:start] + click.style(shown[start:stop], bold=True, fg="yellow")
        end = stop
    return text + shown[end:]


def short(ids: Sequence[str]) -> list[str]:
    """As much of each id as tells them apart.

    The first 13 characters are its time of making to the millisecond, and hardly ever shared.
    """
    length = next(each for each in (13, 18, 23, 36) if len({id[:each] for id in ids}) == len(ids))
    return [id[:length] for id in ids]


def marks(session: Session) -> list[tuple[str, dict[str, Any]]]:
    """What is to be said of a session beside its title, with a style for it."""
    found: list[tuple[str, dict[str, Any]]] = []
    if session.tag:
        found.append((f"#{one_line(session.tag)}", {"fg": "cyan"}))
    if session.source != "segue":
        found.append((session.source, {"fg": "magenta"}))
    if session.status != "idle":
        found.append((session.status, {"fg": "green" if session.status == "running" else "red"}))
    elif session.pending:
        found.append(("waiting for an answer", {"fg": "yellow"}))
    if session.state != "active":
        found.append((session.state, {"dim": True}))
    return found
