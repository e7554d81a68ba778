"""Write session files as Qwen Code does, with nothing of segue's code for them."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from segue.sources.base import Source
from segue.sources.kit.source import KitSource
from segue.sources.qwen.definition import QwenDefinition
from segue.sources.qwen.reader import QwenReader
from segue.testing import ToolSessions

MODEL = "qwen3-coder-plus"


class Journal:
    """The records of a session: the parent of each is the one before, unless a test sets it."""

    def __init__(self, id: str, cwd: str) -> None:
        self.id = id
        self.cwd = cwd
        self.last: str | None = None
        self.data = b""

    def add(self, at: datetime, kind: str, **fields: Any) -> str:
        """Add a record and return its uuid."""
        record = {
            "uuid": str(uuid4()),
            "parentUuid": self.last,
            "sessionId": self.id,
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "type": kind,
            "cwd": self.cwd,
            "version": "0.24.4",
            "gitBranch": "main",
            **fields,
        }
        self.last = record["uuid"]
        self.data += json.dumps(record, separators=(",", ":")).encode() + b"\n"
        return str(record["uuid"])

    def prompt(self, at: datetime, text: str, **fields: Any) -> str:
        return self.add(at, "user", message=user(text), **fields)

    def reply(self, at: datetime, *parts: Any, **fields: Any) -> str:
        """Add a reply of the model; a text stands for a part with this text."""
        contents = [{"text": part} if isinstance(part, str) else part for part in parts]
        message = {"role": "model", "parts": contents}
        defaults: dict[str, Any] = {"model": MODEL, "usageMetadata": usage(100, 10)}
        return self.add(at, "assistant", message=message, **{**defaults, **fields})

    def result(self, at: datetime, id: str, name: str, output: str, **facts: Any) -> str:
        """Add the result of a tool call."""
        response = {"id": id, "name": name, "response": {"output": output}}
        message = {"role": "user", "parts": [{"functionResponse": response}]}
        call = {"callId": id, "status": "success", **facts}
        return self.add(at, "tool_result", message=message, toolCallResult=call)

    def system(self, at: datetime, subtype: str, **payload: Any) -> str:
        return self.add(at, "system", subtype=subtype, systemPayload=payload)

    def turn(self, at: datetime, question: str, answer: str) -> None:
        """Add a prompt and its answer."""
        self.prompt(at, question)
        self.reply(at, answer)

    def take(self) -> bytes:
        """Return the lines since the last call."""
        data, self.data = self.data, b""
        return data


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text}]}


def call(id: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"functionCall": {"id": id, "name": name, "args": args}}


def usage(input: int, output: int, cached: int = 0, thoughts: int = 0) -> dict[str, int]:
    return {
        "promptTokenCount": input,
        "candidatesTokenCount": output,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": input + output,
        "cachedContentTokenCount": cached,
    }


class QwenSessions(ToolSessions):
    """Sessions in the files of a Qwen home."""

    definition = QwenDefinition()

    def __init__(self, home: Path, index: Path) -> None:
        self.directory: Path = home
        self.index = index
        self._journals: dict[str, Journal] = {}
        (home / "projects").mkdir(parents=True)

    def open_source(self) -> Source:
        return KitSource(QwenReader(str(self.directory)), self.index, "Qwen Code")

    def journal(self, cwd: str) -> Journal:
        """Begin a session that has no file yet."""
        journal = Journal(str(uuid4()), cwd)
        self._journals[journal.id] = journal
        return journal

    def save(self, journal: Journal) -> Path:
        """Append the new records to the session's file."""
        path = self.path(journal.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(journal.take())
        return path

    def project(self, cwd: str) -> Path:
        """Return the directory of a project."""
        return self.directory / "projects" / re.sub("[^0-9A-Za-z]", "-", cwd)

    async def create(self, prompt: str, answer: str, *, cwd: str, at: datetime) -> str:
        journal = self.journal(cwd)
        journal.turn(at, prompt, answer)
        self.save(journal)
        return journal.id

    async def add_turn(self, id: str, prompt: str, answer: str, *, at: datetime) -> None:
        journal = self._journals.setdefault(id, Journal(id, "/"))
        path = self.path(id)
        journal.last = json.loads(path.read_bytes().splitlines()[-1])["uuid"]
        journal.turn(at, prompt, answer)
        with path.open("ab") as file:
            file.write(journal.take())

    async def delete(self, id: str) -> None:
        self.path(id).unlink()

    async def damage(self, id: str) -> None:
        self.path(id).write_bytes(b'\x00\xff{"uuid": "x", "type": [}\n' * 3)

    def listed_directory(self, id: str) -> Path:
        return self.path(id).parent

    def path(self, id: str) -> Path:
        """Return the file of a session."""
        existing = [*self.directory.rglob(f"{id}.jsonl")]
        if existing:
            return existing[0]
        return self.project(self._journals[id].cwd) / "chats" / f"{id}.jsonl"
