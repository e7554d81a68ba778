"""A store on disk with ACP clients, connected to this process or to a child process."""

import asyncio
import os
import socket
import sys
import tempfile
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
from tests.command_server import CommandServer, ForkedCommand
from tests.interfaces.acp.harness import SECONDS, Client
from tests.interfaces.cli.child import COMMAND

LINE_BYTES = 1 << 26  # of the longest line that a client accepts
MAX_QUEUED_LINES = 8  # in each direction; a small number, so that writers have to wait


class MemoryTransport:
    """A connection in memory. The server uses it as Reader and Writer, the client as Transport."""

    def __init__(self) -> None:
        self._to_server: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_LINES)
        self._to_client: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED_LINES)

    async def send(self, line: bytes) -> None:
        await self._to_server.put(line)

    async def receive(self) -> bytes:
        return await self._to_client.get()

    async def disconnect(self) -> None:
        await self._to_server.put(b"")

    async def read_line(self) -> bytes:
        return await self._to_server.get()

    async def write(self, data: bytes) -> None:
        if not data:
            raise Disconnected
        await self._to_client.put(data)


class StreamTransport:
    """The standard input and output of another process."""

    def __init__(self, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader) -> None:
        self._stdin, self._stdout = stdin, stdout

    async def send(self, line: bytes) -> None:
        self._stdin.write(line)
        await self._stdin.drain()

    async def receive(self) -> bytes:
        return await self._stdout.readline()


class AcpTestbed:
    """A data directory, and clients of ACP servers that use it."""

    def __init__(self, directory: Path, command_server: CommandServer | None = None) -> None:
        self._command_server = command_server
        self.directory = directory
        self.data = directory / "data"

    def hub(self, **options: Any) -> Hub:
        """Return a new hub over the store, as another process would open it."""
        self.data.mkdir(exist_ok=True)
        return Hub(SQLiteStore.open(self.data / "segue.db"), self.data, **options)

    @asynccontextmanager
    async def connect_in_process(
        self,
        version: int,
        *,
        initialize: bool = True,
        workspace: str = "local",
        local: bool = True,
        sources: Sequence[Source] = (),
        **options: Any,
    ) -> AsyncIterator[Client]:
        """Connect a client to a server in this process, which has its own hub."""
        transport = MemoryTransport()
        principal = Principal(workspace=workspace, local=local)

        async def open_hub() -> Hub:
            return self.hub(sources=sources)

        serving = asyncio.create_task(serve(open_hub, principal, transport, transport, **options))
        client = Client(transport, version)
        try:
            if initialize:
                await client.initialize()
            yield client
            await transport.disconnect()
            async with asyncio.timeout(SECONDS):
                await serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await client.end()

    @asynccontextmanager
    async def connect_child(
        self, version: int, *arguments: str, initialize: bool = True, warning: str = ""
    ) -> AsyncIterator[tuple[Client, ForkedCommand]]:
        """Connect a client to `segue acp` in a fork, which must end without an error.

        It must print nothing on standard error, or one line with the warning.
        Like the programs that Node starts, it has sockets as standard input and output.
        """
        assert self._command_server is not None
        input_end, stdin = socket.socketpair()
        output_end, stdout = socket.socketpair()
        with tempfile.TemporaryFile() as errors:
            with stdin, stdout:
                process = self._command_server.start(
                    [COMMAND, "acp", "--data-dir", str(self.data), *arguments],
                    env={**os.environ, "SEGUE_DATA_DIR": str(self.data)},
                    cwd=Path("/"),
                    streams=[stdin.fileno(), stdout.fileno(), errors.fileno()],
                )
            _, writer = await asyncio.open_connection(sock=input_end)
            reader, unused = await asyncio.open_connection(sock=output_end, limit=LINE_BYTES)
            client = Client(StreamTransport(writer, reader), version)
            with process:
                try:
                    if initialize:
                        await client.initialize()
                    yield client, process
                    writer.close()
                    exit_code = await asyncio.to_thread(process.wait, SECONDS)
                    errors.seek(0)
                    printed = errors.read().decode()
                    assert (exit_code, printed.count("\n")) == (0, int(bool(warning))), printed
                    assert warning in printed
                finally:
                    writer.close()
                    unused.close()
                    await client.end()

    @asynccontextmanager
    async def connect_program(
        self,
        version: int,
        *command: str,
        initialize: bool = True,
        stderr: bytes | None = b"",
    ) -> AsyncIterator[tuple[Client, asyncio.subprocess.Process]]:
        """Connect a client to a Python program, by default `-m segue acp`.

        The process must end with exit code 0 and write `stderr`, unless that is None.
        """
        command = command or ("-m", "segue", "acp", "--data-dir", str(self.data))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={**os.environ, "SEGUE_DATA_DIR": str(self.data)},
            limit=LINE_BYTES,
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        stderr_reader = asyncio.create_task(process.stderr.read())
        client = Client(StreamTransport(process.stdin, process.stdout), version)
        try:
            if initialize:
                await client.initialize()
            yield client, process
            process.stdin.close()
            async with asyncio.timeout(SECONDS):
                exit_code = await process.wait()
            output = await stderr_reader
            assert stderr is None or (exit_code, output) == (0, stderr)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await stderr_reader
            await client.end()
