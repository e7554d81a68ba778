"""Asking whoever sits at the terminal, while an event loop goes on."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Left(Exception):
    """Ctrl-C, where something was to be typed."""


async def ask(question: Callable[[], T]) -> T:
    """The answer to a question that blocks until it is given. Left if Ctrl-C is.

    In a thread that nobody waits for: one that waits for a line cannot be interrupted.
    """
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Any, failed: bool) -> None:
        if not answered.done():
            answered.set_exception(outcome) if failed else answered.set_result(outcome)

    def read() -> None:
        try:
            outcome: Any = question()
            failed = False
        except BaseException as error:
            outcome, failed = error, True
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome, failed)

    with _as_it_was():
        threading.Thread(target=read, name="terminal", daemon=True).start()
        try:
            return await answered
        except asyncio.CancelledError:
            raise Left from None


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
