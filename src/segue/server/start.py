"""Start a server with one or several processes."""

from __future__ import annotations

import socket
from collections.abc import Callable

from msgspec.structs import replace

from .serve import run, serve
from .settings import ServerSettings
from .workers import supervise


def run_server(
    settings: ServerSettings,
    sock: socket.socket,
    *,
    workers: int = 1,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve requests on a socket until a signal. `ready` is called once they are accepted.

    Each worker counts requests for itself, so it enforces its share of the rate limit.
    """
    settings = replace(settings, rate_limit=-(-settings.rate_limit // workers))
    if workers == 1:
        run(serve(settings, sock, ready=ready))
    else:
        supervise(settings, sock, workers, ready=ready)
