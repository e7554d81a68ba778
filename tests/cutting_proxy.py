"""A TCP proxy that loses connections as a network does: cut in the middle, refused or silent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

CHUNK_BYTES = 256


class CuttingProxy:
    """Forwards connections to a port.

    While `is_cutting`, each connection is cut after as many bytes of its responses as `limit`
    returns. While `is_refusing`, no new connection is forwarded.
    """

    def __init__(self, port: int, limit: Callable[[], int]) -> None:
        self._server_port = port
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cuts = 0
        self.is_cutting = False
        self.is_refusing = False
        self._silent: set[asyncio.Task[None]] = set()  # connections whose bytes are lost

    def silence(self) -> None:
        """Lose all further bytes of the present connections, which stay open."""
        self._silent |= self._tasks

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int, limit: Callable[[], int]) -> AsyncIterator[Self]:
        """Yield a proxy in front of a port."""
        proxy = cls(port, limit)
        server = await asyncio.start_server(proxy._connected, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            for task in list(proxy._tasks):
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        own = asyncio.current_task()
        up = asyncio.create_task(self._forward(own, reader, server_writer, cut=False))
        down = asyncio.create_task(self._forward(own, server_reader, writer, cut=True))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            down.cancel()
            for stream in (writer, server_writer):
                stream.transport.abort()

    async def _forward(
        self,
        connection: asyncio.Task[None] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        cut: bool,
    ) -> None:
        streamed = 0
        limit = self._limit()
        while data := await reader.read(CHUNK_BYTES):
            if connection in self._silent:
                continue
            if cut and self.is_cutting and streamed + len(data) > limit:
                writer.write(data[: limit - streamed])
                await writer.drain()
                self.cuts += 1
                return
            streamed += len(data) if self.is_cutting else 0
            writer.write(data)
            await writer.drain()
