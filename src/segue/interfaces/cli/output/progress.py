"""Progress of long work, on the standard error of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
MIN_SESSIONS = 5_000  # fewer are read before a person could read the count
MIN_INDEX_BYTES = 20_000_000  # less is indexed before a person could read the bar
_BAR_COLUMNS = 30
_REDRAW_SECONDS = 0.1


def index_progress() -> Callable[[int, int], None] | None:
    """Return a function that draws how much of a source is indexed; None without a terminal."""
    if not _is_terminal():
        return None
    drawn_at = 0.0

    def draw(done: int, total: int) -> None:
        nonlocal drawn_at
        if total < MIN_INDEX_BYTES:
            return
        if time.monotonic() - drawn_at < _REDRAW_SECONDS and done < total:
            return
        drawn_at = time.monotonic()
        if done >= total:
            line = ""
        else:
            filled = _BAR_COLUMNS * done // total
            line = f"Indexing sessions  {'█' * filled}{'░' * (_BAR_COLUMNS - filled)}"
            line += f"  {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    return draw


def show_count(count: int, label: str, *, done: bool) -> None:
    """Draw how many items were read so far, if they are many; remove the line when `done`."""
    if not _is_terminal() or count <= MIN_SESSIONS:
        return
    sys.stderr.write("\r\x1b[K" if done else f"\r\x1b[K{count:,} {label} …")
    sys.stderr.flush()


def with_progress_bar(items: Sequence[T], label: str) -> Iterator[T]:
    """Yield the items, with a progress bar if standard error is a terminal."""
    import click

    if not _is_terminal():
        yield from items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield from bar


def _is_terminal() -> bool:
    # Some programs start this one with standard error closed.
    return sys.stderr is not None and sys.stderr.isatty()
