"""Gemini's files are read whatever their state: growing, copied, replaced or damaged."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from segue.model.content import plain_text
from segue.model.event import (
    AgentMessage,
    ToolCall,
    UserMessage,
)
from segue.sources.gemini.definition import DEFINITION
from segue.sources.gemini.reader import GeminiReader
from segue.sources.kit.reader import Item, Resume, Rewritten, collect
from tests.sources.gemini.chat_files import (
    CWD,
    NOON,
    GeminiSessions,
    all_messages,
    context,
    header,
    line,
    message,
    minute,
    prompt,
    reply,
    stamp,
    tokens,
    tool_call,
    turn,
    updated,
    write,
)
from tests.sources.golden import unpack_homes
from tests.sources.opened_source import OpenedSource, run

ARCHIVE = Path(__file__).parent / "homes.tar.xz"


# Files.


def whole_session(id: str, *messages: Any, **fields: Any) -> bytes:
    """Return a session as older versions write it."""
    facts = json.loads(header(id, CWD, NOON, **fields))
    return json.dumps({**facts, "messages": messages}, indent=2).encode()


def test_old_session_grows_in_place(tool: GeminiSessions, source: OpenedSource) -> None:
    id = str(uuid4())
    question, thinking = prompt(NOON, "question"), reply(NOON, "", tokens=None)
    call = tool_call(NOON, "c1", "read_file", {"file_path": "/a"}, "text")
    path = tool.write(id, CWD, NOON, whole_session(id, question), "json")
    assert source.conversation(id) == ["question"]
    path.write_bytes(whole_session(id, question, {**thinking, "toolCalls": [call]}))
    before = {event.id: event.seq for event in source.events(id)}
    call2 = tool_call(NOON, "c2", "read_file", {"file_path": "/b"}, "text")
    counted = {**thinking, "toolCalls": [call, call2], "tokens": tokens(9, 1)}
    path.write_bytes(whole_session(id, question, counted, reply(NOON, "answer")))
    after = {event.id: event.seq for event in source.events(id)}
    assert before.items() <= after.items()
    assert source.conversation(id) == ["question", "answer"]
    assert len(source.bodies(id, ToolCall)) == 2


def test_converted_session_is_listed_once_with_all_messages(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = str(uuid4())
    first = [prompt(NOON, "first", "u1"), reply(NOON, "one", "r1")]
    old = tool.write(id, CWD, NOON, whole_session(id, *first), "json")
    os.utime(old, ns=(0, NOON.timestamp().__int__() * 10**9))
    copies = line(first[0]) + line(first[1])
    tool.write(id, CWD, NOON, header(id, CWD, NOON) + copies + turn(minute(1), "second", "two"))
    (row,) = source.rows()
    assert (row.id, row.turns) == (id, 2)
    assert source.conversation(id) == ["first", "one", "second", "two"]


def test_file_of_a_resume_without_messages_is_ignored(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, turn(NOON, "first", "one"))
    write(tool, all_messages(minute(5), context(minute(5))), id=id, at=minute(5))
    assert [row.id for row in source.rows()] == [id]
    assert source.conversation(id) == ["first", "one"]


def test_project_that_was_copied_to_a_new_directory_is_listed_once(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, turn(NOON, "first", "one"))
    digest = json.loads(header(id, CWD, NOON))["projectHash"]
    shutil.copytree(tool.directory / "tmp/project", tool.directory / "tmp" / digest)
    assert [row.id for row in source.rows()] == [id]
    assert source.row(id).usage.input_tokens == 100


def test_sessions_with_the_same_first_characters_are_two(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    first, second = (f"12345678-1234-4123-8123-12345678000{number}" for number in (1, 2))
    write(tool, turn(NOON, "first", "one"), id=first)
    write(tool, turn(NOON, "second", "two"), id=second, at=minute(1))
    assert {row.id for row in source.rows()} == {first, second}


def test_directory_comes_from_the_registry_or_the_hash(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, turn(NOON, "question", "answer"))
    (tool.directory / "tmp/project/.project_root").unlink()
    (tool.directory / "projects.json").write_text(json.dumps({"projects": {CWD: "project"}}))
    assert source.row(id).cwd == CWD
    args = {"file_path": "/srv/shop api/src/cart.py"}
    other = str(uuid4())
    start = header(other, "/srv/shop api", NOON)
    call = line(reply(NOON, "", toolCalls=[tool_call(NOON, "c1", "read_file", args, "x")]))
    path = tool.write(other, "/srv/old", NOON, start + turn(NOON, "q", "a") + call)
    (path.parent.parent / ".project_root").unlink()
    assert source.row(other).cwd == "/srv/shop api"


def test_subagent_is_a_thread_and_its_growth_is_noticed(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    child = str(uuid4())
    call = tool_call(NOON, "c1", "invoke_agent", {"agent_name": "helper"}, "ok", agentId=child)
    id = write(tool, line(prompt(NOON, "go")), line(reply(NOON, "", toolCalls=[call])))
    path = tool.path(id).parent / id / f"{child}.jsonl"
    path.parent.mkdir()
    start = header(child, CWD, NOON, kind="subagent", directories=[CWD])
    path.write_bytes(start + turn(NOON, "count the files", "three files"))
    (thread,) = source.threads(id)
    assert (thread.id, thread.kind) == (child, "helper")
    assert source.thread(id, child) == ["count the files", "three files"]
    assert [row.id for row in source.rows(text="three")] == [id]
    with path.open("ab") as file:
        file.write(turn(minute(1), "once more", "walrus"))
    assert [row.id for row in source.rows(text="walrus")] == [id]
    assert len(source.rows()) == 1


# Damage.


def test_damaged_line_is_named_and_the_rest_is_shown(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, turn(NOON, "first", "one"), b'{"id": "x", "type": "us\n')
    tool.append(id, turn(minute(1), "second", "two"))
    assert source.conversation(id) == ["first", "one", "second", "two"]
    (reason,) = source.problems()
    assert "is damaged" in reason


@pytest.mark.parametrize(
    "data",
    [b"[]\n", b'{"a": 1}\n', b"\x00" * 100, b'{"sessionId": 5, "projectHash": []}\n', b"{" * 9000],
)
def test_file_that_is_no_session_hides_only_itself(
    tool: GeminiSessions, source: OpenedSource, data: bytes
) -> None:
    id = write(tool, turn(NOON, "first", "one"))
    for suffix in ("json", "jsonl"):
        path = tool.write(str(uuid4()), CWD, NOON, data, suffix)
        os.utime(path, ns=(0, 10**18))
    assert [row.id for row in source.rows()] == [id]
    assert len(source.problems()) == 2


def test_odd_values_do_no_harm(tool: GeminiSessions, source: OpenedSource) -> None:
    odd: list[Any] = [None, 5, "text", [], {}, [None, 5, {"text": 5}], {"functionCall": 5}]
    lines = [line(prompt(NOON, "question"))]
    for number, value in enumerate(odd):
        fields = {"thoughts": value, "tokens": value, "toolCalls": value, "model": value}
        lines.append(line(message(NOON, "gemini", value, f"g{number}", **fields)))
        lines.append(line(message(NOON, "user", value, f"u{number}", displayContent=value)))
        lines.append(line({"$set": value}) + line({"$set": {"messages": value, "summary": value}}))
        call = {"id": value, "name": value, "args": value, "result": value, "status": "success"}
        lines.append(line(reply(NOON, "", f"c{number}", toolCalls=[call, value])))
        lines.append(line({"id": f"t{number}", "type": value, "timestamp": value}))
    id = write(tool, *lines, turn(minute(1), "last", "answer"))
    assert source.conversation(id)[-2:] == ["last", "answer"]
    assert source.problems() == []


def test_half_written_old_session_stays_listed(tool: GeminiSessions, source: OpenedSource) -> None:
    id = str(uuid4())
    data = whole_session(id, prompt(NOON, "question"), reply(NOON, "answer"))
    path = tool.write(id, CWD, NOON, data, "json")
    assert [row.id for row in source.rows()] == [id]
    path.write_bytes(data[:-40])
    assert [row.id for row in source.rows()] == [id]
    assert source.problems() == ["Gemini CLI is writing it"]
    os.utime(path, ns=(0, 10**18))
    assert source.rows() == []
    assert source.problems() == ["it is damaged: it is not a JSON object"]


def test_truncated_and_replaced_files_are_read_again(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, turn(NOON, "first", "one"), turn(NOON, "second", "two"))
    assert len(source.conversation(id)) == 4
    write(tool, turn(NOON, "other", "text"), id=id)
    assert source.conversation(id) == ["other", "text"]
    tool.path(id).unlink()
    assert source.rows() == []


# Following.


def read_in_steps(reader: GeminiReader, path: Path) -> tuple[list[Item], list[Item]]:
    """Return what is read line by line while the file grows, and what is read at once."""
    data = path.read_bytes()
    ref = reader.ref(str(path))
    assert ref is not None
    whole, _ = collect(reader.read(ref))
    path.write_bytes(b"")
    items: list[Item] = []
    resume: Resume | None = None
    for text in data.splitlines(keepends=True):
        with path.open("ab") as file:
            file.write(text)
        ref = reader.ref(str(path))
        assert ref is not None
        try:
            added, end = collect(reader.read(ref, resume))
        except Rewritten:
            items, resume = [], None
            added, end = collect(reader.read(ref))
        items, resume = [*items, *added], end.resume
    return items, whole


def paths_of_real_sessions(directory: Path) -> Iterator[Path]:
    unpack_homes(ARCHIVE, directory)
    for path in sorted((directory / "gemini-0.61.0").rglob("session-*.jsonl")):
        if 2000 < path.stat().st_size < 100_000:
            yield path


def test_growing_session_has_the_same_events_as_a_whole_one(tmp_path: Path) -> None:
    paths = list(paths_of_real_sessions(tmp_path))
    reader = GeminiReader(str(tmp_path / "gemini-0.61.0/home/dev/.gemini"))
    assert len(paths) >= 10
    for path in paths:
        items, whole = read_in_steps(reader, path)
        assert items == whole, path.name
        assert [item.seq for item in whole] == sorted({item.seq for item in whole})


def test_appended_turn_reads_only_what_was_added(tool: GeminiSessions) -> None:
    id = write(tool, *(turn(NOON, f"question {number}", "answer") for number in range(100)))
    reader = GeminiReader(str(tool.directory))
    ref = reader.find(id)
    assert ref is not None
    _, end = collect(reader.read(ref))
    tool.append(id, turn(minute(1), "new", "newest"))
    items, _ = collect(reader.read(ref, end.resume))
    texts = [
        plain_text(item.body.content)
        for item in items
        if isinstance(item.body, UserMessage | AgentMessage)
    ]
    assert texts == ["new", "newest"]


def test_open_turn_with_a_recent_write_runs(tool: GeminiSessions, source: OpenedSource) -> None:
    now = datetime.now(UTC)
    id = write(tool, turn(now, "first", "one"), at=now)
    assert source.statuses() == {id: "idle"}
    tool.append(id, line(prompt(now, "second")) + updated(now))
    assert source.statuses() == {id: "running"}
    call = tool_call(now, "c1", "read_file", {}, "text")
    tool.append(id, line(reply(now, "", "r2")) + line(reply(now, "", "r2", toolCalls=[call])))
    assert source.statuses() == {id: "running"}
    tool.append(id, line(reply(now, "done")))
    assert source.statuses() == {id: "idle"}
    tool.append(id, line(prompt(now, "third")))
    os.utime(tool.path(id), ns=(0, 10**18))
    assert source.statuses() == {id: "idle"}


# The definition.


def test_home_and_resume_command_follow_the_environment(
    tool: GeminiSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    monkeypatch.setenv("GEMINI_CLI_HOME", "/data/me")
    assert DEFINITION.home() == "/data/me/.gemini"
    source = OpenedSource(GeminiReader(str(tool.directory)), tool.index)
    command = DEFINITION.resume_command(source.row(id), local=True)
    assert command.arguments == ("gemini", "--resume", id)
    assert command.environment == {"GEMINI_CLI_HOME": "/data/me"}
    monkeypatch.delenv("GEMINI_CLI_HOME")
    assert DEFINITION.home() == os.path.expanduser("~/.gemini")


def test_list_opens_no_session_that_has_not_changed(
    tool: GeminiSessions, source: OpenedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tool, turn(NOON, f"question {number}", "answer"))
    assert len(source.rows()) == 3
    opened: list[str] = []

    def no_read(self: GeminiReader, ref: Any, resume: Any = None) -> Any:
        opened.append(ref.key)

    monkeypatch.setattr(GeminiReader, "read", no_read)
    monkeypatch.setattr("segue.sources.gemini.chats.session_id", opened.append)
    assert len(source.rows()) == 3
    assert opened == []


def test_times_are_those_of_the_messages(tool: GeminiSessions, source: OpenedSource) -> None:
    id = write(tool, turn(minute(1), "question", "answer"))
    row = source.row(id)
    assert stamp(datetime.fromtimestamp(row.updated_at / 1e6, UTC)) == stamp(minute(1))


def test_session_is_listed_once_its_first_line_is_complete(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = run(tool.create("question", "answer", cwd="/work", at=NOON))
    (path,) = tool.directory.rglob("session-*.jsonl")
    data = path.read_bytes()
    path.write_bytes(data[:8])  # as if Gemini wrote it at this moment
    assert source.rows() == []
    path.write_bytes(data)
    assert [row.id for row in source.rows()] == [id]
