"""Render cheap pages on the event loop, and others in a thread.

On the event loop, rendering may use few characters and no child process. If it needs more, it
begins again in a thread. There it may use child processes until a deadline; texts that are not
rendered by then are shown as plain text.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

# One rendering on the event loop. A character of Markdown costs about a microsecond, and at most
# ten times as much if it is hostile.
MAX_INLINE_CHARACTERS = 4_000
RENDER_SECONDS = 10.0  # of one rendering in a thread
# Apart from asyncio's own threads, so that costly pages do not delay other work.
RENDER_THREADS = 4


class _NeedsThread(Exception):
    """A rendering is too costly for the event loop."""


class _Limits:
    """What the current rendering may use."""

    def __init__(self, *, inline: bool) -> None:
        self.inline = inline
        self.characters = MAX_INLINE_CHARACTERS
        self.deadline = time.monotonic() + RENDER_SECONDS


_limits: ContextVar[_Limits | None] = ContextVar("render_limits", default=None)


async def render(function: Callable[..., T], *arguments: Any) -> T:
    """Return what a function renders: on the event loop if that is cheap, else in a thread."""
    token = _limits.set(_Limits(inline=True))
    try:
        return function(*arguments)
    except _NeedsThread:
        pass
    finally:
        _limits.reset(token)
    return await render_in_thread(function, *arguments)


async def render_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Return what a function renders in a thread."""
    work = partial(_render_with_deadline, function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(_executor(), work)


def use_characters(count: int) -> None:
    """Count characters that are about to be rendered. Raises _NeedsThread if they are too many."""
    limits = _limits.get()
    if limits is not None and limits.inline:
        limits.characters -= count
        if limits.characters < 0:
            raise _NeedsThread


def may_use_child() -> bool:
    """Return True if the current rendering may wait for a child process.

    Raises _NeedsThread on the event loop.
    """
    limits = _limits.get()
    if limits is None:
        return True
    if limits.inline:
        raise _NeedsThread
    return time.monotonic() < limits.deadline


def _render_with_deadline(function: Callable[..., T], *arguments: Any) -> T:
    token = _limits.set(_Limits(inline=False))
    try:
        return function(*arguments)
    finally:
        _limits.reset(token)


@cache
def _executor() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(RENDER_THREADS, "render")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)  # a fork has none of the threads
