"""Run parsers of untrusted input in child processes that can be killed.

Some parsers take minutes or gigabytes for a hostile input of a few kilobytes. Such a parser cannot
be stopped in a thread: a regular expression holds the interpreter's lock until it ends. Here, each
call has limits of CPU time, memory, bytes and time; a child that exceeds one is killed, and the
caller continues without the result.

The children are started by the first call, are used again, and end after a minute without calls.
They need POSIX: on other systems every call fails, and the message says so.
"""

from __future__ import annotations

import atexit
import importlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

MAX_CHILDREN = 2
MAX_ASYNC_CALLS = 16  # each runs, or waits for a child, in a thread of its own
CPU_SECONDS = 1.0  # of one call
IMPORT_CPU_SECONDS = 1.0  # added to a child's first call of a function, which imports modules
DEADLINE_SECONDS = 15.0  # of one call, for a child that waits or a machine that is busy
QUEUE_SECONDS = 15.0  # how long a call waits for a free child
IDLE_SECONDS = 60.0
MEMORY_BYTES = 512 * 1024 * 1024  # of address space
MAX_INPUT_BYTES = 48 * 1024 * 1024
MAX_OUTPUT_BYTES = 48 * 1024 * 1024
# Limits of CPU time and memory, and pipes with deadlines, need POSIX.
IS_SUPPORTED = all(
    hasattr(module, name)
    for module, name in ((select, "poll"), (signal, "setitimer"), (os, "register_at_fork"))
)
_LENGTH_BYTES = 4
_READ_BYTES = 1 << 16


class ParsingFailed(Exception):
    """A parser was killed, because its input was too costly, or it raised an error."""


class ParsersBusy(ParsingFailed):
    """Too many other calls wait, or no child became free in time. Another attempt may succeed."""


class ParserPool:
    """Child processes that call functions of segue for this process."""

    def __init__(self, max_children: int = MAX_CHILDREN) -> None:
        self._max_children = max_children
        self._reset()

    def _reset(self) -> None:
        self._closed = False
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._free = threading.Semaphore(self._max_children)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._slots = threading.Semaphore(MAX_ASYNC_CALLS)

    async def run(
        self, function: Callable[..., T], *arguments: Any, cpu_seconds: float = CPU_SECONDS
    ) -> T:
        """Return what `call` returns, from a thread of the pool's own.

        asyncio's threads stay free for other work. Raises ParsersBusy at once if MAX_ASYNC_CALLS
        other calls run or wait, else what `call` raises.
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        if not self._slots.acquire(blocking=False):
            raise ParsersBusy("too many texts wait to be parsed; try again later")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MAX_ASYNC_CALLS, "parser")
        work = partial(self.call, function, *arguments, cpu_seconds=cpu_seconds)
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: self._slots.release())
        return await asyncio.wrap_future(future)

    def call(
        self, function: Callable[..., T], *arguments: Any, cpu_seconds: float = CPU_SECONDS
    ) -> T:
        """Return what a function returns in a child. Blocks, so call it in a thread.

        The function is found by its module and name. Arguments and result are values that
        MessagePack can hold. Raises ParsingFailed if the child exceeds a limit or the function
        raises an error, and ParsersBusy if no child becomes free.
        """
        if not IS_SUPPORTED:
            raise ParsingFailed(
                f"untrusted input is parsed on POSIX systems only, and this is {sys.platform}"
            )
        name = f"{function.__module__}:{function.__qualname__}"
        request = _encode((name, arguments, cpu_seconds))
        if len(request) > MAX_INPUT_BYTES:
            raise ParsingFailed(f"{len(request)} bytes are too many to parse")
        if not self._free.acquire(timeout=QUEUE_SECONDS):
            raise ParsersBusy("all parsers are busy")
        try:
            result: T = self._call_child(request)
            return result
        finally:
            self._free.release()

    def _call_child(self, request: bytes) -> Any:
        while True:
            child, is_new = self._take_child()
            try:
                response = child.call(request)
            except _ChildEnded as ended:
                self._drop(child)
                if is_new or ended.started:
                    raise self._failure() from None
                continue  # the child had ended before; take another one
            except BaseException:
                self._drop(child)
                raise
            self._keep_idle(child)
            break
        result, error = msgspec.msgpack.decode(response)
        if error is not None:
            raise ParsingFailed(error)
        return result

    def _failure(self) -> ParsingFailed:
        if self._closed:
            return ParsersBusy("segue is stopping")
        return ParsingFailed("the input was too costly to parse")

    def _take_child(self) -> tuple[_Child, bool]:
        """Return a child and whether it is new. Raises ParsersBusy after `close`."""
        with self._lock:
            if self._closed:
                raise self._failure()
            is_new = not self._idle
            child = _Child() if is_new else self._idle.pop()
            self._busy.add(child)
            return child, is_new

    def _drop(self, child: _Child) -> None:
        with self._lock:
            self._busy.discard(child)
        child.kill()

    def _keep_idle(self, child: _Child) -> None:
        with self._lock:
            self._busy.discard(child)
            if not self._closed:
                child.idle_since = time.monotonic()
                self._idle.append(child)
                self._start_timer()
                return
        child.kill()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(IDLE_SECONDS, self._end_idle)
            self._timer.daemon = True
            self._timer.start()

    def _end_idle(self) -> None:
        """End the children that had no work for IDLE_SECONDS."""
        with self._lock:
            last = time.monotonic() - IDLE_SECONDS
            ended = [child for child in self._idle if child.idle_since <= last]
            self._idle = [child for child in self._idle if child.idle_since > last]
            self._timer = None
            if self._idle:
                self._start_timer()
        for child in ended:
            child.kill()

    def close(self) -> None:
        """End all children. Calls that run, wait or come later fail with ParsersBusy."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for child in self._busy:
                child.interrupt()
        for child in idle:
            child.kill()


