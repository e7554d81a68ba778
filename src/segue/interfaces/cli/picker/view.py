"""Draw the session picker: turn its state into the lines of a screen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from segue.interfaces.cli.durations import age
from segue.interfaces.cli.external_tools import source_symbol
from segue.interfaces.cli.output.text import OpenCalls, event_text, one_line, title_text
from segue.interfaces.cli.output.width import fit, fit_end, width, wrap
from segue.model import clock
from segue.model.event import Event
from segue.model.session import Session
from segue.render.format import session_cost

from .state import PickerRow, PickerState

MIN_COLUMNS_WITH_PREVIEW = 90
MIN_COLUMNS_WITH_PROJECT = 40
MAX_FOOTER_LINES = 6  # of an error that is longer than a line
PREVIEW_KEY = "^V preview"
KEYS = (
    "enter resume",
    "tab read",
    "^O other tool",
    "^F fork",
    "^X archive",
    "^A archived",
    "^E rename",
    "^T tag",
    "^D delete",
    "^Y copy id",
    PREVIEW_KEY,
)
HELP_KEY = "?"  # while nothing is typed
LAST_KEYS = (f"{HELP_KEY} help", "esc quit")


class PickerView:
    """Draws the picker for any size of screen.

    `preview` turns the preview on and off, and `keys` are those that the last line shows.
    """

    def __init__(self) -> None:
        self.preview = True
        self.keys: Sequence[str] = KEYS
        self._top = 0
        self._color = "NO_COLOR" not in os.environ

    def has_preview(self, columns: int) -> bool:
        """Return True if the preview is on and the screen is wide enough."""
        return self.preview and columns >= MIN_COLUMNS_WITH_PREVIEW

    def lines(self, state: PickerState, size: tuple[int, int], footer: str = "") -> list[str]:
        """Return the lines of the screen; without a footer, the last line lists the keys."""
        columns, rows = size
        key_line = _key_line(self.keys, columns, archived=state.archived)
        last = list(wrap(footer or key_line, columns))[: min(MAX_FOOTER_LINES, rows - 2)]
        height = rows - 1 - len(last)
        has_preview = self.has_preview(columns)
        list_columns = columns * 11 // 20 if has_preview else columns
        lines = self._list_lines(state, list_columns, height)
        if has_preview:
            preview = self._preview_lines(state, columns - list_columns - 3, height)
            border = self._style(" │ ", dim=True)
            lines = [f"{left}{border}{right}" for left, right in zip(lines, preview, strict=True)]
        name = "archived " if state.archived else "segue "
        count = _count_text(state)
        typed = fit(state.typed + "▏", columns - len(name) - 2 - len(count))
        return [
            f"{self._style(name, bold=True)}> {typed}{self._style(count, dim=True)}",
            *lines,
            *(self._style(fit(line, columns), dim=not footer) for line in last),
        ]

    def dialog_lines(
        self,
        title: str,
        rows: Sequence[str],
        last: str,
        size: tuple[int, int],
        selected: int | None = None,
    ) -> list[str]:
        """Return a screen with a title, rows of which one may be selected, and a last line."""
        columns, height = size
        lines = [
            self._style(fit(row, columns), reverse=index == selected)
            for index, row in enumerate(rows[: height - 2])
        ]
        return [
            self._style(fit(title, columns), bold=True),
            *lines,
            *[" " * columns] * (height - 2 - len(lines)),
            self._style(fit(last, columns), dim=True),
        ]

    def _style(self, text: str, **style: Any) -> str:
        if not self._color:
            style.pop("fg", None)
        return click.style(text, reset=True, **style)

    def _list_lines(self, state: PickerState, columns: int, height: int) -> list[str]:
        self._scroll(state.index, height)
        now = clock.now()
        rows = state.rows[self._top : self._top + height]
        lines = [
            self._row_line(row, columns, now, selected=index == state.index)
            for index, row in enumerate(rows, self._top)
        ]
        if not lines:
            lines = [self._style(fit(f"  {_empty_message(state)}", columns), dim=True)]
        return lines + [" " * columns] * (height - len(lines))

    def _scroll(self, index: int, height: int) -> None:
        """Keep the selected row on the screen, and the heading above the first session."""
        self._top = min(self._top, index)
        if index >= self._top + height:
            self._top = index - height + 1
        if index <= 1:
            self._top = 0

    def _row_line(self, row: PickerRow, columns: int, now: int, *, selected: bool) -> str:
        session = row.session
        if session is None:
            return self._style(fit(row.text, columns), dim=True, bold=True)
        title = _labelled_title(session)
        text = f"{source_symbol(session.source)} {age(session.active_at, now):>4}  {title}"
        snippet = one_line(row.text)
        if snippet and snippet.strip("…") not in title:
            text += f"  · {snippet}"
        project = fit_end(project_name(session), columns // 4)
        if columns < MIN_COLUMNS_WITH_PROJECT or not row.shows_project:
            project = ""
        gap = "  " if project else ""
        line = fit(text, columns - width(gap + project)) + gap
        if selected:
            return self._style(line + project, reverse=True)
        return line + self._style(project, dim=True)

    def _preview_lines(self, state: PickerState, columns: int, height: int) -> list[str]:
        row = state.selected
        if row is None or row.session is None:
            return [" " * columns] * height
        header = [
            self._style(fit(line, columns), dim=True)
            for line in _session_header(row.session, columns)
        ]
        body_height = height - len(header) - 1
        body = list(_conversation_lines(state.preview(row) or (), columns))
        body = body[:body_height] if row.seq is not None else body[-body_height:]
        lines = [*header, " " * columns, *(fit(line, columns) for line in body)]
        return (lines + [" " * columns] * (height - len(lines)))[:height]


def project_name(session: Session) -> str:
    """Return the name of a session's directory."""
    return one_line(os.path.basename(session.cwd.rstrip("/")) or session.cwd)


