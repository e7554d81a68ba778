"""`segue serve` that a test stops or kills, and starts again with the same store."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import httpx2
import psutil

from segue.factory import open_hub
from tests.clients.rest_server import Server, serving
from tests.faults.processes import TIMEOUT_SECONDS, StoreLocation
from tests.interfaces.rest.api import HEADERS, message

MODEL = "anthropic:claude-sonnet-4-6"
GRACE_SECONDS = 30


class RestartingServer:
    """A server on one address, whose process changes."""

    def __init__(
        self, location: StoreLocation, workers: int = 1, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        database = () if location.url is None else ("--database-url", location.url)
        self._location = location
        self._options = (
            *("--port", str(_free_port()), "--workers", str(workers)),
            *("--grace", str(grace_seconds), *database),
        )
        self._stack = ExitStack()
        self.server: Server

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    async def use_model(self, url: str) -> None:
        """Let agents ask the model provider at a URL. Call it before the server starts."""
        async with await open_hub(
            self._location.directory, self._location.url, sources="none"
        ) as hub:
            await hub.config.set("local", "model", MODEL)
            await hub.config.set("local", "model.base_url", url)

    async def start(self) -> None:
        def enter() -> Server:
            context = serving(self._location.directory, *self._options)
            return self._stack.enter_context(context)

        self.server = await asyncio.to_thread(enter)

    def processes(self) -> list[psutil.Process]:
        """Return the server's process and those of its workers."""
        process = psutil.Process(self.server.process.pid)
        workers = [child for child in process.children() if "spawn_main" in str(child.cmdline())]
        return [process, *workers]

    async def end(self, how: str, then: Callable[[], None] = lambda: None) -> None:
        """Send SIGTERM or SIGKILL, call `then`, and wait for the end of all processes."""
        processes = self.processes()
        for process in processes if how == "SIGKILL" else processes[:1]:
            os.kill(process.pid, signal.Signals[how])
        then()
        _, alive = await asyncio.to_thread(psutil.wait_procs, processes, TIMEOUT_SECONDS)
        assert not alive
        if how == "SIGTERM":
            assert self.server.process.wait() == 0

    async def restart(self, how: str, then: Callable[[], None] = lambda: None) -> None:
        await self.end(how, then)
        await self.start()


class RestClient:
    """Requests to a server, each on a new connection: any of its workers may get it."""

    def __init__(self, restarting: RestartingServer) -> None:
        self._restarting = restarting

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        server = self._restarting.server
        headers = {**HEADERS, "x-api-key": server.key}
        # Without certificates, which take longer to load than the server takes to answer.
        async with httpx2.AsyncClient(
            base_url=server.url, headers=headers, timeout=60, verify=False
        ) as http:
            response = await http.request(method, path, **({} if body is None else {"json": body}))
        assert response.status_code == 200, response.text
        return response.json()

    async def session(self, tools: list[Any], config: dict[str, Any]) -> str:
        agent = await self.ok(
            "POST", "/v1/agents", {"name": "a", "model": "claude-sonnet-4-6", "tools": tools}
        )
        environment = await self.ok("POST", "/v1/environments", {"name": "e", "config": config})
        setup = {"agent": agent["id"], "environment_id": environment["id"]}
        return str((await self.ok("POST", "/v1/sessions", setup))["id"])

    async def send(self, session: str, *events: dict[str, Any]) -> None:
        await self.ok("POST", f"/v1/sessions/{session}/events", {"events": events})

    async def say(self, session: str, text: str) -> None:
        await self.send(session, message(text))

    async def events(self, session: str) -> list[dict[str, Any]]:
        page = await self.ok("GET", f"/v1/sessions/{session}/events?limit=500")
        return list(page["data"])

    async def until(
        self, session: str, condition: Callable[[list[dict[str, Any]]], Any]
    ) -> list[dict[str, Any]]:
        """Return the events once a condition holds for them."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition(events := await self.events(session)):
            assert time.monotonic() < deadline, events
            await asyncio.sleep(0.05)
        return events

    async def until_idle(self, session: str) -> list[dict[str, Any]]:
        """Return the events once the turn has ended or waits."""
        return await self.until(session, lambda events: stop_reason(events) is not None)


def stop_reason(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return why the session is idle; None if it runs or has not begun."""
    for event in reversed(events):
        if event["type"] == "session.status_idle":
            reason: dict[str, Any] = event["stop_reason"]
            return reason
        if event["type"] == "session.status_running":
            return None
    return None


def open_requests(events: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the tool calls that the turn waits for."""
    reason = stop_reason(events)
    return reason["event_ids"] if reason and reason["type"] == "requires_action" else []


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
