"""A terminal as the picker needs it: raw keys in, whole screens out, and back as it was."""

from __future__ import annotations

import base64
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?2004h"
_LEAVE = "\x1b[?2004l\x1b[?25h\x1b[?1049l"
_ALONE = 0.05  # seconds after which an escape stands for itself

_SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "OA": "up",
    "OB": "down",
    "[5~": "page-up",
    "[6~": "page-down",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[3~": "delete",
}
_CONTROLS = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace"}


class Terminal:
    """Standard input and output, in raw mode and on the alternate screen while `shown`."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._pending = b""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        size = os.get_terminal_size(self._out)
        return max(size.columns, 20), max(size.lines, 4)

    @contextmanager
    def shown(self) -> Iterator[None]:
        before = termios.tcgetattr(self._in)

        def resized(*_: Any) -> None:
            os.write(self._wake_in, b"r")

        handler = signal.signal(signal.SIGWINCH, resized)
        try:
            tty.setraw(self._in)
            self._write(_ENTER)
            yield
        finally:
            self._write(_LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, handler)

    def draw(self, lines: Sequence[str]) -> None:
        """The whole screen, at once."""
        rows = "\r\n".join(f"{line}\x1b[0m\x1b[K" for line in lines)
        self._write(f"\x1b[?2026h\x1b[H{rows}\x1b[J\x1b[?2026l")

    def copy(self, text: str) -> None:
        """Text into the clipboard, by the sequence that terminals have for it (OSC 52)."""
        self._write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")

    def key(self) -> str:
        """The next key: a character, or a name such as `up` or `ctrl-r`; `resize` when it was."""
        while True:
            if key := self._decoded():
                return key
            ready, _, _ = select.select([self._in, self._wake_out], [], [])
            if self._wake_out in ready:
                os.read(self._wake_out, 100)
                return "resize"
            if not (data := os.read(self._in, 4096)):
                return "ctrl-c"  # the terminal has gone
            self._pending += data

    def typed(self) -> bool:
        """Whether more has been typed already: then a screen need not be drawn."""
        return bool(self._pending) or bool(select.select([self._in], [], [], 0)[0])

    def _decoded(self) -> str | None:
        data = self._pending
        if not data:
            return None
        if data[0] == 0x1B:
            return self._escape()
        try:
            char = data[:4].decode("utf-8", "strict")[0]
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data" and len(data) < 4:
                return None  # the rest of the character is on its way
            char = data[: error.start].decode()[0] if error.start else "\ufffd"
        self._pending = data[len(char.encode()) if char != "\ufffd" else 1 :]
        if char in _CONTROLS:
            return _CONTROLS[char]
        return f"ctrl-{chr(ord(char) + 96)}" if char < " " else char

    def _escape(self) -> str:
        if len(self._pending) == 1 and select.select([self._in], [], [], _ALONE)[0]:
            self._pending += os.read(self._in, 4096)
        text = self._pending.decode("latin-1")[1:]
        if text[:1] not in ("[", "O"):
            self._pending = self._pending[1:]
            return "escape"
        end = 1
        while end < len(text) and not "@" <= text[end] <= "~":
            end += 1
        self._pending = self._pending[end + 2 :]
        return _SEQUENCES.get(text[: end + 1], "unknown")

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            data = data[os.write(self._out, data) :]
