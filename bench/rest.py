"""The sessions API over HTTP: a list of 50 among 1k to 100k sessions, and events on open streams.

Three servers, each a process of its own with one event loop, are asked over kept-open connections:
`segue serve`; a bare Starlette application on the same uvicorn, which fetches the same rows from
the same file with sqlite3, and dumps them as JSON; and google-adk's `adk api_server` over 10,000
sessions in its SQLite service, which lists all of them, since it knows no pages.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import shutil
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
    built,
    listed,
    scratch,
)

from segue.hub import Hub
from segue.model import clock, ids
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

RATE, OF_FLOOR, OVER_FLOOR, GROWTH, OVER_ADK, SEEN_MS = 2000.0, 0.5, 3.0, 1.5, 100.0, 50.0
LINES = 8  # connections that keep a server busy
DEPTHS = (0.0, 0.5, 0.9)
BETA = "managed-agents-2026-04-01"


# The servers.


def floor(path: str, port: str) -> None:
    """The floor, in a process of its own."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    bare = sqlite3.connect(path, isolation_level=None)
    bare.execute("PRAGMA cache_size = -16000")  # as ours
    sql = "SELECT row FROM sessions WHERE workspace = ? AND state = 0"
    sql += " ORDER BY created_at DESC, id DESC LIMIT 51"

    async def dumped(request: Request) -> Response:
        rows = [json.loads(row) for (row,) in bare.execute(sql, (WORKSPACE,)).fetchall()]
        return JSONResponse({"data": rows[:50], "next_page": rows[49]["id"]})

    async def unread(request: Request) -> Response:
        rows = [row for (row,) in bare.execute(sql, (WORKSPACE,)).fetchall()]
        body = b'{"data":[' + b",".join(rows[:50]) + b"]}"
        return Response(body, media_type="application/json")

    app = Starlette(routes=[Route("/dumped", dumped), Route("/unread", unread)])
    uvicorn.run(app, port=int(port), log_level="error", access_log=False, lifespan="off")


async def furnish_adk(directory: Path, count: int) -> Path:
    """As many sessions for google-adk: one made through its service, the others copies of it."""
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    path = directory / "adk.db"
    service = SqliteSessionService(str(path))
    await service.create_session(app_name="bench", user_id="ada")
    with sqlite3.connect(path) as bare:
        columns = [name for _, name, *_ in bare.execute("PRAGMA table_info(sessions)")]
        (row,) = bare.execute("SELECT * FROM sessions").fetchall()
        at = columns.index("id")
        rows = ((*row[:at], ids.new_id(), *row[at + 1 :]) for _ in range(count - 1))
        bare.executemany(f"INSERT INTO sessions VALUES ({', '.join('?' * len(row))})", rows)
    bare.close()
    return path


@contextmanager
def running(*command: str, port: int) -> Iterator[int]:
    """A server, until it answers, and then for as long as it is needed; its process's id."""
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
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


# The load.


