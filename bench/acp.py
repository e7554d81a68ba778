"""Measure `segue acp` over pipes: start, lists, loading a long session, concurrent turns.

Every agent is a process of its own. The client does little work itself: it counts lines, and
parses only the messages that it waits for. Lists and loads are also measured over a WebSocket of
`segue serve`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from _common import (
    Bench,
    Case,
    CorpusSession,
    Times,
    Vocabulary,
    build_database,
    copy_store,
    list_corpus,
    temporary_directory,
    time_cases,
)

from segue.model import ids
from segue.model.content import Text
from segue.model.event import AgentMessage, Created, Draft, UserMessage

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # tests.clients.toolbox installs the official SDKs

from tests.clients import toolbox  # noqa: E402

PYTHON_SDK = "agent-client-protocol==0.12.1"
MAX_RATIO_TO_PYTHON_SDK = 0.3
MAX_RATIO_TO_TYPESCRIPT_SDK = 1.0
MAX_LIST_GROWTH = 1.5
MAX_RATIO_OF_WEBSOCKET = 1.5  # of a list, compared with pipes
MIN_UPDATES_PER_SECOND = 30_000
MIN_WEBSOCKET_UPDATES_PER_SECOND = 50_000
MAX_FIRST_UPDATE_MS = 30.0
MAX_MEMORY_GROWTH = 1.1  # of memory, after loading a session three times as long
LONG_SESSION_MESSAGES = 33_000
CONCURRENT_SESSIONS = 200
PEERS = Path(__file__).parent / "peers"


class AgentProcess:
    """An ACP agent that runs as a child process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._incomplete_line = b""
        self._ids = iter(range(10**9))
        self.request("initialize", protocolVersion=1, clientCapabilities={})

    def send(self, method: str, **params: Any) -> int:
        id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self._in.write(json.dumps(message).encode() + b"\n")
        return id

    def lines(self) -> list[bytes]:
        """Wait for output and return its complete lines."""
        while True:
            data = os.read(self._out.fileno(), 1 << 20)
            if not data:
                raise EOFError("the agent process ended")
            *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
            if lines:
                return lines

    def answer(self, id: int) -> Any:
        """Wait for the response to a request and return its result."""
        id_field = b'"id":%d' % id
        while True:
            for line in self.lines():
                if id_field in line and (message := json.loads(line)).get("id") == id:
                    if "error" in message:
                        raise RuntimeError(message["error"])
                    return message["result"]

    def request(self, method: str, **params: Any) -> Any:
        return self.answer(self.send(method, **params))

    @property
    def memory(self) -> float:
        """The memory of the process in MB."""
        return float(psutil.Process(self._process.pid).memory_info().rss / 1e6)

    def close(self) -> None:
        self._in.close()
        self._process.wait()
        self._out.close()


