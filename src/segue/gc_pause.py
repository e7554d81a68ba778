"""Pause the garbage collector while many long-lived values are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable garbage collection within the block.

    For code that creates thousands of values that stay and have no cycles: scanning them again and
    again takes longer than creating them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
