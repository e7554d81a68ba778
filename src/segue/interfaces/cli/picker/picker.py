"""Act on the keys that are pressed in the session picker."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import Target
from segue.model.errors import SegueError

from .state import PickerState
from .terminal import Terminal
from .view import PREVIEW_KEY, PickerView

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

_FAR_UP = -(10**9)
_STEPS = {"up": -1, "ctrl-p": -1, "down": 1, "ctrl-n": 1, "home": _FAR_UP}


class Picker:
    """Shows sessions, or those of one source, until the user quits."""

    def __init__(self, target: Target, source: str | None = None) -> None:
        self._target = target
        self._source = source
        self._terminal = Terminal()
        self._view = PickerView()
        self._footer = ""
        # Runs outside of the picker's screen, such as another program; then the picker returns.
        self._off_screen: Callable[[], None] | None = None
        self._actions: dict[str, Callable[[Session], None]] = {
            "enter": self._resume,
            "tab": self._read,
            "ctrl-r": self._resume,
            "ctrl-o": self._resume_in,
            "ctrl-f": self._fork,
            "ctrl-e": self._rename,
            "ctrl-t": self._tag,
            "ctrl-x": self._archive,
            "ctrl-d": self._delete,
            "ctrl-y": self._copy,
        }

    def choose(self, action: str) -> Session | None:
        """Let the user choose a session for an action; return None if the user quits."""
        chosen: list[Session] = []

        def choose(session: Session) -> None:
            chosen.append(session)
            self._off_screen = lambda: None

        self._actions = {"enter": choose}
        self._view.keys = (f"enter {action}", PREVIEW_KEY)
        with self._target.reader() as reader:
            self._state = PickerState(reader, os.getcwd(), self._source)
            with self._terminal.full_screen():
                self._handle_keys()
        return chosen[0] if chosen else None

    def run(self) -> None:
        """Show the picker until the user quits."""
        with self._target.reader() as reader:
            self._state = PickerState(reader, os.getcwd(), self._source)
            while True:
                with self._terminal.full_screen():
                    self._handle_keys()
                if self._off_screen is None:
                    return
                action, self._off_screen = self._off_screen, None
                action()

    def _handle_keys(self) -> None:
        """Handle keys until the user quits or an action needs the normal screen."""
        while True:
            if not self._terminal.has_input():
                self._draw()
            # Load what is missing on the screen step by step, until a key is pressed.
            while not self._terminal.has_input() and self._load_more():
                self._draw()
            key = self._terminal.read_key()
            if key in ("ctrl-c", "ctrl-q") or (key == "escape" and not self._state.typed):
                return
            if key != "resize":
                self._footer = ""
            try:
                self._press(key)
            except SegueError as error:
                self._footer = f"! {one_line(error.message)}"
            if self._off_screen is not None:
                return

    def _load_more(self) -> bool:
        columns, lines = self._terminal.size
        return self._state.load_more(lines - 2, preview=self._view.has_preview(columns))

    def _press(self, key: str) -> None:
        state = self._state
        _, lines = self._terminal.size
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
            self._view.preview = not self._view.preview
        elif key == "ctrl-a":
            state.toggle_archived()
        elif len(key) == 1 and key.isprintable():
            state.set_typed(state.typed + key)
        elif key in self._actions and state.selected is not None:
            session = state.selected.session
            assert session is not None
            self._actions[key](session)

    def _draw(self) -> None:
        self._terminal.draw(self._view.lines(self._state, self._terminal.size, self._footer))

    def _edit_line(self, label: str, text: str) -> str | None:
        """Edit a line of text in the footer; return None if the user cancels."""
        while True:
            self._footer = f"{label}: {text}▏"
            self._draw()
            key = self._terminal.read_key()
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

    def _change(self, message: str, work: Callable[[Hub, Principal], Any]) -> Any:
        """Change a session, reload the rows and show a message."""
        result = self._target.run(work)
        self._state.reload(keep_position=True)
        self._footer = message
        return result

    def _read(self, session: Session) -> None:
        from segue.interfaces.cli.commands.show import show_session

        self._off_screen = lambda: show_session(self._target, session.id, wait=True)

    def _resume(self, session: Session) -> None:
        from segue.interfaces.cli.commands.chat import resume

        self._continue(lambda: resume(self._target, session))

    def _resume_in(self, session: Session) -> None:
        from segue.interfaces.cli.commands.chat import resume_in

        from .tool_dialog import ToolDialog  # it loads the tools

        tool = ToolDialog(self._target, self._terminal, self._view).ask(session)
        if tool is not None:
            self._continue(lambda: resume_in(self._target, session, tool))

    def _continue(self, resume: Callable[[], None]) -> None:
        """Resume a session on the normal screen, then reload the rows; show why it failed."""

        def resume_and_reload() -> None:
            try:
                resume()
            except SegueError as error:
                self._footer = f"! {one_line(error.message)}"
            self._state.reload(keep_position=True)

        self._off_screen = resume_and_reload

    def _fork(self, session: Session) -> None:
        fork = self._change(
            "Forked.", lambda hub, principal: hub.editor.fork(principal, session.id, origin="cli")
        )
        self._state.set_typed("")
        self._state.select(fork.id)

    def _rename(self, session: Session) -> None:
        title = self._edit_line("Title", session.title or "")
        if title is not None:
            value = title.strip() or None
            self._change(
                "Renamed.",
                lambda hub, principal: hub.editor.set_title(principal, session.id, value),
            )

    def _tag(self, session: Session) -> None:
        tag = self._edit_line("Tag", session.tag or "")
        if tag is not None:
            value = tag.strip() or None
            self._change(
                "Tagged.", lambda hub, principal: hub.editor.set_tag(principal, session.id, value)
            )

    def _archive(self, session: Session) -> None:
        if session.state == "archived":
            self._change(
                "Unarchived.", lambda hub, principal: hub.editor.unarchive(principal, session.id)
            )
        else:
            self._change(
                "Archived; ^A shows archived sessions.",
                lambda hub, principal: hub.editor.archive(principal, session.id),
            )

    def _delete(self, session: Session) -> None:
        self._footer = f"Move {one_line(session.title or 'this session')!r} to the trash? y/n"
        self._draw()
        if self._terminal.read_key() not in ("y", "Y"):
            self._footer = "Not deleted."
            return
        self._change(
            f"In the trash; `segue restore {session.id[:13]}` restores it.",
            lambda hub, principal: hub.editor.trash(principal, session.id),
        )

    def _copy(self, session: Session) -> None:
        self._terminal.copy(session.id)
        self._footer = f"Copied {session.id}"
