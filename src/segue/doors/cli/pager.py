"""Long text in a terminal, through the reader's pager.

What that takes is imported when it is needed: most of what commands print is for no terminal, or
short.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_OFF = "segue.no_pager"  # in a context's `meta`


def paged(command: F) -> F:
    """Give a command the option `--no-pager`, which `show_text` heeds."""

    def note(context: click.Context, _: click.Parameter, off: bool) -> None:
        context.meta[_OFF] = off

    option = click.option(
        "--no-pager",
        is_flag=True,
        expose_value=False,
        callback=note,
        help="Print it all at once, however long it is.",
    )
    return option(command)


def show_text(text: str, *, wait: bool = False) -> None:
    """Print text that ends with a line end; where it is longer than the screen, page through it.

    `wait` for the reader to have read what is not paged.
    """
    command = _command()
    if not command or _fits(text):
        click.echo(text, nl=False)
        if wait:
            click.pause(click.style("(any key)", dim=True))
        return
    if os.environ.get("NO_COLOR"):
        text = click.unstyle(text)
    import subprocess

    environment = {"LESS": "FRX", **os.environ}
    data = text.encode("utf-8", "backslashreplace")
    with _interrupts_left_to_it():
        subprocess.run(command, input=data, env=environment, check=False)


def _command() -> list[str]:
    """The reader's pager; nothing where it is not wanted, or not there."""
    context = click.get_current_context(silent=True)
    off = context is not None and context.meta.get(_OFF, False)
    if off or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return []
    import shlex
    import shutil

    wanted = os.environ.get("SEGUE_PAGER", os.environ.get("PAGER", "less"))
    first, *words = shlex.split(wanted) or [""]
    program = shutil.which(first)
    return [] if program is None else [program, *words]


def _fits(text: str) -> bool:
    """Whether all of it can be seen at once, and the shell's next prompt below it."""
    from shutil import get_terminal_size

    from .picker.width import width

    columns, lines = get_terminal_size()
    if text.count("\n") >= lines:
        return False
    rows = (-(-width(click.unstyle(line)) // columns) or 1 for line in text.splitlines())
    return sum(rows) < lines


@contextmanager
def _interrupts_left_to_it() -> Iterator[None]:
    """Ctrl-C means something to a pager, which is not to be killed with the terminal in its hands.

    Not ignored: that the pager would inherit.
    """
    import signal

    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
