"""The ACP door over real pipes: starting, listing, loading a long session, many at once.

Every agent is a process of its own with a client at its pipes that does as little as it can: it
counts lines, and parses those that it waits for.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from _common import Bench, Case, Made, Times, Words, built, interleaved, listed, scratch

from segue.model import ids
from segue.model.content import Text
from segue.model.event import AgentMessage, Created, Draft, UserMessage

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the official SDKs come from the tests' toolbox

from tests.clients import toolbox  # noqa: E402

PYTHON_SDK = "agent-client-protocol==0.12.1"
PYTHON_SHARE = 0.3
TYPESCRIPT_SHARE = 1.0
LIST_GROWTH = 1.5
UPDATES = 30_000  # a second
FIRST_MS = 30.0
FLAT = 1.1  # memory after a replay three times as long
LONG = 33_000  # messages
CROWD = 200  # sessions
PEERS = Path(__file__).parent / "peers"


class Agent:
    """A process that speaks ACP."""

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
        self._rest = b""
        self._ids = iter(range(10**9))
        self.ask("initialize", protocolVersion=1, clientCapabilities={})

    def post(self, method: str, **params: Any) -> int:
        id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self._in.write(json.dumps(message).encode() + b"\n")
        return id

    def lines(self) -> list[bytes]:
        """What has come, whole lines of it; waits for the first."""
        while True:
            piece = os.read(self._out.fileno(), 1 << 20)
            if not piece:
                raise EOFError("the agent went away")
            *found, self._rest = (self._rest + piece).split(b"\n")
            if found:
                return found

    def answer(self, id: int) -> Any:
        """The answer to a request, whatever comes before it."""
        mark = b'"id":%d' % id
        while True:
            for line in self.lines():
                if mark in line and (message := json.loads(line)).get("id") == id:
                    if "error" in message:
                        raise RuntimeError(message["error"])
                    return message["result"]

    def ask(self, method: str, **params: Any) -> Any:
        return self.answer(self.post(method, **params))

    @property
    def memory(self) -> float:
        """In MB."""
        return float(psutil.Process(self._process.pid).memory_info().rss / 1e6)

    def close(self) -> None:
        self._in.close()
        self._process.wait()
        self._out.close()


def segue(data: Path) -> list[str]:
    command = [str(Path(sys.executable).with_name("segue")), "acp", "--data-dir", str(data)]
    return [*command, "--sources", "none"]


@contextmanager
def running(data: Path) -> Iterator[Agent]:
    agent = Agent(segue(data))
    try:
        yield agent
    finally:
        agent.close()


# Starting.


async def start(bench: Bench, directory: Path) -> None:
    bench.say("fetching the official SDKs, unless they are there")
    packages = str(toolbox.node_packages())
    commands = {
        "segue": segue(directory / "fresh"),
        "Python SDK": [toolbox.python_with(PYTHON_SDK), str(PEERS / "acp_agent.py")],
        "TypeScript SDK": [toolbox.node(), str(PEERS / "acp_agent.mjs"), packages],
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    chance = random.Random(0)
    order = list(commands.items())
    rounds = 3 if bench.quick else 30
    for number in range(-2, rounds):
        chance.shuffle(order)
        for name, command in order:
            begun = time.perf_counter()
            agent = Agent(command)
            took = time.perf_counter() - begun
            agent.close()
            if number >= 0:
                found[name].append(took)
    times = {name: Times(took) for name, took in found.items()}
    own = times["segue"].median
    for name, share in (("Python SDK", PYTHON_SHARE), ("TypeScript SDK", TYPESCRIPT_SHARE)):
        peer = times[name].median
        bench.row(
            f"spawn to initialize's answer, of a minimal agent on the {name}",
            f"≤ {share:g}x",
            own / peer <= share,
            segue=f"{own * 1e3:.0f} ms",
            against=f"{peer * 1e3:.0f} ms",
            ratio=own / peer,
        )


# Listing.


async def placed(
    bench: Bench, directory: Path, name: str, sessions: Iterator[Made], count: int
) -> Path:
    """A data directory with these sessions."""
    path = await built(bench, name, directory, sessions, count)
    data = directory / f"data-{name}"
    data.mkdir()
    shutil.copy(path, data / "segue.db")
    return data


async def listing(bench: Bench, directory: Path) -> None:
    few, many = 1_000, 10_000 if bench.quick else 100_000
    small, large = [
        Agent(segue(await placed(bench, directory, f"listed-{count}", listed(count), count)))
        for count in (few, many)
    ]

    def page(agent: Agent, **params: Any) -> Case:
        async def case() -> None:
            assert len(agent.ask("session/list", **params)["sessions"]) == 50

        return case

    for what, params in (("", {}), (" of one directory", {"cwd": "/home/ada/src/project-1"})):
        cases = {"few": page(small, **params), "many": page(large, **params)}
        times = await interleaved(cases, 20 if bench.quick else 300)
        least, most = times["few"].median, times["many"].median
        bench.row(
            f"session/list{what} among {many:,}, of the same among {few:,}",
            f"≤ {LIST_GROWTH:g}x",
            most / least <= LIST_GROWTH,
            segue=f"{most * 1e3:.2f} ms",
            against=f"{least * 1e3:.2f} ms",
            ratio=most / least,
        )
    small.close()
    large.close()


# Loading.


def long_session(count: int) -> Made:
    chance = random.Random(5)
    words = Words()
    drafts = [Draft(body=Created(cwd="/"))]
    for number in range(count):
        kind = AgentMessage if number % 2 else UserMessage
        drafts.append(Draft(body=kind(content=(Text(text=words.text(chance)),))))
    return Made(ids.derived_id("bench", "long", str(count)), drafts)


def loaded(agent: Agent, id: str) -> tuple[float, float, int]:
    """Seconds until the first update and until the answer, and how many updates came."""
    begun = time.perf_counter()
    request = agent.post("session/load", sessionId=id, cwd="/", mcpServers=[])
    mark = b'"id":%d' % request
    first, count = 0.0, 0
    while True:
        lines = agent.lines()
        first = first or time.perf_counter() - begun
        count += len(lines)
        if mark in lines[-1] and b'"method"' not in lines[-1]:
            return first, time.perf_counter() - begun, count - 1


async def loading(bench: Bench, directory: Path) -> None:
    long = 3_300 if bench.quick else LONG
    made = [long_session(long), long_session(long * 3)]
    data = await placed(bench, directory, f"long-{long}", iter(made), len(made))
    rates, firsts = [], []
    with running(data) as agent:
        for number in range(-1, 5):
            first, took, updates = loaded(agent, made[0].id)
            assert updates >= long
            if number >= 0:
                rates.append(updates / took)
                firsts.append(first)
        before = agent.memory
        loaded(agent, made[1].id)
        after = agent.memory
    rate, first = Times(rates).median, Times(firsts).median * 1e3
    bench.row(
        f"load of {long:,} messages, updates a second",
        f"≥ {UPDATES:,}",
        rate >= UPDATES,
        segue=f"{rate:,.0f}",
    )
    bench.row("its first update", f"≤ {FIRST_MS:g} ms", first <= FIRST_MS, segue=f"{first:.1f} ms")
    bench.row(
        "memory after a load three times as long, of after it",
        f"≤ {FLAT:g}x",
        after / before <= FLAT,
        segue=f"{after:.0f} MB",
        against=f"{before:.0f} MB",
        ratio=after / before,
    )


# Many at once.


async def crowd(bench: Bench, directory: Path) -> None:
    with running(directory / "crowd") as agent:
        alone = agent.memory
        made = [agent.ask("session/new", cwd="/", mcpServers=[])["sessionId"] for _ in range(CROWD)]
        begun = time.perf_counter()
        for id in made:
            prompt = [{"type": "text", "text": "/say begun\n/wait 3\n/say done"}]
            agent.post("session/prompt", sessionId=id, prompt=prompt)
        began: set[str] = set()
        ended: set[str] = set()
        at_once = 0
        while len(ended) < CROWD:
            for line in agent.lines():
                update = json.loads(line).get("params", {})
                text = update.get("update", {}).get("content", {})
                if isinstance(text, dict) and text.get("text") in ("begun", "done"):
                    (began if text["text"] == "begun" else ended).add(update["sessionId"])
                    at_once = max(at_once, len(began - ended))
        took = time.perf_counter() - begun
        bench.row(
            f"turns that ran at once, of {CROWD} sessions in one process",
            f"{CROWD}",
            at_once == CROWD,
            segue=at_once,
        )
        share = (agent.memory - alone) / CROWD * 1e3
        bench.note(
            f"{CROWD} turns of 3 s were over after {took:.1f} s; a session took {share:.0f} kB."
        )


async def main() -> int:
    bench = Bench("The ACP door, over pipes", ("segue", "against", "ratio"))
    with scratch() as directory:
        await start(bench, directory)
        await listing(bench, directory)
        await loading(bench, directory)
        await crowd(bench, directory)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
