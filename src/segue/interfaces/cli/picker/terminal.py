"""Read keys from the terminal and draw whole screens."""

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

_ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[?2004h"
_LEAVE_SCREEN = "\x1b[?2004l\x1b[?25h\x1b[?1049l"
_ESCAPE_SECONDS = 0.05  # a lone escape character is the Escape key after this time
_READ_BYTES = 4096

_ESCAPE_SEQUENCES = {
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
_CONTROL_CHARACTERS = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
}


class Terminal:
    """Standard input and output; raw mode and the alternate screen inside `full_screen`."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._pending = b""

    @property
    def size(self) -> tuple[int, int]:
        """Return the columns and lines."""
        size = os.get_terminal_size(self._out)
        return max(size.columns, 20), max(size.lines, 4)

    @contextmanager
    def full_screen(self) -> Iterator[None]:
        """Use raw mode and the alternate screen; restore the terminal afterwards."""
        settings = termios.tcgetattr(self._in)

        def wake(*_: Any) -> None:
            os.write(self._wake_writer, b"r")

        handler = signal.signal(signal.SIGWINCH, wake)
        try:
            tty.setraw(self._in)
            self._write(_ENTER_SCREEN)
            yield
        finally:
            self._write(_LEAVE_SCREEN)
            termios.tcsetattr(self._in, termios.TCSADRAIN, settings)
            signal.signal(signal.SIGWINCH, handler)

    def draw(self, lines: Sequence[str]) -> None:
        """Draw the whole screen at once."""
        rows = "\r\n".join(f"{line}\x1b[0m\x1b[K" for line in lines)
        self._write(f"\x1b[?2026h\x1b[H{rows}\x1b[J\x1b[?2026l")

    def copy(self, text: str) -> None:
        """Copy text to the clipboard with the terminal's own escape sequence (OSC 52)."""
        self._write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")

    def read_key(self) -> str:
        """Return the next key: a character or a name such as `up`, `ctrl-r` or `resize`."""
        while True:
            if key := self._decode_key():
                return key
            ready, _, _ = select.select([self._in, self._wake_reader], [], [])
            if self._wake_reader in ready:
                os.read(self._wake_reader, 100)
                return "resize"
            if not (data := os.read(self._in, _READ_BYTES)):
                return "ctrl-c"  # the terminal was closed
            self._pending += data

    def has_input(self) -> bool:
        """Return True if a key waits to be read, so that drawing can wait."""
        return bool(self._pending) or bool(select.select([self._in], [], [], 0)[0])

    def _decode_key(self) -> str | None:
        data = self._pending
        if not data:
            return None
        if data[0] == 0x1B:
            return self._decode_escape()
        try:
            char = data[:4].decode("utf-8", "strict")[0]
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data" and len(data) < 4:
                return None  # the rest of the character has not arrived yet
            char = data[: error.start].decode()[0] if error.start else "\ufffd"
        self._pending = data[len(char.encode()) if char != "\ufffd" else 1 :]
        if char in _CONTROL_CHARACTERS:
            return _CONTROL_CHARACTERS[char]
        return f"ctrl-{chr(ord(char) + 96)}" if char < " " else char

    def _decode_escape(self) -> str:
        if len(self._pending) == 1 and select.select([self._in], [], [], _ESCAPE_SECONDS)[0]:
            self._pending += os.read(self._in, _READ_BYTES)
        text = self._pending.decode("latin-1")[1:]
        if text[:1] not in ("[", "O"):
            self._pending = self._pending[1:]
            return "escape"
        end = 1
        while end < len(text) and not "@" <= text[end] <= "~":
            end += 1
        self._pending = self._pending[end + 2 :]
        return _ESCAPE_SEQUENCES.get(text[: end + 1], "unknown")

    def _write(self, text: str) -> None:
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            data = data[os.write(self._out, data) :]
