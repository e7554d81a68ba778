"""Generate a user's home with the sessions of all eight tools, as the tools write them.

Each tool has the same conversations: prompts, each followed by tool calls and an answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import sqlite3
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from _common import NOW, Vocabulary

from segue.model import clock

TOOLS = ("claude", "codex", "copilot", "opencode", "gemini", "goose", "qwen", "kimi")
PROJECTS = 40
MIN_BYTES, MAX_BYTES = 3_000, 2_000_000
MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5.4",
    "copilot": "gpt-5.4",
    "opencode": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash",
    "goose": "gpt-4o",
    "qwen": "qwen3-coder-plus",
    "kimi": "kimi-k2-thinking",
}


class Step(NamedTuple):
    """One thing that happens: a prompt, an answer, or a call with the text before it."""

    kind: str
    text: str
    at: int  # seconds since 1970
    call_id: str = ""
    command: str = ""
    output: str = ""


class Conversation:
    """The steps of a session, as many as fill a number of bytes."""

    def __init__(self, rng: random.Random, texts: Texts, *, cwd: str, at: int, size: int) -> None:
        self.id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        self.cwd = cwd
        self.at = at
        self.size = size
        self._rng = rng
        self._texts = texts

    def new_id(self) -> str:
        """Return the id of a record."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def tokens(self) -> int:
        """Return the input tokens of a request."""
        return self._rng.randrange(2_000, 20_000)

    def turns(self) -> Iterator[list[Step]]:
        """Yield turns without end."""
        rng, texts, at = self._rng, self._texts, self.at
        while True:
            steps = [Step("prompt", rng.choice(texts.messages), at)]
            for _ in range(rng.randrange(1, 4)):
                at += 1
                call_id = f"call_{rng.getrandbits(96):024x}"
                command, output = rng.choice(texts.messages)[:60], rng.choice(texts.outputs)
                text = rng.choice(texts.messages)
                steps.append(Step("call", text, at, call_id, command, output))
            at += 1
            steps.append(Step("answer", rng.choice(texts.messages), at))
            at += 1
            yield steps


class Texts:
    """Texts of messages and outputs; a new one for each message would take longer to make."""

    def __init__(self, rng: random.Random) -> None:
        words = Vocabulary()
        self.messages = [words.text(rng, 10, 80) for _ in range(4000)]
        self.outputs = [words.text(rng, 20, 300) for _ in range(2000)]


def stamp(at: int) -> str:
    """Return a time as RFC 3339 with milliseconds."""
    return clock.to_rfc3339(at * clock.SECOND)[:19] + ".000Z"


def line(record: dict[str, Any]) -> bytes:
    """Return a record as one line of JSON."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


class FileTool:
    """A tool that writes one file of JSON lines for each session."""

    def write(self, home: Path, conversation: Conversation) -> int:
        """Write a session and return its bytes."""
        data = self.begin(conversation)
        for steps in conversation.turns():
            data += b"".join(line(record) for record in self.turn(conversation, steps))
            if len(data) >= conversation.size:
                break
        path = self.path(home, conversation)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        modified = conversation.at + 60
        os.utime(path, (modified, modified))
        return len(data)

    def close(self) -> None:
        """Do nothing: every file is written."""

    def begin(self, conversation: Conversation) -> bytes:
        """Return the first lines."""
        return b""

    def path(self, home: Path, conversation: Conversation) -> Path:
        """Return the file of a session."""
        raise NotImplementedError

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        """Yield the records of a turn."""
        raise NotImplementedError


class Claude(FileTool):
    """Claude Code: a tree of entries, one content block in each."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def path(self, home: Path, conversation: Conversation) -> Path:
        key = re.sub("[^0-9A-Za-z]", "-", conversation.cwd)
        return home / ".claude/projects" / key / f"{conversation.id}.jsonl"

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        for step in steps:
            if step.kind == "prompt":
                message = {"role": "user", "content": step.text}
                yield self._entry(conversation, step, "user", message)
                continue
            response = f"msg_{conversation.new_id()}"
            blocks: list[dict[str, Any]] = [{"type": "text", "text": step.text}]
            if step.kind == "call":
                tool_input = {"command": step.command}
                use = {"type": "tool_use", "id": step.call_id, "name": "Bash", "input": tool_input}
                blocks.append(use)
            usage = {"input_tokens": conversation.tokens(), "output_tokens": 400}
            for block in blocks:
                message = {"id": response, "type": "message", "role": "assistant"}
                message |= {"model": MODELS["claude"], "content": [block], "usage": usage}
                yield self._entry(conversation, step, "assistant", message)
            if step.kind == "call":
                block = {"type": "tool_result", "tool_use_id": step.call_id, "content": step.output}
                message = {"role": "user", "content": [block]}
                result = {"toolUseResult": {"stdout": step.output}}
                yield self._entry(conversation, step, "user", message) | result

    def _entry(
        self, conversation: Conversation, step: Step, kind: str, message: dict[str, Any]
    ) -> dict[str, Any]:
        id, session = conversation.new_id(), conversation.id
        entry = {"parentUuid": self._parents.get(session), "isSidechain": False, "type": kind}
        self._parents[session] = id
        entry |= {"message": message, "uuid": id, "timestamp": stamp(step.at)}
        return entry | {
            "cwd": conversation.cwd,
            "sessionId": session,
            "version": "2.1.141",
            "gitBranch": "main",
        }


