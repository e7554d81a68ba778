"""Serve one process's share of the requests until a signal stops it."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import uvicorn

from segue.agents.registry import AgentRegistry
from segue.factory import open_hub
from segue.http.body import MAX_BODY_BYTES
from segue.http.metrics import Metrics, SharedMetrics
from segue.model.principal import LOCAL
from segue.untrusted import PARSERS

from .app import ServerApp
from .connections import (
    ConnectionLimits,
    Connections,
    default_max_connections,
    raise_open_files_limit,
)
from .peers import WorkerPeers
from .settings import ServerSettings

T = TypeVar("T")

METRICS_INTERVAL_SECONDS = 1.0
LAG_INTERVAL_SECONDS = 0.5
SERVER_STOPPED = "the server was stopped before this turn had ended"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _UvicornServer(uvicorn.Server):
    """Uvicorn, with our shutdown of streams and turns."""

    def __init__(self, app: ServerApp, settings: ServerSettings) -> None:
        self._app = app
        self._grace_seconds = settings.grace_seconds
        raise_open_files_limit()
        limits = ConnectionLimits(
            max_connections=settings.max_connections or default_max_connections()
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=Connections(limits).create_protocol,  # type: ignore[arg-type]
                lifespan="off",
                ws="websockets-sansio",
                ws_max_size=MAX_BODY_BYTES,
                ws_per_message_deflate=False,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End event streams at once, and wait for running turns and requests.

        Clients and workers can send results for turns that still run.
        """
        self._app.closing.set()
        await self._app.hub.turns.engine.drain(self._grace_seconds, SERVER_STOPPED)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, or when the supervisor process ends.

        Uvicorn would raise the signal again afterwards, before the hub is closed.
        """
        loop = asyncio.get_running_loop()
        supervisor = multiprocessing.parent_process()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        if supervisor is not None:
            loop.add_reader(supervisor.sentinel, self._supervisor_ended, supervisor.sentinel)
        try:
            yield
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _supervisor_ended(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self.should_exit = True


async def serve(
    settings: ServerSettings,
    sock: socket.socket,
    *,
    shared_metrics: SharedMetrics | None = None,
    peers: WorkerPeers | None = None,
    registry: AgentRegistry | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve requests on a socket until a signal. `ready` is called once they are accepted.

    `registry` has the agents of a program that serves its own.
    """
    async with await open_hub(
        settings.directory,
        settings.database_url,
        sources=settings.sources,
        agent_registry=registry,
        lasting=True,
        lease=settings.lease,
        quotas=settings.quotas,
        private_webhooks=settings.private_webhooks,
    ) as hub:
        hub.turns.engine.start()  # also runs the prompts that a dead process left in the inbox
        app = ServerApp(hub, settings, shared_metrics, peers)
        sockets = [sock] if peers is None else [sock, peers.listen()]
        background = [asyncio.ensure_future(hub.scheduler.run(app.rest.closing))]
        background.append(asyncio.ensure_future(hub.webhook_dispatcher.run(app.rest.closing)))
        background.append(asyncio.ensure_future(_measure_lag(app.rest.metrics)))
        background.append(asyncio.ensure_future(hub.continuing.recover(LOCAL)))
        if shared_metrics is not None:
            background.append(asyncio.ensure_future(_publish_metrics(app, shared_metrics)))
        ready()
        try:
            await _UvicornServer(app, settings).serve(sockets=sockets)
        finally:
            await app.close()
            if peers is not None:
                await peers.close()
            PARSERS.close()  # threads that wait for a child would keep this process alive
            for task in background:
                task.cancel()


async def _measure_lag(metrics: Metrics) -> None:
    """Count how late the event loop is: a callback that takes long delays all others."""
    while True:
        due = time.monotonic() + LAG_INTERVAL_SECONDS
        await asyncio.sleep(LAG_INTERVAL_SECONDS)
        metrics.count_lag(max(0.0, time.monotonic() - due))


async def _publish_metrics(app: ServerApp, shared_metrics: SharedMetrics) -> None:
    while True:
        shared_metrics.publish(app.rest.own_metrics())
        await asyncio.sleep(METRICS_INTERVAL_SECONDS)


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine on uvloop if it is installed, else on asyncio's event loop."""
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(work)
