"""Measure the MCP server: a tool call among 100,000 sessions, its start, and the cost of masking.

A tool call is compared with the same search through the hub, in one process. The start is the time
until the first answer of `segue mcp`, compared with that of `segue acp` plus the import of `mcp`.
Masking is measured on the source code of segue, and on an export of a session that has it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path

from _common import (
    Bench,
    Case,
    Vocabulary,
    build_database,
    search_corpus,
    temporary_directory,
    time_cases,
)
from search import make_queries_of_medium_words

import segue
from segue.hub import Hub
from segue.interfaces.mcp import catalog
from segue.interfaces.mcp.caller import Call
from segue.interfaces.mcp.scope import Caller, McpSettings, SessionScope
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.secrets import mask_text
from segue.store.sqlite import SQLiteStore

MAX_RATIO = 1.5
LIMIT = 10
PART_CHARS = 4000  # of the text of a message


def search_cases(hub: Hub, words: list[str]) -> dict[str, Case]:
    """Return a search through the hub, and the same search as a tool call."""
    # The second search for a word finds its pages in memory, so each case has another word.
    half = len(words) // 2
    hub_words, tool_words = cycle(words), cycle([*words[half:], *words[:half]])
    settings = McpSettings(scope="all")
    scope = SessionScope(settings)
    tool = catalog.tools(allow_write=False)["search_sessions"]

    async def search() -> None:
        query = Query(text=next(hub_words), archived="include", limit=LIMIT)
        assert (await hub.sessions.search(LOCAL, query)).matches

    async def call() -> None:
        arguments = {"words": next(tool_words), "order": "newest", "limit": LIMIT}
        caller = Caller(None, tool.name, arguments)
        answer = await tool.run(Call(hub, LOCAL, settings, scope, caller), arguments)
        assert answer.startswith("1. ")

    return {"hub": search, "tool": call}


def first_answer(command: list[str], message: dict[str, object]) -> float:
    """Return the seconds until a server on standard streams answers its first request."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "segue", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    assert "result" in process.stdout.readline()
    seconds = time.perf_counter() - started
    process.stdin.close()
    process.wait()
    return seconds


def median(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def measure_start(bench: Bench, directory: Path) -> None:
    """Compare the start with that of `segue acp` and the import of `mcp`."""
    options = ["--data-dir", str(directory), "--sources", "none"]
    info = {"name": "bench", "version": "1"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
    mcp = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    acp = mcp | {"params": {"protocolVersion": 1, "clientCapabilities": {}}}
    rounds = 3 if bench.quick else 11
    answers: list[float] = []
    starts: list[float] = []
    imports: list[float] = []
    empty: list[float] = []
    for _ in range(rounds):
        answers.append(first_answer(["mcp", *options], mcp))
        starts.append(first_answer(["acp", *options], acp))
        for program, times in (("import mcp.server.lowlevel", imports), ("pass", empty)):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times.append(time.perf_counter() - started)
    allowed = median(starts) + median(imports) - median(empty)
    bench.row(
        "first answer, next to acp plus import mcp",
        target=f"≤ {MAX_RATIO:g}x",
        ok=median(answers) <= MAX_RATIO * allowed,
        ms=median(answers) * 1e3,
        compared=allowed * 1e3,
        ratio=median(answers) / allowed,
    )


async def measure_masking(bench: Bench, directory: Path) -> None:
    """Report how long masking takes: of a text, and of the export of a session."""
    source = Path(segue.__file__).parent
    text = "\n".join(path.read_text() for path in sorted(source.rglob("*.py")))
    text = text[: 200_000 if bench.quick else 2_000_000]
    mask_text(text[:1000])
    started = time.perf_counter()
    mask_text(text)
    seconds = time.perf_counter() - started
    bench.row(f"mask {len(text) / 1e6:.1f} MB of code", ms=seconds * 1e3)
    bench.note(f"masking reads {len(text) / 1e6 / seconds:.1f} MB per second")
    directory.mkdir()
    async with Hub(SQLiteStore.open(directory / "segue.db"), directory) as hub:
        session = await hub.editor.create(LOCAL)
        parts = [text[at : at + PART_CHARS] for at in range(0, len(text), PART_CHARS)]
        bodies = [UserMessage(content=(Text(text=part),)) for part in parts]
        await hub.editor.append(LOCAL, session.id, *bodies)

        async def export(*, mask: bool) -> None:
            async for _ in hub.exchange.export(LOCAL, session.id, mask=mask):
                pass

        cases: dict[str, Case] = {
            "plain": lambda: export(mask=False),
            "masked": lambda: export(mask=True),
        }
        times = await time_cases(cases, 3 if bench.quick else 5)
    bench.row(
        f"export {len(text) / 1e6:.1f} MB as JSONL with --mask, next to one without",
        ms=times["masked"].median * 1e3,
        compared=times["plain"].median * 1e3,
        ratio=times["masked"].median / times["plain"].median,
    )


async def main() -> int:
    bench = Bench("MCP server and masking, in ms", ("ms", "compared", "ratio"))
    count = 5_000 if bench.quick else 100_000
    with temporary_directory() as directory:
        path = await build_database(
            bench, f"searched-{count}", directory, search_corpus(count, Vocabulary()), count
        )
        async with Hub(SQLiteStore.open(path), path.parent) as hub:
            words = make_queries_of_medium_words(path, count)
            times = await time_cases(search_cases(hub, words), 24 if bench.quick else 96)
        ratio = times["tool"].median / times["hub"].median
        bench.row(
            f"search_sessions among {count:,}, next to the hub's search",
            target=f"≤ {MAX_RATIO:g}x",
            ok=ratio <= MAX_RATIO,
            ms=times["tool"].median * 1e3,
            compared=times["hub"].median * 1e3,
            ratio=ratio,
        )
        measure_start(bench, Path(directory) / "start")
        await measure_masking(bench, Path(directory) / "export")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