class _ChildEnded(Exception):
    """A child ended or was killed. `started` is False if it did not begin the call."""

    def __init__(self, *, started: bool) -> None:
        self.started = started


class _Child:
    """A child process, which answers one request at a time."""

    idle_since = 0.0

    def __init__(self) -> None:
        # The child imports the modules that this process would, and nothing from the environment.
        environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            bufsize=0,
            start_new_session=True,  # a terminal's Ctrl-C is for this process alone
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()

    def call(self, request: bytes) -> bytes:
        """Send a request and return its response. Raises _ChildEnded if the child ends."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        message = memoryview(len(request).to_bytes(_LENGTH_BYTES, "big") + request)
        try:
            while message:
                _wait(self._input, select.POLLOUT, deadline)
                message = message[os.write(self._input, message[:_READ_BYTES]) :]
        except BrokenPipeError:
            raise _ChildEnded(started=False) from None
        # A child acknowledges a request before it parses. One that had ended before does not.
        if self._read(1, deadline, started=False) != b"\x01":
            raise _ChildEnded(started=True)
        size = int.from_bytes(self._read(_LENGTH_BYTES, deadline), "big")
        if size > MAX_OUTPUT_BYTES:
            raise _ChildEnded(started=True)
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float, *, started: bool = True) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            _wait(self._output, select.POLLIN, deadline)
            part = os.read(self._output, min(_READ_BYTES, size - len(parts)))
            if not part:
                raise _ChildEnded(started=started)
            parts += part
        return bytes(parts)

    def interrupt(self) -> None:
        """End the process. The thread that waits for it closes the pipes."""
        self._process.kill()

    def kill(self) -> None:
        """End the process and close the pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _wait(descriptor: int, event: int, deadline: float) -> None:
    """Wait until a descriptor is ready or closed. Raises _ChildEnded after the deadline."""
    poll = select.poll()  # select() fails for descriptors above 1023
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise _ChildEnded(started=True)


def _encode(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        raise ParsingFailed("text with lone surrogates cannot be parsed") from None


PARSERS = ParserPool()
atexit.register(PARSERS.close)
if IS_SUPPORTED:
    # A fork must not share the pipes of its parent's children.
    os.register_at_fork(after_in_child=PARSERS._reset)


def main() -> None:
    """Answer the requests on standard input until it ends."""
    _limit_resources()
    known: set[str] = set()
    while size := _read_exactly(_LENGTH_BYTES):
        request = _read_exactly(int.from_bytes(size, "big"))
        os.write(1, b"\x01")
        name, arguments, cpu_seconds = msgspec.msgpack.decode(request)
        function = _find_function(name)
        limit = cpu_seconds + (0 if name in known else IMPORT_CPU_SECONDS)
        known.add(name)
        # The signal's default action ends the process, also in the middle of a regular expression.
        signal.setitimer(signal.ITIMER_PROF, limit)
        response = _respond(function, arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(len(response).to_bytes(_LENGTH_BYTES, "big") + response)


def _limit_resources() -> None:
    import resource

    limits = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(limit, (value, value))
        except (OSError, ValueError):  # macOS does not limit the address space
            continue


def _find_function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    result: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return result


def _respond(function: Callable[..., Any], arguments: list[Any]) -> bytes:
    try:
        return msgspec.msgpack.encode((function(*arguments), None))
    except (Exception, RecursionError, MemoryError) as error:
        return msgspec.msgpack.encode((None, f"{type(error).__name__}: {str(error)[:200]!a}"))


def _read_exactly(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(0, min(_READ_BYTES, size - len(parts)))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _write(data: bytes) -> None:
    message = memoryview(data)
    while message:
        message = message[os.write(1, message) :]


if __name__ == "__main__":
    main()
