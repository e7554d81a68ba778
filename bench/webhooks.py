"""Measure whether webhooks keep up with 1,000 events a second, and whether turns notice it.

Turns of the demo agent run one after another in this process, as in a server. In every second
round, another task changes things 1,000 times a second, each of which is announced to a webhook. A
server in another process receives the requests and counts them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from _common import Bench, temporary_directory

from segue.hub import Hub
from segue.model import ids
from segue.model.principal import LOCAL
from segue.model.webhooks.notices import Notice
from segue.store.sqlite import SQLiteStore

EVENTS_PER_SECOND = 1000
MAX_SLOWDOWN = 1.25
MAX_BACKLOG_SECONDS = 1.0
STEP_SECONDS = 0.02


def receive(pipe: Connection) -> None:
    """Answer webhooks until the process is ended, and send how many came when asked."""

    async def serve() -> None:
        count = 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            with suppress(EOFError, OSError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    await reader.readexactly(length)
                    count += 1
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        asked = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), asked.set)
        while True:
            await asked.wait()
            asked.clear()
            pipe.recv()
            pipe.send(count)

    asyncio.run(serve())


async def announce(hub: Hub, seconds: float) -> int:
    """Announce events at the rate for some seconds, and return their number."""
    start, sent = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        missing = int(elapsed * EVENTS_PER_SECOND) - sent
        if missing:
            notices = [Notice("agent.updated", {"id": ids.new_id()}) for _ in range(missing)]
            await hub.store.notify(LOCAL.workspace, notices)
            sent += missing
        await asyncio.sleep(STEP_SECONDS)
    return sent


async def run_turns(hub: Hub, session: str, seconds: float) -> list[float]:
    """Return the duration of each turn that ran within some seconds."""
    durations = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await hub.turns.run(LOCAL, session, "/say hello")
        durations.append(time.perf_counter() - start)
    return durations


async def measure(
    directory: Path, port: int, pipe: Connection, rounds: int, seconds: float
) -> tuple[list[float], list[float], list[float], float]:
    """Return the turns without and with events, the backlog after each round, and the rate."""
    store = SQLiteStore.open(directory / "segue.db")
    quiet: list[float] = []
    busy: list[float] = []
    backlogs: list[float] = []
    total, spent = 0, 0.0
    async with Hub(store, directory) as hub:
        url = f"http://127.0.0.1:{port}/"
        await hub.webhooks.create(LOCAL.workspace, url, ["agent.updated"], None)
        delivering = asyncio.create_task(hub.webhook_dispatcher.run(asyncio.Event()))
        session = (await hub.editor.create(LOCAL, cwd=str(directory))).id
        await run_turns(hub, session, 1)
        for _ in range(rounds):
            quiet += await run_turns(hub, session, seconds)
            start = time.perf_counter()
            announcing = asyncio.create_task(announce(hub, seconds))
            busy += await run_turns(hub, session, seconds)
            total += await announcing
            ended = time.perf_counter()
            while received(pipe) < total and time.perf_counter() - ended < 30:
                await asyncio.sleep(0.005)
            backlogs.append(time.perf_counter() - ended)
            spent += time.perf_counter() - start
        assert received(pipe) == total, (received(pipe), total)
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)
    return quiet, busy, backlogs, total / spent


def received(pipe: Connection) -> int:
    pipe.send(None)
    count: int = pipe.recv()
    return count


async def main() -> int:
    bench = Bench("Webhooks", ("segue", "without webhooks", "ratio", "unit"))
    rounds, seconds = (1, 1.0) if bench.quick else (6, 3.0)
    pipe, other_end = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=receive, args=(other_end,))
    process.start()
    try:
        with temporary_directory() as directory:
            quiet, busy, backlogs, rate = await measure(
                directory, pipe.recv(), pipe, rounds, seconds
            )
    finally:
        process.terminate()
        process.join()
    ratio = statistics.median(busy) / statistics.median(quiet)
    bench.row(
        f"a turn while {EVENTS_PER_SECOND:,} events a second are delivered",
        target=f"≤ {MAX_SLOWDOWN}x",
        ok=ratio <= MAX_SLOWDOWN,
        segue=statistics.median(busy) * 1e3,
        **{"without webhooks": statistics.median(quiet) * 1e3},
        ratio=ratio,
        unit="ms",
    )
    bench.row("events delivered in a second, on average", segue=rate)
    bench.row(
        "until the last event is delivered",
        target=f"≤ {MAX_BACKLOG_SECONDS} s",
        ok=max(backlogs) <= MAX_BACKLOG_SECONDS,
        segue=max(backlogs),
        unit="s",
    )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
