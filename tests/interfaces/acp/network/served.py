"""A server on a real socket in this process, and clients that reach it over the network."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
import uvicorn

from segue.acp.http_stream import HttpStream
from segue.acp.websocket_stream import WebSocketStream
from segue.hub import Hub
from segue.server.app import ServerApp
from segue.server.connections import ConnectionLimits, Connections
from segue.server.peers import WorkerPeers
from segue.server.settings import ServerSettings
from segue.store.sqlite import SQLiteStore
from tests.interfaces.acp.harness import Client

TRANSPORTS = ["http", "ws"]
# Each transport and each version once in the default tier, all pairs in the full one.
PAIRS = [
    pytest.param("http", 1, id="http-v1"),
    pytest.param("ws", 2, id="ws-v2"),
    pytest.param("http", 2, id="http-v2", marks=pytest.mark.full),
    pytest.param("ws", 1, id="ws-v1", marks=pytest.mark.full),
]


class LineTransport:
    """The transport of a test client, over a stream of the ACP client."""

    def __init__(self, stream: HttpStream | WebSocketStream) -> None:
        self.stream = stream

    async def send(self, line: bytes) -> None:
        await self.stream.write(line)

    async def receive(self) -> bytes:
        return await self.stream.read_line()


class Served(NamedTuple):
    """A running server."""

    hub: Hub
    app: ServerApp
    port: int
    key: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/acp"

    def headers(self, **more: str) -> dict[str, str]:
        return {"x-api-key": self.key, **more}

    def http(self, **options: Any) -> httpx2.AsyncClient:
        options.setdefault("headers", self.headers())
        return httpx2.AsyncClient(timeout=30, **options)

    @asynccontextmanager
    async def connect(
        self,
        transport: str,
        version: int,
        *,
        key: str | None = None,
        port: int | None = None,
        initialize: bool = True,
    ) -> AsyncIterator[Client]:
        """Connect a client over HTTP or WebSocket, which checks every message."""
        headers = {"x-api-key": key or self.key}
        address = f"{transport}://127.0.0.1:{port or self.port}/acp"
        stream: HttpStream | WebSocketStream
        if transport == "ws":
            stream = await WebSocketStream.connect(address, headers)
        else:
            stream = HttpStream(address, headers)
        client = Client(LineTransport(stream), version)
        try:
            if initialize:
                await client.initialize()
            yield client
        finally:
            await stream.close()
            await client.end()


@asynccontextmanager
async def serve(
    directory: Path,
    *,
    limits: ConnectionLimits | None = None,
    peers: WorkerPeers | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve a store in this process, and create a key for it."""
    directory.mkdir(exist_ok=True)
    async with Hub(SQLiteStore.open(directory / "segue.db"), directory) as hub:
        hub.turns.engine.start()
        app = ServerApp(hub, ServerSettings(directory=directory, **settings), peers=peers)
        config = uvicorn.Config(
            app,
            http=Connections(limits or ConnectionLimits(max_connections=2000)).create_protocol,  # type: ignore[arg-type]
            ws="websockets-sansio",
            ws_max_size=1 << 25,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        sock.listen(1024)
        server.capture_signals = nullcontext  # type: ignore[assignment]
        task = asyncio.create_task(server.serve([sock]))
        while not server.started:
            await asyncio.sleep(0.005)
        _, key = await hub.keys.create("local")
        try:
            yield Served(hub, app, sock.getsockname()[1], key)
        finally:
            app.closing.set()
            server.should_exit = True
            await task
            await app.close()
