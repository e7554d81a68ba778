"""Read lines from the terminal while an event loop runs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class LineReader:
    """Reads lines from the terminal, for one reader at a time.

    A thread that waits for a line cannot be interrupted. If its reader is cancelled, the thread
    keeps waiting, and the next reader receives the line.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading = False
        self._reader: asyncio.Future[str] | None = None

    async def read_line(self, prompt: str) -> str:
        """Return the next line without its end. Raises EOFError at the end of the input."""
        with suppress(ImportError):
            import readline  # noqa: F401  # line editing and history, if Python has it
        reader: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with _terminal_restored():
            with self._lock:
                self._reader = reader
                start, self._reading = not self._reading, True
            if start:
                threading.Thread(target=self._read, args=(prompt,), daemon=True).start()
            else:
                click.echo(prompt, nl=False)
            try:
                return await reader
            finally:
                self._reader = None

    def _read(self, prompt: str) -> None:
        line, error = "", None
        try:
            # input() prints the prompt: line editing must know where the line begins.
            line = input(_readline_prompt(prompt))
        except BaseException as raised:
            error = raised
        with self._lock:
            self._reading, reader = False, self._reader
        if reader is not None:
            with suppress(RuntimeError):  # the loop is closed already
                reader.get_loop().call_soon_threadsafe(_settle, reader, line, error)


def _readline_prompt(prompt: str) -> str:
    """Return a prompt whose style codes are marked as taking no columns, as readline expects."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return click.unstyle(prompt)
    return _STYLE.sub("\x01\\g<0>\x02", prompt) if "readline" in sys.modules else prompt


def _settle(reader: asyncio.Future[str], line: str, error: BaseException | None) -> None:
    if reader.done():
        return
    if error is None:
        reader.set_result(line)
    else:
        reader.set_exception(error)


terminal_lines = LineReader()


@contextmanager
def _terminal_restored() -> Iterator[None]:
    """Restore the terminal's settings afterwards: interrupted line editing leaves them changed."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield
        return
    import termios

    settings = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, settings)
