"""A connection in memory, with one end that a test plays by hand."""

import asyncio
import json
from typing import Any

from segue.acp.rpc import Disconnected


class StreamEnd:
    """A Reader and a Writer: what one end writes, the other reads."""

    def __init__(self, read: asyncio.Queue[bytes], write: asyncio.Queue[bytes]) -> None:
        self._read = read
        self._write = write
        self.closed = False

    async def read_line(self) -> bytes:
        return await self._read.get()

    async def write(self, data: bytes) -> None:
        if self.closed:
            raise Disconnected
        await self._write.put(data)

    async def close(self) -> None:
        await self._write.put(b"")

    # For tests that play the peer.

    async def send(self, **message: Any) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def receive(self) -> Any:
        async with asyncio.timeout(30):
            return json.loads(await self.read_line())

    def has_received_all(self) -> bool:
        """Return True if the other end has sent nothing more."""
        return self._read.empty()


def connect_ends(size: int = 0) -> tuple[StreamEnd, StreamEnd]:
    """Return two connected ends that buffer `size` messages in each direction; 0 is no limit."""
    one: asyncio.Queue[bytes] = asyncio.Queue(size)
    two: asyncio.Queue[bytes] = asyncio.Queue(size)
    return StreamEnd(one, two), StreamEnd(two, one)
