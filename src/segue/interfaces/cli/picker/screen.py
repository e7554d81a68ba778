"""The screen of the session picker: draw it, move and search, and run the actions of keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import HubReader, Target
from segue.model.errors import SegueError

from .state import PickerState
from .terminal import Terminal
from .view import HELP_KEY, PREVIEW_KEY, PickerView

if TYPE_CHECKING:
    from segue.model.session import Session

_TOP = -(10**9)
_STEPS = {"up": -1, "ctrl-p": -1, "down": 1, "ctrl-n": 1, "home": _TOP}


class PickerScreen:
    """Shows the sessions of all sources or of one. `actions` has a function for each key.

    An action that sets `off_screen` runs this function on the normal screen, such as another
    program; then the picker returns. `footer` is shown until the next key.
    """

    def __init__(self, reader: HubReader, source: str | None = None) -> None:
        self.terminal = Terminal()
        self.view = PickerView()
        self.state = PickerState(reader, os.getcwd(), source)
        self.footer = ""
        self.off_screen: Callable[[], None] | None = None
        self.actions: dict[str, Callable[[Session], None]] = {}

    def run(self) -> None:
        """Show the picker until the user quits."""
        while True:
            with self.terminal.full_screen():
                self.handle_keys()
            if self.off_screen is None:
                return
            action, self.off_screen = self.off_screen, None
            action()

    def handle_keys(self) -> None:
        """Handle keys until the user quits or an action needs the normal screen."""
        while True:
            if not self.terminal.has_input():
                self.draw()
            # Load what is missing on the screen step by step, until a key is pressed.
            while not self.terminal.has_input() and self._load_more():
                self.draw()
            key = self.terminal.read_key()
            if key in ("ctrl-c", "ctrl-q") or (key == "escape" and not self.state.typed):
                return
            if key != "resize":
                self.footer = ""
            try:
                self._press(key)
            except SegueError as error:
                self.footer = f"! {one_line(error.message)}"
            if self.off_screen is not None:
                return

    def _load_more(self) -> bool:
        columns, lines = self.terminal.size
        return self.state.load_more(lines - 2, preview=self.view.has_preview(columns))

    def _press(self, key: str) -> None:
        state = self.state
        _, lines = self.terminal.size
        if key in _STEPS:
            state.move(_STEPS[key])
        elif key == "end":
            state.move(len(state.rows) - 1 - state.index)
        elif key in ("page-up", "page-down"):
            state.move((lines - 3) * (1 if key == "page-down" else -1))
        elif key in ("escape", "ctrl-u"):
            state.set_typed("")
        elif key == "backspace":
            state.set_typed(state.typed[:-1])
        elif key == "ctrl-w":
            state.set_typed(state.typed.rstrip().rpartition(" ")[0])
        elif key == "ctrl-v":
            self.view.preview = not self.view.preview
        elif key == "ctrl-a":
            state.toggle_archived()
        elif key == HELP_KEY and not state.typed:
            from .help import show_help  # it loads the tools

            show_help(self.terminal, self.view)
        elif len(key) == 1 and key.isprintable():
            state.set_typed(state.typed + key)
        elif key in self.actions and state.selected is not None:
            session = state.selected.session
            assert session is not None
            self.actions[key](session)

    def draw(self) -> None:
        self.terminal.draw(self.view.lines(self.state, self.terminal.size, self.footer))

    def edit_line(self, label: str, text: str) -> str | None:
        """Edit a line of text in the footer; return None if the user cancels."""
        while True:
            self.footer = f"{label}: {text}▏"
            self.draw()
            key = self.terminal.read_key()
            if key == "enter":
                self.footer = ""
                return text
            if key in ("escape", "ctrl-c"):
                self.footer = ""
                return None
            if key == "backspace":
                text = text[:-1]
            elif key == "ctrl-u":
                text = ""
            elif len(key) == 1 and key.isprintable():
                text += key


def choose_session(target: Target, action: str) -> Session | None:
    """Let the user choose a session for an action; return None if the user quits."""
    chosen: list[Session] = []
    with target.reader() as reader:
        screen = PickerScreen(reader)

        def choose(session: Session) -> None:
            chosen.append(session)
            screen.off_screen = lambda: None

        screen.actions = {"enter": choose}
        screen.view.keys = (f"enter {action}", PREVIEW_KEY)
        with screen.terminal.full_screen():
            screen.handle_keys()
    return chosen[0] if chosen else None
