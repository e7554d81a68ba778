"""Codex itself, and the answers of its app server."""

import base64
import json
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from segue.sources.codex import app_server
from segue.sources.codex.reader import CodexReader
from segue.sources.kit.edit import programs as tool_programs

from .programs import Home, on_path, unpacked_package
from .scripted_model import ScriptedModel, script

# The newest release, and those in which a part of the format changed.
VERSIONS = ("0.169.0", "0.166.0", "0.160.1", "0.144.6", "0.128.0", "0.116.0", "0.101.0")
_CONFIG = """
model = "gpt-5.4"
model_provider = "stub"
check_for_update_on_startup = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STUB_KEY"
[analytics]
enabled = false
"""
_FLAGS = ("--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
_KINDS = ["cli", "exec", "vscode", "appServer"]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Thread(NamedTuple):
    """A thread as Codex shows it."""

    id: str
    name: str | None
    preview: str
    cwd: str
    archived: bool


class Codex:
    """A version of Codex with a home."""

    def __init__(self, version: str, home: Home, model: ScriptedModel) -> None:
        package = unpacked_package(f"@openai/codex@{version}-linux-x64")
        (program,) = [*package.glob("vendor/*/bin/codex"), *package.glob("vendor/*/codex/codex")]
        self.version = version
        self.home = home
        self.model = model
        self.program = str(program)
        self.directory = home.path / ".codex"
        self.directory.mkdir()
        (self.directory / "config.toml").write_text(_CONFIG.format(url=model.url))
        home.environment |= {
            "CODEX_HOME": str(self.directory),
            "STUB_KEY": "x",
            "PATH": on_path(program),
        }

    @property
    def has_database(self) -> bool:
        """Whether this version keeps a database of threads."""
        return any(self.directory.glob("state_*.sqlite"))

    def reader(self) -> CodexReader:
        """Return segue's reader of the home."""
        return CodexReader(str(self.directory))

    def prompt(self, text: str, *steps: dict[str, Any], model: str | None = None) -> str:
        """Run one prompt in a new thread, and return the thread's id."""
        options = () if model is None else ("-m", model)
        return self._exec(*options, script(text, *steps))

    def prompt_with_image(self, text: str, *steps: dict[str, Any]) -> str:
        """Run a prompt with an image in a new thread, and return the thread's id."""
        image = self.home.project / "pixel.png"
        image.write_bytes(PNG)
        return self._exec("-i", str(image), "--", script(text, *steps))

    def resume(self, thread: str, text: str, *steps: dict[str, Any]) -> None:
        """Run one prompt in a thread."""
        flags = _FLAGS[:2]  # older versions have no more for this command
        self.home.run(self.program, "exec", "resume", thread, *flags, script(text, *steps))

    def _exec(self, *arguments: str) -> str:
        output = self.home.run(self.program, "exec", *_FLAGS, *arguments)
        return str(json.loads(output.splitlines()[0])["thread_id"])

    def interrupt(self, text: str) -> str:
        """Interrupt a prompt whose answer does not end, and return the thread's id."""
        prompt = script(text, {"say": "This answer does not end", "hang": True})
        with self.running(prompt) as (thread, process):
            process.send_signal(signal.SIGINT)
            process.wait(30)
        return thread

    @contextmanager
    def running(self, prompt: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Run a prompt in a new thread for a `with` block, which begins with the model's turn."""
        before = len(self.model.requests)
        with self.home.running(self.program, "exec", *_FLAGS, prompt) as process:
            assert process.stdout is not None
            thread = str(json.loads(process.stdout.readline())["thread_id"])
            wait_until(lambda: len(self.model.requests) > before)
            time.sleep(0.5)  # until Codex has received the beginning of the answer
            yield thread, process

    def first_line(self, thread: str) -> str:
        """Return the first line of a thread's rollout."""
        return self._rollout(thread).read_text().split("\n", 1)[0]

    def names_in_file(self) -> dict[str, str]:
        """Return the names that are in Codex's file of names."""
        lines = (self.directory / "session_index.jsonl").read_text().split("\n")
        rows = (json.loads(line) for line in lines if line)
        return {row["id"]: row["thread_name"] for row in rows}

    @contextmanager
    def app_server(self) -> Iterator[tool_programs.LineServer]:
        """Run Codex's app server for a `with` block."""
        with self.home.as_environment(), app_server.running(str(self.directory)) as server:
            yield server

    def call(self, method: str, **params: Any) -> Any:
        """Return the answer of an app server that is started for it."""
        with self.app_server() as server:
            return server.call(method, **params)

    def compact(self, thread: str) -> None:
        """Let Codex compact a thread."""
        with self.app_server() as server:
            server.call("thread/resume", threadId=thread)
            server.call("thread/compact/start", threadId=thread)
            wait_until(lambda: '"compacted"' in self._rollout(thread).read_text())
            wait_until(lambda: "task_complete" in self._rollout(thread).read_text()[-2000:])

    def undo_last_turn(self, thread: str) -> None:
        """Let Codex remove the last turn of a thread, in the way of this version."""
        with self.app_server() as server:
            answer = server.call("thread/resume", threadId=thread)
            try:
                turn = answer["thread"]["turns"][-1]["id"]
                server.call("thread/revert", threadId=thread, beforeTurnId=turn)
            except tool_programs.Refused:
                server.call("thread/rollback", threadId=thread, numTurns=1)

    def tokens_used(self, thread: str) -> int:
        """Return how many tokens Codex says that a thread has used."""
        paths = list(self.directory.glob("state_*.sqlite"))
        if not paths:
            pytest.skip(f"Codex {self.version} does not say how many tokens a thread has used")
        with closing(sqlite3.connect(f"file:{paths[0]}?mode=ro", uri=True)) as connection:
            sql = "SELECT tokens_used FROM threads WHERE id = ?"
            return int(connection.execute(sql, (thread,)).fetchone()[0])

    def _rollout(self, thread: str) -> Path:
        """Return the path of a thread's first file."""
        (path,) = (self.directory / "sessions").rglob(f"rollout-*{thread}.jsonl")
        return path

    def threads(self) -> dict[str, Thread]:
        """Return the threads that Codex lists, the archived ones included."""
        threads = {}
        with self.app_server() as server:
            for archived in (False, True):
                answer = server.call(
                    "thread/list",
                    limit=100,
                    modelProviders=[],
                    sourceKinds=_KINDS,
                    archived=archived,
                )
                for row in answer["data"]:
                    threads[row["id"]] = Thread(
                        row["id"], row.get("name"), row["preview"], row["cwd"], archived
                    )
        return threads

    def items(self, thread: str) -> Counter[str]:
        """Return how many items of each type Codex shows in a thread."""
        return Counter(item["type"] for item in self.read(thread))

    def read(self, thread: str) -> list[dict[str, Any]]:
        """Return the items that Codex shows in a thread."""
        with self.app_server() as server:
            try:
                answer = server.call("thread/read", threadId=thread, includeTurns=True)
            except tool_programs.Refused as error:
                pytest.skip(f"Codex {self.version} does not show its threads: {error}")
        turns = answer["thread"]["turns"]
        return [item for turn in turns for item in turn["items"]]


def wait_until(condition: Any, seconds: float = 30) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
