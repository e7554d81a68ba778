"""Long text in a terminal, through the reader's pager."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click


def show_text(text: str, *, wait: bool = False) -> None:
    """Print text that ends with a line end; where it is longer than the screen, page through it.

    `wait` for the reader to have read what is not paged.
    """
    height = shutil.get_terminal_size().lines
    command = shlex.split(os.environ.get("PAGER", "less"))
    interactive = sys.stdout.isatty() and sys.stdin.isatty()
    program = shutil.which(command[0]) if command and interactive else None
    if program is None or text.count("\n") < height:
        click.echo(text, nl=False)
        if wait:
            click.pause(click.style("(any key)", dim=True))
        return
    if "NO_COLOR" in os.environ:
        text = click.unstyle(text)
    environment = {"LESS": "FRX", **os.environ}
    data = text.encode("utf-8", "backslashreplace")
    with _interrupts_left_to_it():
        subprocess.run([program, *command[1:]], input=data, env=environment, check=False)


@contextmanager
def _interrupts_left_to_it() -> Iterator[None]:
    """Ctrl-C means something to a pager, which is not to be killed with the terminal in its hands.

    Not ignored: that the pager would inherit.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
