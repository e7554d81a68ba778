"""Read and write lines on the standard streams of this process or of a child."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Awaitable, Callable

from .rpc import Disconnected, LineTooLong

MAX_LINE_BYTES = 64 * 1024 * 1024  # a longer line is skipped
_CHUNK_BYTES = 1 << 16
_FLUSH_SECONDS = 1.0  # for the peer to read what was written before the stream is closed


class LineStream:
    """A Reader and a Writer over two functions: one reads some bytes, one writes all of them.

    `read` returns no bytes at the end. OSError from either function means that the peer is gone.
    """

    def __init__(
        self,
        read: Callable[[int], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        *to_close: asyncio.StreamWriter,
    ) -> None:
        self._read_some = read
        self._write_all = write
        self._to_close = to_close
        self._buffer = bytearray()
        self._searched = 0  # bytes of the buffer that contain no line end

    async def read_line(self) -> bytes:
        """Return the next line; empty at the end. Raises LineTooLong for a skipped line."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if self._searched > MAX_LINE_BYTES:
                await self._skip_line()
                raise LineTooLong(f"a message is at most {MAX_LINE_BYTES} bytes long")
            chunk = await self._read()
            if not chunk:  # the last line may have no end
                line, self._searched = bytes(self._buffer), 0
                self._buffer.clear()
                return line
            self._buffer += chunk

    async def _skip_line(self) -> None:
        while True:
            self._buffer.clear()
            self._searched = 0
            chunk = await self._read()
            end = chunk.find(b"\n")
            if end >= 0 or not chunk:
                self._buffer += chunk[end + 1 :]
                return

    async def _read(self) -> bytes:
        try:
            return await self._read_some(_CHUNK_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        """Write all bytes. Raises Disconnected if the peer is gone."""
        try:
            await self._write_all(data)
        except OSError as error:
            raise Disconnected("the peer has disconnected") from error

    async def close(self) -> None:
        """Close the streams that were passed to be closed."""
        for writer in self._to_close:
            writer.close()
            try:
                await asyncio.wait_for(writer.wait_closed(), _FLUSH_SECONDS)
            except TimeoutError:
                writer.transport.abort()
            except OSError:
                pass  # the peer is gone, and the transport is closed


def from_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> LineStream:
    """Return a line stream over asyncio streams, such as those of a child process."""
    return LineStream(reader.read, _writer_function(writer), writer)


def reserve_stdio() -> None:
    """Open /dev/null for each standard stream that is closed.

    Some programs start others with a stream closed. Without this, the next file that is opened
    would become a standard stream.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `fd`
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115


async def open_stdio() -> LineStream:
    """Return a line stream over this process's standard streams; call `reserve_stdio` first.

    From then on, anything else that is printed goes to standard error: standard output may carry
    only messages.
    """
    output = os.dup(1)
    os.dup2(2, 1)
    read = await _reader_function(0)
    if _supports_polling(output):
        writer = await _open_writer(output)
        return LineStream(read, _writer_function(writer), writer)

    def write_all(data: bytes) -> None:
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(output, unwritten) :]

    return LineStream(read, lambda data: asyncio.to_thread(write_all, data))


async def _reader_function(fd: int) -> Callable[[int], Awaitable[bytes]]:
    if not _supports_polling(fd):
        return lambda size: asyncio.to_thread(os.read, fd, size)
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(fd), "rb", buffering=0)
    )
    return reader.read


async def _open_writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(fd, "wb", buffering=0),
    )
    transport.set_write_buffer_limits(high=_CHUNK_BYTES)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _supports_polling(fd: int) -> bool:
    """Return True for a pipe, a socket or a terminal. Files and /dev/null need a thread."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


def _writer_function(stream: asyncio.StreamWriter) -> Callable[[bytes], Awaitable[None]]:
    async def write(data: bytes) -> None:
        if stream.is_closing():
            raise BrokenPipeError
        stream.write(data)
        await stream.drain()

    return write
