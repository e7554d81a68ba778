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
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
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
from segue.interfaces.acp.serve import serve
from segue.interfaces.rest import RestApp
from segue.model import ids
from segue.model.event import AgentMessage, Delta, Event, ModelCalled, ToolCall, ToolResult, Usage
from segue.model.lifecycle import StopReason
from segue.model.principal import LOCAL
from segue.store.sqlite import SQLiteStore

MAX_CHUNK_US, MAX_CALL_MS, MAX_CANCEL_MS = 100.0, 5.0, 1000.0
MIN_CHUNKS_PER_MINUTE, MAX_HANDOVER_MS = 200_000, 50.0
MAX_CHUNK_BYTES, MAX_PROMPT_SECONDS = 500.0, 10.0
WORD = "word12 "
OTHER_PROCESS = "--other-process"  # the option that starts the second process of a hand-over

Stream = Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Any]]
RunLongAnswer = Callable[[Path, int], Awaitable[int]]


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


class LongAnswer:
    """An agent that streams so many words, each as a chunk."""

    def __init__(self, words: int) -> None:
        self._words = words

    async def run(self, turn: Turn) -> StopReason:
        for number in range(self._words):
            await turn.delta(WORD)
            if number % 50 == 0:
                await asyncio.sleep(0)  # lets other tasks run, as a network read would
        return "end_turn"


def open_long_answer(directory: Path, words: int) -> Hub:
    """Return a hub whose agent streams so many words."""
    registry = AgentRegistry({"default": lambda _: LongAnswer(words)})
    return Hub(SQLiteStore.open(directory / "segue.db"), directory, agent_registry=registry)


async def run_long_answer(directory: Path, words: int) -> int:
    """Stream an answer to a subscriber of the hub; return the bytes of text that it received."""
    async with open_long_answer(directory, words) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        reader = asyncio.create_task(collect_turn(hub, session.id))
        await hub.turns.run(LOCAL, session.id, "Speak")
        text, _ = await reader
        return len(text)


