"""Measure what a turn adds to the time of its model and tools.

The model is pydantic-ai's function model. It answers from a script in this process, so its own
time can be measured and subtracted. The store is a SQLite file, and a subscriber follows the turn.
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

from _common import Bench, temporary_directory
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from segue.agents.base import Turn
from segue.agents.base.turn_hooks import HookRegistry
from segue.agents.model import ModelAgents, Settings
from segue.agents.registry import AgentRegistry
from segue.agents.tools import BUILT_IN, PathGuard, ToolContext
from segue.hub import Hub
from segue.model.event import AgentMessage, Delta, Event, ModelCalled, ToolCall, ToolResult, Usage
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

MAX_CHUNK_US, MAX_CALL_MS, MAX_CANCEL_MS = 100.0, 5.0, 1000.0
MIN_CHUNKS_PER_MINUTE, MAX_HANDOVER_MS = 200_000, 50.0

Stream = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]


class ScriptedModels(ModelAgents):
    """Model agents whose model is a Python function."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(HookRegistry())
        self.function = FunctionModel(stream_function=stream)

    async def model(self, settings: Settings) -> Any:
        return self.function


def open_hub(directory: Path, stream: Stream) -> Hub:
    """Return a hub whose agent uses a scripted model."""
    agents = ScriptedModels(stream)

    def build(spec: Mapping[str, Any]) -> Any:
        tools = [{"type": "agent_toolset_20260401"}]  # its policy: always_allow
        return agents.build({**spec, "model": "function:any", "tools": tools, "max_turns": 10**6})

    return Hub(
        SQLiteStore.open(directory / "segue.db"),
        directory,
        agent_registry=AgentRegistry({"default": build}),
    )


async def collect_turn(hub: Hub, id: str) -> tuple[str, list[Event]]:
    """Follow a session until its turn ends; return the streamed text and the events."""
    texts: list[str] = []
    events: list[Event] = []
    async for item in hub.history.follow(LOCAL, id, deltas=True):
        if isinstance(item, Delta):
            texts.append(item.text)
            continue
        events.append(item)
        if getattr(item.body, "stop_reason", None) is not None:
            break
    return "".join(texts), events


def stream_words(count: int) -> Stream:
    """Return a model that streams so many words."""

    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        for number in range(count):
            yield f"word{number} "
            await asyncio.sleep(0)  # lets other tasks run, as a network read would

    return stream


async def time_chunks(directory: Path, count: int) -> tuple[float, float]:
    """Return the seconds of a turn with so many chunks, and of the model alone."""
    stream = stream_words(count)
    model = FunctionModel(stream_function=stream)
    async with open_hub(directory, stream) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        reader = asyncio.create_task(collect_turn(hub, session.id))
        gc.collect()
        start = time.perf_counter()
        await hub.turns.run(LOCAL, session.id, "Speak")
        elapsed = time.perf_counter() - start
        _, events = await reader
        (message,) = [e.body for e in events if isinstance(e.body, AgentMessage)]
        assert len(message.content[0].text.split()) == count  # type: ignore[union-attr]
    start = time.perf_counter()
    async with model_request_stream(model, [ModelRequest.user_text_prompt("Speak")]) as response:
        async for _ in response:
            pass
        response.get()
    return elapsed, time.perf_counter() - start


def stream_tool_calls(count: int, path: str) -> Stream:
    """Return a model that calls the read tool so many times."""

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) // 2 < count:
            yield {0: DeltaToolCall("read", json.dumps({"file_path": path}))}
        else:
            yield "done"

    return stream


async def time_tool_calls(directory: Path, count: int) -> tuple[float, float]:
    """Return the seconds of a turn with so many tool calls, and of model and tool alone."""
    file = directory / "a.txt"
    file.write_text("a line\n" * 50)
    stream = stream_tool_calls(count, str(file))
    model = FunctionModel(stream_function=stream)
    async with open_hub(directory, stream) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        gc.collect()
        start = time.perf_counter()
        await hub.turns.run(LOCAL, session.id, "Read")
        elapsed = time.perf_counter() - start
        events = await hub.history.events(LOCAL, session.id, limit=100_000)
        calls = [e.body.call_id for e in events if isinstance(e.body, ToolCall)]
        results = [e.body.call_id for e in events if isinstance(e.body, ToolResult)]
        assert calls == results and len(calls) == count
    context = ToolContext("bench", PathGuard([str(directory)]), local=True, config={})
    tool = BUILT_IN["read"]
    start = time.perf_counter()
    for _ in range(count):
        async with model_request_stream(model, [ModelRequest.user_text_prompt("Read")]) as response:
            async for _ in response:
                pass
        await tool.run(context, tool.parse({"file_path": str(file)}))
    return elapsed, time.perf_counter() - start


