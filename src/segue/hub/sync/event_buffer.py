"""Buffer a session's events on disk before they are stored, so that they need not fit in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from segue.model import codec
from segue.model.event import Event

MEMORY_BYTES = 4 << 20  # a longer buffer is written to a file

_decode: codec.Decoder[Event] = codec.Decoder(Event)


class EventBuffer:
    """Events that can be iterated several times, one at a time.

    `first` precedes the others and may be set last; `count` is the number of the others.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.first: Event | None = None
        self.count = 0

    def add(self, event: Event) -> None:
        """Append an event."""
        self._file.write(codec.encode(event) + b"\n")
        self.count += 1

    def __iter__(self) -> Iterator[Event]:
        if self.first is not None:
            yield self.first
        self._file.seek(0)
        for line in self._file:
            yield _decode(line)


@contextmanager
def event_buffer(directory: Path) -> Iterator[EventBuffer]:
    """Yield a buffer whose temporary file is in `directory` and is deleted afterwards."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES, dir=str(directory), prefix=".spool-") as file:
        yield EventBuffer(file)
