"""Turns: what the engine and the model agent add to a model and its tools.

The model is pydantic-ai's function model: it says what a script says, in this process, so its own
time can be measured by itself and taken away. The store is a SQLite file; a follower reads along.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from _common import Bench, scratch
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from segue.agents.model import ModelAgents, Settings
from segue.agents.registry import AgentRegistry
from segue.agents.tools import BUILT_IN, PathGuard, ToolContext
from segue.hub import Hub
from segue.model.event import AgentMessage, Delta, Event, ModelAsked, ToolCall, ToolResult
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

CHUNK_US, CALL_MS, CANCEL_MS = 100.0, 5.0, 1000.0

Stream = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]


class Scripted(ModelAgents):
    """Model agents whose model is a function."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.function = FunctionModel(stream_function=stream)

    async def model(self, settings: Settings) -> Any:
        return self.function


def opened(directory: Path, stream: Stream) -> Hub:
    agents = Scripted(stream)

    def build(spec: Mapping[str, Any]) -> Any:
        tools = [{"type": "agent_toolset_20260401"}]  # its policy: always_allow
        return agents.build({**spec, "model": "function:any", "tools": tools, "max_turns": 10**6})

    return Hub(
        SQLiteStore.open(directory / "segue.db"),
        directory,
        agent_registry=AgentRegistry({"default": build}),
    )


async def followed(hub: Hub, id: str) -> tuple[str, list[Event]]:
    """What a follower sees of a turn: the pieces together, and the events."""
    pieces: list[str] = []
    events: list[Event] = []
    async for item in hub.history.follow(LOCAL, id, deltas=True):
        if isinstance(item, Delta):
            pieces.append(item.text)
            continue
        events.append(item)
        if getattr(item.body, "stop_reason", None) is not None:
            break
    return "".join(pieces), events


# Chunks.


def speaking(count: int) -> Stream:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for number in range(count):
            yield f"word{number} "
            await asyncio.sleep(0)  # as a network would: others have their turn

    return stream


async def chunk(directory: Path, count: int) -> tuple[float, float]:
    """Seconds for a turn of so many chunks, and for the bare model."""
    stream = speaking(count)
    model = FunctionModel(stream_function=stream)
    async with opened(directory, stream) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        reader = asyncio.create_task(followed(hub, session.id))
        gc.collect()
        began = time.perf_counter()
        await hub.turns.run(LOCAL, session.id, "Speak")
        took = time.perf_counter() - began
        _, events = await reader
        (said,) = [e.body for e in events if isinstance(e.body, AgentMessage)]
        assert len(said.content[0].text.split()) == count  # type: ignore[union-attr]
    began = time.perf_counter()
    async with model_request_stream(model, [ModelRequest.user_text_prompt("Speak")]) as bare:
        async for _ in bare:
            pass
        bare.get()
    return took, time.perf_counter() - began


# Calls.


def calling(count: int, path: str) -> Stream:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) // 2 < count:
            yield {0: DeltaToolCall("read", json.dumps({"file_path": path}))}
        else:
            yield "done"

    return stream


async def call(directory: Path, count: int) -> tuple[float, float]:
    """Seconds for a turn of so many requests with a call each, and for model and tool alone."""
    file = directory / "a.txt"
    file.write_text("a line\n" * 50)
    stream = calling(count, str(file))
    model = FunctionModel(stream_function=stream)
    async with opened(directory, stream) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        gc.collect()
        began = time.perf_counter()
        await hub.turns.run(LOCAL, session.id, "Read")
        took = time.perf_counter() - began
        events = await hub.history.events(LOCAL, session.id, limit=100_000)
        calls = [e.body.call_id for e in events if isinstance(e.body, ToolCall)]
        results = [e.body.call_id for e in events if isinstance(e.body, ToolResult)]
        assert calls == results and len(calls) == count
    context = ToolContext("bare", PathGuard([str(directory)]), True, {})
    tool = BUILT_IN["read"]
    began = time.perf_counter()
    for _ in range(count):
        async with model_request_stream(model, [ModelRequest.user_text_prompt("Read")]) as bare:
            async for _ in bare:
                pass
        await tool.run(context, tool.parse({"file_path": str(file)}))
    return took, time.perf_counter() - began


