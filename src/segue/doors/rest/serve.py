"""Serving the door over HTTP, until a signal says to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from ...hub import Hub
from ...model.errors import InvalidInput, Unauthorized
from .door import Door

WORKSPACE = "local"
# How long requests under way may take once the server is asked to stop. Streams end at once.
GRACE_SECONDS = 10


def listen(host: str, port: int) -> socket.socket:
    """A bound socket: the port is known before anything is served."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(f"{host!r} is no address to listen on: {error}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise InvalidInput(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return sock


def address(sock: socket.socket) -> str:
    """The base URL of what listens there."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def first_key(hub: Hub) -> tuple[Path, str | None]:
    """Where the local workspace's key is, and the key itself if it was made just now."""
    path = hub.data_dir / "key"
    try:
        await hub.keys.authenticate(path.read_text().strip())
        return path, None
    except (FileNotFoundError, Unauthorized):
        path.unlink(missing_ok=True)  # of another store, or revoked
    _, secret = await hub.keys.create(WORKSPACE, "made at the first start")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w") as file:
        file.write(secret + "\n")
    return path, secret


class _Server(uvicorn.Server):
    def __init__(self, door: Door, app: ASGIApp) -> None:
        self._door = door
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._door.closing.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal without passing it on: the hub is still to be closed."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


async def serve(
    hub: Hub,
    sock: socket.socket,
    *,
    hosts: Sequence[str] = (),
    rate_limit: int = 0,
    mount: Callable[[Door], ASGIApp] = lambda door: door,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests on a socket. `ready` is called once they will be.

    `mount` may set something beside the door: the application that is served in its place.
    """
    sock.listen(2048)  # from here on a client waits in line rather than being refused
    hub.turns.start()  # what a process that died had not begun is done by this one
    ready()
    door = Door(hub, hosts, rate_limit=rate_limit)
    await _Server(door, mount(door)).serve(sockets=[sock])
