"""Act on the keys that are pressed in the session picker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.target import Target
from segue.model.errors import SegueError

from .screen import PickerScreen

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session


def run_picker(target: Target, source: str | None = None) -> None:
    """Show sessions, or those of one source, until the user quits."""
    with target.reader() as reader:
        screen = PickerScreen(reader, source)
        screen.actions = SessionActions(target, screen).by_key()
        screen.run()


class SessionActions:
    """What the keys of the picker do to the selected session."""

    def __init__(self, target: Target, screen: PickerScreen) -> None:
        self._target = target
        self._screen = screen

    def by_key(self) -> dict[str, Callable[[Session], None]]:
        """Return the actions by the names of their keys."""
        return {
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

    def _change(self, message: str, work: Callable[[Hub, Principal], Any]) -> Any:
        """Change a session, reload the rows and show a message."""
        result = self._target.run(work)
        self._screen.state.reload(keep_position=True)
        self._screen.footer = message
        return result

    def _read(self, session: Session) -> None:
        from segue.interfaces.cli.commands.show import show_session

        self._screen.off_screen = lambda: show_session(self._target, session.id, wait=True)

    def _resume(self, session: Session) -> None:
        from segue.interfaces.cli.commands.chat import resume

        self._continue(lambda: resume(self._target, session))

    def _resume_in(self, session: Session) -> None:
        from segue.interfaces.cli.commands.chat import resume_in

        from .tool_dialog import ToolDialog  # it loads the tools

        tool = ToolDialog(self._target, self._screen.terminal, self._screen.view).ask(session)
        if tool is not None:
            self._continue(lambda: resume_in(self._target, session, tool))

    def _continue(self, resume: Callable[[], None]) -> None:
        """Resume a session on the normal screen, then reload the rows; show why it failed."""

        def resume_and_reload() -> None:
            try:
                resume()
            except SegueError as error:
                self._screen.footer = f"! {one_line(error.message)}"
            self._screen.state.reload(keep_position=True)

        self._screen.off_screen = resume_and_reload

    def _fork(self, session: Session) -> None:
        fork = self._change(
            "Forked.", lambda hub, principal: hub.editor.fork(principal, session.id, origin="cli")
        )
        self._screen.state.set_typed("")
        self._screen.state.select(fork.id)

    def _rename(self, session: Session) -> None:
        title = self._screen.edit_line("Title", session.title or "")
        if title is not None:
            value = title.strip() or None
            self._change(
                "Renamed.",
                lambda hub, principal: hub.editor.set_title(principal, session.id, value),
            )

    def _tag(self, session: Session) -> None:
        tag = self._screen.edit_line("Tag", session.tag or "")
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
        self._screen.footer = (
            f"Move {one_line(session.title or 'this session')!r} to the trash? y/n"
        )
        self._screen.draw()
        if self._screen.terminal.read_key() not in ("y", "Y"):
            self._screen.footer = "Not deleted."
            return
        self._change(
            f"In the trash; `segue restore {session.id[:13]}` restores it.",
            lambda hub, principal: hub.editor.trash(principal, session.id),
        )

    def _copy(self, session: Session) -> None:
        self._screen.terminal.copy(session.id)
        self._screen.footer = f"Copied {session.id}"