async def time_appends(directory: Path, count: int) -> float:
    """Return the seconds of two consecutive appends, as each tool call needs them."""
    async with open_hub(directory, stream_words(1)) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        start = time.perf_counter()
        for _ in range(2 * count):
            await hub.editor.append(LOCAL, session.id, ModelCalled(usage=Usage()))
        return (time.perf_counter() - start) / count


async def time_concurrent_turns(directory: Path, turns: int, chunks: int) -> float:
    """Return the seconds of concurrent turns; check that no text is lost or reordered."""
    async with open_hub(directory, stream_words(chunks)) as hub:
        sessions = [await hub.editor.create(LOCAL, cwd=str(directory)) for _ in range(turns)]
        readers = [asyncio.create_task(collect_turn(hub, session.id)) for session in sessions]
        start = time.perf_counter()
        await asyncio.gather(*(hub.turns.run(LOCAL, session.id, "Speak") for session in sessions))
        elapsed = time.perf_counter() - start
        full_text = "".join(f"word{number} " for number in range(chunks))
        for streamed_text, events in await asyncio.gather(*readers):
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            (message,) = [e.body for e in events if isinstance(e.body, AgentMessage)]
            assert message.content[0].text == full_text  # type: ignore[union-attr]
            assert full_text.startswith(streamed_text), "a delta was lost or reordered"
    return elapsed


