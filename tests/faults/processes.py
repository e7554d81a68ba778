"""Child processes for the tests of faults: real ones, spoken to in lines of JSON, ended by id."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import segue
from segue.store import open_store
from segue.store.base import Store

CHILDREN = Path(__file__).parent / "children"
PATIENCE = 120.0  # seconds; only a test that fails comes near it


class Place(NamedTuple):
    """Where a store is: a data directory, or that and a PostgreSQL address."""

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
    """Children import the segue that the tests import."""
    return {**os.environ, "PYTHONPATH": str(Path(next(iter(segue.__path__))).parent)}


class Child:
    """A running script of `children/`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def hear(self) -> dict[str, Any] | None:
        """The next line it says, or None once it has ended."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        # A killed process may leave half a line, which says nothing.
        return json.loads(line) if line.endswith(b"\n") else None

    async def expect(self, word: str) -> dict[str, Any]:
        """The next line that says `word`, whatever comes before it."""
        while (said := await self.hear()) is not None:
            if said["says"] == word:
                return said
        raise AssertionError(f"the child ended without saying {word!r}")

    def tell(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    async def ask(self, **order: Any) -> dict[str, Any]:
        """Give an order, and hear that it is done."""
        self.tell(**order)
        return await self.expect("done")

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # Not by `process.kill()`, which may collect a dead child before asyncio does.
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


@asynccontextmanager
async def child(
    script: str, *arguments: object, before: Sequence[str] = ()
) -> AsyncIterator[Child]:
    """A child process, gone when the block is left. `before` is a command to run it under."""
    process = await asyncio.create_subprocess_exec(
        *before,
        *command(script, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    started = Child(process)
    try:
        yield started
    finally:
        started.kill()
        await process.communicate()
