"""A store on disk with clients at its ACP door: inside this process, or at a child's pipes."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from segue.acp.rpc import Disconnected
from segue.hub import Hub
from segue.interfaces.acp.serve import serve
from segue.model.principal import Principal
from segue.sources.base import Source
from segue.store.sqlite import SQLiteStore
from tests.interfaces.acp.harness import SECONDS, Client

_FEW = 8  # messages between two ends of a line in memory, so that writers are held up


class Twin:
    """The two ends of a connection in memory: the agent's is a Reader and a Writer."""

    def __init__(self) -> None:
        self._there: asyncio.Queue[bytes] = asyncio.Queue(_FEW)
        self._back: asyncio.Queue[bytes] = asyncio.Queue(_FEW)

    async def send(self, line: bytes) -> None:
        await self._there.put(line)

    async def receive(self) -> bytes:
        return await self._back.get()

    async def hang_up(self) -> None:
        await self._there.put(b"")

    async def read_line(self) -> bytes:
        return await self._there.get()

    async def write(self, data: bytes) -> None:
        if not data:
            raise Disconnected
        await self._back.put(data)


class Pipes:
    """The pipes of a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def send(self, line: bytes) -> None:
        self._in.write(line)
        await self._in.drain()

    async def receive(self) -> bytes:
        return await self._out.readline()


class House:
    """A data directory, and who comes to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"

    def hub(self, **options: Any) -> Hub:
        """A hub of its own over the store, as another process would have."""
        self.data.mkdir(exist_ok=True)
        return Hub(SQLiteStore.open(self.data / "segue.db"), self.data, **options)

    @asynccontextmanager
    async def inside(
        self,
        version: int,
        *,
        greet: bool = True,
        workspace: str = "local",
        sources: Sequence[Source] = (),
        **options: Any,
    ) -> AsyncIterator[Client]:
        """A client of a door in this process, with a hub of its own."""
        twin = Twin()
        principal = Principal(workspace=workspace, local=True)

        async def opened() -> Hub:
            return self.hub(sources=sources)

        serving = asyncio.create_task(serve(opened, principal, twin, twin, **options))
        client = Client(twin, version)
        try:
            if greet:
                await client.initialize()
            yield client
            await twin.hang_up()
            async with asyncio.timeout(SECONDS):
                await serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await client.end()

    @asynccontextmanager
    async def child(
        self,
        version: int,
        *arguments: str,
        greet: bool = True,
        program: tuple[str, ...] | None = None,
        stderr: bytes | None = b"",
    ) -> AsyncIterator[tuple[Client, asyncio.subprocess.Process]]:
        """A client of a real `segue acp`, or of another program; it must end well and quietly."""
        words = program or ("-m", "segue", "acp", "--data-dir", str(self.data), *arguments)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={**os.environ, "SEGUE_DATA_DIR": str(self.data)},
            limit=1 << 26,
        )
        assert process.stdin is not None and process.stderr is not None
        complaints = asyncio.create_task(process.stderr.read())
        client = Client(Pipes(process), version)
        try:
            if greet:
                await client.initialize()
            yield client, process
            process.stdin.close()
            async with asyncio.timeout(SECONDS):
                code = await process.wait()
            said = await complaints
            assert stderr is None or (code, said) == (0, stderr)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await complaints
            await client.end()
