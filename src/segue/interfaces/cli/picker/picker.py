"""What the keys of the picker do."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from segue.interfaces.cli.main import Where
from segue.interfaces.cli.output.text import one_line
from segue.model.errors import SegueError

from .state import Choices
from .terminal import Terminal
from .view import View

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

_STEPS = {"up": -1, "ctrl-p": -1, "down": 1, "ctrl-n": 1, "home": -(10**9), "end": 0}


class Picker:
    """One run of it."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._terminal = Terminal()
        self._view = View()
        self._footer = ""
        self._after: Callable[[], None] | None = None
        self._actions: dict[str, Callable[[Session], None]] = {
            "enter": self._open,
            "ctrl-r": self._resume,
            "ctrl-f": self._fork,
            "ctrl-e": self._rename,
            "ctrl-t": self._tag,
            "ctrl-x": self._archive,
            "ctrl-d": self._delete,
            "ctrl-y": self._copy,
        }

    def run(self) -> None:
        with self._where.asking() as ask:
            self._choices = Choices(ask, os.getcwd())
            while True:
                with self._terminal.shown():
                    self._loop()
                if self._after is None:
                    return
                after, self._after = self._after, None
                after()

    def _loop(self) -> None:
        """Until the screen is to be left."""
        while True:
            if not self._terminal.typed():
                self._draw()
            # What can wait is done piece by piece, until a key comes.
            while not self._terminal.typed() and self._finish():
                self._draw()
            key = self._terminal.key()
            if key in ("ctrl-c", "ctrl-q") or (key == "escape" and not self._choices.typed):
                return
            if key != "resize":
                self._footer = ""
            try:
                self._press(key)
            except SegueError as error:
                self._footer = f"! {one_line(error.message)}"
            if self._after is not None:
                return

    def _finish(self) -> bool:
        columns, lines = self._terminal.size
        return self._choices.finish(lines - 2, self._view.splits(columns))

    def _press(self, key: str) -> None:
        choices = self._choices
        _, lines = self._terminal.size
        if key in _STEPS:
            choices.move(_STEPS[key] or len(choices.rows) - 1 - choices.at)
        elif key in ("page-up", "page-down"):
            choices.move((lines - 3) * (1 if key == "page-down" else -1))
        elif key in ("escape", "ctrl-u"):
            choices.type("")
        elif key == "backspace":
            choices.type(choices.typed[:-1])
        elif key == "ctrl-w":
            choices.type(choices.typed.rstrip().rpartition(" ")[0])
        elif key == "tab":
            self._view.preview = not self._view.preview
        elif key == "ctrl-a":
            choices.switch()
        elif len(key) == 1 and key.isprintable():
            choices.type(choices.typed + key)
        elif key in self._actions and choices.selected is not None:
            session = choices.selected.session
            assert session is not None
            self._actions[key](session)

    def _draw(self) -> None:
        self._terminal.draw(self._view.lines(self._choices, self._terminal.size, self._footer))

    def _line(self, question: str, given: str) -> str | None:
        """A line of text, edited in the footer; None if it was not wanted after all."""
        text = given
        while True:
            self._footer = f"{question}: {text}▏"
            self._draw()
            key = self._terminal.key()
            if key == "enter":
                self._footer = ""
                return text
            if key in ("escape", "ctrl-c"):
                self._footer = ""
                return None
            if key == "backspace":
                text = text[:-1]
            elif key == "ctrl-u":
                text = ""
            elif len(key) == 1 and key.isprintable():
                text += key

    def _change(self, said: str, work: Callable[[Hub, Principal], Any]) -> Any:
        """Do something to a session, and show what came of it."""
        done = self._where.run(work)
        self._choices.reload(stay=True)
        self._footer = said
        return done

    def _open(self, session: Session) -> None:
        from segue.interfaces.cli.commands.show import show_session

        self._after = lambda: show_session(self._where, session.id, wait=True)

    def _resume(self, session: Session) -> None:
        from segue.interfaces.cli.commands.chat import resume

        def go_on() -> None:
            try:
                resume(self._where, session)
            except SegueError as error:
                self._footer = f"! {one_line(error.message)}"
            self._choices.reload(stay=True)

        self._after = go_on

    def _fork(self, session: Session) -> None:
        made = self._change(
            "Forked.", lambda hub, who: hub.editor.fork(who, session.id, origin="cli")
        )
        self._choices.type("")
        for place, row in enumerate(self._choices.rows):
            if row.session is not None and row.session.id == made.id:
                self._choices.at = place
                break

    def _rename(self, session: Session) -> None:
        title = self._line("Title", session.title or "")
        if title is not None:
            value = title.strip() or None
            self._change("Renamed.", lambda hub, who: hub.editor.set_title(who, session.id, value))

    def _tag(self, session: Session) -> None:
        tag = self._line("Tag", session.tag or "")
        if tag is not None:
            value = tag.strip() or None
            self._change("Tagged.", lambda hub, who: hub.editor.set_tag(who, session.id, value))

    def _archive(self, session: Session) -> None:
        if session.state == "archived":
            self._change("Unarchived.", lambda hub, who: hub.editor.unarchive(who, session.id))
        else:
            self._change(
                "Archived; ^A shows what is.", lambda hub, who: hub.editor.archive(who, session.id)
            )

    def _delete(self, session: Session) -> None:
        self._footer = f"Move {one_line(session.title or 'it')!r} to the trash? y/n"
        self._draw()
        if self._terminal.key() not in ("y", "Y"):
            self._footer = "Left as it is."
            return
        self._change(
            f"In the trash; `segue restore {session.id[:13]}` takes it out.",
            lambda hub, who: hub.editor.trash(who, session.id),
        )

    def _copy(self, session: Session) -> None:
        self._terminal.copy(session.id)
        self._footer = f"Copied {session.id}"
