"""Show long text in the user's pager.

Most output is short or does not go to a terminal, so modules for paging are imported late.
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
_NO_PAGER = "segue.no_pager"  # a key of the click context's `meta`


def pager_option(command: F) -> F:
    """Add the option `--no-pager`, which `show_text` obeys."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[_NO_PAGER] = value

    option = click.option(
        "--no-pager",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Print everything without a pager.",
    )
    return option(command)


def show_text(text: str | Iterable[str], *, wait: bool = False) -> None:
    """Print text that ends with a newline; use the pager if it is longer than the screen.

    Chunks are printed as they arrive. With `wait`, text that is not paged is followed by a prompt
    for a key, so that it can be read before the screen changes.
    """
    chunks = iter([text] if isinstance(text, str) else text)
    first_screen = ""
    if command := _pager_command():
        for chunk in chunks:
            first_screen += chunk
            if not _fits_screen(first_screen):
                _page(command, chain([first_screen], chunks))
                return
    for chunk in chain([first_screen], chunks):
        click.echo(chunk, nl=False)
    if wait:
        _wait_for_key(click.style("(press any key)", dim=True))


def _wait_for_key(prompt: str) -> None:
    """Show a prompt and wait for a key. A key that is pressed as soon as it is shown counts."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    settings = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal, termios.TCSADRAIN)  # before the prompt: a later change would drop keys
        click.echo(prompt, nl=False)
        key = os.read(terminal, 64)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
        click.echo()
    if key.startswith(b"\x03"):
        raise KeyboardInterrupt


def _page(command: list[str], chunks: Iterable[str]) -> None:
    import subprocess

    plain = bool(os.environ.get("NO_COLOR"))
    environment = {"LESS": "FRX", **os.environ}
    with (
        _interrupts_ignored(),
        subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as pager,
    ):
        assert pager.stdin is not None
        # The user may quit the pager before the end.
        with suppress(BrokenPipeError), pager.stdin:
            for chunk in chunks:
                text = click.unstyle(chunk) if plain else chunk
                pager.stdin.write(text.encode("utf-8", "backslashreplace"))


def _pager_command() -> list[str]:
    """Return the user's pager; an empty list if it is off, missing, or this is not a terminal."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_NO_PAGER):
        return []
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        return []
    import shlex
    import shutil

    setting = os.environ.get("SEGUE_PAGER", os.environ.get("PAGER", "less"))
    try:
        first, *words = shlex.split(setting) or [""]
    except ValueError:  # a quote that is not closed
        return []
    program = shutil.which(first)
    return [] if program is None else [program, *words]


def _fits_screen(text: str) -> bool:
    """Return True if all of the text and the shell's next prompt fit on the screen."""
    from shutil import get_terminal_size

    from .width import width

    columns, lines = get_terminal_size()
    if text.count("\n") >= lines:
        return False
    rows = (-(-width(click.unstyle(line)) // columns) or 1 for line in text.splitlines())
    return sum(rows) < lines


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Leave Ctrl-C to the pager, which must restore the terminal when it ends.

    The handler does nothing. SIG_IGN would be inherited by the pager.
    """
    import signal

    handler = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
