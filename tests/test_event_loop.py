"""Run reads without an event loop."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable

import pytest

from segue.event_loop import NeedsEventLoop, run_in_thread, run_without_loop


def test_coroutine_that_never_waits_runs_without_a_loop() -> None:
    async def inner() -> int:
        return 41

    async def outer() -> int:
        return await inner() + 1

    assert run_without_loop(outer()) == 42


@pytest.mark.parametrize(
    "wait", [lambda: asyncio.sleep(0), lambda: asyncio.sleep(1), lambda: asyncio.to_thread(int)]
)
def test_coroutine_that_waits_needs_a_loop(wait: Callable[[], Awaitable[object]]) -> None:
    cleaned_up = []

    async def read() -> None:
        try:
            await wait()
        finally:
            cleaned_up.append(True)

    with pytest.raises(NeedsEventLoop):
        run_without_loop(read())
    assert cleaned_up == [True]


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, RecursionError])
def test_errors_other_than_a_missing_loop_are_raised(error: type[Exception]) -> None:
    async def fail() -> None:
        raise error

    with pytest.raises(error):
        run_without_loop(fail())


async def test_slow_work_runs_in_a_thread_under_a_loop() -> None:
    assert await run_in_thread(threading.current_thread) is not threading.main_thread()


def test_slow_work_runs_here_without_a_loop_and_without_asyncio() -> None:
    code = """
import sys, threading
from segue.event_loop import run_in_thread, run_without_loop
assert run_without_loop(run_in_thread(threading.current_thread)) is threading.main_thread()
assert "asyncio" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
