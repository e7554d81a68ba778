"""Measure the REST API: lists of 50 among 1k to 100k sessions, and events on open streams.

Three servers, each a process with one event loop, are measured over persistent connections:
`segue serve`; a plain Starlette application on the same uvicorn, which reads the same rows from the
same file with sqlite3 and returns them as JSON; and google-adk's `adk api_server` with 10,000
sessions in its SQLite service, which lists all of them because it has no pages.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from _common import (
    AGENTS,
    DEPLOYMENT,
    MEMORY,
    TAG,
    WORKSPACE,
    Bench,
    Times,
    build_database,
    copy_store,
    list_corpus,
    temporary_directory,
)

from segue.hub import Hub
from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

MIN_RATE = 2000.0  # requests a second
MIN_RATE_RATIO = 0.5  # to the plain application
MAX_LATENCY_RATIO = 3.0  # to the plain application
MAX_GROWTH = 1.5
MIN_RATIO_TO_ADK = 100.0
MAX_DELAY_MS = 50.0
CONNECTIONS = 8  # that keep a server busy
DEPTHS = (0.0, 0.5, 0.9)
BETA = "managed-agents-2026-04-01"


# The servers.


def serve_plain_app(path: str, port: str) -> None:
    """Serve the plain application (in a child process)."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = -16000")  # as the store does
    sql = "SELECT row FROM sessions WHERE workspace = ? AND state = 0"
    sql += " ORDER BY created_at DESC, id DESC LIMIT 51"

    async def decoded(request: Request) -> Response:
        rows = [json.loads(row) for (row,) in connection.execute(sql, (WORKSPACE,)).fetchall()]
        return JSONResponse({"data": rows[:50], "next_page": rows[49]["id"]})

    async def raw(request: Request) -> Response:
        rows = [row for (row,) in connection.execute(sql, (WORKSPACE,)).fetchall()]
        body = '{"data":[' + ",".join(rows[:50]) + "]}"
        return Response(body, media_type="application/json")

    app = Starlette(routes=[Route("/decoded", decoded), Route("/raw", raw)])
    uvicorn.run(app, port=int(port), log_level="error", access_log=False, lifespan="off")


async def write_adk_sessions(directory: Path, count: int) -> Path:
    """Write sessions for google-adk: one through its service, the others as copies of it."""
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    path = directory / "adk.db"
    service = SqliteSessionService(str(path))
    await service.create_session(app_name="bench", user_id="ada")
    with sqlite3.connect(path) as connection:
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(sessions)")]
        (row,) = connection.execute("SELECT * FROM sessions").fetchall()
        id_column = columns.index("id")
        rows = ((*row[:id_column], ids.new_id(), *row[id_column + 1 :]) for _ in range(count - 1))
        connection.executemany(f"INSERT INTO sessions VALUES ({', '.join('?' * len(row))})", rows)
    connection.close()
    return path


