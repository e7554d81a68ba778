"""Lines over a process's standard input and output, or over a child's."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Awaitable, Callable

from .rpc import Disconnected, LineTooLong

MAX_LINE = 64 * 1024 * 1024  # no message is longer; what is longer is skipped
_CHUNK = 1 << 16
_FLUSH_SECONDS = 1.0  # that a peer has to take what was written before we hang up


class Lines:
    """A Reader and a Writer over two functions: one that reads some bytes, one that writes all.

    `read` gives nothing at the end; OSError from either means that the peer is gone.
    """

    def __init__(
        self,
        read: Callable[[int], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        *to_close: asyncio.StreamWriter,
    ) -> None:
        self._some = read
        self._all = write
        self._to_close = to_close
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
            return await self._some(_CHUNK)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        try:
            await self._all(data)
        except OSError as error:
            raise Disconnected("the peer is gone") from error

    async def close(self) -> None:
        """Hang up."""
        for writer in self._to_close:
            writer.close()
            try:
                await asyncio.wait_for(writer.wait_closed(), _FLUSH_SECONDS)
            except (OSError, TimeoutError):
                writer.transport.abort()


def streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Lines:
    """Lines over asyncio's own streams, such as those of a child process."""
    return Lines(reader.read, _write(writer), writer)


def reserve_stdio() -> None:
    """See to it that the standard streams are there, before something else gets their numbers.

    Some programs start others with a stream closed.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115


async def own_stdio() -> Lines:
    """This process's own standard streams, which `reserve_stdio` has been over.

    Whatever else is printed goes to standard error from here on: nothing but messages may stand
    on standard output.
    """
    output = os.dup(1)
    os.dup2(2, 1)
    read = await _reading(0)
    if _can_be_waited_for(output):
        writer = await _stream(output)
        return Lines(read, _write(writer), writer)

    def write_all(data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(output, rest) :]

    return Lines(read, lambda data: asyncio.to_thread(write_all, data))


async def _reading(fd: int) -> Callable[[int], Awaitable[bytes]]:
    if not _can_be_waited_for(fd):
        return lambda size: asyncio.to_thread(os.read, fd, size)
    reader = asyncio.StreamReader(limit=_CHUNK)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(fd), "rb", buffering=0)
    )
    return reader.read


async def _stream(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
        os.fdopen(fd, "wb", buffering=0),
    )
    transport.set_write_buffer_limits(high=_CHUNK)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _can_be_waited_for(fd: int) -> bool:
    """A pipe, a socket or a terminal; for a file or /dev/null, a thread has to wait."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


def _write(stream: asyncio.StreamWriter) -> Callable[[bytes], Awaitable[None]]:
    async def write(data: bytes) -> None:
        if stream.is_closing():
            raise BrokenPipeError
        stream.write(data)
        await stream.drain()

    return write