class Line:
    """A connection that stays open. It looks for the length of each answer, and at nothing else."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port), 60)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 20)

    def send(self, request: bytes) -> None:
        self._sock.sendall(request)

    def receive(self) -> tuple[int, bytes]:
        """The length of the body, and the answer's head and what of the body came with it."""
        view = memoryview(self._buffer)
        have = 0
        while (end := self._buffer.find(b"\r\n\r\n", 0, have)) < 0:
            have += self._read(view[have:])
        head = bytes(view[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(bytes(view[:have]).decode())
        start = head.index(b"content-length:") + 15
        size = int(head[start:].split(b"\r", 1)[0])
        got = have - end - 4
        while got < size:
            got += self._read(view[have:] if have < 1 << 19 else view[1 << 19 :])
        return size, bytes(view[:have])

    def whole(self, request: bytes) -> Any:
        """The decoded body of an answer that fits the buffer."""
        self.send(request)
        view, have = memoryview(self._buffer), 0
        while True:
            have += self._read(view[have:])
            end = self._buffer.find(b"\r\n\r\n", 0, have)
            if end >= 0 and b"content-length: %d" % (have - end - 4) in bytes(view[:end]).lower():
                return json.loads(bytes(view[end + 4 : have]))

    def _read(self, into: memoryview) -> int:
        count = self._sock.recv_into(into)
        if not count:
            raise RuntimeError("the server closed the connection")
        return count


class Target(NamedTuple):
    """A request to a server."""

    port: int
    request: bytes


def get(port: int, path: str, key: str = "") -> Target:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Accept: application/json"]
    if key:
        lines += [f"X-Api-Key: {key}", "anthropic-version: 2023-06-01", f"anthropic-beta: {BETA}"]
    return Target(port, "\r\n".join([*lines, "", ""]).encode())


def rate(target: Target, seconds: float) -> float:
    """Requests a second, with several connections that always have one under way."""
    lines = [Line(target.port) for _ in range(LINES)]
    for line in lines:
        line.send(target.request)
    done, start = 0, time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        for line in lines:
            line.receive()
            line.send(target.request)
            done += 1
    return done / took


def latencies(targets: dict[str, Target], rounds: int) -> dict[str, Times]:
    """Seconds a request, one at a time, each server in turn."""
    lines = {name: Line(target.port) for name, target in targets.items()}
    found: dict[str, list[float]] = {name: [] for name in targets}
    chance, order = random.Random(0), list(targets)
    for number in range(-5, rounds):
        chance.shuffle(order)
        for name in order:
            start = time.perf_counter()
            lines[name].send(targets[name].request)
            lines[name].receive()
            if number >= 0:
                found[name].append(time.perf_counter() - start)
    return {name: Times(took) for name, took in found.items()}


# What is asked of segue.


def filters(middle: int) -> dict[str, str]:
    """Each parameter of a list by itself; `middle` is a time that half the sessions lie before."""
    agent = ids.format_id("agent", AGENTS[0])
    return {
        "none": "",
        "agent_id": f"&agent_id={agent}",
        "agent_version": f"&agent_id={agent}&agent_version=1",
        "created_at[lt]": f"&created_at%5Blt%5D={quote(clock.to_rfc3339(middle))}",
        "deployment_id": f"&deployment_id={ids.format_id('depl', DEPLOYMENT)}",
        "include_archived": "&include_archived=true",
        "memory_store_id": f"&memory_store_id={ids.format_id('memstore', MEMORY)}",
        "statuses": "&statuses%5B%5D=running",
        "two statuses": "&statuses%5B%5D=running&statuses%5B%5D=idle",
        "cwd": "&cwd=/home/ada/src/project-0",
        "tag": f"&tag={TAG}",
        "source": "&source=segue",
    }


class Opened(NamedTuple):
    """segue over one size of store."""

    path: Path
    port: int
    key: str
    middle: int

    def list(self, query: str) -> Target:
        return get(self.port, f"/v1/sessions?limit=50{query}", self.key)

    def places(self, query: str) -> list[Target]:
        """The first page, and full pages after some share of the list."""
        line, cursors = Line(self.port), [""]
        while True:
            path = f"/v1/sessions?limit=50{query}{cursors[-1]}"
            page = line.whole(get(self.port, path, self.key).request)
            if page["next_page"] is None or len(cursors) > 400:
                break
            # From here on quicker: only the places are of interest.
            cursors.append(f"&page={page['next_page']}")
            path = f"/v1/sessions?limit=500{query}{cursors[-1]}"
            page = line.whole(get(self.port, path, self.key).request)
            if page["next_page"] is None or len(page["data"]) < 500:
                break
            cursors.append(f"&page={page['next_page']}")
        full = cursors[: max(1, len(cursors) - 1)]
        return [self.list(query + full[int(depth * (len(full) - 1))]) for depth in DEPTHS]


async def opened(bench: Bench, directory: Path, size: int, stack: ExitStack) -> Opened:
    corpus = await built(bench, f"listed-{size}", directory, listed(size), size)
    home = directory / str(size)
    home.mkdir()
    path = home / "segue.db"
    shutil.copyfile(corpus, path)
    async with Hub(SQLiteStore.open(path), home) as hub:
        _, key = await hub.keys.create(WORKSPACE)
    with sqlite3.connect(path) as bare:
        sql = "SELECT CAST(avg(created_at) AS INTEGER) FROM sessions"
        (middle,) = bare.execute(sql).fetchone()
    bare.close()
    port = free_port()
    command = [sys.executable, "-m", "segue", "serve", "--port", str(port)]
    command += ["--data-dir", str(home), "--sources", "none"]
    stack.enter_context(running(*command, port=port))
    return Opened(path, port, key, middle)


def started_floor(path: Path, stack: ExitStack) -> int:
    port = free_port()
    command = [sys.executable, __file__, "--floor", str(path), str(port)]
    stack.enter_context(running(*command, port=port))
    return port


async def throughput(bench: Bench, servers: dict[int, Opened], stack: ExitStack) -> None:
    large = max(servers)
    ours = servers[large]
    port = started_floor(ours.path, stack)
    targets = {
        "segue": ours.list(""),
        "floor": get(port, "/dumped"),
        "rows unread": get(port, "/unread"),
    }
    rounds, seconds = (3, 0.3) if bench.quick else (7, 1.0)
    rates: dict[str, list[float]] = {name: [] for name in targets}
    for number in range(-1, rounds):
        for name, target in targets.items():
            took = rate(target, seconds)
            if number >= 0:
                rates[name].append(took)
    best = {name: statistics.median(all) for name, all in rates.items()}
    share = best["segue"] / best["floor"]
    bench.row(
        f"list 50 of {large:,}, requests a second",
        target=f"≥ {RATE:,.0f}, ≥ {OF_FLOOR:g}x",
        ok=best["segue"] >= RATE and share >= OF_FLOOR,
        segue=best["segue"],
        against=best["floor"],
        ratio=share,
    )
    bench.row(
        "  beside rows sent as they are stored",
        segue=best["segue"],
        against=best["rows unread"],
        ratio=best["segue"] / best["rows unread"],
    )
    times = latencies(targets, 60 if bench.quick else 400)
    over = times["segue"].median / times["floor"].median
    bench.row(
        f"list 50 of {large:,}, median ms",
        target=f"≤ {OVER_FLOOR:g}x",
        ok=over <= OVER_FLOOR,
        segue=times["segue"].median * 1e3,
        against=times["floor"].median * 1e3,
        ratio=over,
    )
    cold(bench, ours)


def cold(bench: Bench, ours: Opened) -> None:
    """Pages that the server has nothing of in memory, against the first page, which it has."""
    line, targets, token = Line(ours.port), [], ""
    for _ in range(60 if bench.quick else 300):  # more than it keeps: the first are forgotten
        target = ours.list(token)
        targets.append(target)
        token = f"&page={line.whole(target.request)['next_page']}"
    took: dict[str, list[float]] = {"cold": [], "warm": []}
    for target in targets[: len(targets) // 5]:
        for name, asked in (("cold", target), ("warm", targets[0])):
            start = time.perf_counter()
            line.send(asked.request)
            line.receive()
            took[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(all) * 1e3 for name, all in took.items()}
    bench.row(
        "  a page that is not in memory, beside the first, ms",
        segue=medians["cold"],
        against=medians["warm"],
        ratio=medians["cold"] / medians["warm"],
    )


def flatness(bench: Bench, servers: dict[int, Opened]) -> None:
    small, large = servers[min(servers)], servers[max(servers)]
    for name in filters(0):
        growth, shown = 0.0, (0.0, 0.0)
        spots = [each.places(filters(each.middle)[name]) for each in (large, small)]
        for depth, (far, near) in enumerate(zip(*spots, strict=True)):
            times = latencies({"large": far, "small": near}, 40 if bench.quick else 200)
            medians = times["large"].median * 1e3, times["small"].median * 1e3
            growth = max(growth, medians[0] / medians[1])
            shown = shown if depth else medians
        bench.row(
            f"{max(servers):,} against {min(servers):,}, worst of three depths: {name}",
            target=f"≤ {GROWTH:g}x",
            ok=growth <= GROWTH,
            segue=shown[0],
            against=shown[1],
            ratio=growth,
        )


async def adk(bench: Bench, directory: Path, ours: Opened, size: int, stack: ExitStack) -> None:
    try:
        known = importlib.util.find_spec("google.adk")
    except ModuleNotFoundError:  # of `google` itself
        known = None
    if known is None:
        bench.note("google-adk is not installed; it is in the extra `bench`")
        return
    path = await furnish_adk(directory, size)
    agents = directory / "agents" / "bench"
    agents.mkdir(parents=True)
    (agents / "__init__.py").touch()
    port = free_port()
    command = [str(Path(sys.executable).with_name("adk")), "api_server", "--port", str(port)]
    command += ["--session_service_uri", f"sqlite:///{path}", str(agents.parent)]
    stack.enter_context(running(*command, port=port))
    theirs = get(port, "/apps/bench/users/ada/sessions")
    seconds = 1.0 if bench.quick else 4.0
    rates: dict[str, list[float]] = {"segue": [], "adk": []}
    for _ in range(1 if bench.quick else 3):
        rates["adk"].append(rate(theirs, seconds))
        rates["segue"].append(rate(ours.list(""), seconds / 4))
    mine, other = (statistics.median(rates[name]) for name in ("segue", "adk"))
    bench.row(
        f"requests a second among {size:,}, beside google-adk",
        target=f"≥ {OVER_ADK:g}x",
        ok=mine / other >= OVER_ADK,
        segue=mine,
        against=other,
        ratio=mine / other,
    )


async def streamed(bench: Bench, ours: Opened) -> None:
    """From another process's commit to the frame on an open stream."""
    async with Hub(SQLiteStore.open(ours.path), ours.path.parent) as hub:
        session = await hub.editor.create(LOCAL, cwd="/home/ada/src/project")
        path = f"/v1/sessions/{ids.format_id('sesn', session.id)}/events/stream"
        reader, writer = await asyncio.open_connection("127.0.0.1", ours.port)
        writer.write(get(ours.port, path, ours.key).request)
        await reader.readuntil(b"event: ping")
        seen: dict[bytes, float] = {}

        async def read() -> None:
            while line := await reader.readline():
                if b"user.message" in line and line.startswith(b"data:"):
                    seen[line[line.index(b'"text":"') + 8 :].split(b'"')[0]] = time.monotonic()

        reading = asyncio.create_task(read())
        chance, took = random.Random(7), []
        for number in range(20 if bench.quick else 200):
            # Irregular, so that nothing falls in step with a timer of the server.
            await asyncio.sleep(chance.uniform(0.01, 0.15))
            await hub.editor.append(
                LOCAL, session.id, UserMessage(content=(Text(text=f"m{number}"),))
            )
            committed = time.monotonic()
            while b"m%d" % number not in seen:
                await asyncio.sleep(0.001)
            took.append(max(0.0, seen[b"m%d" % number] - committed))
        reading.cancel()
        writer.close()
    times = Times(took)
    bench.row(
        "commit in another process to open stream, median ms",
        target=f"95% ≤ {SEEN_MS:g} ms",
        ok=times.quantile(0.95) * 1e3 <= SEEN_MS,
        segue=times.median * 1e3,
    )
    bench.note(
        f"95% of events are seen within {times.quantile(0.95) * 1e3:.0f} ms, all within"
        f" {times.worst * 1e3:.0f} ms"
    )


async def main() -> int:
    bench = Bench("The sessions API over HTTP, one process", ("segue", "against", "ratio"))
    sizes: Sequence[int] = (1_000, 10_000) if bench.quick else (1_000, 10_000, 100_000)
    with scratch() as directory, ExitStack() as stack:
        servers = {size: await opened(bench, directory, size, stack) for size in sizes}
        await throughput(bench, servers, stack)
        flatness(bench, servers)
        await adk(bench, directory, servers[10_000], 10_000, stack)
        await streamed(bench, servers[max(sizes)])
    return bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--floor"]:
        floor(*sys.argv[2:])
    else:
        os.environ.pop("SEGUE_DATABASE_URL", None)
        sys.exit(asyncio.run(main()))