@contextmanager
def running(*command: str, port: int) -> Iterator[int]:
    """Start a server and wait until it answers; yield its process id, then stop it."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if child.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {child.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield child.pid
    finally:
        child.terminate()
        child.wait()


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


# The load.


class Connection:
    """A persistent connection. It reads only the length of each response, to save time."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), 600)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def send(self, request: bytes) -> None:
        self._sock.sendall(request)

    def receive(self) -> tuple[int, bytes]:
        """Read a response; return the length of its body, and the first bytes with its head."""
        view = memoryview(self._buffer)
        received = 0
        while (end := self._buffer.find(b"\r\n\r\n", 0, received)) < 0:
            received += self._read(view[received:])
        head = bytes(view[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(bytes(view[:received]).decode())
        start = head.index(b"content-length:") + 15
        size = int(head[start:].split(b"\r", 1)[0])
        body_bytes = received - end - 4
        while body_bytes < size:
            body_bytes += self._read(view[received:] if received < 1 << 19 else view[1 << 19 :])
        return size, bytes(view[:received])

    def fetch_json(self, request: bytes) -> Any:
        """Return the decoded body of a response that fits into the buffer."""
        self.send(request)
        view, received = memoryview(self._buffer), 0
        while True:
            received += self._read(view[received:])
            end = self._buffer.find(b"\r\n\r\n", 0, received)
            if (
                end >= 0
                and b"content-length: %d" % (received - end - 4) in bytes(view[:end]).lower()
            ):
                return json.loads(bytes(view[end + 4 : received]))

    def _read(self, buffer: memoryview) -> int:
        count = self._sock.recv_into(buffer)
        if not count:
            raise RuntimeError("the server closed the connection")
        return count


class TimedRequest(NamedTuple):
    """An encoded request and the port of its server."""

    port: int
    request: bytes


def get(port: int, path: str, key: str = "") -> TimedRequest:
    """Return a GET request to a server."""
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: application/json"]
    if key:
        lines += [f"X-Api-Key: {key}", "anthropic-version: 2023-06-01", f"anthropic-beta: {BETA}"]
    return TimedRequest(port, "\r\n".join([*lines, "", ""]).encode())


def measure_rate(target: TimedRequest, seconds: float) -> float:
    """Return requests a second over several connections, each of which always waits for one."""
    connections = [Connection(target.port) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.send(target.request)
    done, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for connection in connections:
            connection.receive()
            connection.send(target.request)
            done += 1
    return done / elapsed


def measure_latencies(targets: dict[str, TimedRequest], rounds: int) -> dict[str, Times]:
    """Return the seconds of single requests, alternating between the servers."""
    connections = {name: Connection(target.port) for name, target in targets.items()}
    seconds_by_name: dict[str, list[float]] = {name: [] for name in targets}
    rng, order = random.Random(0), list(targets)
    for number in range(-5, rounds):
        rng.shuffle(order)
        for name in order:
            start = time.perf_counter()
            connections[name].send(targets[name].request)
            connections[name].receive()
            if number >= 0:
                seconds_by_name[name].append(time.perf_counter() - start)
    return {name: Times(elapsed) for name, elapsed in seconds_by_name.items()}


# Requests to segue.


def filters(median_time: int) -> dict[str, str]:
    """Return each list parameter alone. Half of the sessions are older than `median_time`."""
    agent = ids.format_id("agent", AGENTS[0])
    return {
        "none": "",
        "agent_id": f"&agent_id={agent}",
        "agent_version": f"&agent_id={agent}&agent_version=1",
        "created_at[lt]": f"&created_at%5Blt%5D={quote(clock.to_rfc3339(median_time))}",
        "deployment_id": f"&deployment_id={ids.format_id('depl', DEPLOYMENT)}",
        "include_archived": "&include_archived=true",
        "memory_store_id": f"&memory_store_id={ids.format_id('memstore', MEMORY)}",
        "statuses": "&statuses%5B%5D=running",
        "two statuses": "&statuses%5B%5D=running&statuses%5B%5D=idle",
        "cwd": "&cwd=/home/ada/src/project-0",
        "tag": f"&tag={TAG}",
        "source": "&source=segue",
    }


class SegueServer(NamedTuple):
    """A running segue over a store of one size."""

    path: Path
    port: int
    key: str
    median_time: int

    def list_request(self, query: str) -> TimedRequest:
        return get(self.port, f"/v1/sessions?limit=50{query}", self.key)

    def list_requests(self, query: str) -> list[TimedRequest]:
        """Return requests for the first page and for full pages at each of DEPTHS."""
        connection, cursors = Connection(self.port), [""]
        while True:
            path = f"/v1/sessions?limit=50{query}{cursors[-1]}"
            page = connection.fetch_json(get(self.port, path, self.key).request)
            if page["next_page"] is None or len(cursors) > 400:
                break
            # Large pages: only the cursors matter.
            cursors.append(f"&page={page['next_page']}")
            path = f"/v1/sessions?limit=500{query}{cursors[-1]}"
            page = connection.fetch_json(get(self.port, path, self.key).request)
            if page["next_page"] is None or len(page["data"]) < 500:
                break
            cursors.append(f"&page={page['next_page']}")
        full = cursors[: max(1, len(cursors) - 1)]
        return [self.list_request(query + full[int(depth * (len(full) - 1))]) for depth in DEPTHS]


async def start_segue(bench: Bench, directory: Path, size: int, stack: ExitStack) -> SegueServer:
    """Start segue over a store of this size."""
    corpus = await build_database(bench, f"listed-{size}", directory, list_corpus(size), size)
    home = directory / str(size)
    home.mkdir()
    path = home / "segue.db"
    copy_store(corpus, path)
    async with Hub(SQLiteStore.open(path), home) as hub:
        _, key = await hub.keys.create(WORKSPACE)
    with sqlite3.connect(path) as connection:
        sql = "SELECT CAST(avg(created_at) AS INTEGER) FROM sessions"
        (median_time,) = connection.execute(sql).fetchone()
    connection.close()
    port = free_port()
    command = [sys.executable, "-m", "segue", "serve", "--port", str(port)]
    command += ["--data-dir", str(home), "--sources", "none"]
    stack.enter_context(running(*command, port=port))
    return SegueServer(path, port, key, median_time)


def start_plain_app(path: Path, stack: ExitStack) -> int:
    """Start the plain application; return its port."""
    port = free_port()
    command = [sys.executable, __file__, "--plain-app", str(path), str(port)]
    stack.enter_context(running(*command, port=port))
    return port


async def compare_throughput(
    bench: Bench, servers: dict[int, SegueServer], stack: ExitStack
) -> None:
    """Compare requests a second and latencies with the plain application."""
    large = max(servers)
    server = servers[large]
    port = start_plain_app(server.path, stack)
    targets = {
        "segue": server.list_request(""),
        "plain": get(port, "/decoded"),
        "raw rows": get(port, "/raw"),
    }
    rounds, seconds = (3, 0.3) if bench.quick else (7, 1.0)
    rates: dict[str, list[float]] = {name: [] for name in targets}
    for number in range(-1, rounds):
        for name, target in targets.items():
            rate = measure_rate(target, seconds)
            if number >= 0:
                rates[name].append(rate)
    median_rates = {name: statistics.median(values) for name, values in rates.items()}
    share = median_rates["segue"] / median_rates["plain"]
    bench.row(
        f"list 50 of {large:,}, requests a second",
        target=f"≥ {MIN_RATE:,.0f}, ≥ {MIN_RATE_RATIO:g}x",
        ok=median_rates["segue"] >= MIN_RATE and share >= MIN_RATE_RATIO,
        segue=median_rates["segue"],
        other=median_rates["plain"],
        ratio=share,
    )
    bench.row(
        "  compared with stored rows sent undecoded",
        segue=median_rates["segue"],
        other=median_rates["raw rows"],
        ratio=median_rates["segue"] / median_rates["raw rows"],
    )
    times = measure_latencies(targets, 60 if bench.quick else 400)
    ratio = times["segue"].median / times["plain"].median
    bench.row(
        f"list 50 of {large:,}, median ms",
        target=f"≤ {MAX_LATENCY_RATIO:g}x",
        ok=ratio <= MAX_LATENCY_RATIO,
        segue=times["segue"].median * 1e3,
        other=times["plain"].median * 1e3,
        ratio=ratio,
    )
    measure_uncached_pages(bench, server)


def measure_uncached_pages(bench: Bench, server: SegueServer) -> None:
    """Compare pages whose sessions the server has not cached with the first page, which it has."""
    connection, targets, token = Connection(server.port), [], ""
    # More pages than the cache holds, so that the first ones are evicted.
    for _ in range(60 if bench.quick else 300):
        target = server.list_request(token)
        targets.append(target)
        token = f"&page={connection.fetch_json(target.request)['next_page']}"
    seconds: dict[str, list[float]] = {"uncached": [], "cached": []}
    for target in targets[: len(targets) // 5]:
        for name, request in (("uncached", target), ("cached", targets[0])):
            start = time.perf_counter()
            connection.send(request.request)
            connection.receive()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) * 1e3 for name, values in seconds.items()}
    bench.row(
        "  an uncached page, compared with the first page, ms",
        segue=medians["uncached"],
        other=medians["cached"],
        ratio=medians["uncached"] / medians["cached"],
    )


def measure_growth(bench: Bench, servers: dict[int, SegueServer]) -> None:
    """Compare lists among many sessions with lists among few, for each filter."""
    small, large = servers[min(servers)], servers[max(servers)]
    for name in filters(0):
        growth, first_page_medians = 0.0, (0.0, 0.0)
        requests_by_server = [
            server.list_requests(filters(server.median_time)[name]) for server in (large, small)
        ]
        for depth, (large_request, small_request) in enumerate(
            zip(*requests_by_server, strict=True)
        ):
            times = measure_latencies(
                {"large": large_request, "small": small_request}, 40 if bench.quick else 200
            )
            medians = times["large"].median * 1e3, times["small"].median * 1e3
            growth = max(growth, medians[0] / medians[1])
            first_page_medians = first_page_medians if depth else medians
        bench.row(
            f"{max(servers):,} compared with {min(servers):,}, worst depth, filter: {name}",
            target=f"≤ {MAX_GROWTH:g}x",
            ok=growth <= MAX_GROWTH,
            segue=first_page_medians[0],
            other=first_page_medians[1],
            ratio=growth,
        )


async def compare_adk(
    bench: Bench, directory: Path, server: SegueServer, size: int, stack: ExitStack
) -> None:
    """Compare requests a second with google-adk's server."""
    try:
        installed = importlib.util.find_spec("google.adk")
    except ModuleNotFoundError:  # not even `google` is installed
        installed = None
    if installed is None:
        bench.note("google-adk is not installed: install the extra `bench`")
        return
    path = await write_adk_sessions(directory, size)
    agents = directory / "agents" / "bench"
    agents.mkdir(parents=True)
    (agents / "__init__.py").touch()
    port = free_port()
    command = [str(Path(sys.executable).with_name("adk")), "api_server", "--port", str(port)]
    command += ["--session_service_uri", f"sqlite:///{path}", str(agents.parent)]
    stack.enter_context(running(*command, port=port))
    adk_request = get(port, "/apps/bench/users/ada/sessions")
    seconds = 1.0 if bench.quick else 4.0
    rates: dict[str, list[float]] = {"segue": [], "adk": []}
    for _ in range(1 if bench.quick else 3):
        rates["adk"].append(measure_rate(adk_request, seconds))
        rates["segue"].append(measure_rate(server.list_request(""), seconds / 4))
    own_rate, other_rate = (statistics.median(rates[name]) for name in ("segue", "adk"))
    bench.row(
        f"requests a second among {size:,}, compared with google-adk",
        target=f"≥ {MIN_RATIO_TO_ADK:g}x",
        ok=own_rate / other_rate >= MIN_RATIO_TO_ADK,
        segue=own_rate,
        other=other_rate,
        ratio=own_rate / other_rate,
    )


async def measure_stream_delay(bench: Bench, server: SegueServer) -> None:
    """Measure the delay from a commit in another process until an open stream delivers it."""
    async with Hub(SQLiteStore.open(server.path), server.path.parent) as hub:
        session = await hub.editor.create(LOCAL, cwd="/home/ada/src/project")
        path = f"/v1/sessions/{ids.format_id('sesn', session.id)}/events/stream"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(get(server.port, path, server.key).request)
        await reader.readuntil(b"event: ping")
        received_at: dict[bytes, float] = {}

        async def read() -> None:
            while line := await reader.readline():
                if b"user.message" in line and line.startswith(b"data:"):
                    received_at[line[line.index(b'"text":"') + 8 :].split(b'"')[0]] = (
                        time.monotonic()
                    )

        reading = asyncio.create_task(read())
        rng, elapsed = random.Random(7), []
        for number in range(20 if bench.quick else 200):
            # Irregular, so that the appends do not follow the rhythm of a timer.
            await asyncio.sleep(rng.uniform(0.01, 0.15))
            await hub.editor.append(
                LOCAL, session.id, UserMessage(content=(Text(text=f"m{number}"),))
            )
            committed = time.monotonic()
            while b"m%d" % number not in received_at:
                await asyncio.sleep(0.001)
            elapsed.append(max(0.0, received_at[b"m%d" % number] - committed))
        reading.cancel()
        writer.close()
    times = Times(elapsed)
    bench.row(
        "delay from a commit in another process to an open stream, median ms",
        target=f"95% ≤ {MAX_DELAY_MS:g} ms",
        ok=times.quantile(0.95) * 1e3 <= MAX_DELAY_MS,
        segue=times.median * 1e3,
    )
    bench.note(
        f"95% of events arrive within {times.quantile(0.95) * 1e3:.0f} ms, all within"
        f" {times.worst * 1e3:.0f} ms"
    )


async def main() -> int:
    bench = Bench("The sessions API over HTTP, one process", ("segue", "other", "ratio"))
    sizes: Sequence[int] = (1_000, 10_000) if bench.quick else (1_000, 10_000, 100_000)
    with temporary_directory() as directory, ExitStack() as stack:
        servers = {size: await start_segue(bench, directory, size, stack) for size in sizes}
        await compare_throughput(bench, servers, stack)
        measure_growth(bench, servers)
        await compare_adk(bench, directory, servers[10_000], 10_000, stack)
        await measure_stream_delay(bench, servers[max(sizes)])
    return bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain-app"]:
        serve_plain_app(*sys.argv[2:])
    else:
        os.environ.pop("SEGUE_DATABASE_URL", None)
        sys.exit(asyncio.run(main()))
