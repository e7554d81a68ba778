"""Send hostile requests to a server in this process, and print the CPU time of each on its loop.

`python loop_time.py DIRECTORY EXAMPLES [NAME…]` prints one line of JSON per request. EXAMPLES is
the number of batches of random requests; the names choose hostile sessions, by default all.
"""

import asyncio
import gc
import json
import math
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx2
import hypothesis
from hypothesis import strategies as st

from segue.factory import open_hub
from segue.hub import Hub
from segue.hub.resources.records import built_in_environment
from segue.model import ids
from segue.model.content import Diff, Text
from segue.model.event import AgentMessage, InfoChanged, ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.server.app import ServerApp
from segue.server.settings import ServerSettings
from tests.interfaces.rest.api import HEADERS, message
from tests.interfaces.rest.test_bad_input import requests as random_requests
from tests.server import hostile_texts

LARGE_BODY_BYTES = 31_000_000
CPU_SECONDS = 300  # after which the program is killed, as it is if a parser runs in it


class LoopThread:
    """An event loop in a thread of its own, so that its CPU time is the server's alone."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Client:
    """Call an ASGI application directly, and record the CPU time of each request."""

    def __init__(self, app: ServerApp, key: str, cookie: str) -> None:
        self._app = app
        self._rest_headers = {**HEADERS, "x-api-key": key}
        self._web_headers = {"cookie": cookie}

    async def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes, float]:
        """Return the status, the body and the seconds of the loop's CPU time."""
        is_rest = path.startswith("/v1")
        fields = {"host": "localhost", "content-length": str(len(body))}
        fields |= self._rest_headers if is_rest else self._web_headers
        fields |= {"content-type": "application/json"} if is_rest else {}
        route, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        status, parts = 0, []

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        started = time.thread_time()
        await self._app(scope, receive, send)
        return status, b"".join(parts), time.thread_time() - started


async def create_session(hub: Hub, *bodies: Any) -> str:
    session = await hub.editor.create(LOCAL, title="Hostile")
    await hub.editor.append(LOCAL, session.id, *bodies)
    return str(session.id)


def hostile_bodies() -> Iterator[tuple[str, list[Any]]]:
    """Yield names and the events of sessions with texts that are slow to parse."""
    for name, text in hostile_texts.MARKDOWN.items():
        yield f"Markdown: {name}", [AgentMessage(content=(Text(text=text),))]
    call = ToolCall(call_id="c", name="Bash", input={"command": "a\n" * 3_000, "x": "[" * 5_000})
    yield "commands", [call, ToolResult(call_id="c", content=(Text(text="\x1b[" * 3_000),))] * 5
    diff = Diff(path="/a", old=hostile_texts.OLD_LINES, new=hostile_texts.NEW_LINES)
    yield "diffs", [ToolCall(call_id="d", name="Edit", content=(diff,))] * 5
    yield "accents", [UserMessage(content=(Text(text=hostile_texts.ACCENTS),))]
    yield "words", [UserMessage(content=(Text(text=hostile_texts.LONG_WORDS),))]
    yield "a long text", [AgentMessage(content=(Text(text="x\n\u202e" * 200_000),))]
    yield "many blocks", [AgentMessage(content=(Text(text="*so*"),) * 3_000)]
    yield "a title", [InfoChanged(title=hostile_texts.ACCENTS)]


def main() -> None:
    directory, examples, names = Path(sys.argv[1]), int(sys.argv[2]), set(sys.argv[3:])
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    server = LoopThread()

    async def start() -> tuple[Hub, Client]:
        hub = await open_hub(directory, sources="")
        app = ServerApp(hub, ServerSettings(directory=directory))
        _, key = await hub.keys.create("local")
        return hub, Client(app, key, await sign_in(app, await hub.logins.create_link(LOCAL)))

    hub, client = server.run(start())
    measure = Measure(server, client)
    measure.warm_up(hub)
    gc.collect()
    gc.freeze()
    measure.send_hostile(hub, names)
    if examples:
        measure.send_random(examples)
    print(json.dumps({"requests": measure.count}), flush=True)


async def sign_in(app: ServerApp, token: str) -> str:
    """Return the cookies of a signed-in browser."""
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.get("/login", params={"token": token})
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


