"""Format sessions and numbers in the columns of a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from segue.interfaces.cli.durations import age
from segue.model import clock
from segue.model.session import Session
from segue.render.format import session_cost

from .pager import show_text
from .text import highlight, one_line, safe, tilde, title_text
from .width import cut, fit_end, width

if TYPE_CHECKING:
    from segue.hub import SearchMatch

Label = tuple[str, dict[str, Any]]

_AGE_COLUMNS = 4
_UNLIMITED_COLUMNS = 200
MIN_COLUMNS_WITH_DIRECTORY = 60
MIN_COLUMNS_WITH_COST = 80
_MIN_COLUMNS_OF_ONE_LINE = 50
_MIN_TITLE_COLUMNS = 8
_MIN_CUT_TITLE_COLUMNS = 4
_GAP = "  "
# The first 13 characters of an id are its creation time in milliseconds, so they rarely collide.
_SHORT_ID_LENGTHS = (13, 18, 23, 36)


def show(table: Any) -> None:
    """Print a value that rich can render."""
    from rich.console import Console

    console = Console(highlight=False, width=terminal_columns())
    with console.capture() as captured:
        console.print(table)
    show_text(captured.get())


def terminal_columns() -> int:
    """Return the terminal's width; other outputs are not cut to a terminal's width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNLIMITED_COLUMNS


def session_table(sessions: Sequence[Session], matches: Sequence[SearchMatch] = ()) -> str:
    """Return a line per session: id, age, messages, cost, title, directory.

    Search matches add a line with the snippet below each session. A narrow terminal shortens the
    titles, a very narrow one has them on lines of their own, without the costs and the
    directories. This does not use rich, which takes longer to import than the list takes to read.
    """
    now = clock.now()
    columns = terminal_columns()
    ids = shorten_ids([session.id for session in sessions])
    directory_columns = columns // 4 if columns >= MIN_COLUMNS_WITH_DIRECTORY else 0
    directories = [
        fit_end(one_line(tilde(session.cwd)), directory_columns) if directory_columns else ""
        for session in sessions
    ]
    titles = [title_text(session) for session in sessions]
    labels = [session_labels(session) for session in sessions]
    label_columns = [sum(1 + width(text) for text, _ in texts) for texts in labels]
    counts = _counts(sessions, with_costs=columns >= MIN_COLUMNS_WITH_COST)
    indent = len(ids[0]) + _AGE_COLUMNS + len(counts[0]) + 3 * len(_GAP)
    widest = max(width(title) + size for title, size in zip(titles, label_columns, strict=True))
    available = columns - indent - len(_GAP) - max(map(width, directories))
    title_columns = min(widest, max(_MIN_TITLE_COLUMNS, available))
    has_title_lines = columns < _MIN_COLUMNS_OF_ONE_LINE
    lines = []
    for index, session in enumerate(sessions):
        start = (
            f"{click.style(ids[index], dim=True)}"
            f"{_GAP}{age(session.active_at, now):>{_AGE_COLUMNS}}"
            f"{_GAP}{click.style(counts[index], dim=True)}"
        )
        if has_title_lines:
            lines += [start, _title_line(titles[index], labels[index], columns)]
        else:
            space = max(_MIN_CUT_TITLE_COLUMNS, title_columns - label_columns[index])
            title = cut(titles[index], space)
            padding = " " * (title_columns - width(title) - label_columns[index])
            lines.append(
                f"{start}{_GAP}{title if session.title else click.style(title, dim=True)}"
                f"{_styled(labels[index])}{padding}"
                f"{_GAP}{click.style(directories[index], dim=True)}"
            )
        if matches:
            lines += _match_lines(matches[index], indent if directory_columns else 4, columns)
    return "".join(f"{line}\n" for line in lines)


def _counts(sessions: Sequence[Session], *, with_costs: bool) -> list[str]:
    """Return the number of messages and perhaps the cost of each session, all equally wide."""
    counts = _right_aligned([str(session.messages) for session in sessions])
    costs = [session_cost(session) for session in sessions]
    if not with_costs or not any(costs):
        return counts
    pairs = zip(counts, _right_aligned(costs), strict=True)
    return [f"{count}{_GAP}{cost}" for count, cost in pairs]


def _right_aligned(texts: Sequence[str]) -> list[str]:
    columns = max(map(len, texts))
    return [text.rjust(columns) for text in texts]


def _match_lines(match: SearchMatch, indent: int, columns: int) -> list[str]:
    """Return the snippet of a match and, if forks have copies of it, a line that names them."""
    snippet = cut(safe(match.snippet), columns - indent)
    lines = [" " * indent + highlight(snippet, match.marks, bold=True, fg="yellow")]
    if match.copies:
        names = ", ".join(shorten_ids([copy.id for copy in match.copies]))
        text = cut(f"also in fork {names}", columns - indent)
        lines.append(" " * indent + click.style(text, dim=True))
    return lines


def _title_line(title: str, labels: Sequence[Label], columns: int) -> str:
    """Return a title with the labels for which there is space, below the rest of its row."""
    space = columns - len(_GAP)
    shown: list[Label] = []
    for text, style in labels:
        label_columns = 1 + width(text)
        if space - label_columns < min(width(title), _MIN_TITLE_COLUMNS):
            break
        shown.append((text, style))
        space -= label_columns
    return f"{_GAP}{cut(title, space)}{_styled(shown)}"


def _styled(labels: Sequence[Label]) -> str:
    return "".join(" " + click.style(text, **style) for text, style in labels)


def shorten_ids(ids: Sequence[str]) -> list[str]:
    """Return a prefix of each id, all of one length and all different."""
    length = next(
        length for length in _SHORT_ID_LENGTHS if len({id[:length] for id in ids}) == len(ids)
    )
    return [id[:length] for id in ids]


def session_labels(session: Session) -> list[Label]:
    """Return the labels after a session's title (tag, source, status, state) with their styles."""
    labels: list[Label] = []
    if session.tag:
        labels.append((f"#{one_line(session.tag)}", {"fg": "cyan"}))
    if session.source != "segue":
        labels.append((session.source, {"fg": "magenta"}))
    if session.status != "idle":
        labels.append((session.status, {"fg": "green" if session.status == "running" else "red"}))
    elif session.pending:
        labels.append(("waiting for an answer", {"fg": "yellow"}))
    elif session.stop_reason == "error":
        labels.append(("failed", {"fg": "red"}))
    if session.state != "active":
        labels.append((session.state, {"dim": True}))
    return labels
