"""Write session files as Gemini CLI does, with nothing of segue's code for them."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from segue.sources.base import Source
from segue.sources.gemini.definition import GeminiDefinition
from segue.sources.gemini.reader import GeminiReader
from segue.sources.kit.source import KitSource
from segue.testing import ToolSessions

MODEL = "gemini-2.5-flash"
CWD = "/work/project"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(record: dict[str, Any]) -> bytes:
    """Return one line of a journal."""
    return json.dumps(record).encode() + b"\n"


def header(id: str, cwd: str, at: datetime, **fields: Any) -> bytes:
    """Return the line that each process begins with."""
    digest = sha256(cwd.encode()).hexdigest()
    times = {"startTime": stamp(at), "lastUpdated": stamp(at)}
    return line({"sessionId": id, "projectHash": digest, **times, "kind": "main", **fields})


def message(at: datetime, kind: str, content: Any, id: str | None = None, **fields: Any) -> Any:
    """Return a message."""
    record = {"id": id or str(uuid4()), "timestamp": stamp(at), "type": kind, "content": content}
    return {**record, **fields}


def prompt(at: datetime, text: str, id: str | None = None) -> Any:
    return message(at, "user", [{"text": text}], id)


def context(at: datetime) -> Any:
    """Return the message that Gemini adds at each start."""
    return prompt(at, "<session_context>\nThis is the Gemini CLI.\n</session_context>", "d04923d3")


def tokens(input: int, output: int, cached: int = 0, thoughts: int = 0) -> dict[str, int]:
    total = input + output + thoughts
    counts = {"input": input, "output": output, "cached": cached}
    return {**counts, "thoughts": thoughts, "tool": 0, "total": total}


def reply(at: datetime, text: str, id: str | None = None, **fields: Any) -> Any:
    """Return a reply of the model."""
    defaults = {"thoughts": [], "tokens": tokens(100, 10), "model": MODEL}
    return message(at, "gemini", text, id, **{**defaults, **fields})


def tool_call(
    at: datetime, id: str, name: str, args: dict[str, Any], output: str, **fields: Any
) -> dict[str, Any]:
    """Return a tool call with its result."""
    response = {"id": id, "name": name, "response": {"output": output}}
    return {
        "id": id,
        "name": name,
        "args": args,
        "result": [{"functionResponse": response}],
        "status": "success",
        "timestamp": stamp(at),
        **fields,
    }


def updated(at: datetime) -> bytes:
    return line({"$set": {"lastUpdated": stamp(at)}})


def all_messages(at: datetime, *messages: Any) -> bytes:
    """Return the line that replaces all messages."""
    return line({"$set": {"messages": messages, "lastUpdated": stamp(at)}})


def turn(at: datetime, question: str, answer: str) -> bytes:
    """Return the lines of a prompt and its answer."""
    return line(prompt(at, question)) + updated(at) + line(reply(at, answer)) + updated(at)


class GeminiSessions(ToolSessions):
    """Sessions in the files of a Gemini home."""

    definition = GeminiDefinition()

    def __init__(self, home: Path, index: Path) -> None:
        self.directory: Path = home
        self.index = index
        (home / "tmp").mkdir(parents=True)

    def open_source(self) -> Source:
        return KitSource(GeminiReader(str(self.directory)), self.index, "Gemini CLI")

    def project(self, cwd: str) -> Path:
        """Return the directory of a project."""
        project = self.directory / "tmp" / (Path(cwd).name.lower().replace(" ", "-") or "root")
        (project / "chats").mkdir(parents=True, exist_ok=True)
        (project / ".project_root").write_text(cwd)
        return project

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        id = str(uuid4())
        start = header(id, cwd, at) + all_messages(at, context(at))
        self.write(id, cwd, at, start + turn(at, prompt, answer))
        return id

    def write(self, id: str, cwd: str, at: datetime, data: bytes, suffix: str = "jsonl") -> Path:
        """Write a session file."""
        name = f"session-{at:%Y-%m-%dT%H-%M}-{id[:8]}.{suffix}"
        path = self.project(cwd) / "chats" / name
        path.write_bytes(data)
        return path

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        self.append(id, turn(at, prompt, answer))

    def append(self, id: str, data: bytes) -> None:
        """Append lines to a session."""
        with self.path(id).open("ab") as file:
            file.write(data)

    async def delete(self, id: str) -> None:
        self.path(id).unlink()

    async def damage(self, id: str) -> None:
        self.path(id).write_bytes(b'\x00\xff{"sessionId": [}\n' * 3)

    def listed_directory(self, id: str) -> Path:
        return self.path(id).parent

    def path(self, id: str) -> Path:
        """Return the file of a session."""
        (path,) = self.directory.rglob(f"session-*-{id[:8]}.json*")
        return path


def write(tool: GeminiSessions, *lines: bytes, id: str | None = None, at: datetime = NOON) -> str:
    """Write a session with these lines after its header, and return its id."""
    id = id or str(uuid4())
    tool.write(id, CWD, at, header(id, CWD, at) + b"".join(lines))
    return id
