"""Run short reads without an event loop.

Importing asyncio takes longer than `segue list` takes to read the embedded store, and its reads
never wait. `run_without_loop` runs such a read directly. `run_in_thread` is for the few slow steps
inside a read: it uses a thread only where an event loop would otherwise be blocked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class NeedsEventLoop(Exception):
    """A coroutine cannot finish without an event loop."""


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits.

    Raises NeedsEventLoop if it waits, or fails with a plain RuntimeError: that is how asyncio
    reports a missing event loop. The caller then starts the work again under asyncio, where a
    RuntimeError with another cause is raised again. So this is for work that may be repeated.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise
        raise NeedsEventLoop from error
    finally:
        coroutine.close()
    raise NeedsEventLoop


async def run_in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work`, from a thread if an event loop is running."""
    if not is_loop_running():
        return work()
    import asyncio

    return await asyncio.to_thread(work)


def is_loop_running() -> bool:
    """Return True if this code runs under asyncio, which is not imported to find out."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
