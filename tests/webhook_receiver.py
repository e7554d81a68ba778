"""A server on loopback that receives webhooks, and answers as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class Received(NamedTuple):
    headers: dict[str, str]
    body: str

    @property
    def event(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def type(self) -> str:
        return self.event["data"]["type"]


class Receiver:
    """The requests so far. `answer` returns the bytes of the answer; b"" closes the connection."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.answer: Callable[[Received], bytes] = lambda _: NO_CONTENT
        self.port = 0
        self._arrived = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def types(self) -> list[str]:
        return [request.type for request in self.requests]

    async def wait_for(self, count: int) -> list[Received]:
        """Return the requests as soon as there are so many."""
        async with self._arrived, asyncio.timeout(60):
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                _, *lines = head.decode().strip().split("\r\n")
                headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
                body = (await reader.readexactly(int(headers["content-length"]))).decode()
                request = Received(headers, body)
                answer = self.answer(request)
                async with self._arrived:
                    self.requests.append(request)
                    self._arrived.notify_all()
                if not answer:
                    break
                writer.write(answer)
                await writer.drain()
        except (EOFError, OSError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def open_receiver() -> AsyncIterator[Receiver]:
    """Yield a receiver on a free port."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
