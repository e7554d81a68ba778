"""The real Claude Code, offline against a stub of the model: it goes on with what we write."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from segue import claude

pytestmark = pytest.mark.full


class Model(BaseHTTPRequestHandler):
    """Answers every request with how many messages it had."""

    asked: list[list[dict[str, Any]]]

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body.get("messages", [])
        self.asked.append(messages)
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{len(self.asked)}", "type": "message", "role": "assistant"}
        message |= {"model": body.get("model"), "content": [], "usage": usage}
        text = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": f"answer {len(self.asked)}"}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": text},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
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

    def directory(self, name: str) -> Path:
        made = self._root / name
        made.mkdir()
        return made

    def say(self, prompt: str, cwd: Path | None = None, resume: str | None = None) -> str:
        """Send one prompt, and give the session's id."""
        environ = {
            "HOME": str(self._root),
            "CLAUDE_CONFIG_DIR": str(self._root / "home"),
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self._port}",
            "ANTHROPIC_API_KEY": "sk-ant-fake-0000",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }
        command = [str(self._program), "-p", prompt, "--output-format", "json"]
        command += ["--resume", resume] if resume else []
        done = subprocess.run(
            command,
            cwd=cwd or self.project,
            env=environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads(done.stdout.strip().rpartition("\n")[2])
        assert told["is_error"] is False, told
        id: str = told["session_id"]
        return id


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
        server.shutdown()
        thread.join()
        server.server_close()


def said(id: str) -> list[str]:
    """What the users of a session said."""
    messages = claude.get_session_messages(id)
    return [message.message["content"] for message in messages if message.type == "user"]


def remembered(cli: Claude, words: str) -> bool:
    """Whether the model got some words with the last prompt."""
    return words in json.dumps(cli.model.asked[-1])


def test_what_it_writes_we_read(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("second words", resume=id)
    (info,) = claude.list_sessions(str(cli.project))
    assert (info.session_id, info.first_prompt) == (id, "first words")
    assert (info.cwd, info.summary) == (str(cli.project), "second words")
    assert said(id) == ["first words", "second words"]
    assert claude.doctor(id).healthy


def test_it_goes_on_with_a_fork(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("second words", resume=id)
    fork = claude.fork_session(id, title="Forked").session_id
    assert cli.say("third words", resume=fork) == fork
    assert remembered(cli, "second words")
    assert said(fork) == ["first words", "second words", "third words"]
    assert said(id) == ["first words", "second words"]
    info = claude.get_session_info(fork)
    assert info is not None
    assert info.custom_title == "Forked"


def test_it_goes_on_with_a_fork_of_the_beginning(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("second words", resume=id)
    first = claude.get_session_messages(id)[1].uuid
    fork = claude.fork_session(id, up_to_message_id=first).session_id
    cli.say("other words", resume=fork)
    assert remembered(cli, "first words") and not remembered(cli, "second words")
    assert said(fork) == ["first words", "other words"]


def test_it_goes_on_with_the_fork_of_a_compacted_session(cli: Claude) -> None:
    id = cli.say("first words")
    cli.say("/compact", resume=id)
    fork = claude.fork_session(id).session_id
    cli.say("later words", resume=fork)
    assert remembered(cli, "This session is being continued")
    tree = claude.get_session_tree(fork)
    assert tree is not None
    whole = [entry.message["content"] for entry in tree.path() if entry.type == "user"]
    assert whole[0] == "first words"
    assert "later words" in said(fork)


def test_it_goes_on_with_a_session_that_moved(cli: Claude) -> None:
    id = cli.say("first words")
    moved = cli.directory("moved")
    claude.relocate_session(id, str(moved))
    assert cli.say("second words", moved, resume=id) == id
    assert remembered(cli, "first words")
    assert [info.cwd for info in claude.list_sessions(str(moved))] == [str(moved)]
    assert claude.list_sessions(str(cli.project)) == []


def test_it_goes_on_with_a_session_that_was_repaired_and_restored(cli: Claude) -> None:
    id = cli.say("first words")
    (path,) = (Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects").glob(f"*/{id}.jsonl")
    with path.open("ab") as file:
        file.write(b"\0" * 300 + b'{"type":"user","mess')
    assert claude.doctor(id, repair=True).backup
    claude.trash_session(id)
    claude.restore_session(id)
    cli.say("second words", resume=id)
    assert remembered(cli, "first words")
    assert said(id) == ["first words", "second words"]


def test_titles_and_tags_stay_when_it_goes_on(cli: Claude) -> None:
    id = cli.say("first words")
    claude.rename_session(id, "The title")
    claude.tag_session(id, "the-tag")
    cli.say("second words", resume=id)
    info = claude.get_session_info(id)
    assert info is not None
    assert (info.custom_title, info.tag) == ("The title", "the-tag")
