"""Ask in which tool a session continues, and show what that tool cannot hold."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from segue.hub.tools import find_tool, label
from segue.interfaces.cli.output.conversion_report import report_lines
from segue.interfaces.cli.output.text import one_line
from segue.interfaces.cli.output.width import wrap
from segue.interfaces.cli.target import Target

from .terminal import Terminal
from .view import PickerView

if TYPE_CHECKING:
    from segue.hub import Hub
    from segue.model.principal import Principal
    from segue.model.session import Session

_STEPS = {"up": -1, "ctrl-p": -1, "down": 1, "ctrl-n": 1}
_CANCEL = ("escape", "ctrl-c", "ctrl-q")
_TOOL_KEYS = "↑ ↓ choose  enter show what the tool cannot hold  esc back"
_REPORT_KEYS = "enter continue there  esc back"
_WAITING = "Reading the conversation…"


class ToolDialog:
    """Two screens in place of the picker's: the tools, then the report for one of them."""

    def __init__(self, target: Target, terminal: Terminal, view: PickerView) -> None:
        self._target = target
        self._terminal = terminal
        self._view = view

    def ask(self, session: Session) -> str | None:
        """Return the name of the tool in which a session continues; None if the user cancels."""

        async def targets(hub: Hub, principal: Principal) -> tuple[list[str], bool]:
            values = await hub.config.all(principal.workspace)
            return hub.continuing.targets(), values.get("model") is not None

        names, has_model = self._target.run(targets)
        title = f"Continue {one_line(session.title or 'this session')!r} in"
        rows = [_tool_row(name, has_model=has_model) for name in names]
        index = self._choose_row(title, rows, 0)
        while index is not None:
            name = names[index]
            if self._confirm(f"{title} {label(name)}", self._report(session, name)):
                return name
            index = self._choose_row(title, rows, index)
        return None

    def _report(self, session: Session, name: str) -> list[str]:
        report = self._target.run(
            lambda hub, principal: hub.continuing.report(principal, session.id, name)
        )
        return report_lines(report)

    def _choose_row(self, title: str, rows: Sequence[str], index: int) -> int | None:
        """Return the index of the row that the user chooses; None if the user cancels."""
        while True:
            _, lines = self._terminal.size
            top = max(0, index - (lines - 3))
            selected = index - top
            self._draw(title, rows[top:], _TOOL_KEYS, selected)
            key = self._terminal.read_key()
            if key == "enter":
                self._draw(title, rows[top:], _WAITING, selected)
                return index
            if key in _CANCEL:
                return None
            index = max(0, min(index + _STEPS.get(key, 0), len(rows) - 1))

    def _confirm(self, title: str, report: Sequence[str]) -> bool:
        """Show a report until the user confirms or cancels; the arrow keys scroll it."""
        top = 0
        while True:
            columns, lines = self._terminal.size
            rows = [part for line in report for part in wrap(line, columns)]
            top = max(0, min(top, len(rows) - (lines - 2)))
            self._draw(title, rows[top:], _REPORT_KEYS)
            key = self._terminal.read_key()
            if key == "enter":
                return True
            if key in _CANCEL:
                return False
            top += _STEPS.get(key, 0)

    def _draw(
        self, title: str, rows: Sequence[str], last: str, selected: int | None = None
    ) -> None:
        size = self._terminal.size
        self._terminal.draw(self._view.dialog_lines(title, rows, last, size, selected))


def _tool_row(name: str, *, has_model: bool) -> str:
    tool = find_tool(name)
    if tool is None and not has_model:
        return f"{label(name)}  (no model is configured)"
    if tool is None or shutil.which(tool.program) is not None:
        return label(name)
    return f"{label(name)}  (`{tool.program}` is not on your PATH)"