class Codex(FileTool):
    """Codex: rollouts with what the model sees and what people see."""

    def path(self, home: Path, conversation: Conversation) -> Path:
        at = datetime.fromtimestamp(conversation.at, UTC)
        name = f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{conversation.id}.jsonl"
        return home / f".codex/sessions/{at:%Y/%m/%d}" / name

    def begin(self, conversation: Conversation) -> bytes:
        payload = {"id": conversation.id, "timestamp": stamp(conversation.at)}
        payload |= {"cwd": conversation.cwd, "originator": "codex_cli_rs", "source": "cli"}
        payload |= {"cli_version": "0.144.6", "model_provider": "openai"}
        payload |= {"git": {"branch": "main"}}  # type: ignore[dict-item]  # a nested object
        return line(self._record(conversation.at, "session_meta", payload))

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        id, last = conversation.new_id(), steps[-1].at
        yield self._event(steps[0].at, "task_started", turn_id=id)
        context = {"turn_id": id, "cwd": conversation.cwd, "model": MODELS["codex"]}
        yield self._record(steps[0].at, "turn_context", context)
        for step in steps:
            if step.kind == "prompt":
                yield self._message(step, "user", "input_text")
                yield self._event(step.at, "user_message", message=step.text, images=[])
                continue
            yield self._event(step.at, "agent_message", message=step.text)
            yield self._message(step, "assistant", "output_text")
            if step.kind == "call":
                arguments = json.dumps({"command": ["bash", "-lc", step.command]})
                item = {"type": "function_call", "name": "shell", "arguments": arguments}
                yield self._record(step.at, "response_item", item | {"call_id": step.call_id})
                item = {"type": "function_call_output", "call_id": step.call_id}
                yield self._record(step.at, "response_item", item | {"output": step.output})
        used = {"input_tokens": conversation.tokens(), "cached_input_tokens": 0}
        used |= {"output_tokens": 400, "total_tokens": used["input_tokens"] + 400}
        info = {"total_token_usage": used, "last_token_usage": used}
        yield self._event(last, "token_count", info=info)
        yield self._event(last, "task_complete", turn_id=id)

    def _message(self, step: Step, role: str, kind: str) -> dict[str, Any]:
        content = [{"type": kind, "text": step.text}]
        item = {"type": "message", "role": role, "content": content}
        return self._record(step.at, "response_item", item)

    def _event(self, at: int, kind: str, **fields: Any) -> dict[str, Any]:
        return self._record(at, "event_msg", {"type": kind, **fields})

    def _record(self, at: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": stamp(at), "type": kind, "payload": payload}


class Copilot(FileTool):
    """Copilot: a directory for each session, with its events and its workspace."""

    def path(self, home: Path, conversation: Conversation) -> Path:
        return home / ".copilot/session-state" / conversation.id / "events.jsonl"

    def write(self, home: Path, conversation: Conversation) -> int:
        size = super().write(home, conversation)
        fields = {"id": conversation.id, "cwd": conversation.cwd, "branch": "main"}
        fields |= {"created_at": stamp(conversation.at), "updated_at": stamp(conversation.at)}
        text = "".join(f"{name}: {value}\n" for name, value in fields.items())
        self.path(home, conversation).with_name("workspace.yaml").write_text(text)
        return size

    def begin(self, conversation: Conversation) -> bytes:
        context = {"cwd": conversation.cwd, "gitRoot": conversation.cwd, "branch": "main"}
        data = {"sessionId": conversation.id, "version": 1, "copilotVersion": "1.0.102"}
        data |= {"startTime": stamp(conversation.at), "selectedModel": MODELS["copilot"]}
        start = self._event(conversation, conversation.at, "session.start", **data, context=context)
        return line(start)

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        for step in steps:
            if step.kind == "prompt":
                yield self._event(conversation, step.at, "user.message", content=step.text)
                yield self._event(conversation, step.at, "assistant.turn_start", turnId="0")
                continue
            usage = {"model": MODELS["copilot"], "inputTokens": conversation.tokens()}
            usage |= {"outputTokens": 400, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0}
            yield self._event(conversation, step.at, "session.usage_record", usage=usage)
            calls: list[dict[str, Any]] = []
            if step.kind == "call":
                call = {"toolCallId": step.call_id, "name": "bash", "type": "function"}
                calls = [call | {"arguments": {"command": step.command}}]
            data = {"content": step.text, "toolRequests": calls, "model": MODELS["copilot"]}
            yield self._event(conversation, step.at, "assistant.message", **data)
            if step.kind == "call":
                data = {"toolCallId": step.call_id, "success": True}
                data |= {"result": {"content": step.output}}
                yield self._event(conversation, step.at, "tool.execution_complete", **data)
        yield self._event(conversation, steps[-1].at, "assistant.turn_end", turnId="0")

    def _event(self, conversation: Conversation, at: int, kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": conversation.new_id(), "timestamp": stamp(at)}


class Gemini(FileTool):
    """Gemini CLI: a journal with one line for each message and each change."""

    def path(self, home: Path, conversation: Conversation) -> Path:
        project = home / ".gemini/tmp" / Path(conversation.cwd).name
        root = project / ".project_root"
        if not root.exists():
            project.mkdir(parents=True)
            root.write_text(conversation.cwd)
        at = datetime.fromtimestamp(conversation.at, UTC)
        name = f"session-{at:%Y-%m-%dT%H-%M}-{conversation.id[:8]}.jsonl"
        return project / "chats" / name

    def begin(self, conversation: Conversation) -> bytes:
        digest = hashlib.sha256(conversation.cwd.encode()).hexdigest()
        times = {"startTime": stamp(conversation.at), "lastUpdated": stamp(conversation.at)}
        header = {"sessionId": conversation.id, "projectHash": digest, **times, "kind": "main"}
        return line(header)

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        for step in steps:
            record: dict[str, Any] = {"id": conversation.new_id(), "timestamp": stamp(step.at)}
            if step.kind == "prompt":
                yield record | {"type": "user", "content": [{"text": step.text}]}
            else:
                input = conversation.tokens()
                tokens = {"input": input, "output": 400, "cached": 0, "thoughts": 0, "tool": 0}
                record |= {"type": "gemini", "content": step.text, "model": MODELS["gemini"]}
                record |= {"thoughts": [], "tokens": tokens | {"total": input + 400}}
                if step.kind == "call":
                    record |= {"toolCalls": [self._call(step)]}
                yield record
            yield {"$set": {"lastUpdated": stamp(step.at)}}

    def _call(self, step: Step) -> dict[str, Any]:
        name = "run_shell_command"
        response = {"id": step.call_id, "name": name, "response": {"output": step.output}}
        call = {"id": step.call_id, "name": name, "args": {"command": step.command}}
        result = {"result": [{"functionResponse": response}], "status": "success"}
        return call | result | {"timestamp": stamp(step.at)}


class Qwen(FileTool):
    """Qwen Code: a tree of records, with parts as in the Gemini API."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def path(self, home: Path, conversation: Conversation) -> Path:
        key = re.sub("[^0-9A-Za-z]", "-", conversation.cwd)
        return home / ".qwen/projects" / key / "chats" / f"{conversation.id}.jsonl"

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        for step in steps:
            if step.kind == "prompt":
                message = {"role": "user", "parts": [{"text": step.text}]}
                yield self._record(conversation, step, "user", message=message)
                continue
            parts: list[dict[str, Any]] = [{"text": step.text}]
            call = {"id": step.call_id, "name": "run_shell_command"}
            if step.kind == "call":
                parts.append({"functionCall": call | {"args": {"command": step.command}}})
            input = conversation.tokens()
            usage = {"promptTokenCount": input, "candidatesTokenCount": 400}
            usage |= {"totalTokenCount": input + 400, "cachedContentTokenCount": 0}
            fields = {"model": MODELS["qwen"], "usageMetadata": usage}
            message = {"role": "model", "parts": parts}
            yield self._record(conversation, step, "assistant", message=message, **fields)
            if step.kind == "call":
                response = call | {"response": {"output": step.output}}
                message = {"role": "user", "parts": [{"functionResponse": response}]}
                facts = {"callId": step.call_id, "status": "success"}
                yield self._record(
                    conversation, step, "tool_result", message=message, toolCallResult=facts
                )

    def _record(
        self, conversation: Conversation, step: Step, kind: str, **fields: Any
    ) -> dict[str, Any]:
        id, session = conversation.new_id(), conversation.id
        record = {"uuid": id, "parentUuid": self._parents.get(session), "sessionId": session}
        self._parents[session] = id
        record |= {"timestamp": stamp(step.at), "type": kind, "cwd": conversation.cwd}
        return record | {"version": "0.24.4", "gitBranch": "main"} | fields


class Kimi(FileTool):
    """Kimi Code: a directory for each session, with the wire of each agent and a state."""

    def path(self, home: Path, conversation: Conversation) -> Path:
        digest = hashlib.sha256(conversation.cwd.encode()).hexdigest()[:12]
        project = f"wd_{Path(conversation.cwd).name.lower()}_{digest}"
        session = home / ".kimi-code/sessions" / project / f"session_{conversation.id}"
        return session / "agents/main/wire.jsonl"

    def write(self, home: Path, conversation: Conversation) -> int:
        size = super().write(home, conversation)
        wire = self.path(home, conversation)
        millis = conversation.at * 1000
        agents = {"main": {"homedir": str(wire.parent), "type": "main"}}
        state = {"id": f"session_{conversation.id}", "version": 2, "cwd": conversation.cwd}
        state |= {"archived": False, "createdAt": millis, "updatedAt": millis, "agents": agents}
        (wire.parent.parent.parent / "state.json").write_text(json.dumps(state))
        return size

    def begin(self, conversation: Conversation) -> bytes:
        created = {"protocol_version": "1.5", "created_at": conversation.at * 1000}
        return line({"type": "metadata", **created})

    def turn(self, conversation: Conversation, steps: list[Step]) -> Iterator[dict[str, Any]]:
        for step in steps:
            if step.kind == "prompt":
                content = [{"type": "text", "text": step.text}]
                person = {"kind": "user"}
                yield self._record(step, "turn.prompt", input=content, origin=person, turnId=0)
                message = {"role": "user", "content": content, "toolCalls": [], "origin": person}
                yield self._record(step, "context.append_message", message=message)
                continue
            yield self._step(step, "step.begin", turnId="0", step=1)
            part = {"type": "text", "text": step.text}
            yield self._step(step, "content.part", part=part)
            if step.kind == "call":
                call = {"toolCallId": step.call_id, "name": "Shell"}
                yield self._step(step, "tool.call", **call, args={"command": step.command})
                result = {"output": step.output}
                yield self._step(step, "tool.result", toolCallId=step.call_id, result=result)
            yield self._step(step, "step.end", finishReason="end_turn")
            counts = {"inputOther": conversation.tokens(), "inputCacheRead": 0, "output": 400}
            usage = {**counts, "inputCacheCreation": 0}
            yield self._record(step, "usage.record", model=MODELS["kimi"], usage=usage)
        yield self._record(steps[-1], "turn.ended", turnId=0, reason="completed")

    def _step(self, step: Step, kind: str, /, **fields: Any) -> dict[str, Any]:
        return self._record(step, "context.append_loop_event", event={"type": kind, **fields})

    def _record(self, step: Step, kind: str, /, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "agentId": "main", **fields, "time": step.at * 1000}


class DatabaseTool:
    """A tool that writes rows into one database."""

    schema: str
    file: str

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None
        self._number = 0

    def write(self, home: Path, conversation: Conversation) -> int:
        """Write a session and return the bytes of its rows."""
        size = self.begin(conversation, self._open(home))
        for steps in conversation.turns():
            size += self.turn(conversation, steps, self._open(home))
            if size >= conversation.size:
                return size
        raise AssertionError("turns do not end")

    def close(self) -> None:
        """Commit, and move the log into the database, as the tool does when it ends."""
        if self._connection is not None:
            self._connection.execute("COMMIT")
            self._connection.close()

    def begin(self, conversation: Conversation, connection: sqlite3.Connection) -> int:
        """Write the row of a session and return its bytes."""
        raise NotImplementedError

    def turn(
        self, conversation: Conversation, steps: list[Step], connection: sqlite3.Connection
    ) -> int:
        """Write the rows of a turn and return their bytes."""
        raise NotImplementedError

    def _open(self, home: Path) -> sqlite3.Connection:
        if self._connection is None:
            path = home / self.file
            path.parent.mkdir(parents=True)
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(self.schema)
            self._connection.execute("BEGIN")
        return self._connection

    def next_number(self) -> int:
        """Return a number that rises, for ids."""
        self._number += 1
        return self._number


def insert(connection: sqlite3.Connection, table: str, row: dict[str, Any]) -> int:
    """Write a row and return the bytes of its texts."""
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*row.values()])
    return sum(len(value) for value in row.values() if isinstance(value, str))


class Opencode(DatabaseTool):
    """opencode: messages and their parts as JSON in rows."""

    file = ".local/share/opencode/opencode.db"
    schema = """
        CREATE TABLE project (
            id TEXT PRIMARY KEY, worktree TEXT NOT NULL, vcs TEXT, name TEXT, icon_url TEXT,
            icon_color TEXT, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL,
            time_initialized INTEGER, sandboxes TEXT NOT NULL, commands TEXT
        );
        CREATE TABLE session (
            id TEXT PRIMARY KEY, project_id TEXT NOT NULL, workspace_id TEXT, parent_id TEXT,
            slug TEXT NOT NULL, directory TEXT NOT NULL, path TEXT, title TEXT NOT NULL,
            version TEXT NOT NULL, share_url TEXT, summary_additions INTEGER,
            summary_deletions INTEGER, summary_files INTEGER, summary_diffs TEXT, metadata TEXT,
            cost REAL DEFAULT 0 NOT NULL, tokens_input INTEGER DEFAULT 0 NOT NULL,
            tokens_output INTEGER DEFAULT 0 NOT NULL, tokens_reasoning INTEGER DEFAULT 0 NOT NULL,
            tokens_cache_read INTEGER DEFAULT 0 NOT NULL,
            tokens_cache_write INTEGER DEFAULT 0 NOT NULL, revert TEXT, permission TEXT,
            agent TEXT, model TEXT, time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL,
            time_compacting INTEGER, time_archived INTEGER
        );
        CREATE TABLE message (
            id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER NOT NULL,
            time_updated INTEGER NOT NULL, data TEXT NOT NULL
        );
        CREATE TABLE part (
            id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
            time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL
        );
        CREATE TABLE event_sequence (aggregate_id TEXT PRIMARY KEY, seq INTEGER NOT NULL);
        CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
        CREATE INDEX part_message_id_id_idx ON part (message_id, id);
        CREATE INDEX part_session_idx ON part (session_id);
        CREATE INDEX session_parent_idx ON session (parent_id);
        INSERT INTO project (id, worktree, time_created, time_updated, sandboxes)
            VALUES ('global', '/', 0, 0, '[]');
    """

    def begin(self, conversation: Conversation, connection: sqlite3.Connection) -> int:
        millis = conversation.at * 1000
        id = self._session(conversation)
        row = {"id": id, "project_id": "global", "slug": "a-b", "directory": conversation.cwd}
        row |= {"title": f"Session {conversation.id[:8]}", "version": "1.18.34"}
        times = {"time_created": millis, "time_updated": millis}
        insert(connection, "event_sequence", {"aggregate_id": id, "seq": 1})
        return insert(connection, "session", {**row, **times})

    def turn(
        self, conversation: Conversation, steps: list[Step], connection: sqlite3.Connection
    ) -> int:
        size = 0
        for step in steps:
            millis = step.at * 1000
            time = {"created": millis, "completed": millis}
            data: dict[str, Any] = {"role": "user", "time": {"created": millis}}
            parts: list[dict[str, Any]] = [{"type": "text", "text": step.text}]
            if step.kind != "prompt":
                tokens = {"input": conversation.tokens(), "output": 400, "reasoning": 0}
                tokens |= {"cache": {"read": 0, "write": 0}}  # type: ignore[dict-item]  # nested
                data = {"role": "assistant", "time": time, "modelID": MODELS["opencode"]}
                data |= {"providerID": "anthropic", "cost": 0, "tokens": tokens, "finish": "stop"}
            if step.kind == "call":
                state = {"status": "completed", "input": {"command": step.command}}
                state |= {"output": step.output, "title": "", "metadata": {}}
                state |= {"time": {"start": millis, "end": millis}}
                part = {"type": "tool", "callID": step.call_id, "tool": "bash", "state": state}
                parts.append(part)
            owner = {"session_id": self._session(conversation)}
            times = {"time_created": millis, "time_updated": millis}
            message = f"msg_{self.next_number():012x}abcdefghijklmn"
            row = {"id": message, **owner, **times, "data": json.dumps(data)}
            size += insert(connection, "message", row)
            for part in parts:
                id = f"prt_{self.next_number():012x}abcdefghijklmn"
                row = {"id": id, "message_id": message, **owner, **times, "data": json.dumps(part)}
                size += insert(connection, "part", row)
        return size

    def _session(self, conversation: Conversation) -> str:
        return f"ses_{conversation.id.replace('-', '')[:26]}"


class Goose(DatabaseTool):
    """Goose: messages with their content as JSON in rows, and a ledger of usage."""

    file = ".local/share/goose/sessions/sessions.db"
    schema = """
        CREATE TABLE schema_version (
            version INTEGER PRIMARY KEY, applied_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
        );
        INSERT INTO schema_version (version) VALUES (16);
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '',
            description TEXT NOT NULL DEFAULT '', user_set_name BOOLEAN DEFAULT FALSE,
            session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL,
            created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
            updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, extension_data TEXT DEFAULT '{}',
            total_tokens INTEGER, input_tokens INTEGER, output_tokens INTEGER,
            cache_read_tokens INTEGER, cache_write_tokens INTEGER,
            accumulated_total_tokens INTEGER, accumulated_input_tokens INTEGER,
            accumulated_output_tokens INTEGER, accumulated_cache_read_tokens INTEGER,
            accumulated_cache_write_tokens INTEGER, accumulated_cost REAL, schedule_id TEXT,
            recipe_json TEXT, user_recipe_values_json TEXT, provider_name TEXT,
            model_config_json TEXT, goose_mode TEXT NOT NULL DEFAULT 'auto',
            archived_at TIMESTAMP, project_id TEXT, parent_session_id TEXT
        );
        CREATE INDEX idx_sessions_updated ON sessions(updated_at DESC);
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,
            session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
            content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL,
            timestamp TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tokens INTEGER, metadata_json TEXT
        );
        CREATE INDEX idx_messages_session ON messages(session_id);
        CREATE INDEX idx_messages_message_id ON messages(message_id);
        CREATE TABLE usage_ledger (
            id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
            created_timestamp INTEGER NOT NULL, model TEXT, input_tokens INTEGER,
            output_tokens INTEGER, total_tokens INTEGER, cache_read_tokens INTEGER,
            cache_write_tokens INTEGER, cost REAL, cost_source TEXT,
            is_compaction INTEGER DEFAULT 0
        );
        CREATE INDEX idx_usage_ledger_session ON usage_ledger(session_id);
    """

    def begin(self, conversation: Conversation, connection: sqlite3.Connection) -> int:
        at = stamp(conversation.at)[:19].replace("T", " ")
        config = json.dumps({"model_name": MODELS["goose"]})
        row = {"id": self._session(conversation), "name": f"Session {conversation.id[:8]}"}
        row |= {"working_dir": conversation.cwd, "created_at": at, "updated_at": at}
        row |= {"provider_name": "openai", "model_config_json": config}
        return insert(connection, "sessions", row)

    def turn(
        self, conversation: Conversation, steps: list[Step], connection: sqlite3.Connection
    ) -> int:
        size = 0
        for step in steps:
            content: list[dict[str, Any]] = [{"type": "text", "text": step.text}]
            if step.kind == "prompt":
                size += self._add(connection, conversation, step, "user", content)
                continue
            if step.kind == "call":
                value = {"name": "developer__shell", "arguments": {"command": step.command}}
                call = {"status": "success", "value": value}
                content.append({"type": "toolRequest", "id": step.call_id, "toolCall": call})
            size += self._add(connection, conversation, step, "assistant", content)
            if step.kind == "call":
                output = {"content": [{"type": "text", "text": step.output}], "isError": False}
                result = {"status": "success", "value": output}
                content = [{"type": "toolResponse", "id": step.call_id, "toolResult": result}]
                size += self._add(connection, conversation, step, "user", content)
            input = conversation.tokens()
            used = {"session_id": self._session(conversation), "created_timestamp": step.at}
            used |= {"model": MODELS["goose"], "input_tokens": input, "output_tokens": 400}
            used |= {"total_tokens": input + 400, "cache_read_tokens": 0}
            size += insert(connection, "usage_ledger", used)
        return size

    def _add(
        self,
        connection: sqlite3.Connection,
        conversation: Conversation,
        step: Step,
        role: str,
        content: list[dict[str, Any]],
    ) -> int:
        row = {"message_id": f"msg_{conversation.new_id()}", "role": role}
        row |= {"session_id": self._session(conversation), "content_json": json.dumps(content)}
        visible = json.dumps({"userVisible": True, "agentVisible": True})
        times = {"created_timestamp": step.at, "metadata_json": visible}
        return insert(connection, "messages", {**row, **times})

    def _session(self, conversation: Conversation) -> str:
        day = stamp(conversation.at)[:10].replace("-", "")
        return f"{day}_{int(conversation.id[:8], 16)}"


_WRITERS: dict[str, type[FileTool | DatabaseTool]] = {
    "claude": Claude,
    "codex": Codex,
    "copilot": Copilot,
    "opencode": Opencode,
    "gemini": Gemini,
    "goose": Goose,
    "qwen": Qwen,
    "kimi": Kimi,
}


def write_home(home: Path, sessions: int, seed: int = 7) -> int:
    """Write so many sessions, each tool in turn; return the bytes of their records."""
    rng = random.Random(seed)
    texts = Texts(rng)
    writers = [_WRITERS[name]() for name in TOOLS]
    total = 0
    for number in range(sessions):
        project = min(int(rng.expovariate(0.15)), PROJECTS - 1)
        conversation = Conversation(
            rng,
            texts,
            cwd=f"/home/ada/src/project-{project}",
            at=NOW // clock.SECOND - (sessions - number) * 100,
            size=int(min(max(rng.lognormvariate(9.35, 1.0), MIN_BYTES), MAX_BYTES)),
        )
        total += writers[number % len(writers)].write(home, conversation)
    for writer in writers:
        writer.close()
    return total