async def time_cancels(directory: Path, rounds: int) -> list[float]:
    """Return the seconds from a cancel during a stream until the turn has ended."""

    async def endless(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        while True:
            yield "more "
            await asyncio.sleep(0.005)

    seconds = []
    async with open_hub(directory, endless) as hub:
        for _ in range(rounds):
            session = await hub.editor.create(LOCAL, cwd=str(directory))
            turn = await hub.turns.submit(LOCAL, session.id, "Speak")
            async for item in hub.history.follow(LOCAL, session.id, deltas=True):
                if isinstance(item, Delta):
                    break
            start = time.perf_counter()
            await hub.turns.cancel(LOCAL, session.id)
            assert await hub.turns.wait(LOCAL, session.id, turn) == "cancelled"
            seconds.append(time.perf_counter() - start)
    return seconds


async def time_long_answer(directory: Path, words: int) -> float:
    """Return the seconds in which an agent streams so many words to a subscriber."""

    class Words:
        async def run(self, turn: Turn) -> StopReason:
            for number in range(words):
                await turn.delta("word12 ")
                if number % 50 == 0:
                    await asyncio.sleep(0)
            return "end_turn"

    registry = AgentRegistry({"default": lambda _: Words()})
    store = SQLiteStore.open(directory / "segue.db")
    async with Hub(store, directory, agent_registry=registry) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        reader = asyncio.create_task(collect_turn(hub, session.id))
        start = time.perf_counter()
        await hub.turns.run(LOCAL, session.id, "Speak")
        await reader
        return time.perf_counter() - start


async def time_handovers(directory: Path, rounds: int) -> list[float]:
    """Return the seconds from the end of a turn to the start of one in another process.

    The two hubs have stores of their own on one file, as two processes have.
    """

    def open_one() -> Hub:
        return Hub(SQLiteStore.open(directory / "segue.db"), directory)

    seconds = []
    async with open_one() as hub, open_one() as other:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        for _ in range(rounds):
            first = await other.turns.submit(LOCAL, session.id, "/slow 0.01\n/say one two three")
            await hub.turns.wait_started(LOCAL, session.id, first)
            second = await hub.turns.submit(LOCAL, session.id, "/say next")
            await hub.turns.wait(LOCAL, session.id, second)
            events = await hub.history.events(LOCAL, session.id, limit=100_000)
            ended = [e.at for e in events if getattr(e.body, "stop_reason", None) is not None][-2]
            begun = next(event.at for event in events if event.id == second)
            seconds.append((begun - ended) / 1e6)
    return seconds


async def measure_waiting_turns(directory: Path, count: int) -> tuple[float, int]:
    """Return the CPU seconds in a second, and the tasks, of so many turns that wait."""

    async def ask(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall("weather", "{}")}

    agents = ScriptedModels(ask)
    tools = [{"type": "custom", "name": "weather", "description": "?", "input_schema": {}}]
    registry = AgentRegistry(
        {"default": lambda spec: agents.build({**spec, "model": "function:any", "tools": tools})}
    )
    store = SQLiteStore.open(directory / "segue.db")
    async with Hub(store, directory, agent_registry=registry) as hub:
        before = len(asyncio.all_tasks())
        for _ in range(count):
            session = await hub.editor.create(LOCAL, cwd=str(directory))
            await hub.turns.submit(LOCAL, session.id, "Go")
        await hub.turns.engine.wait_idle()
        idle_tasks = 4  # renew leases, retry, recover, and watch the store
        tasks = len(asyncio.all_tasks()) - before - idle_tasks
        gc.collect()
        start = time.process_time()
        await asyncio.sleep(2)
        return (time.process_time() - start) / 2, max(0, tasks)


async def main() -> int:
    bench = Bench(
        "What a turn adds to its model and tools", ("segue", "without segue", "added", "unit")
    )
    rounds = 2 if bench.quick else 7
    chunks, calls = (300, 20) if bench.quick else (3000, 150)
    turns, chunks_per_turn = (10, 50) if bench.quick else (100, 200)

    async def measure_medians(case: Callable[[Path, int], Any], count: int) -> tuple[float, float]:
        pairs = []
        for _ in range(rounds):
            with temporary_directory() as directory:
                pairs.append(await case(directory, count))
        return (
            statistics.median(elapsed for elapsed, _ in pairs) / count,
            statistics.median(without_segue for _, without_segue in pairs) / count,
        )

    for label, case, count, scale, maximum, unit in (
        ("a streamed chunk", time_chunks, chunks, 1e6, MAX_CHUNK_US, "µs"),
        ("a tool call and its model request", time_tool_calls, calls, 1e3, MAX_CALL_MS, "ms"),
    ):
        elapsed, without_segue = await measure_medians(case, count)
        added = (elapsed - without_segue) * scale
        bench.row(
            label,
            target=f"≤ {maximum:g} {unit}",
            ok=added <= maximum,
            segue=elapsed * scale,
            **{"without segue": without_segue * scale},
            added=added,
            unit=unit,
        )
    with temporary_directory() as directory:
        append_seconds = await time_appends(directory, calls)
    bench.row("the two durable appends of a tool call alone", segue=append_seconds * 1e3, unit="ms")
    with temporary_directory() as directory:
        elapsed = await time_concurrent_turns(directory, turns, chunks_per_turn)
    bench.row(
        f"{turns} concurrent turns of {chunks_per_turn} chunks, no chunk lost",
        target="all complete",
        ok=True,
        segue=elapsed,
        unit="s",
    )
    with temporary_directory() as directory:
        worst = max(await time_cancels(directory, 5 if bench.quick else 30)) * 1e3
    bench.row(
        "from a cancel to the end of the turn, maximum",
        target=f"≤ {MAX_CANCEL_MS:g} ms",
        ok=worst <= MAX_CANCEL_MS,
        segue=worst,
        unit="ms",
    )
    words = 20_000 if bench.quick else 1_500_000  # the second is an answer of 10 MB
    with temporary_directory() as directory:
        elapsed = await time_long_answer(directory, words)
    per_minute = words / elapsed * 60
    bench.row(
        f"chunks a minute in an answer of {words * 7 / 1e6:.1f} MB",
        target=f"≥ {MIN_CHUNKS_PER_MINUTE:,}",
        ok=per_minute >= MIN_CHUNKS_PER_MINUTE,
        segue=per_minute,
        unit="chunks",
    )
    with temporary_directory() as directory:
        handovers = await time_handovers(directory, 5 if bench.quick else 30)
    median = statistics.median(handovers) * 1e3
    bench.row(
        "hand-over of a lease to another process, median",
        target=f"≤ {MAX_HANDOVER_MS:g} ms",
        ok=median <= MAX_HANDOVER_MS,
        segue=median,
        unit="ms",
    )
    waiting = 20 if bench.quick else 1000
    with temporary_directory() as directory:
        cpu, tasks = await measure_waiting_turns(directory, waiting)
    bench.row(
        f"CPU of {waiting} turns that wait, and {tasks} tasks",
        target="≤ 2 %, no task",
        ok=cpu <= 0.02 and tasks == 0,
        segue=cpu * 100,
        unit="%",
    )
    return bench.finish()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
