"""How far long work has come, on the standard error of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
FEW = 5_000  # sessions; they are there at once
SMALLEST = 20_000_000  # bytes; what is done sooner than it is read about needs no bar
_WIDTH = 30


def bar() -> Callable[[int, int], None] | None:
    """A progress bar for the hub; None where nobody looks."""
    if not _watched():
        return None
    shown_at = 0.0

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if total < SMALLEST or (time.monotonic() - shown_at < 0.1 and done < total):
            return
        shown_at = time.monotonic()
        if done >= total:
            line = ""
        else:
            full = _WIDTH * done // total
            line = f"Reading Claude Code's sessions  {'█' * full}{'░' * (_WIDTH - full)}"
            line += f"  {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    return show


def reading(count: int, what: str, *, done: bool) -> None:
    """How many there are so far, of nobody knows how many; nothing where that was quick."""
    if not _watched() or count <= FEW:
        return
    sys.stderr.write("\r\x1b[K" if done else f"\r\x1b[K{count:,} {what} …")
    sys.stderr.flush()


def counted(things: Sequence[T], label: str) -> Iterator[T]:
    """The things, one by one, with a bar where somebody can see it."""
    import click

    if not _watched():
        yield from things
        return
    with click.progressbar(things, label=label, file=sys.stderr) as bar:
        yield from bar


def _watched() -> bool:
    """Whether somebody sees it. Some programs start us with the stream closed."""
    return sys.stderr is not None and sys.stderr.isatty()