class WebSocketServer:
    """`segue serve` as a child process, with one WebSocket.

    It splits the bytes into frames itself, because a library takes longer for a frame than the
    server.
    """

    path = "/acp"

    def __init__(self, data: Path) -> None:
        command = [str(Path(sys.executable).with_name("segue")), "serve", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--sources", "none"],
            env={**os.environ, "SEGUE_DATA_DIR": str(data), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline().split()[-1].rpartition(":")[2])
        while not (data / "key").exists():
            time.sleep(0.01)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(
            (
                f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"x-api-key: {(data / 'key').read_text().strip()}\r\n\r\n"
            ).encode()
        )
        head, _, self._received = self._read_head()
        assert b" 101 " in head, head
        self._ids = iter(range(10**9))
        self.initialize()

    def initialize(self) -> None:
        self.request("initialize", protocolVersion=1, clientCapabilities={})

    def _read_head(self) -> tuple[bytes, bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(65536)
        return data.partition(b"\r\n\r\n")

    def send(self, method: str, **params: Any) -> int:
        id = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    def notify(self, method: str, **params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        header = bytes([0x81, 0x80 | 126]) + len(data).to_bytes(2, "big")
        self._socket.sendall(header + bytes(4) + data)  # masked with zeros

    def lines(self) -> list[bytes]:
        """Wait for text frames and return all complete ones."""
        frames: list[bytes] = []
        while not frames:
            data = self._socket.recv(1 << 20)
            if not data:
                raise EOFError("the server closed the WebSocket")
            self._received += data
            start = 0
            while len(self._received) - start >= 2:
                size, begin = self._received[start + 1], start + 2
                if size >= 126:
                    begin += 2 if size == 126 else 8
                    size = int.from_bytes(self._received[start + 2 : begin], "big")
                if len(self._received) < begin + size:
                    break
                payload = self._received[begin : begin + size]
                if self._received[start] == 0x81:
                    frames.append(payload)
                elif self._received[start] == 0x89:  # a ping, or the server ends the connection
                    self._socket.sendall(bytes([0x8A, 0x80 | size]) + bytes(4) + payload)
                start = begin + size
            self._received = self._received[start:]
        return frames

    answer = AgentProcess.answer
    request = AgentProcess.request

    @property
    def cpu_seconds(self) -> float:
        """The processor time of the server so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.communicate()


def segue_command(data: Path) -> list[str]:
    """Return the command that starts segue for a data directory."""
    command = [str(Path(sys.executable).with_name("segue")), "acp", "--data-dir", str(data)]
    return [*command, "--sources", "none"]


@contextmanager
def running(data: Path) -> Iterator[AgentProcess]:
    """Run segue for a data directory until the block ends."""
    agent = AgentProcess(segue_command(data))
    try:
        yield agent
    finally:
        agent.close()


async def measure_start(bench: Bench, directory: Path) -> None:
    """Compare the time until `initialize` is answered with minimal agents."""
    bench.progress("installing the official SDKs, if they are missing")
    packages = str(toolbox.node_packages())
    commands = {
        "segue": segue_command(directory / "fresh"),
        "Python SDK": [toolbox.python_with(PYTHON_SDK), str(PEERS / "acp_agent.py")],
        "TypeScript SDK": [toolbox.node(), str(PEERS / "acp_agent.mjs"), packages],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    rng = random.Random(0)
    order = list(commands.items())
    rounds = 3 if bench.quick else 30
    for number in range(-2, rounds):
        rng.shuffle(order)
        for name, command in order:
            began_at = time.perf_counter()
            agent = AgentProcess(command)
            elapsed = time.perf_counter() - began_at
            agent.close()
            if number >= 0:
                seconds[name].append(elapsed)
    times = {name: Times(elapsed) for name, elapsed in seconds.items()}
    own_median = times["segue"].median
    for name, max_ratio in (
        ("Python SDK", MAX_RATIO_TO_PYTHON_SDK),
        ("TypeScript SDK", MAX_RATIO_TO_TYPESCRIPT_SDK),
    ):
        other_median = times[name].median
        bench.row(
            f"start to the response to initialize, compared with the {name}",
            target=f"≤ {max_ratio:g}x",
            ok=own_median / other_median <= max_ratio,
            segue=f"{own_median * 1e3:.0f} ms",
            other=f"{other_median * 1e3:.0f} ms",
            ratio=own_median / other_median,
        )


async def make_data_dir(
    bench: Bench, directory: Path, name: str, sessions: Iterator[CorpusSession], count: int
) -> Path:
    """Return a data directory with these sessions."""
    path = await build_database(bench, name, directory, sessions, count)
    data = directory / f"data-{name}"
    data.mkdir()
    copy_store(path, data / "segue.db")
    return data


async def measure_lists(bench: Bench, directory: Path) -> None:
    """Compare lists among many sessions with lists among few."""
    small_count, large_count = 1_000, 10_000 if bench.quick else 100_000
    small, large = [
        AgentProcess(
            segue_command(
                await make_data_dir(bench, directory, f"listed-{count}", list_corpus(count), count)
            )
        )
        for count in (small_count, large_count)
    ]

    def page(agent: AgentProcess | WebSocketServer, **params: Any) -> Case:
        async def case() -> None:
            assert len(agent.request("session/list", **params)["sessions"]) == 50

        return case

    for filter_label, params in (
        ("", {}),
        (" of one directory", {"cwd": "/home/ada/src/project-1"}),
    ):
        cases = {"small": page(small, **params), "large": page(large, **params)}
        times = await time_cases(cases, 20 if bench.quick else 300)
        small_median, large_median = times["small"].median, times["large"].median
        bench.row(
            f"session/list{filter_label} among {large_count:,}, compared with {small_count:,}",
            target=f"≤ {MAX_LIST_GROWTH:g}x",
            ok=large_median / small_median <= MAX_LIST_GROWTH,
            segue=f"{large_median * 1e3:.2f} ms",
            other=f"{small_median * 1e3:.2f} ms",
            ratio=large_median / small_median,
        )
    websocket = WebSocketServer(directory / f"data-listed-{large_count}")
    times = await time_cases(
        {"websocket": page(websocket), "pipes": page(large)}, 20 if bench.quick else 300
    )
    ratio = times["websocket"].median / times["pipes"].median
    bench.row(
        f"session/list among {large_count:,} over WebSocket, compared with pipes",
        target=f"≤ {MAX_RATIO_OF_WEBSOCKET:g}x",
        ok=ratio <= MAX_RATIO_OF_WEBSOCKET,
        segue=f"{times['websocket'].median * 1e3:.2f} ms",
        other=f"{times['pipes'].median * 1e3:.2f} ms",
        ratio=ratio,
    )
    websocket.close()
    small.close()
    large.close()


def long_session(count: int) -> CorpusSession:
    """Return a session of so many messages."""
    rng = random.Random(5)
    words = Vocabulary()
    drafts = [Draft(body=Created(cwd="/"))]
    for number in range(count):
        kind = AgentMessage if number % 2 else UserMessage
        drafts.append(Draft(body=kind(content=(Text(text=words.text(rng)),))))
    return CorpusSession(ids.derived_id("bench", "long", str(count)), drafts)


def load_session(agent: AgentProcess | WebSocketServer, id: str) -> tuple[float, float, int]:
    """Return the seconds until the first update and until the response, and the update count."""
    began_at = time.perf_counter()
    request_id = agent.send("session/load", sessionId=id, cwd="/", mcpServers=[])
    id_field = b'"id":%d' % request_id
    first, count = 0.0, 0
    while True:
        lines = agent.lines()
        first = first or time.perf_counter() - began_at
        count += len(lines)
        if id_field in lines[-1] and b'"method"' not in lines[-1]:
            return first, time.perf_counter() - began_at, count - 1


async def measure_load(bench: Bench, directory: Path) -> None:
    """Measure the updates and the memory of loading a long session."""
    messages = 3_300 if bench.quick else LONG_SESSION_MESSAGES
    sessions = [long_session(messages), long_session(messages * 3)]
    data = await make_data_dir(bench, directory, f"long-{messages}", iter(sessions), len(sessions))
    rates, firsts = [], []
    with running(data) as agent:
        for number in range(-1, 5):
            first, elapsed, updates = load_session(agent, sessions[0].id)
            assert updates >= messages
            if number >= 0:
                rates.append(updates / elapsed)
                firsts.append(first)
        before = agent.memory
        load_session(agent, sessions[1].id)
        after = agent.memory
    websocket = WebSocketServer(data)
    websocket_rates = []
    for number in range(-1, 5):
        _, elapsed, updates = load_session(websocket, sessions[0].id)
        assert updates >= messages
        if number >= 0:
            websocket_rates.append(updates / elapsed)
    websocket.close()
    rate, first = Times(rates).median, Times(firsts).median * 1e3
    websocket_rate = Times(websocket_rates).median
    bench.row(
        f"updates a second over WebSocket, loading {messages:,} messages",
        target=f"≥ {MIN_WEBSOCKET_UPDATES_PER_SECOND:,}",
        ok=websocket_rate >= MIN_WEBSOCKET_UPDATES_PER_SECOND,
        segue=f"{websocket_rate:,.0f}",
    )
    bench.row(
        f"updates a second, loading {messages:,} messages",
        target=f"≥ {MIN_UPDATES_PER_SECOND:,}",
        ok=rate >= MIN_UPDATES_PER_SECOND,
        segue=f"{rate:,.0f}",
    )
    bench.row(
        "time to the first update",
        target=f"≤ {MAX_FIRST_UPDATE_MS:g} ms",
        ok=first <= MAX_FIRST_UPDATE_MS,
        segue=f"{first:.1f} ms",
    )
    bench.row(
        "memory after a load three times as long, compared with before",
        target=f"≤ {MAX_MEMORY_GROWTH:g}x",
        ok=after / before <= MAX_MEMORY_GROWTH,
        segue=f"{after:.0f} MB",
        other=f"{before:.0f} MB",
        ratio=after / before,
    )


async def measure_concurrent_turns(bench: Bench, directory: Path) -> None:
    """Run turns of many sessions at the same time in one process."""
    with running(directory / "concurrent") as agent:
        idle_memory = agent.memory
        sessions = [
            agent.request("session/new", cwd="/", mcpServers=[])["sessionId"]
            for _ in range(CONCURRENT_SESSIONS)
        ]
        began_at = time.perf_counter()
        for id in sessions:
            prompt = [{"type": "text", "text": "/say started\n/wait 3\n/say done"}]
            agent.send("session/prompt", sessionId=id, prompt=prompt)
        started: set[str] = set()
        ended: set[str] = set()
        max_concurrent = 0
        while len(ended) < CONCURRENT_SESSIONS:
            for line in agent.lines():
                update = json.loads(line).get("params", {})
                text = update.get("update", {}).get("content", {})
                if isinstance(text, dict) and text.get("text") in ("started", "done"):
                    (started if text["text"] == "started" else ended).add(update["sessionId"])
                    max_concurrent = max(max_concurrent, len(started - ended))
        elapsed = time.perf_counter() - began_at
        bench.row(
            f"turns that run at the same time in one process, of {CONCURRENT_SESSIONS}",
            target=f"{CONCURRENT_SESSIONS}",
            ok=max_concurrent == CONCURRENT_SESSIONS,
            segue=max_concurrent,
        )
        memory_per_session = (agent.memory - idle_memory) / CONCURRENT_SESSIONS * 1e3
        bench.note(
            f"{CONCURRENT_SESSIONS} turns of 3 s ended after {elapsed:.1f} s;"
            f" memory per session: {memory_per_session:.0f} kB."
        )


async def main() -> int:
    bench = Bench("segue acp, over pipes", ("segue", "other", "ratio"))
    with temporary_directory() as directory:
        await measure_start(bench, directory)
        await measure_lists(bench, directory)
        await measure_load(bench, directory)
        await measure_concurrent_turns(bench, directory)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
