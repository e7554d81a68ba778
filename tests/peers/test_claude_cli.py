"""The real Claude Code, offline with a stub model, continues sessions that segue writes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil
import pytest

from segue import LOCAL, Hub, claude, open_hub
from segue.model.content import Image, Text, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Interrupted,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.query import Query

pytestmark = pytest.mark.full
T = TypeVar("T")
HERE = Path(__file__).parent
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
PNG += "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
GUIDE = HERE.parent.parent / "docs" / "claude.md"


class Model(BaseHTTPRequestHandler):
    """Answers every request with how many messages it had."""

    asked: list[list[dict[str, Any]]]
    calls: ClassVar[dict[str, Any]] = {}  # the tool, if any, that it calls before it answers
    silent: ClassVar[threading.Event | None] = None  # with one it answers when that is set

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body.get("messages", [])
        self.asked.append(messages)
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{len(self.asked)}", "type": "message", "role": "assistant"}
        message |= {"model": body.get("model"), "content": [], "usage": usage}
        text: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": f"answer {len(self.asked)}"}
        stop = "end_turn"
        request = json.dumps(messages)
        # The prompt of a subagent names the inner job; a subagent starts no other one.
        if self.calls and "tool_result" not in request and "inner job" not in request:
            ((name, arguments),) = self.calls.items()
            text = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            stop = "tool_use"
        if self.silent is not None:
            self.silent.wait()
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": text},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
            {"type": "message_stop"},
        ]
        data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())


class Claude:
    """Runs the program in a home of its own."""

    def __init__(self, program: Path, root: Path, port: int, model: type[Model]) -> None:
        self._program, self._root, self._port, self.model = program, root, port, model
        self.project = self.directory("project")

    def is_program(self, process: psutil.Process) -> bool:
        try:
            return str(self._program) in process.cmdline()
        except psutil.Error:
            return False  # it has just ended

    def directory(self, name: str) -> Path:
        directory = self._root / name
        directory.mkdir()
        return directory

    def say(self, prompt: str, cwd: Path | None = None, resume: str | None = None) -> str:
        """Send one prompt. Return the id of the session."""
        command = [str(self._program), "-p", prompt, "--output-format", "json"]
        command += ["--resume", resume] if resume else []
        result = json.loads(self._run(command, cwd or self.project).rpartition("\n")[2])
        assert result["is_error"] is False, result
        id: str = result["session_id"]
        return id

    def say_through_sdk(self, prompt: str, resume: str | None = None, home: str = "home") -> str:
        """The same by the SDK, with our store as its mirror."""
        program = [str(HERE / "claude_agent.py"), prompt, *([resume] if resume else [])]
        return self.python(program, home)

    def python(self, arguments: list[str], home: str = "home") -> str:
        """Run a program that imports the SDK; gives what it prints."""
        sdk = self._program.parent.parent.parent
        command = [sys.executable, *arguments]
        path = os.pathsep.join([str(sdk), *sys.path])
        environ = {"PYTHONPATH": path, "SEGUE_DATA_DIR": str(self._root / "data")}
        return self._run(command, self.project, home, **environ)

    def within(self, work: Callable[[Hub], Awaitable[T]]) -> T:
        """Run a function with a hub over the store that mirrors."""

        async def run() -> T:
            async with await open_hub(self._root / "data") as hub:
                return await work(hub)

        return asyncio.run(run())

    def environ(self, home: str = "home") -> dict[str, str]:
        return {
            "HOME": str(self._root),
            "CLAUDE_CONFIG_DIR": str(self._root / home),
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._port}",
            "ANTHROPIC_API_KEY": "sk-ant-fake-0000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }

    def _run(self, command: list[str], cwd: Path, home: str = "home", **environment: str) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self.environ(home) | environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()


@pytest.fixture
def cli(claude_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Claude]:
    model = type("Model", (Model,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
    try:
        yield Claude(claude_program, tmp_path, server.server_address[1], model)
    finally:
        if model.silent is not None:
            model.silent.set()
        server.shutdown()
        thread.join()
        server.server_close()


def user_texts(id: str) -> list[str]:
    """Return the texts of the user messages of a session."""
    messages = claude.get_session_messages(id)
    return [message.message["content"] for message in messages if message.type == "user"]


def remembered(cli: Claude, words: str) -> bool:
    """Whether the model got some words with the last prompt."""
    return words in json.dumps(cli.model.asked[-1])


def test_segue_reads_what_claude_code_writes(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("second words", resume=id)
    (info,) = claude.list_sessions(str(cli.project))
    assert (info.session_id, info.first_prompt) == (id, "first words")
    assert (info.cwd, info.summary) == (str(cli.project), "second words")
    assert user_texts(id) == ["first words", "second words"]
    assert claude.doctor(id).healthy


def test_claude_code_resumes_a_fork(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("second words", resume=id)
    fork = claude.fork_session(id, title="Forked").session_id
    assert cli.say("third words", resume=fork) == fork
    assert remembered(cli, "second words")
    assert user_texts(fork) == ["first words", "second words", "third words"]
    assert user_texts(id) == ["first words", "second words"]
    info = claude.get_session_info(fork)
    assert info is not None
    assert info.custom_title == "Forked"


def test_claude_code_resumes_a_fork_up_to_a_message(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("second words", resume=id)
    first = claude.get_session_messages(id)[1].uuid
    fork = claude.fork_session(id, up_to_message_id=first).session_id
    cli.say("other words", resume=fork)
    assert remembered(cli, "first words") and not remembered(cli, "second words")
    assert user_texts(fork) == ["first words", "other words"]


def test_claude_code_resumes_the_fork_of_a_compacted_session(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("/compact", resume=id)
    fork = claude.fork_session(id).session_id
    cli.say("later words", resume=fork)
    assert remembered(cli, "This session is being continued")
    tree = claude.get_session_tree(fork)
    assert tree is not None
    prompts = [entry.message["content"] for entry in tree.path() if entry.type == "user"]
    assert prompts[0] == "first words"
    assert "later words" in user_texts(fork)


def test_claude_code_resumes_a_relocated_session(cli: Claude) -> None:
    id = cli.say("first words")
    moved = cli.directory("moved")
    claude.relocate_session(id, str(moved))
    assert cli.say("second words", moved, resume=id) == id
    assert remembered(cli, "first words")
    assert [info.cwd for info in claude.list_sessions(str(moved))] == [str(moved)]
    assert claude.list_sessions(str(cli.project)) == []


def test_claude_code_resumes_a_repaired_and_restored_session(cli: Claude) -> None:
    id = cli.say("first words")
    (path,) = (Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects").glob(f"*/{id}.jsonl")
    with path.open("ab") as file:
        file.write(b"\0" * 300 + b'{"type":"user","mess')
    assert claude.doctor(id, repair=True).backup
    claude.trash_session(id)
    claude.restore_session(id)
    cli.say("second words", resume=id)
    assert remembered(cli, "first words")
    assert user_texts(id) == ["first words", "second words"]


def test_titles_and_tags_stay_when_claude_code_resumes(cli: Claude) -> None:
    id = cli.say("first words")
    claude.rename_session(id, "The title")
    claude.tag_session(id, "the-tag")
    cli.say("second words", resume=id)
    info = claude.get_session_info(id)
    assert info is not None
    assert (info.custom_title, info.tag) == ("The title", "the-tag")


# Through the store.


def words(*texts: str) -> tuple[Text, ...]:
    return tuple(Text(text=text) for text in texts)


def blocks(cli: Claude) -> list[tuple[str, dict[str, Any]]]:
    """Return the blocks that the model got with the last prompt, each with its role."""
    blocks_by_role = []
    for message in cli.model.asked[-1]:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks_by_role += [(message["role"], block) for block in content]
    return blocks_by_role


def test_sdk_mirrors_into_the_segue_store_and_resumes_in_an_empty_home(cli: Claude) -> None:
    id = cli.say_through_sdk("first words")
    assert cli.say_through_sdk("second words", id, home="another") == id
    assert remembered(cli, "first words")
    assert not list((Path(os.environ["CLAUDE_CONFIG_DIR"]).parent / "another").rglob("*.jsonl"))

    async def check(hub: Hub) -> None:
        (session,) = (await hub.sessions.list(LOCAL)).sessions
        assert (session.id, session.cwd) == (id, str(cli.project))
        assert (session.title, session.messages) == ("first words", 4)
        store = claude.SegueSessionStore(store=hub.store)
        read = await claude.get_session_messages_from_store(store, id, str(cli.project))
        prompts = [message.message["content"] for message in read if message.type == "user"]
        assert prompts == ["first words", "second words"]

    cli.within(check)


def test_subagents_are_mirrored_with_their_session(cli: Claude) -> None:
    job = {"description": "job", "prompt": "the inner job", "subagent_type": "general-purpose"}
    cli.model.calls = {"Agent": job}
    id = cli.say_through_sdk("start an agent")
    (path,) = Path(os.environ["CLAUDE_CONFIG_DIR"]).rglob(f"{id}.jsonl")
    (agent,) = claude.list_subagents(id)

    async def check(hub: Hub) -> None:
        store = claude.SegueSessionStore(store=hub.store)
        key = {"project_key": path.parent.name, "session_id": id}
        assert await store.list_subkeys(key) == [f"subagents/agent-{agent}"]
        project = str(cli.project)
        read = await claude.get_subagent_messages_from_store(store, id, agent, project)
        assert read == claude.get_subagent_messages(id, agent)
        assert "inner job" in json.dumps(read[0].message)
        # The conversation is the session's own.
        assert (await hub.sessions.get(LOCAL, id)).messages == len(
            [message for message in claude.get_session_messages(id) if not is_tool(message.message)]
        )

    cli.within(check)
    assert cli.say_through_sdk("continue", id, home="another") == id
    assert remembered(cli, "start an agent")


def is_tool(message: dict[str, Any]) -> bool:
    """Whether a message only calls a tool or answers a call."""
    content = message["content"]
    return isinstance(content, list) and all(
        block["type"] in ("tool_use", "tool_result") for block in content
    )


def test_sdk_program_in_the_guide_runs_unchanged(cli: Claude) -> None:
    (program,) = re.findall(r"```py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    id = cli.python(["-c", program])
    assert cli.within(lambda hub: hub.sessions.get(LOCAL, id)).title == "Hello"


def test_mirrored_entries_equal_the_written_ones(cli: Claude) -> None:
    id = cli.say_through_sdk("first words")
    (path,) = Path(os.environ["CLAUDE_CONFIG_DIR"]).rglob(f"{id}.jsonl")
    written = [json.loads(line) for line in path.read_bytes().splitlines()]

    async def mirrored(hub: Hub) -> Any:
        key = {"project_key": path.parent.name, "session_id": id}
        return await claude.SegueSessionStore(store=hub.store).load(key)

    mirrored_entries = cli.within(mirrored)
    conversation = [entry for entry in written if entry["type"] in ("user", "assistant", "system")]
    assert [
        entry for entry in mirrored_entries if entry["type"] in ("user", "assistant", "system")
    ] == conversation
    # Whatever the mirror did not get, an import does.
    cli.within(lambda hub: hub.sync.import_session(LOCAL, id, "claude"))
    assert cli.within(lambda hub: hub.sync.import_session(LOCAL, id, "claude"))[1] == 0


def test_claude_code_resumes_a_session_that_segue_created(cli: Claude) -> None:
    picture = Image(mime="image/png", data=PNG)

    async def make(hub: Hub) -> str:
        session = await hub.editor.create(LOCAL, cwd=str(cli.project), title="Mine")
        await hub.editor.append(
            LOCAL,
            session.id,
            UserMessage(content=words("forgotten words")),
            AgentMessage(content=words("forgotten answer")),
            Compacted(summary=words("the summary"), trigger="manual", tokens_before=100),
            UserMessage(content=(*words("see this"), picture)),
            AgentThought(content=words("a thought")),
            AgentThought(content=words("signed"), extra={"claude": {"signature": "c2ln"}}),
            AgentMessage(content=words("Reading.")),
            ToolCall(call_id="call:1", name="Read", input={"file_path": "/x"}),
            ToolCall(call_id="call:2", name="lookup", server="box", input={}),
            ToolResult(call_id="call:2", content=words("second result")),
            ToolResult(call_id="call:1", content=(*words("first result"), picture)),
            AgentMessage(content=words("The answer.")),
            ToolCall(call_id="call:3", name="Bash", input={"command": "sleep 9"}),
            Interrupted(),
        )
        await hub.sync.write(LOCAL, session.id, "claude")
        return session.id

    id = cli.within(make)
    assert cli.say("continue", resume=id) == id
    sent_blocks = blocks(cli)
    kinds = [(role, block["type"]) for role, block in sent_blocks if role != "system"]
    assert kinds[:8] == [
        ("user", "text"),
        ("user", "text"),
        ("user", "image"),
        ("assistant", "text"),
        ("assistant", "thinking"),
        ("assistant", "text"),
        ("assistant", "tool_use"),
        ("assistant", "tool_use"),
    ]
    results = {
        block["tool_use_id"]: block for _, block in sent_blocks if block["type"] == "tool_result"
    }
    assert list(results) == ["call_1", "call_2", "call_3"]
    assert results["call_3"]["is_error"] is True
    assert remembered(cli, "the summary") and remembered(cli, "The answer.")
    assert not remembered(cli, "forgotten")
    # What it has added comes back, and nothing else.
    session, added = cli.within(lambda hub: hub.sync.import_session(LOCAL, id, "claude"))
    assert (session.id, session.title, session.source) == (id, "Mine", "segue")
    assert added > 1

    async def texts(hub: Hub) -> list[str]:
        events = [event async for event in hub.history.read(LOCAL, id)]
        messages = [event.body for event in events if isinstance(event.body, UserMessage)]
        return [
            block.text for body in messages for block in body.content if isinstance(block, Text)
        ]

    said_there = [text for text in cli.within(texts) if not text.startswith("<")]
    assert said_there == ["forgotten words", "see this", "continue"]


def test_sdk_resumes_a_session_that_segue_created_without_a_file(cli: Claude) -> None:
    async def make(hub: Hub) -> str:
        session = await hub.editor.create(LOCAL, cwd=str(cli.project))
        await hub.turns.run(LOCAL, session.id, "said to segue")
        return session.id

    id = cli.within(make)
    assert cli.say_through_sdk("said to claude", id) == id
    assert remembered(cli, "said to segue")
    assert cli.within(lambda hub: hub.sessions.get(LOCAL, id)).messages == 4


def test_claude_code_resumes_a_session_that_was_imported_and_exported(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("/compact", resume=id)
    cli.say("second words", resume=id)
    (path,) = Path(os.environ["CLAUDE_CONFIG_DIR"]).rglob(f"{id}.jsonl")
    before = path.read_bytes()
    cli.within(lambda hub: hub.sync.import_session(LOCAL, id, "claude"))
    claude.delete_session(id)
    assert cli.within(lambda hub: hub.sync.write(LOCAL, id, "claude")).path == str(path)
    assert path.read_bytes() == before
    assert cli.say("third words", resume=id) == id
    assert remembered(cli, "This session is being continued") and remembered(cli, "second words")


def test_claude_code_resumes_a_fork_of_the_store(cli: Claude) -> None:
    id = cli.say("first words")
    cli.within(lambda hub: hub.sync.import_session(LOCAL, id, "claude"))

    async def fork(hub: Hub) -> str:
        fork = await hub.editor.fork(LOCAL, id, title="Forked")
        await hub.sync.write(LOCAL, fork.id, "claude")
        return fork.id

    forked = cli.within(fork)
    assert cli.say("other words", resume=forked) == forked
    assert remembered(cli, "first words")
    assert user_texts(forked) == ["first words", "other words"]
    assert user_texts(id) == ["first words"]
    info = claude.get_session_info(forked)
    assert info is not None
    assert info.custom_title == "Forked"


def test_session_is_running_while_claude_code_answers_and_its_subagent_is_found(
    cli: Claude,
) -> None:
    id = cli.say("first words")
    cli.model.silent = silent = threading.Event()
    job = {"description": "a job", "prompt": "inner job", "subagent_type": "general-purpose"}
    cli.model.calls = {"Agent": job}

    async def observe(hub: Hub) -> Any:
        seen, spoken = [(await hub.sessions.get(LOCAL, id)).status], list[str]()
        answering = asyncio.ensure_future(asyncio.to_thread(cli.say, "second words", resume=id))
        while not answering.done():
            seen.append((await hub.sessions.get(LOCAL, id)).status)
            if seen[-1] == "running":
                silent.set()
            await asyncio.sleep(0.05)
        assert await answering == id
        seen.append((await hub.sessions.get(LOCAL, id)).status)
        for thread in await hub.history.threads(LOCAL, id):
            assert (thread.kind, thread.title) == ("general-purpose", "a job")
            async for event in hub.history.thread_events(LOCAL, id, thread.id):
                if isinstance(event.body, UserMessage):
                    spoken.append(plain_text(event.body.content))
        matches = (await hub.sessions.search(LOCAL, Query(text='"inner job"'))).matches
        return (
            seen,
            spoken,
            [match.session.id for match in matches],
            await hub.sessions.get(LOCAL, id),
        )

    seen, spoken, matching_ids, session = cli.within(observe)
    assert [status for status, _ in groupby(seen)] == ["idle", "running", "idle"]
    assert spoken[:1] == ["inner job"] and matching_ids == [id]
    # What it used is what the program itself counted, with its agent's.
    (path,) = Path(os.environ["CLAUDE_CONFIG_DIR"]).rglob(f"{id}.jsonl")
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    (*_, spent) = [entry for entry in entries if entry["type"] == "cost-state"]
    assert session.usage.cost == round(spent["totalCostUSD"] * 1e6) > 0
    used = spent["modelUsage"].values()
    assert session.usage.input_tokens == sum(usage["inputTokens"] for usage in used)
