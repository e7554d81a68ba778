"""Serve an agent of one's own over HTTP."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from segue.agents.base import Agent
from segue.agents.registry import DEFAULT, AgentRegistry
from segue.factory import open_hub
from segue.http import logs
from segue.hub.location import data_dir
from segue.hub.workdir.isolation import check_isolation
from segue.model.errors import InvalidInput
from segue.model.principal import LOCAL

from .key_file import ensure_key
from .serve import run, serve
from .settings import GRACE_SECONDS, ServerSettings
from .sockets import base_url, listen


def serve_agent(
    agent: Agent,
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    directory: str | os.PathLike[str] | None = None,
    database_url: str | None = None,
    hosts: tuple[str, ...] = (),
    log_level: str = "warning",
    grace_seconds: float = GRACE_SECONDS,
) -> None:
    """Serve an agent over REST, ACP, MCP and in the browser until a signal, as `segue serve` does.

    The agent answers in every session of the store that has no other agent. `directory` is the
    data directory, and the server prints which of its files has the key of the workspace `local`;
    `segue keys create` creates others. `hosts` are the names under which a proxy serves it. Other
    tools' sessions are not listed. Raises InvalidInput if the port is in use, or if `agent`
    is a class or has no `run`.
    """
    if isinstance(agent, type):
        raise InvalidInput(f"agent is the class {agent.__name__}; pass {agent.__name__}(...)")
    if not callable(getattr(agent, "run", None)):
        raise InvalidInput(f"agent has no method run(turn): {agent!r}")
    path = data_dir() if directory is None else Path(directory)
    check_isolation(path)
    logs.configure(log_level)
    sock = listen(host, port)
    settings = ServerSettings(
        directory=path,
        database_url=database_url,
        sources="none",
        hosts=(host, *hosts),
        log_level=log_level,
        grace_seconds=grace_seconds,
    )

    async def prepare() -> Path:
        async with await open_hub(path, database_url, sources="none") as hub:
            return (await ensure_key(hub, LOCAL.workspace))[0]

    key_path = run(prepare())

    def print_ready() -> None:
        print(f"Serving on {base_url(sock)}; the API key is in {key_path}", flush=True)

    registry = AgentRegistry({DEFAULT: lambda spec: agent})
    try:
        run(serve(settings, sock, registry=registry, ready=print_ready))
    except KeyboardInterrupt:
        sys.exit(130)
