"""Two ends of a connection in memory, and an end that a test plays by hand."""

import asyncio
import json
from typing import Any

from segue.acp.rpc import Disconnected


class End:
    """A Reader and a Writer: what one End writes, the other reads."""

    def __init__(self, read: asyncio.Queue[bytes], write: asyncio.Queue[bytes]) -> None:
        self._read = read
        self._write = write
        self.gone = False

    async def read_line(self) -> bytes:
        return await self._read.get()

    async def write(self, data: bytes) -> None:
        if self.gone:
            raise Disconnected
        await self._write.put(data)

    async def hang_up(self) -> None:
        await self._write.put(b"")

    # By hand.

    async def say(self, **message: Any) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def hear(self) -> Any:
        async with asyncio.timeout(30):
            return json.loads(await self.read_line())

    def silent(self) -> bool:
        """Whether the other end has said nothing more."""
        return self._read.empty()


def ends(size: int = 0) -> tuple[End, End]:
    """`size` is how many messages fit between them each way; 0 for any number."""
    one: asyncio.Queue[bytes] = asyncio.Queue(size)
    two: asyncio.Queue[bytes] = asyncio.Queue(size)
    return End(one, two), End(two, one)