class AcpClient:
    """A client of an ACP server in this process that counts the text it receives."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._responses: dict[int, asyncio.Future[Any]] = {}
        self.received = 0

    async def read_line(self) -> bytes:
        return await self._lines.get()

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            message = msgspec.json.decode(line)
            if message.get("method") == "session/update":
                update = message["params"]["update"]
                if update["sessionUpdate"] == "agent_message_chunk":
                    self.received += len(update["content"]["text"])
            elif "id" in message and "method" not in message:
                self._responses[message["id"]].set_result(message["result"])

    async def request(self, method: str, **params: Any) -> Any:
        id = len(self._responses)
        self._responses[id] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self._lines.put_nowait(msgspec.json.encode(message) + b"\n")
        return await self._responses[id]

    def close(self) -> None:
        self._lines.put_nowait(b"")


async def run_long_answer_over_acp(directory: Path, words: int) -> int:
    """Stream an answer to an ACP client; return the bytes of text that it received."""

    async def open_hub() -> Hub:
        return open_long_answer(directory, words)

    client = AcpClient()
    serving = asyncio.create_task(serve(open_hub, LOCAL, client, client))
    await client.request("initialize", protocolVersion=1, clientCapabilities={})
    created = await client.request("session/new", cwd=str(directory), mcpServers=[])
    prompt = [{"type": "text", "text": "Speak"}]
    await client.request("session/prompt", sessionId=created["sessionId"], prompt=prompt)
    client.close()
    await serving
    return client.received


async def run_long_answer_over_rest(directory: Path, words: int) -> int:
    """Stream an answer over a REST event stream; return the bytes of text that it received."""
    received = 0
    opened = asyncio.Event()

    async with open_long_answer(directory, words) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))

        async def send(message: Any) -> None:
            nonlocal received
            opened.set()
            for line in message.get("body", b"").splitlines():
                if line.startswith(b"data:"):
                    event = msgspec.json.decode(line[5:])
                    if event["type"] == "event_delta":
                        received += len(event["delta"]["content"]["text"])

        async def receive() -> Any:
            await asyncio.Event().wait()

        id = ids.format_id("sesn", session.id)
        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/v1/sessions/{id}/events/stream",
            "raw_path": f"/v1/sessions/{id}/events/stream".encode(),
            "query_string": b"event_deltas[]=agent.message",
            "headers": [
                (b"host", b"localhost"),
                (b"anthropic-version", b"2023-06-01"),
                (b"anthropic-beta", b"managed-agents-2026-04-01"),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "scheme": "http",
        }
        stream = asyncio.create_task(RestApp(hub, principal=LOCAL)(scope, receive, send))
        await opened.wait()
        await hub.turns.run(LOCAL, session.id, "Speak")
        while received < len(WORD) * words and not stream.done():
            await asyncio.sleep(0.01)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    return received


async def measure_long_answer(run: RunLongAnswer, words: int) -> tuple[float, float]:
    """Return the chunks a minute of a streamed answer, and the bytes of memory for each chunk."""
    process, peak, done = psutil.Process(), 0, asyncio.Event()

    async def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.05)

    with temporary_directory() as directory:
        gc.collect()
        before = process.memory_info().rss
        watching = asyncio.create_task(watch())
        start = time.perf_counter()
        received = await run(directory, words)
        elapsed = time.perf_counter() - start
        done.set()
        await watching
    assert received == len(WORD) * words, "text was lost"
    return words / elapsed * 60, max(0, peak - before) / words


async def time_long_prompt(directory: Path, bytes: int) -> float:
    """Return the seconds of a turn whose prompt has so many bytes."""
    async with open_hub(directory, stream_words(3)) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        start = time.perf_counter()
        await hub.turns.run(LOCAL, session.id, WORD * (bytes // len(WORD)))
        return time.perf_counter() - start


SLOW_TURN = "/slow 0.01\n/say one two three"


def open_demo(directory: Path) -> Hub:
    """Return a hub whose agent is the demo agent."""
    return Hub(SQLiteStore.open(directory / "segue.db"), directory)


async def run_turns_in_another_process(directory: Path) -> None:
    """Begin a slow turn for each session id on standard input, and print its id."""
    async with open_demo(directory) as hub:
        while id := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print(await hub.turns.submit(LOCAL, id, SLOW_TURN), flush=True)


async def time_handovers(directory: Path, rounds: int) -> list[float]:
    """Return the seconds from the end of a turn to the start of one in another process."""
    seconds = []
    async with open_demo(directory) as hub:
        session = await hub.editor.create(LOCAL, cwd=str(directory))
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, OTHER_PROCESS, str(directory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert other.stdin is not None and other.stdout is not None
        for _ in range(rounds):
            other.stdin.write(f"{session.id}\n".encode())
            first = (await other.stdout.readline()).decode().strip()
            await hub.turns.wait_started(LOCAL, session.id, first)
            second = await hub.turns.submit(LOCAL, session.id, "/say next")
            await hub.turns.wait(LOCAL, session.id, second)
            events = await hub.history.events(LOCAL, session.id, limit=100_000)
            ended = [e.at for e in events if getattr(e.body, "stop_reason", None) is not None][-2]
            begun = next(event.at for event in events if event.id == second)
            seconds.append((begun - ended) / 1e6)
        other.stdin.close()
        await other.wait()
    return seconds


async def measure_waiting_turns(directory: Path, count: int) -> tuple[float, int, int]:
    """Return the CPU seconds in a second, the tasks and the threads of turns that wait."""

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
        for number in range(count):
            session = await hub.editor.create(LOCAL, cwd=str(directory))
            await hub.turns.submit(LOCAL, session.id, "Go")
            if number == 0:
                await hub.turns.engine.wait_idle()
                threads_before = threading.active_count()  # with those of the first turn
        await hub.turns.engine.wait_idle()
        threads = threading.active_count() - threads_before
        idle_tasks = 4  # renew leases, retry, recover, and watch the store
        tasks = len(asyncio.all_tasks()) - before - idle_tasks
        gc.collect()
        await asyncio.sleep(2)  # the store completes its search index
        start = time.process_time()
        await asyncio.sleep(2)
        return (time.process_time() - start) / 2, max(0, tasks), max(0, threads)


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
    runs: dict[str, RunLongAnswer] = {
        "a subscriber": run_long_answer,
        "ACP": run_long_answer_over_acp,
        "REST": run_long_answer_over_rest,
    }
    for name, run in runs.items():
        _, few_bytes = await measure_long_answer(run, words // 2)
        per_minute, chunk_bytes = await measure_long_answer(run, words)
        bench.row(
            f"chunks a minute to {name}, an answer of {words * len(WORD) / 1e6:.1f} MB",
            target=f"≥ {MIN_CHUNKS_PER_MINUTE:,}",
            ok=per_minute >= MIN_CHUNKS_PER_MINUTE,
            segue=per_minute,
            unit="chunks",
        )
        bench.row(
            f"memory for each chunk to {name} ({few_bytes:.0f} bytes with half as many)",
            target=f"≤ {MAX_CHUNK_BYTES:,} bytes",
            ok=chunk_bytes <= MAX_CHUNK_BYTES,
            segue=chunk_bytes,
            unit="bytes",
        )
    prompt_bytes = 10**5 if bench.quick else 10**7
    with temporary_directory() as directory:
        elapsed = await time_long_prompt(directory, prompt_bytes)
    bench.row(
        f"a turn whose prompt has {prompt_bytes / 1e6:.1f} MB",
        target=f"≤ {MAX_PROMPT_SECONDS:g} s",
        ok=elapsed <= MAX_PROMPT_SECONDS,
        segue=elapsed,
        unit="s",
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
        idle_cpu, _, _ = await measure_waiting_turns(directory, 1)
    with temporary_directory() as directory:
        cpu, tasks, threads = await measure_waiting_turns(directory, waiting)
    bench.row(
        f"CPU with {waiting} turns that wait, more than with one; {tasks} tasks, {threads} threads",
        target="≤ 1 %, no task, no thread",
        ok=cpu - idle_cpu <= 0.01 and tasks == threads == 0,
        segue=cpu * 100,
        added=(cpu - idle_cpu) * 100,
        unit="%",
    )
    return bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == [OTHER_PROCESS]:
        asyncio.run(run_turns_in_another_process(Path(sys.argv[2])))
    else:
        sys.exit(asyncio.run(main()))
