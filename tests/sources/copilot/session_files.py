"""Write session directories as Copilot does, with nothing of segue's code for them."""

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from segue.sources.base import Source
from segue.sources.copilot.definition import CopilotDefinition
from segue.sources.copilot.reader import CopilotReader
from segue.sources.kit.source import KitSource
from segue.testing import ToolSessions
from tests.sources.opened import CWD, ID, NOON

MODEL = "gpt-5.4"


def stamp(at: datetime) -> str:
    """Return a time as Copilot writes it."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def event(at: datetime, type: str, agent: str | None = None, **data: Any) -> bytes:
    """Return one line of events.jsonl; `agent` is the subagent that it belongs to."""
    record = {"type": type, "data": data, "id": str(uuid4()), "timestamp": stamp(at)}
    if agent is not None:
        record["agentId"] = agent
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def start(id: str, at: datetime, cwd: str, **fields: Any) -> bytes:
    """Return the first line of a session."""
    context = {"cwd": cwd, "gitRoot": cwd, "branch": "main"}
    data = {"sessionId": id, "version": 1, "copilotVersion": "1.0.69", "startTime": stamp(at)}
    return event(at, "session.start", **data, selectedModel=MODEL, context=context, **fields)


def answer(at: datetime, text: str, *calls: dict[str, Any], **fields: Any) -> bytes:
    """Return a message of the agent with its tool calls."""
    return event(at, "assistant.message", content=text, toolRequests=list(calls), **fields)


def call(id: str, name: str, arguments: Any) -> dict[str, Any]:
    """Return a tool call of a message."""
    return {"toolCallId": id, "name": name, "arguments": arguments, "type": "function"}


def result(at: datetime, id: str, content: str, **fields: Any) -> bytes:
    """Return the result of a tool call."""
    data = {"success": True, "result": {"content": content}, **fields}
    return event(at, "tool.execution_complete", toolCallId=id, **data)


def turn(at: datetime, prompt: str, reply: str, *, ends: bool = True) -> bytes:
    """Return the lines of a prompt and its answer."""
    lines = [
        event(at, "user.message", content=prompt, transformedContent=f"<now/>{prompt}"),
        event(at, "assistant.turn_start", turnId="0"),
        answer(at, reply),
    ]
    if ends:
        lines.append(event(at, "assistant.turn_end", turnId="0"))
    return b"".join(lines)


def metrics(requests: int, input: int, cached: int, output: int) -> dict[str, Any]:
    """Return the tokens of a model in the record of a shutdown."""
    usage = {"inputTokens": input, "cacheReadTokens": cached, "outputTokens": output}
    return {MODEL: {"requests": {"count": requests, "cost": 0}, "usage": usage}}


class CopilotSessions(ToolSessions):
    """Sessions in the directories of a Copilot home."""

    definition = CopilotDefinition()

    def __init__(self, home: Path, index: Path) -> None:
        self.directory: Path = home
        self._index = index
        (home / "session-state").mkdir(parents=True)

    def open_source(self) -> Source:
        return KitSource(CopilotReader(str(self.directory)), self._index, "Copilot")

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        id = str(uuid4())
        self.write(id, start(id, at, cwd) + turn(at, prompt, answer), cwd=cwd, at=at)
        return id

    def write(self, id: str, data: bytes, *, cwd: str, at: datetime, **workspace: str) -> None:
        """Write a session; `workspace` are further lines of its workspace file."""
        directory = self.directory / "session-state" / id
        directory.mkdir()
        (directory / "events.jsonl").write_bytes(data)
        fields = {"id": id, "cwd": cwd, "branch": "main", "created_at": stamp(at), **workspace}
        self.write_workspace(id, "".join(f"{name}: {value}\n" for name, value in fields.items()))

    def write_workspace(self, id: str, text: str) -> None:
        """Write the workspace file of a session."""
        self.path(id).with_name("workspace.yaml").write_text(text)

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        self.append(id, turn(at, prompt, answer))

    def append(self, id: str, data: bytes) -> None:
        """Append lines to a session."""
        with self.path(id).open("ab") as file:
            file.write(data)

    async def delete(self, id: str) -> None:
        shutil.rmtree(self.path(id).parent)

    async def damage(self, id: str) -> None:
        self.path(id).write_bytes(b'\x00\xff{"type": "user.message", "data": [}\n' * 3)

    def listed_directory(self, id: str) -> Path:
        return self.directory / "session-state"

    def path(self, id: str) -> Path:
        """Return the events of a session."""
        return self.directory / "session-state" / id / "events.jsonl"


def write(tool: CopilotSessions, *lines: bytes, id: str = ID, **workspace: str) -> None:
    """Write a session with these lines after its start."""
    data = start(id, NOON, CWD) + b"".join(lines)
    tool.write(id, data, cwd=CWD, at=NOON, **workspace)


def usage_record(source: str, input: int, output: int, agent: str | None = None) -> bytes:
    usage = {"model": "gpt-5.4", "inputTokens": input, "outputTokens": output}
    accounting = {"sourceSessionId": source, "sequence": 1}
    usage |= {"cacheReadTokens": 100, "cacheWriteTokens": 0, "accounting": accounting}
    return event(NOON, "session.usage_record", agent=agent, usage=usage)
