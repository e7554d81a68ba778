"""Lines over a process's standard input and output, or over a child's."""

from __future__ import annotations

import asyncio
import os
import sys

from .rpc import Disconnected, LineTooLong

MAX_LINE = 64 * 1024 * 1024  # no message is longer; what is longer is skipped
_CHUNK = 1 << 16


class StreamLines:
    """Reader and Writer over a pair of asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._seen = 0

    async def read_line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\n", self._seen)
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                self._seen = 0
                return line
            self._seen = len(self._buffer)
            if self._seen > MAX_LINE:
                await self._skip_line()
                raise LineTooLong(f"a message is at most {MAX_LINE} bytes long")
            chunk = await self._read()
            if not chunk:
                # What comes without its line end was cut off, and is nobody's message.
                return b""
            self._buffer += chunk

    async def _skip_line(self) -> None:
        while True:
            self._buffer.clear()
            self._seen = 0
            chunk = await self._read()
            end = chunk.find(b"\n")
            if end >= 0 or not chunk:
                self._buffer += chunk[end + 1 :]
                return

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise Disconnected("the peer is gone")
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise Disconnected("the peer is gone") from error


async def own_stdio() -> StreamLines:
    """This process's own standard streams.

    Whatever else is printed goes to standard error from here on: nothing but messages may stand
    on standard output.
    """
    loop = asyncio.get_running_loop()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=_CHUNK)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), output
    )
    transport.set_write_buffer_limits(high=_CHUNK)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    return StreamLines(reader, writer)
