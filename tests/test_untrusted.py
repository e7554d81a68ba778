"""Parsers of untrusted input run in children that can be killed."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from segue import untrusted
from segue.untrusted import ParserPool, ParsersBusy, ParsingFailed

EXPONENTIAL = ("(a+)+b", "a" * 60)


@pytest.fixture
def pool() -> Iterator[ParserPool]:
    pool = ParserPool(1)
    yield pool
    pool.close()


def return_value(value: object) -> object:
    return value


def return_process_id() -> int:
    return os.getpid()


def fill_memory(size: int) -> int:
    return len(bytearray(size))


def write_long_text(characters: int) -> str:
    return "x" * characters


def environment_names() -> list[str]:
    return sorted(os.environ)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_a_child_returns_what_the_function_returns(pool: ParserPool) -> None:
    for value in ("é\0", b"\xff", ["a", 1, None, True], {"k": b"v"}, "x" * 1_000_000):
        assert pool.call(return_value, value) == value


def test_calls_use_the_same_child_which_is_another_process(pool: ParserPool) -> None:
    child = pool.call(return_process_id)
    assert child != os.getpid() and pool.call(return_process_id) == child


def test_a_regular_expression_that_never_ends_is_killed(pool: ParserPool) -> None:
    child = pool.call(return_process_id)
    with pytest.raises(ParsingFailed, match="too costly"):
        pool.call(re.match, *EXPONENTIAL, cpu_seconds=0.1)
    assert pool.call(return_process_id) != child
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_child_cannot_fill_the_memory(pool: ParserPool) -> None:
    with pytest.raises(ParsingFailed, match="MemoryError"):
        pool.call(fill_memory, 2 * untrusted.MEMORY_BYTES)
    assert pool.call(fill_memory, 1_000_000) == 1_000_000


def test_a_child_that_waits_is_killed_at_the_deadline(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "DEADLINE_SECONDS", 0.5)
    with pytest.raises(ParsingFailed):
        pool.call(sleep, 3600)


def test_a_call_with_too_much_input_or_output_fails(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "MAX_INPUT_BYTES", 10_000)
    with pytest.raises(ParsingFailed, match="too many"):
        pool.call(return_value, "x" * 10_000)
    monkeypatch.setattr(untrusted, "MAX_OUTPUT_BYTES", 10_000)
    with pytest.raises(ParsingFailed):
        pool.call(write_long_text, 10_000)


def test_an_error_in_the_function_is_reported_and_the_child_stays(pool: ParserPool) -> None:
    child = pool.call(return_process_id)
    with pytest.raises(ParsingFailed, match="ValueError"):
        pool.call(int, "\ud7ff no number")
    with pytest.raises(ParsingFailed, match="surrogates"):
        pool.call(return_value, "\ud800")
    assert pool.call(return_process_id) == child


def test_a_child_that_has_ended_while_idle_is_replaced(pool: ParserPool) -> None:
    child = pool.call(return_process_id)
    os.kill(child, 9)
    assert pool.call(return_process_id) != child


def test_an_idle_child_ends_and_leaves_no_zombie(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "IDLE_SECONDS", 0.2)
    child = pool.call(return_process_id)
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(child, 0)  # also succeeds for a zombie
            time.sleep(0.01)
    assert pool.call(return_process_id) != child


def test_a_call_gives_up_if_no_child_becomes_free(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "QUEUE_SECONDS", 0.1)
    monkeypatch.setattr(untrusted, "DEADLINE_SECONDS", 3.0)
    pool.call(return_process_id)
    started = threading.Event()

    def occupy() -> None:
        started.set()
        with pytest.raises(ParsingFailed):
            pool.call(sleep, 3600)

    thread = threading.Thread(target=occupy)
    thread.start()
    started.wait()
    while pool._free._value:
        time.sleep(0.001)
    with pytest.raises(ParsersBusy):
        pool.call(return_process_id)
    thread.join()


def test_a_child_gets_no_secret_of_the_environment(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    assert "ANTHROPIC_API_KEY" not in pool.call(environment_names)


def test_a_fork_starts_children_of_its_own() -> None:
    child = untrusted.PARSERS.call(return_process_id)
    fork = os.fork()
    if fork == 0:
        os._exit(0 if untrusted.PARSERS.call(return_process_id) != child else 1)
    assert os.waitpid(fork, 0)[1] == 0
    assert untrusted.PARSERS.call(return_process_id) == child


async def test_asyncio_calls_use_threads_of_their_own_and_are_refused_if_too_many_wait(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = threading.Event()

    def wait_for_event(function: object, *_: object, **__: object) -> object:
        parse.wait()
        return function

    monkeypatch.setattr(pool, "call", wait_for_event)
    calls = [asyncio.ensure_future(pool.run(return_process_id)) for _ in range(60)]
    try:
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(threading.get_ident) != threading.get_ident()
        refused = [call for call in calls if call.done()]
        assert len(refused) == 60 - untrusted.MAX_ASYNC_CALLS
        assert {type(call.exception()) for call in refused} == {ParsersBusy}
    finally:
        parse.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert results.count(return_process_id) == untrusted.MAX_ASYNC_CALLS
    assert await pool.run(return_process_id) is return_process_id


async def test_cancelled_call_frees_its_thread_when_its_child_ends(
    pool: ParserPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted, "DEADLINE_SECONDS", 2.0)
    monkeypatch.setattr(untrusted, "QUEUE_SECONDS", 0.1)
    for _ in range(untrusted.MAX_ASYNC_CALLS):
        call = asyncio.ensure_future(pool.run(sleep, 3600))
        await asyncio.sleep(0)
        call.cancel()
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ParsersBusy):
                assert await pool.run(return_process_id)
                return
            await asyncio.sleep(0.05)


def test_closed_pool_ends_children_that_work_and_refuses_calls(pool: ParserPool) -> None:
    errors: list[BaseException] = []

    def occupy() -> None:
        try:
            pool.call(sleep, 3600)
        except ParsersBusy as error:
            errors.append(error)

    threads = [threading.Thread(target=occupy) for _ in range(2)]  # one of them waits
    for thread in threads:
        thread.start()
    while not pool._busy:
        time.sleep(0.001)
    (child,) = pool._busy
    pool.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert child._process.poll() is not None
    assert [str(error) for error in errors] == ["segue is stopping"] * 2
    with pytest.raises(ParsersBusy, match="stopping"):
        pool.call(return_process_id)


def test_system_without_posix_refuses_to_parse_and_says_so() -> None:
    program = """
import asyncio, os, select, signal  # asyncio of Python 3.13 uses register_at_fork
del os.register_at_fork, select.poll, signal.setitimer
from segue.render.text.markdown import markdown
from segue.untrusted import PARSERS, ParsingFailed
try:
    PARSERS.call(len, "text")
except ParsingFailed as error:
    print(error)
print(markdown("```csharp\\nvar x = 1;\\n```"))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "parsed on POSIX systems only" in output
    assert '<div class="plain">' in output and "var x = 1;" in output