class Measure:
    """Send requests, and print the CPU time of each after the warm-up."""

    def __init__(self, server: LoopThread, client: Client) -> None:
        self._server = server
        self._client = client
        self._recording = False
        self.count = 0

    def send(
        self, name: str, method: str, path: str, body: bytes = b"", *, tries: int = 1
    ) -> tuple[int, bytes]:
        """Send a request, and print its CPU time: the shortest of several tries."""
        seconds = math.inf
        for _ in range(tries):
            status, response, cpu_seconds = self._server.run(self._client.send(method, path, body))
            seconds = min(seconds, cpu_seconds)
        if self._recording:
            self.count += 1
            line = {"name": name, "path": path[:80], "status": status, "ms": seconds * 1e3}
            print(json.dumps(line), flush=True)
        return status, response

    def run(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step of the hub on the loop, such as an append, and count its time too."""

        async def timed() -> tuple[Any, float]:
            started = time.thread_time()
            result = await work()
            return result, time.thread_time() - started

        result, seconds = self._server.run(timed())
        if self._recording:
            self.count += 1
            print(json.dumps({"name": name, "path": "hub", "status": 0, "ms": seconds * 1e3}))
        return result

    def read(self, name: str, session: str, secret: str) -> None:
        """Request everything that shows a session."""
        shared = f"/shared/local/{session}/{secret}"
        for path in (f"/s/{session}", f"/s/{session}?at=1", shared):
            status, page = self.send(name, "GET", path)
            assert status == 200, (path, status, page[:300])
        for path in ("chunks?first=0&last=9", "turns", "turns?q=a", "whole/2", "export.md"):
            self.send(name, "GET", f"/s/{session}/{path}")
        self.send(name, "GET", f"/s/{session}/export.html")
        self.send(name, "GET", f"/v1/sessions/{session}/events?limit=100")

    def warm_up(self, hub: Hub) -> None:
        """Use every kind of page once, so that imports and templates are not counted."""
        bodies = [
            UserMessage(content=(Text(text="Hello"),)),
            AgentMessage(content=(Text(text="# So\n```python\nx = 1\n```\n| a |\n|---|\n"),)),
            ToolCall(call_id="c", name="Bash", input={"command": "ls", "x": 1}),
            ToolCall(
                call_id="d", name="Edit", content=(Diff(path="/a", old="a\nb\n", new="a\nc\n"),)
            ),
        ]
        session = self.run("", lambda: create_session(hub, *bodies))
        secret = self.run("", lambda: hub.shares.share(LOCAL, session))
        self.read("", session, secret)
        for path in ("/", "/?q=hello", "/?group=project", "/dashboard"):
            self.send("", "GET", path)
        self.send_requests()
        self.send_random(2)
        self._recording = True

    def send_hostile(self, hub: Hub, names: set[str]) -> None:
        for name, bodies in hostile_bodies():
            if names and name not in names:
                continue
            session = self.run(name, lambda bodies=bodies: create_session(hub, *bodies))
            secret = self.run(name, lambda session=session: hub.shares.share(LOCAL, session))
            self.read(name, session, secret)
        for query in (hostile_texts.ACCENTS[39_000:42_000], hostile_texts.PHRASE, "x" * 60_000):
            for path in ("/?q=", f"/s/{session}/turns?q="):
                self.send("search", "GET", path + quote(query))
        self.send_requests()
        self.send_large_bodies()
        self.send_deployments(hub)

    def send_requests(self) -> None:
        """Send bodies that are slow to check."""
        name = json.dumps({" - at `$" * 100_000: 1}).encode()
        deep = b'{"metadata": ' + hostile_texts.DEEP_JSON.encode()
        schedule = {"type": "cron", "expression": "0," * 500_000 + "0 * * * *", "timezone": "UTC"}
        deployment = {"name": "d", "agent": "a", "environment_id": "e", "schedule": schedule}
        for body in (name, deep, json.dumps(deployment).encode()):
            for path in ("/v1/sessions", "/v1/agents", "/v1/deployments"):
                self.send("bodies", "POST", path, body)

    def send_large_bodies(self) -> None:
        """Send bodies of almost 32 MB: one text, and as many values as fit."""
        text = "x," * (LARGE_BODY_BYTES // 2)
        arrays = "[]," * (LARGE_BODY_BYTES // 3) + "[]"
        tool = {"type": "custom", "name": "t", "description": "d", "input_schema": {"x": 0}}
        agent = json.dumps({"name": "a", "model": "m", "tools": [tool]})
        block = '{"type": "text", "text": "a"}'
        blocks = f"{block}," * (LARGE_BODY_BYTES // 30) + block
        bodies = {
            "/v1/sessions": f'{{"title": "{text}"}}',
            "/v1/agents": agent.replace('"x": 0', f'"x": [{arrays}]'),
            "/v1/deployments": f'{{"name": "d", "initial_events": [{blocks}]}}',
        }
        for path, body in bodies.items():
            # Other programs that use the memory slow down the copies of such a body.
            status, response = self.send("large bodies", "POST", path, body.encode(), tries=3)
            assert status == 400, (path, status, response[:300])

    def send_deployments(self, hub: Hub) -> None:
        """Create deployments, and list them with their next times."""
        agent = self.run("deployments", lambda: hub.records.built_in_agent("local"))
        body = {
            "name": "d",
            "agent": ids.format_id("agent", agent.id),
            "environment_id": ids.format_id("env", built_in_environment("local")),
            "initial_events": [message("hello")],
            "schedule": {
                "type": "cron",
                "expression": "* * * * *",
                "timezone": "Europe/Berlin",
            },
        }
        for _ in range(20):
            self.send("deployments", "POST", "/v1/deployments", json.dumps(body).encode())
        status, response = self.send("deployments", "GET", "/v1/deployments")
        assert status == 200 and len(json.loads(response)["data"]) == 20

    def send_random(self, examples: int) -> None:
        """Send the requests of the fuzz test."""

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            database=None,
            derandomize=True,
        )
        @hypothesis.given(st.lists(random_requests(), min_size=5, max_size=25))
        def send_all(drawn: list[tuple[str, str, list[tuple[str, str]], Any]]) -> None:
            for method, path, query, body in drawn:
                content = json.dumps(body).encode() if method == "POST" else b""
                self.send("random", method, f"{path}?{urlencode(query)}", content)

        send_all()


if __name__ == "__main__":
    main()
