"""How the picker looks: its state as the lines of a screen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import click

from segue.interfaces.cli.durations import age
from segue.interfaces.cli.output.text import event_text, one_line
from segue.interfaces.cli.output.width import fit, fit_end, wrap
from segue.model import clock
from segue.model.session import Session

from .state import Choices, Row

WIDE = 90  # columns from which on there is room for a preview
KEYS = (
    "enter open",
    "^R resume",
    "^F fork",
    "^E rename",
    "^T tag",
    "^X archive",
    "^A archived",
    "^D delete",
    "^Y copy id",
)
QUIT = "esc quit"
_HERE = {"claude": "◆", "segue": " "}


class View:
    """Lines for a size of screen. `preview` can be turned off."""

    def __init__(self) -> None:
        self.preview = True
        self._top = 0
        self._colour = "NO_COLOR" not in os.environ

    def splits(self, columns: int) -> bool:
        """Whether there is a preview beside the list."""
        return self.preview and columns >= WIDE

    def lines(self, choices: Choices, size: tuple[int, int], footer: str = "") -> list[str]:
        """The screen; without a footer of its own, the keys are its last line."""
        columns, rows = size
        height = rows - 2
        split = self.splits(columns)
        left = columns * 11 // 20 if split else columns
        listed = self._list(choices, left, height)
        if split:
            shown = self._preview(choices, columns - left - 3, height)
            bar = self._style(" │ ", dim=True)
            listed = [f"{line}{bar}{other}" for line, other in zip(listed, shown, strict=True)]
        name = "archived " if choices.archived else "segue "
        typed = fit(choices.typed + "▏", columns - len(name) - 2)
        last = footer or _keys(columns, choices.archived)
        return [
            f"{self._style(name, bold=True)}> {typed}",
            *listed,
            self._style(fit(last, columns), dim=not footer),
        ]

    def _style(self, text: str, **style: Any) -> str:
        if not self._colour:
            style.pop("fg", None)
        return click.style(text, reset=True, **style)

    def _list(self, choices: Choices, columns: int, height: int) -> list[str]:
        self._top = min(self._top, choices.at)
        if choices.at >= self._top + height:
            self._top = choices.at - height + 1
        if choices.at <= 1:
            self._top = 0  # with the first session its heading
        now = clock.now()
        shown = choices.rows[self._top : self._top + height]
        lines = [
            self._row(row, columns, now, self._top + place == choices.at)
            for place, row in enumerate(shown)
        ]
        if not lines:
            lines = [self._style(fit(f"  {_nothing(choices)}", columns), dim=True)]
        return lines + [" " * columns] * (height - len(lines))

    def _row(self, row: Row, columns: int, now: int, selected: bool) -> str:
        session = row.session
        if session is None:
            return self._style(fit(row.text, columns), dim=True, bold=True)
        tag = f" #{one_line(session.tag)}" if session.tag else ""
        state = "" if session.status == "idle" else f" [{session.status}]"
        waiting = " [waiting]" if session.status == "idle" and session.pending else ""
        title = one_line(session.title or "(untitled)") + tag + state + waiting
        mark = _HERE.get(session.source, "◇")
        text = f"{mark} {age(session.active_at, now):>4}  {title}"
        if row.text and not self._says(title, row.text):
            text += f"  · {one_line(row.text)}"
        line = fit(text, columns)
        return self._style(line, reverse=True) if selected else line

    def _says(self, title: str, snippet: str) -> bool:
        """Whether a snippet says nothing but the title."""
        return one_line(snippet).strip("…") in title

    def _preview(self, choices: Choices, columns: int, height: int) -> list[str]:
        row = choices.selected
        if row is None or row.session is None:
            return [" " * columns] * height
        about = _about(row.session, columns)
        head = [self._style(fit(line, columns), dim=True) for line in about]
        room = height - len(head) - 1
        text = list(_conversation(choices.preview(row) or (), columns))
        text = text[:room] if row.seq is not None else text[-room:]
        body = [fit(line, columns) for line in text]
        lines = [*head, " " * columns, *body]
        return (lines + [" " * columns] * (height - len(lines)))[:height]


def _nothing(choices: Choices) -> str:
    if choices.typed:
        return "Nothing found."
    return "Nothing is archived." if choices.archived else "No sessions yet: `segue new`."


def _keys(columns: int, archived: bool) -> str:
    """As many of the keys as there is room for, and how to get out."""
    shown = QUIT
    for key in KEYS[::-1]:
        if archived:
            key = key.replace("archived", "back").replace("X archive", "X unarchive")
        shown = f"{key}  {shown}"
    while len(shown) > columns and "  " in shown:
        rest, _, last = shown.rpartition("  ")
        shown = f"{rest.rpartition('  ')[0]}  {last}"
    return shown


def _about(session: Session, columns: int) -> list[str]:
    made = clock.to_rfc3339(session.created_at)[:16].replace("T", " ")
    messages = "1 message" if session.messages == 1 else f"{session.messages} messages"
    branch = f" ({one_line(session.git_branch)})" if session.git_branch else ""
    return [
        session.id,
        fit_end(one_line(session.cwd) + branch, columns),
        f"{messages}, begun {made}, by {session.origin}",
    ]


def _conversation(events: Sequence[Any], columns: int) -> Iterator[str]:
    for event in events:
        shown = event_text(event)
        if shown is not None:
            # Styles are left out: a line is cut to the column.
            yield from wrap(click.unstyle(shown), columns)
