"""A history on its way into the store: long ones wait in a file, and need not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from segue.model.event import Event

from . import exchange

HELD = 4 << 20  # bytes that wait in memory


class Spool:
    """Events that can be gone through as often as is wanted, one at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.first: Event | None = None  # which may be known last
        self.count = 0  # of the others

    def add(self, event: Event) -> None:
        self._file.write(exchange.line_of(event))
        self.count += 1

    def __iter__(self) -> Iterator[Event]:
        if self.first is not None:
            yield self.first
        self._file.seek(0)
        for line in self._file:
            yield exchange.event_of(line)


@contextmanager
def spooled(directory: Path) -> Iterator[Spool]:
    """One that is gone afterwards. Its file is beside the data, where there is room for it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.SpooledTemporaryFile(HELD, dir=str(directory), prefix=".spool-") as file:
        yield Spool(file)
