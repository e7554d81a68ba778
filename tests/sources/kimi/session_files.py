"""Write session directories as Kimi Code does, with nothing of segue's code for them."""

import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from segue.sources.base import Source
from segue.sources.kimi.definition import KimiDefinition
from segue.sources.kimi.reader import KimiReader
from segue.sources.kit.source import KitSource
from segue.testing import ToolSessions

ALIAS = "k2"
MODEL = "kimi-k2-thinking"


def millis(at: datetime) -> int:
    """Return a time as Kimi writes it."""
    return int(at.timestamp() * 1000)


def record(at: datetime, type: str, agent: str | None = "main", **fields: Any) -> bytes:
    """Return one line of a wire; older versions name no agent."""
    values = {"type": type, **({} if agent is None else {"agentId": agent}), **fields}
    return json.dumps({**values, "time": millis(at)}, ensure_ascii=False).encode() + b"\n"


def metadata(at: datetime) -> bytes:
    """Return the first line of a wire."""
    values = {"type": "metadata", "protocol_version": "1.5", "created_at": millis(at)}
    return json.dumps(values).encode() + b"\n"


def message(at: datetime, text: Any, kind: str = "user", **fields: Any) -> bytes:
    """Return a message with the role of the user."""
    content = [{"type": "text", "text": text}] if isinstance(text, str) else text
    origin = {"kind": kind, **fields}
    body = {"role": "user", "content": content, "toolCalls": [], "origin": origin}
    return record(at, "context.append_message", message=body)


def step(at: datetime, type: str, **fields: Any) -> bytes:
    """Return what the agent does in a step."""
    return record(at, "context.append_loop_event", event={"type": type, **fields})


def say(at: datetime, text: str) -> bytes:
    """Return a text of the agent."""
    return step(at, "content.part", part={"type": "text", "text": text})


def call(at: datetime, id: str, name: str, args: Any, **fields: Any) -> bytes:
    """Return a tool call."""
    return step(at, "tool.call", uuid=f"uuid-{id}", toolCallId=id, name=name, args=args, **fields)


def result(at: datetime, id: str, output: Any, **fields: Any) -> bytes:
    """Return the result of a tool call."""
    return step(at, "tool.result", toolCallId=id, result={"output": output, **fields})


def usage(at: datetime, input: int, cached: int, output: int) -> bytes:
    """Return the tokens of a model call."""
    counts = {"inputOther": input, "inputCacheRead": cached, "output": output}
    return record(at, "usage.record", model=ALIAS, usage={**counts, "inputCacheCreation": 0})


def turn(at: datetime, prompt: str, reply: str, *, ends: bool = True) -> bytes:
    """Return the lines of a prompt and its answer, as version 2 writes them."""
    content = [{"type": "text", "text": prompt}]
    appended = {"message": {"role": "user", "content": content}}
    lines = [
        record(at, "turn.prompt", input=content, origin={"kind": "user"}, turnId=0),
        message(at, prompt),
        record(at, "agent.message.appended", None, message=appended, kind="event"),
        message(at, "<system-reminder>\nToday is Monday", "injection"),
        step(at, "step.begin", uuid="s1", turnId="0", step=1),
        record(at, "llm.request", kind="loop", model=MODEL, modelAlias=ALIAS),
        say(at, reply),
        step(at, "step.end", uuid="s1", finishReason="end_turn", usage={"output": 99}),
    ]
    if ends:
        lines.append(record(at, "turn.ended", turnId=0, reason="completed"))
    return b"".join(lines)


def old_turn(at: datetime, prompt: str, reply: str, *, finish: str = "end_turn") -> bytes:
    """Return the lines of a prompt and its answer, as version 0.20 writes them."""
    body = {"role": "user", "content": [{"type": "text", "text": prompt}]}
    part = {"type": "content.part", "part": {"type": "text", "text": reply}}
    end = {"type": "step.end", "finishReason": finish}
    return b"".join(
        [
            record(at, "turn.prompt", None, input=body["content"], origin={"kind": "user"}),
            record(
                at, "context.append_message", None, message={**body, "origin": {"kind": "user"}}
            ),
            record(at, "context.append_loop_event", None, event=part),
            record(at, "context.append_loop_event", None, event=end),
        ]
    )


class KimiSessions(ToolSessions):
    """Sessions in the directories of a Kimi Code home."""

    definition = KimiDefinition()

    def __init__(self, home: Path, index: Path) -> None:
        self.directory: Path = home
        self._index = index
        (home / "sessions").mkdir(parents=True)

    def open_source(self) -> Source:
        return KitSource(KimiReader(str(self.directory)), self._index, "Kimi Code")

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        id = str(uuid4())
        self.write(id, metadata(at) + turn(at, prompt, answer), cwd=cwd, at=at)
        return id

    def write(self, id: str, data: bytes, *, cwd: str, at: datetime, **state: Any) -> None:
        """Write a session; `state` are further fields of its state file."""
        digest = hashlib.sha256(cwd.encode()).hexdigest()[:12]
        name = f"wd_{Path(cwd).name.lower()}_{digest}/session_{id}"
        directory = self.directory / "sessions" / name
        (directory / "agents/main").mkdir(parents=True)
        (directory / "agents/main/wire.jsonl").write_bytes(data)
        times = {"createdAt": millis(at), "updatedAt": millis(at)}
        main = {"homedir": str(directory / "agents/main"), "type": "main"}
        fields = {"id": f"session_{id}", "version": 2, "cwd": cwd, "archived": False, **times}
        self.write_state(id, {**fields, "agents": {"main": main}, **state})

    def write_state(self, id: str, state: dict[str, Any]) -> None:
        """Write the state file of a session."""
        self.state_path(id).write_text(json.dumps(state))

    def change_state(self, id: str, **fields: Any) -> None:
        """Change fields of the state file, as the program does."""
        self.write_state(id, {**json.loads(self.state_path(id).read_text()), **fields})

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        self.append(id, turn(at, prompt, answer))

    def append(self, id: str, data: bytes, agent: str = "main") -> None:
        """Append lines to the wire of an agent."""
        path = self.path(id, agent)
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    async def delete(self, id: str) -> None:
        shutil.rmtree(self.state_path(id).parent)
        with (self.directory / "session_index.jsonl").open("a") as file:
            file.write(json.dumps({"sessionId": f"session_{id}", "deleted": True}) + "\n")

    async def damage(self, id: str) -> None:
        self.path(id).write_bytes(b'\x00\xff{"type": "turn.prompt", "input": [}\n' * 3)

    def listed_directory(self, id: str) -> Path:
        return self.directory / "sessions"

    def path(self, id: str, agent: str = "main") -> Path:
        """Return the wire of an agent."""
        return self.state_path(id).parent / "agents" / agent / "wire.jsonl"

    def state_path(self, id: str) -> Path:
        """Return the state file of a session."""
        (directory,) = self.directory.glob(f"sessions/*/session_{id}")
        return directory / "state.json"
