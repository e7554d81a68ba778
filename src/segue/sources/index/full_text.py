"""Put the texts that a large first update has deferred into the full-text index.

The full-text index takes longer to write than the rows of sessions, and a list does not use it.
"""

from __future__ import annotations

from collections.abc import Callable

from segue.sources.base import Progress

from .database import Index
from .writer import write_index

_BATCH_BYTES = 32 << 20  # of sessions whose texts are committed together


def make_searchable(
    index: Index, total_bytes: int, progress: Progress | None, is_closing: Callable[[], bool]
) -> None:
    """Put all deferred texts into the full-text index. Finished batches stay if it is closed."""
    done_bytes = 0
    while not is_closing():
        with write_index(index) as writer:
            batch_bytes = writer.make_searchable(_BATCH_BYTES)
        if not batch_bytes:
            return
        done_bytes += batch_bytes
        if progress is not None:
            progress(min(done_bytes, total_bytes), total_bytes)
