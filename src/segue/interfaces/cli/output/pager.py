"""Long text in a terminal, through the reader's pager.

What that takes is imported when it is needed: most of what commands print is for no terminal, or
short.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
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


def show_text(text: str | Iterable[str], *, wait: bool = False) -> None:
    """Print text that ends with a line end; where it is longer than the screen, page through it.

    Given in pieces, it is shown as they come. `wait` for the reader to have read what is not paged.
    """
    pieces = iter([text] if isinstance(text, str) else text)
    held = ""
    if command := _command():
        for piece in pieces:
            held += piece
            if not _fits(held):
                _page(command, chain([held], pieces))
                return
    for piece in chain([held], pieces):
        click.echo(piece, nl=False)
    if wait:
        click.pause(click.style("(any key)", dim=True))


def _page(command: list[str], pieces: Iterable[str]) -> None:
    import subprocess

    plain = bool(os.environ.get("NO_COLOR"))
    environment = {"LESS": "FRX", **os.environ}
    with (
        _interrupts_left_to_it(),
        subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as pager,
    ):
        assert pager.stdin is not None
        # The reader may leave before the end.
        with suppress(BrokenPipeError), pager.stdin:
            for piece in pieces:
                shown = click.unstyle(piece) if plain else piece
                pager.stdin.write(shown.encode("utf-8", "backslashreplace"))


def _command() -> list[str]:
    """The reader's pager; nothing where it is not wanted, or not there."""
    context = click.get_current_context(silent=True)
    off = context is not None and context.meta.get(_OFF, False)
    if off or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return []
    import shlex
    import shutil

    wanted = os.environ.get("SEGUE_PAGER", os.environ.get("PAGER", "less"))
    try:
        first, *words = shlex.split(wanted) or [""]
    except ValueError:  # a quote that is not closed
        return []
    program = shutil.which(first)
    return [] if program is None else [program, *words]


def _fits(text: str) -> bool:
    """Whether all of it can be seen at once, and the shell's next prompt below it."""
    from shutil import get_terminal_size

    from segue.interfaces.cli.output.width import width

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