async def appends(directory: Path, count: int) -> float:
    """Seconds for three appends, one after the other, as each call makes."""
    async with opened(directory, speaking(1)) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        began = time.perf_counter()
        for _ in range(3 * count):
            await hub.editor.append(LOCAL, session.id, ModelAsked(model="function:any"))
        return (time.perf_counter() - began) / count


# Many at once.


async def crowd(directory: Path, turns: int, chunks: int) -> float:
    """Seconds for so many turns at once, each followed; nothing lost, nothing out of order."""
    async with opened(directory, speaking(chunks)) as hub:
        sessions = [await hub.editor.create(LOCAL, cwd=str(directory)) for _ in range(turns)]
        readers = [asyncio.create_task(followed(hub, each.id)) for each in sessions]
        began = time.perf_counter()
        await asyncio.gather(*(hub.turns.run(LOCAL, each.id, "Speak") for each in sessions))
        took = time.perf_counter() - began
        whole = "".join(f"word{number} " for number in range(chunks))
        for seen, events in await asyncio.gather(*readers):
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            (said,) = [e.body for e in events if isinstance(e.body, AgentMessage)]
            assert said.content[0].text == whole  # type: ignore[union-attr]
            assert whole.startswith(seen), "a piece was lost or out of order"
    return took


# Cancelling.


async def cancel(directory: Path, rounds: int) -> list[float]:
    """Seconds from a cancel, in the middle of a stream, to the session's rest."""

    async def endless(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        while True:
            yield "on and on "
            await asyncio.sleep(0.005)

    found = []
    async with opened(directory, endless) as hub:
        for _ in range(rounds):
            session = await hub.editor.create(LOCAL, cwd=str(directory))
            turn = await hub.turns.submit(LOCAL, session.id, "Speak")
            async for item in hub.history.follow(LOCAL, session.id, deltas=True):
                if isinstance(item, Delta):
                    break
            began = time.perf_counter()
            await hub.turns.cancel(LOCAL, session.id)
            assert await hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
            found.append(time.perf_counter() - began)
    return found


async def main() -> int:
    bench = Bench("What a turn adds to its model and tools", ("segue", "alone", "added", "unit"))
    rounds = 2 if bench.quick else 7
    chunks, calls = (300, 20) if bench.quick else (3000, 150)
    turns, each = (10, 50) if bench.quick else (100, 200)

    async def measured(case: Callable[[Path, int], Any], count: int) -> tuple[float, float]:
        pairs = []
        for _ in range(rounds):
            with scratch() as directory:
                pairs.append(await case(directory, count))
        return (
            statistics.median(took for took, _ in pairs) / count,
            statistics.median(alone for _, alone in pairs) / count,
        )

    for what, case, count, scale, most, unit in (
        ("a streamed chunk", chunk, chunks, 1e6, CHUNK_US, "µs"),
        ("a tool call and its request", call, calls, 1e3, CALL_MS, "ms"),
    ):
        took, alone = await measured(case, count)
        added = (took - alone) * scale
        bench.row(
            what,
            target=f"≤ {most:g} {unit}",
            ok=added <= most,
            segue=took * scale,
            alone=alone * scale,
            added=added,
            unit=unit,
        )
    with scratch() as directory:
        commits = await appends(directory, calls)
    bench.row("the three durable appends of a call, by themselves", segue=commits * 1e3, unit="ms")
    with scratch() as directory:
        took = await crowd(directory, turns, each)
    bench.row(
        f"{turns} turns at once, {each} chunks each, none lost",
        target="all whole",
        ok=True,
        segue=took,
        unit="s",
    )
    with scratch() as directory:
        worst = max(await cancel(directory, 5 if bench.quick else 30)) * 1e3
    bench.row(
        "from a cancel to rest, at most",
        target=f"≤ {CANCEL_MS:g} ms",
        ok=worst <= CANCEL_MS,
        segue=worst,
        unit="ms",
    )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
