"""Write rollout files as Codex does, with nothing of segue's code for them."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from segue.sources.base import Source
from segue.sources.codex.definition import CodexDefinition
from segue.sources.codex.reader import CodexReader
from segue.sources.kit.source import KitSource
from segue.testing import ToolSessions
from tests.sources.opened import CWD, NOON

MODEL = "gpt-5.4"
CONTEXT = "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"


def thread_id(at: datetime) -> str:
    """Return a UUIDv7 of a time."""
    millis = int(at.timestamp() * 1000)
    noise = int.from_bytes(os.urandom(10))
    bits = millis << 80 | 0x7 << 76 | (noise >> 64 & 0xFFF) << 64
    return str(UUID(int=bits | 0b10 << 62 | noise & 0x3FFF_FFFF_FFFF_FFFF))


def record(at: datetime, kind: str, payload: dict[str, Any]) -> bytes:
    """Return one line of a rollout."""
    stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"timestamp": stamp, "type": kind, "payload": payload}).encode() + b"\n"


def meta(id: str, at: datetime, cwd: str, **fields: Any) -> bytes:
    """Return the first line of a rollout."""
    payload = {
        "id": id,
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "cwd": cwd,
        "originator": "codex_cli_rs",
        "cli_version": "0.144.6",
        "source": "cli",
        "model_provider": "openai",
        "git": {"branch": "main"},
        **fields,
    }
    return record(at, "session_meta", payload)


def message(at: datetime, role: str, text: str) -> bytes:
    """Return a message that the model sees."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return record(at, "response_item", {"type": "message", "role": role, "content": content})


def event(at: datetime, kind: str, **fields: Any) -> bytes:
    """Return an event that people see."""
    return record(at, "event_msg", {"type": kind, **fields})


def turn(at: datetime, prompt: str, answer: str, cwd: str, *, ends: bool = True) -> bytes:
    """Return the lines of a turn: a prompt and its answer."""
    id = thread_id(at)
    lines = [
        event(at, "task_started", turn_id=id),
        record(at, "turn_context", {"turn_id": id, "cwd": cwd, "model": MODEL}),
        message(at, "user", prompt),
        event(at, "user_message", message=prompt, images=[]),
        event(at, "agent_message", message=answer),
        message(at, "assistant", answer),
    ]
    if ends:
        lines.append(event(at, "task_complete", turn_id=id))
    return b"".join(lines)


def token_count(at: datetime, input: int, cached: int, output: int) -> bytes:
    """Return a running total of tokens."""
    total = {"input_tokens": input, "cached_input_tokens": cached, "output_tokens": output}
    return event(at, "token_count", info={"total_token_usage": total, "last_token_usage": total})


class CodexSessions(ToolSessions):
    """Sessions in the files of a Codex home."""

    definition = CodexDefinition()

    def __init__(self, home: Path, index: Path) -> None:
        self.directory: Path = home
        self._index = index
        self._cwds: dict[str, str] = {}
        (home / "sessions").mkdir(parents=True)

    def open_source(self) -> Source:
        return KitSource(CodexReader(str(self.directory)), self._index, "Codex")

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        id = thread_id(at)
        self._cwds[id] = cwd
        context = message(at, "user", CONTEXT)
        self.write(id, meta(id, at, cwd) + context + turn(at, prompt, answer, cwd), at)
        return id

    def write(self, id: str, data: bytes, at: datetime) -> Path:
        """Write a rollout file."""
        path = self.directory / f"sessions/{at:%Y/%m/%d}/rollout-{at:%Y-%m-%dT%H-%M-%S}-{id}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        self.append(id, turn(at, prompt, answer, self._cwds.get(id, "/")))

    def append(self, id: str, data: bytes) -> None:
        """Append lines to a thread."""
        with self.path(id).open("ab") as file:
            file.write(data)

    async def delete(self, id: str) -> None:
        self.path(id).unlink()

    async def damage(self, id: str) -> None:
        self.path(id).write_bytes(b'\x00\xff{"type": "user", "payload": [}\n' * 3)

    def listed_directory(self, id: str) -> Path:
        return self.directory / "sessions"

    def path(self, id: str) -> Path:
        """Return the file of a thread."""
        (path,) = self.directory.rglob(f"rollout-*{id}.jsonl")
        return path


def write_thread(tool: CodexSessions, *lines: bytes, at: datetime = NOON, **fields: Any) -> str:
    """Write a thread with these lines after its meta data, and return its id."""
    id = fields.pop("id", None) or thread_id(at)
    tool.write(id, meta(id, at, CWD, **fields) + b"".join(lines), at)
    return id


def call(name: str, call_id: str, arguments: Any) -> bytes:
    payload = {"type": "function_call", "name": name, "call_id": call_id}
    return record(NOON, "response_item", {**payload, "arguments": json.dumps(arguments)})


def output(call_id: str, text: Any) -> bytes:
    payload = {"type": "function_call_output", "call_id": call_id, "output": text}
    return record(NOON, "response_item", payload)
