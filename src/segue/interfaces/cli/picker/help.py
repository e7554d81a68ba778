"""The help of the session picker: what its symbols stand for, and its keys."""

from __future__ import annotations

from collections.abc import Sequence

from segue.hub.tools import all_tools
from segue.interfaces.cli.external_tools import OTHER_SOURCE_SYMBOL
from segue.interfaces.cli.output.width import fit, wrap

from .terminal import Terminal
from .view import PickerView

_TITLE = "Help: symbols and keys"
_LAST_LINE = "↑ ↓ scroll  any other key returns"
_MOVES = ("↑ ↓ move", "PgUp PgDn Home End")
_STEPS = {"up": -1, "ctrl-p": -1, "down": 1, "ctrl-n": 1}
_KEY_COLUMNS = 30  # of the first of two keys in a line


def help_rows(keys: Sequence[str], columns: int) -> list[str]:
    """Return the symbols of the tools, then `keys`, as lines of at most `columns`."""
    keys = [*_MOVES, *keys]
    if columns >= 2 * _KEY_COLUMNS:
        pairs = zip(keys[::2], [*keys[1::2], ""], strict=False)
        keys = [(fit(first, _KEY_COLUMNS) + second).rstrip() for first, second in pairs]
    text = [
        "The symbol before a session names the tool that owns it:",
        *(f"  {tool.symbol}  {tool.label}" for tool in all_tools()),
        f"  {OTHER_SOURCE_SYMBOL}  another tool",
        "     no symbol: segue itself",
        "",
        "Type to search titles and contents; esc clears the search. ^F is Ctrl-F.",
        *(f"  {key}" for key in keys),
    ]
    return [part for line in text for part in wrap(line, columns)]


def show_help(terminal: Terminal, view: PickerView) -> None:
    """Show the help until a key is pressed; the arrow keys scroll it."""
    top = 0
    while True:
        columns, lines = terminal.size
        rows = help_rows(view.keys, columns)
        top = max(0, min(top, len(rows) - (lines - 2)))
        terminal.draw(view.dialog_lines(_TITLE, rows[top:], _LAST_LINE, terminal.size))
        key = terminal.read_key()
        if key != "resize" and key not in _STEPS:
            return
        top += _STEPS.get(key, 0)