def _count_text(state: PickerState) -> str:
    """Return how many sessions match, and of how many, as far as they are counted."""
    if state.total is None:
        return ""
    total = f"{state.total:,}{'+' * state.has_more_total}"
    if not state.typed or state.matching is None:
        return f" {total}"
    return f" {state.matching:,}{'+' * state.has_more_matching} of {total}"


def _labelled_title(session: Session) -> str:
    tag = f" #{one_line(session.tag)}" if session.tag else ""
    status = ""
    if session.status != "idle":
        status = f" [{session.status}]"
    elif session.pending:
        status = " [waiting]"
    return title_text(session) + tag + status


def _empty_message(state: PickerState) -> str:
    if state.typed:
        return "No sessions match."
    return "No archived sessions." if state.archived else "No sessions yet: run `segue new`."


def _key_line(keys: Sequence[str], columns: int, *, archived: bool) -> str:
    """Return as many of the keys as fit, and always those for help and to quit."""
    shown: list[str] = []
    for key in keys:
        if archived:
            key = key.replace("archived", "back").replace("X archive", "X unarchive")
        if width("  ".join([*shown, key, *LAST_KEYS])) > columns:
            break
        shown.append(key)
    return "  ".join([*shown, *LAST_KEYS])


def _session_header(session: Session, columns: int) -> list[str]:
    created = clock.to_rfc3339(session.created_at)[:16].replace("T", " ")
    messages = "1 message" if session.messages == 1 else f"{session.messages} messages"
    branch = f" ({one_line(session.git_branch)})" if session.git_branch else ""
    cost = session_cost(session)
    labels = [f"#{one_line(session.tag)}"] if session.tag else []
    if session.fork is not None:
        labels.append(f"fork of {session.fork.session[:13]}")
    return [
        session.id,
        fit_end(one_line(session.cwd) + branch, columns),
        f"{messages}{f', {cost}' if cost else ''}, created {created}, by {session.origin}",
        *([", ".join(labels)] if labels else []),
    ]


def _conversation_lines(events: Sequence[Event], columns: int) -> Iterator[str]:
    calls = OpenCalls()
    for event in events:
        text = event_text(event, calls.find(event))
        if text is not None:
            # Lines are cut to the column, which would cut through style codes.
            yield from wrap(click.unstyle(text), columns)
