"""Serving the rest over HTTP, until a signal says to stop."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import uvicorn
from starlette.types import ASGIApp

from segue.factory import open_hub
from segue.hub import Hub
from segue.interfaces.rest.app import RestApp, SharedMetrics
from segue.interfaces.rest.handlers.scheduler import Scheduler
from segue.model.errors import InvalidInput, Unauthorized

T = TypeVar("T")
Mount = Callable[[RestApp], ASGIApp]

# How long requests and turns under way may take once the server is asked to stop.
GRACE_SECONDS = 10.0
SHARE_SECONDS = 1.0
STOPPED = "the server was stopped before this turn had ended"


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has to know, in whichever process it runs."""

    directory: Path
    database_url: str | None = None
    sources: str | None = None
    hosts: tuple[str, ...] = ()
    rate_limit: int = 0
    log_level: str = "warning"
    grace: float = GRACE_SECONDS
    lease: int | None = None


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
        hint = "; --port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        why = f"{error.strerror}{hint}"
        raise InvalidInput(f"cannot listen on {host} port {port}: {why}") from None
    return sock


def is_loopback(sock: socket.socket) -> bool:
    """Whether only this machine can reach what listens there."""
    from ipaddress import ip_address

    return ip_address(sock.getsockname()[0]).is_loopback


def address(sock: socket.socket) -> str:
    """The base URL of what listens there."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def first_key(hub: Hub, workspace: str) -> tuple[Path, str | None]:
    """Where a workspace's key is, and the key itself if it was made just now."""
    path = hub.data_dir / ("key" if workspace == "local" else f"key-{workspace}")
    try:
        await hub.keys.authenticate(path.read_text().strip())
        return path, None
    except (FileNotFoundError, Unauthorized):
        path.unlink(missing_ok=True)  # of another store, or revoked
    _, secret = await hub.keys.create(workspace, "made at the first start")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w") as file:
        file.write(secret + "\n")
    return path, secret


class _Server(uvicorn.Server):
    def __init__(self, rest: RestApp, app: ASGIApp, grace: float) -> None:
        self._rest = rest
        self._grace = grace
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(grace)),
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams at once, and let requests and turns under way end in their own time."""
        self._rest.closing.set()
        turns = asyncio.ensure_future(self._rest.hub.turns.drain(self._grace, STOPPED))
        await super().shutdown(sockets)
        await turns

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal without passing it on: the hub is still to be closed.

        And with the process that watches over this one, if there is such a process.
        """
        loop = asyncio.get_running_loop()
        parent = multiprocessing.parent_process()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        if parent is not None:
            loop.add_reader(parent.sentinel, self._orphaned, parent.sentinel)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _orphaned(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self.should_exit = True


def alone(rest: RestApp) -> ASGIApp:
    """The application of a server that has this rest and nothing else."""
    return rest


async def serve(
    serving: Serving,
    sock: socket.socket,
    *,
    mount: Mount = alone,
    shared_metrics: SharedMetrics | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests on a socket. `ready` is called once they will be.

    `mount` may set something beside the rest: the application that is served in its place.
    """
    sock.listen(2048)  # from here on a client waits in line rather than being refused
    where = serving.directory, serving.database_url
    async with await open_hub(
        *where, sources=serving.sources, lasting=True, lease=serving.lease
    ) as hub:
        hub.turns.start()  # what a process that died had not begun is done by this one
        rest = RestApp(
            hub, serving.hosts, rate_limit=serving.rate_limit, shared_metrics=shared_metrics
        )
        sharing = (
            None if shared_metrics is None else asyncio.ensure_future(_share(rest, shared_metrics))
        )
        scheduling = asyncio.ensure_future(Scheduler(rest).run())
        ready()
        await _Server(rest, mount(rest), serving.grace).serve(sockets=[sock])
        for task in (sharing, scheduling):
            if task is not None:
                task.cancel()


async def _share(rest: RestApp, shared_metrics: SharedMetrics) -> None:
    while True:
        shared_metrics.share(rest.own_series())
        await asyncio.sleep(SHARE_SECONDS)


def run(work: Coroutine[object, object, T]) -> T:
    """Run something on the quickest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
