"""Asking whoever sits at the terminal, while an event loop goes on."""

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


class _Lines:
    """The lines that are typed, for one who waits at a time.

    A thread that waits for a line cannot be interrupted. Where nobody wants the line any more, it
    waits on, and what it reads is for whoever asks next.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading = False
        self._waiting: asyncio.Future[str] | None = None

    async def next(self, prompt: str) -> str:
        """The next line, without its end. EOFError where there is none."""
        with suppress(ImportError):
            import readline  # noqa: F401  # line editing and history, where Python has it
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with _as_it_was():
            with self._lock:
                self._waiting = waiting
                begin, self._reading = not self._reading, True
            if begin:
                read = threading.Thread(target=self._read, args=(prompt,), daemon=True)
                read.start()
            else:
                click.echo(prompt, nl=False)
            try:
                return await waiting
            finally:
                self._waiting = None

    def _read(self, prompt: str) -> None:
        line, error = "", None
        try:
            # Not before it: the prompt is the sign that the terminal is ready, and where the line
            # begins that is edited.
            line = input(_shown(prompt))
        except BaseException as raised:
            error = raised
        with self._lock:
            self._reading, waiting = False, self._waiting
        if waiting is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                waiting.get_loop().call_soon_threadsafe(_settle, waiting, line, error)


def _shown(prompt: str) -> str:
    """A prompt as line editing needs it: what takes no room is marked."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return click.unstyle(prompt)
    return _STYLE.sub("\x01\\g<0>\x02", prompt) if "readline" in sys.modules else prompt


def _settle(waiting: asyncio.Future[str], line: str, error: BaseException | None) -> None:
    if waiting.done():
        return
    if error is None:
        waiting.set_result(line)
    else:
        waiting.set_exception(error)


typed = _Lines()


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Leave the terminal as it was found: line editing that is cut off does not."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
