"""A model provider on a loopback address, whose responses are scripted by the test.

It implements the streamed Messages API, chat completions and the Responses API for the real
clients, and the failures of real providers: overload, invalid data, silence, broken connections.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Say:
    text: str


@dataclass
class Think:
    text: str
    signature: str = "signed"


@dataclass
class Use:
    name: str
    input: Any
    raw: str | None = None  # the streamed arguments, if they are not the input as JSON


@dataclass
class Fail:
    """An error response instead of a stream."""

    status: int = 529
    kind: str = "overloaded_error"
    message: str = "Overloaded"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Wait:
    """Pause the stream until `event` is set; `reached` is set when the pause begins."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Cut:
    """Close the connection."""


@dataclass
class Garbage:
    """Send invalid data."""

    data: str = "event: content_block_delta\ndata: {not json\n\n"


@dataclass
class Stop:
    """Set the stop reason of the response."""

    reason: str


Step = Say | Think | Use | Fail | Wait | Cut | Garbage | Stop
Script = Sequence[Step] | Callable[[dict[str, Any]], Sequence[Step]]


class ConnectionBroken(Exception):
    """A script has closed the connection."""


class Provider:
    """Answers each request with the next script, or with `otherwise` if none is left."""

    def __init__(self, *scripts: Script, port: int = 0) -> None:
        self._port = port
        self.scripts: list[Script] = list(scripts)
        self.otherwise: Script = [Say("done")]
        self.requests: list[dict[str, Any]] = []
        self.input_tokens = 10
        self.cache_usage: dict[str, int] = {}  # the cache fields of each usage, if it has them
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionBroken, ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
        self.requests.append(body)
        script = self.scripts.pop(0) if self.scripts else self.otherwise
        steps = script(body) if callable(script) else script
        if steps and isinstance(steps[0], Fail):
            await _error(writer, steps[0])
            return True
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
            b"request-id: req_1\r\n\r\n"
        )
        path = lines[0].split()[1]
        if path.endswith("/chat/completions"):
            frames = _chat(steps, self)
        elif path.endswith("/responses"):
            frames = _responses(steps, self)
        else:
            frames = _messages(steps, self)
        async for frame in frames:
            data = frame.encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _error(writer: asyncio.StreamWriter, fail: Fail) -> None:
    error = {"type": fail.kind, "message": fail.message}
    data = json.dumps({"type": "error", "error": error}).encode()
    headers = "".join(f"{name}: {value}\r\n" for name, value in fail.headers.items())
    writer.write(
        f"HTTP/1.1 {fail.status} X\r\ncontent-type: application/json\r\n{headers}"
        f"content-length: {len(data)}\r\n\r\n".encode()
        + data
    )
    await writer.drain()


async def _run_failure(step: Step) -> str:
    match step:
        case Wait():
            step.reached.set()
            await step.event.wait()
            return ""
        case Cut() | Fail():
            raise ConnectionBroken
        case Garbage():
            return step.data
    raise AssertionError(step)


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _split(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)] or [""]


async def _messages(steps: Sequence[Step], provider: Provider) -> AsyncIterator[str]:
    message = {
        "id": f"msg_{len(provider.requests)}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": provider.input_tokens,
            "output_tokens": 1,
            **provider.cache_usage,
        },
    }
    yield _event("message_start", message=message)
    reason, index = "end_turn", -1
    for step in steps:
        match step:
            case Say():
                block: dict[str, Any] = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": part} for part in _split(step.text)]
            case Think():
                block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": part} for part in _split(step.text)
                ]
                deltas.append({"type": "signature_delta", "signature": step.signature})
            case Use():
                reason = "tool_use"
                id = f"toolu_{len(provider.requests)}_{index + 1}"
                block = {"type": "tool_use", "id": id, "name": step.name, "input": {}}
                raw = json.dumps(step.input) if step.raw is None else step.raw
                deltas = [
                    {"type": "input_json_delta", "partial_json": part} for part in _split(raw)
                ]
            case Stop():
                reason = step.reason
                continue
            case _:
                if text := await _run_failure(step):
                    yield text
                continue
        index += 1
        yield _event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": 7})
    yield _event("message_stop")


async def _chat(steps: Sequence[Step], provider: Provider) -> AsyncIterator[str]:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> str:
        data = {
            "id": "chat_1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "local",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        }
        return f"data: {json.dumps(data)}\n\n"

    yield chunk({"role": "assistant", "content": ""})
    reason, calls = "stop", 0
    for step in steps:
        match step:
            case Say():
                for part in _split(step.text):
                    yield chunk({"content": part})
            case Think():
                for part in _split(step.text):
                    yield chunk({"reasoning": part})
            case Use():
                reason = "tool_calls"
                raw = json.dumps(step.input) if step.raw is None else step.raw
                function = {"name": step.name, "arguments": ""}
                call = {"index": calls, "id": f"call_{len(provider.requests)}_{calls}"}
                yield chunk({"tool_calls": [{**call, "type": "function", "function": function}]})
                for part in _split(raw):
                    delta_call = {"index": calls, "function": {"arguments": part}}
                    yield chunk({"tool_calls": [delta_call]})
                calls += 1
            case Stop():
                reason = step.reason
            case _:
                if text := await _run_failure(step):
                    yield text
    yield chunk({}, reason)
    usage = {"prompt_tokens": provider.input_tokens, "completion_tokens": 7, "total_tokens": 17}
    empty = {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "local"}
    yield f"data: {json.dumps({**empty, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


async def _responses(steps: Sequence[Step], provider: Provider) -> AsyncIterator[str]:
    number = len(provider.requests)
    response = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "local",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    events = 0

    def event(kind: str, **fields: Any) -> str:
        nonlocal events
        events += 1
        return _event(f"response.{kind}", sequence_number=events, **fields)

    yield event("created", response={**response, "status": "in_progress"})
    index = -1
    for step in steps:
        if not isinstance(step, Say | Think | Use):
            if text := await _run_failure(step):
                yield text
            continue
        index += 1
        id = f"item_{number}_{index}"
        place = {"item_id": id, "output_index": index}
        match step:
            case Say():
                part = {"type": "output_text", "text": "", "annotations": []}
                item: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
                done = {**item, "content": [{**part, "text": step.text}]}
                kind, text, more = "output_text", step.text, {"content_index": 0, "logprobs": []}
                opened = event("content_part.added", **place, content_index=0, part=part)
            case Think():
                part = {"type": "summary_text", "text": ""}
                item = {"type": "reasoning", "summary": []}
                done = {**item, "summary": [{**part, "text": step.text}]}
                done["encrypted_content"] = step.signature
                kind, text, more = "reasoning_summary_text", step.text, {"summary_index": 0}
                opened = event("reasoning_summary_part.added", **place, **more, part=part)
            case Use():
                text = json.dumps(step.input) if step.raw is None else step.raw
                item = {"type": "function_call", "call_id": f"call_{number}_{index}"}
                item |= {"name": step.name, "arguments": ""}
                done = {**item, "arguments": text}
                kind, more, opened = "function_call_arguments", {}, ""
        item |= {"id": id, "status": "in_progress"}
        yield event("output_item.added", output_index=index, item=item)
        if opened:  # an empty chunk would end the response
            yield opened
        for delta in _split(text):
            yield event(f"{kind}.delta", **place, **more, delta=delta)
        done |= {"id": id, "status": "completed"}
        yield event("output_item.done", output_index=index, item=done)
    usage = {
        "input_tokens": provider.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": provider.input_tokens + 7,
    }
    yield event("completed", response={**response, "status": "completed", "usage": usage})
