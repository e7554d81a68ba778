"""Real child processes for the fault tests, which exchange lines of JSON with the test."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple

import segue
from segue.store import open_store
from segue.store.base import Store
from tests.command_server import ForkedCommand, server_of_turns

CHILDREN = Path(__file__).parent / "children"
TIMEOUT_SECONDS = 300.0  # only a test that fails comes near it, also on a loaded machine


class StoreLocation(NamedTuple):
    """A data directory, and a PostgreSQL address unless the store is in SQLite."""

    directory: Path
    url: str | None = None

    async def open(self) -> Store:
        return await open_store(self.directory, self.url)

    @property
    def file(self) -> Path:
        return self.directory / "segue.db"

    @property
    def arguments(self) -> tuple[str, str]:
        return str(self.directory), self.url or ""


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, str(CHILDREN / script), *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment of a child, which imports the same segue as the tests."""
    return {**os.environ, "PYTHONPATH": str(Path(next(iter(segue.__path__))).parent)}


class Child:
    """A running script of `children/`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process | ForkedCommand,
        output: asyncio.StreamReader,
        send: Callable[[bytes], object],
    ) -> None:
        self._process = process
        self._output = output
        self._send = send

    async def read_line(self) -> dict[str, Any] | None:
        """Return the next line of its output, or None once it has ended."""
        line = await asyncio.wait_for(self._output.readline(), TIMEOUT_SECONDS)
        # A killed process may leave half a line.
        return json.loads(line) if line.endswith(b"\n") else None

    async def expect(self, word: str) -> dict[str, Any]:
        """Return the next line with this word, and skip others."""
        while (report := await self.read_line()) is not None:
            if report["says"] == word:
                return report
        raise AssertionError(f"the child ended without saying {word!r}")

    def send_request(self, **order: Any) -> None:
        self._send(json.dumps(order).encode() + b"\n")

    async def request(self, **order: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        self.send_request(**order)
        return await self.expect("done")

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # Not by `process.kill()`, which may collect a dead child before asyncio does.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def ended(self) -> int:
        """Wait for its end and return its exit code."""
        if isinstance(self._process, ForkedCommand):
            return await asyncio.to_thread(self._process.wait, TIMEOUT_SECONDS)
        return await asyncio.wait_for(self._process.wait(), TIMEOUT_SECONDS)


@asynccontextmanager
async def child(
    script: str, *arguments: object, before: Sequence[str] = ()
) -> AsyncIterator[Child]:
    """Run a child process until the block is left. `before` is a command to run it under."""
    if not before:
        async with _forked_child(command(script, *arguments)[1:]) as forked:
            yield forked
        return
    process = await asyncio.create_subprocess_exec(
        *before,
        *command(script, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None and process.stdout is not None
    started = Child(process, process.stdout, process.stdin.write)
    try:
        yield started
    finally:
        started.kill()
        await process.communicate()


@asynccontextmanager
async def _forked_child(words: list[str]) -> AsyncIterator[Child]:
    (stdin, write_input), (read_output, stdout) = os.pipe(), os.pipe()
    streams = [stdin, stdout, sys.__stderr__.fileno()]  # type: ignore[union-attr]
    forked = server_of_turns().start(words, env=environment(), cwd=Path.cwd(), streams=streams)
    os.close(stdin)
    os.close(stdout)
    output = asyncio.StreamReader()
    with (
        forked,
        open(write_input, "wb", buffering=0) as input,
        open(read_output, "rb", buffering=0) as output_pipe,
    ):
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), output_pipe
        )
        try:
            yield Child(forked, output, partial(_write_unless_ended, input))
        finally:
            forked.kill()
            transport.close()


def _write_unless_ended(input: RawIOBase, line: bytes) -> None:
    with suppress(BrokenPipeError):
        input.write(line)
