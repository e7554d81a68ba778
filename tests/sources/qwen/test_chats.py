"""What Qwen does to its files is shown as Qwen shows it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from segue.model.content import Diff, Image, plain_text
from segue.model.event import (
    AgentThought,
    Compacted,
    Failed,
    Foreign,
    Interrupted,
    ModelCalled,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.sources.kit.reader import Item, Resume, Rewritten, collect
from segue.sources.qwen.definition import DEFINITION
from segue.sources.qwen.reader import QwenReader
from tests.sources.golden import unpack_homes
from tests.sources.opened_source import OpenedSource, run
from tests.sources.qwen.chat_files import Journal, QwenSessions, call, usage

CWD = "/work/project"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ARCHIVE = Path(__file__).parent / "homes.tar.xz"


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.fixture
def tool(tmp_path: Path) -> QwenSessions:
    return QwenSessions(tmp_path / "qwen", tmp_path / "qwen.index")


@pytest.fixture
def source(tool: QwenSessions) -> OpenedSource:
    return OpenedSource(QwenReader(str(tool.directory)), tool.index)


@pytest.fixture
def journal(tool: QwenSessions) -> Journal:
    return tool.journal(CWD)


# The tree.


def test_rewound_records_are_off_the_branch(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "first", "one")
    kept = journal.last
    journal.turn(NOON, "second", "two")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "second", "two"]
    journal.last = kept
    journal.system(minute(1), "rewind", truncatedCount=2)
    journal.turn(minute(1), "third", "three")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "third", "three"]
    texts = [plain_text(body.content) for body in source.bodies(journal.id, UserMessage)]
    assert texts == ["first", "second", "third"]
    row = source.row(journal.id)
    assert (row.turns, row.usage.output_tokens) == (2, 30)  # the tokens were used


def test_missing_record_hides_nothing_before_it(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "first", "one")
    journal.last = str(uuid4())
    journal.turn(NOON, "second", "two")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "second", "two"]
    (reason,) = source.problems()
    assert reason.endswith("is missing")


def test_chain_of_records_that_is_a_circle_is_read(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "first", uuid="a", parentUuid="b")
    journal.reply(NOON, "one", uuid="b", parentUuid="a")
    journal.reply(NOON, "two", uuid="c", parentUuid="a")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "two"]


def test_record_that_is_written_twice_is_one_message(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "first", uuid="p", parentUuid=None)
    journal.reply(NOON, "one", uuid="r", parentUuid="p")
    journal.reply(NOON, "one", uuid="r", parentUuid="p")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one"]
    journal.reply(NOON, "one", uuid="r", parentUuid="p")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one"]
    assert source.row(journal.id).usage.output_tokens == 10


def test_usage_of_a_message_in_two_records_is_the_last_one(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "first", uuid="p")
    journal.reply(NOON, "one", uuid="r", parentUuid="p")
    tool.save(journal)
    assert source.row(journal.id).usage.output_tokens == 10
    journal.reply(NOON, "two", uuid="r", parentUuid="p", usageMetadata=usage(100, 25))
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "two"]
    assert source.row(journal.id).usage.output_tokens == 25


def test_fork_pays_only_for_its_own_turn(tool: QwenSessions, source: OpenedSource) -> None:
    parent = run(tool.create("first", "one", cwd=CWD, at=NOON))
    fork = tool.journal(CWD)
    for text in tool.path(parent).read_bytes().splitlines():
        record = json.loads(text)
        origin = {"sessionId": parent, "messageUuid": record["uuid"]}
        fork.last = record["uuid"]
        fork.data += json.dumps({**record, "sessionId": fork.id, "forkedFrom": origin}).encode()
        fork.data += b"\n"
    fork.turn(minute(1), "second", "two")
    tool.save(fork)
    row = source.row(fork.id)
    assert row.fork is not None and row.fork.session == parent
    assert source.conversation(fork.id) == ["first", "one", "second", "two"]
    assert row.usage.output_tokens == 10


# Parts.


def test_reply_has_thoughts_texts_calls_and_usage(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "question")
    thought = {"text": "I list the files.", "thought": True}
    list_files = call("c1", "list_directory", {"path": "/work"})
    journal.reply(
        NOON,
        thought,
        "I look",
        " around.",
        list_files,
        usageMetadata=usage(100, 20, cached=40, thoughts=5),
        contextWindowSize=131072,
    )
    tool.save(journal)
    assert source.conversation(journal.id) == ["question", "I look around."]
    assert len(source.bodies(journal.id, AgentThought)) == 1
    (body,) = source.bodies(journal.id, ToolCall)
    assert (body.call_id, body.name, body.kind) == ("c1", "list_directory", "search")
    (called,) = source.bodies(journal.id, ModelCalled)
    assert (called.model, called.context_size) == ("qwen3-coder-plus", 131072)
    assert (called.usage.input_tokens, called.usage.cache_read_tokens) == (60, 40)
    assert called.usage.output_tokens == 20  # it includes the thoughts, as the total says


def test_thoughts_that_the_output_does_not_include_are_added(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "question")
    tokens = {**usage(100, 20, thoughts=5), "totalTokenCount": 125}
    journal.reply(NOON, "answer", usageMetadata=tokens)
    tool.save(journal)
    assert source.row(journal.id).usage.output_tokens == 25


def test_results_have_status_exit_code_diff_and_pictures(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "go")
    journal.reply(NOON, *(call(f"c{number}", "tool", {}) for number in range(4)))
    shell = {"type": "shell_result", "exitCode": 3, "output": "boom"}
    journal.result(NOON, "c0", "run_shell_command", "boom", status="error", resultDisplay=shell)
    edit = {"fileDiff": "-", "fileName": "a.py", "originalContent": None, "newContent": "new\n"}
    journal.result(NOON, "c1", "write_file", "written", resultDisplay=edit)
    journal.result(NOON, "c2", "tool", "", status="cancelled")
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    response = {"id": "c3", "name": "tool", "response": {"error": "no file"}}
    parts = [{"functionResponse": response}, picture]
    journal.add(NOON, "tool_result", message={"role": "user", "parts": parts})
    tool.save(journal)
    failed, written, stopped, seen = source.bodies(journal.id, ToolResult)
    assert (failed.status, failed.exit_code) == ("failed", 3)
    assert Diff(path="a.py", old=None, new="new\n") in written.content
    assert (written.status, stopped.status, seen.status) == ("completed", "cancelled", "failed")
    assert Image(mime="image/png", data="aGk=") in seen.content


def test_injected_messages_are_no_prompts(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "question", "answer")
    journal.prompt(NOON, "<task-notification>done</task-notification>", subtype="notification")
    journal.prompt(NOON, "every hour", subtype="cron")
    journal.prompt(NOON, "typed meanwhile", subtype="mid_turn_user_message")
    journal.system(NOON, "slash_command", phase="invocation", rawCommand="/about")
    journal.system(NOON, "file_history_snapshot", snapshots=[])
    tool.save(journal)
    row = source.row(journal.id)
    assert (row.turns, row.messages) == (2, 3)
    assert len(source.bodies(journal.id, Foreign)) == 3
    assert [row.id for row in source.rows(text="typed meanwhile")] == [journal.id]


def test_prompt_shows_what_was_typed_without_the_context_of_hooks(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    hook = "<qwen:user-prompt-submit-context>\nsecret\n</qwen:user-prompt-submit-context>"
    parts = [{"text": "expanded"}, {"text": hook}]
    payload = {"displayText": "typed", "hookContext": "secret"}
    message = {"role": "user", "parts": parts}
    journal.add(NOON, "user", message=message, systemPayload=payload)
    journal.add(NOON, "user", message=message)
    tool.save(journal)
    assert source.conversation(journal.id) == ["typed", "expanded"]
    bodies = source.bodies(journal.id, UserMessage)
    assert all("secret" in body.extra["qwen"]["content"] for body in bodies)


def test_title_is_the_last_custom_title(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "question", "answer")
    tool.save(journal)
    assert source.row(journal.id).title == "question"
    journal.system(NOON, "custom_title", customTitle="Made by a model", titleSource="auto")
    tool.save(journal)
    row = source.row(journal.id)
    assert (row.title, row.title_by) == ("Made by a model", "agent")
    journal.system(NOON, "custom_title", customTitle="Mine", titleSource="manual")
    tool.save(journal)
    assert (source.row(journal.id).title, source.row(journal.id).title_by) == ("Mine", "person")


def test_ends_of_turns_are_marked(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "first")
    journal.system(NOON, "turn_result", state="cancelled", promptId="1", endedAt=1)
    journal.prompt(NOON, "second")
    error = {"message": "quota", "code": "429"}
    journal.system(NOON, "turn_result", state="error", promptId="2", endedAt=1, error=error)
    event = {"event.name": "qwen-code.api_error", "error_message": "of a helper"}
    journal.system(NOON, "ui_telemetry", uiEvent={**event, "subagent_name": "memory"})
    tool.save(journal)
    assert len(source.bodies(journal.id, Interrupted)) == 1
    assert [body.message for body in source.bodies(journal.id, Failed)] == ["quota"]


def test_compression_keeps_the_messages_before_it(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "first", "one")
    info = {"originalTokenCount": 900, "newTokenCount": 90}
    history = [{"role": "user", "parts": [{"text": "A summary"}]}]
    journal.system(NOON, "chat_compression", info=info, compressedHistory=history)
    journal.turn(NOON, "second", "two")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "second", "two"]
    (body,) = source.bodies(journal.id, Compacted)
    assert (plain_text(body.summary), body.tokens_before, body.trigger) == (
        "A summary",
        900,
        "auto",
    )


# Files.


def test_archived_session_is_archived(tool: QwenSessions, source: OpenedSource) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    assert source.row(id).archived_at is None
    path = tool.path(id)
    (path.parent / "archive").mkdir()
    path.rename(path.parent / "archive" / path.name)
    row = source.row(id)
    assert row.archived_at is not None
    assert source.conversation(id) == ["question", "answer"]


def test_session_that_is_in_the_archive_too_is_listed_once(
    tool: QwenSessions, source: OpenedSource
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    path = tool.path(id)
    (path.parent / "archive").mkdir()
    (path.parent / "archive" / path.name).write_bytes(path.read_bytes())
    assert [(row.id, row.archived_at) for row in source.rows()] == [(id, None)]


def test_empty_and_other_files_are_ignored(tool: QwenSessions, source: OpenedSource) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    chats = tool.path(id).parent
    (chats / f"{uuid4()}.jsonl").touch()
    (chats / f"{id}.runtime.json").write_text("{}")
    (chats / "notes.jsonl").write_text("{}\n")
    (chats / f"{uuid4()}.jsonl").mkdir()
    assert [row.id for row in source.rows()] == [id]
    assert source.problems() == []


def write_subagent(tool: QwenSessions, parent: str, name: str, *, turns: int, **meta: Any) -> Path:
    """Write the files of a subagent."""
    directory = tool.project(CWD) / "subagents" / parent
    directory.mkdir(parents=True, exist_ok=True)
    journal = Journal(parent, CWD)
    for number in range(turns):
        journal.prompt(NOON, f"task {number}", isSidechain=True, agentId=name)
        journal.reply(NOON, isSidechain=True, agentId=name)
        journal.reply(NOON, f"result {number}", isSidechain=True, agentId=name, usageMetadata=None)
    path = directory / f"agent-{name}.jsonl"
    path.write_bytes(journal.data)
    facts = {"agentId": name, "agentType": "explorer", **meta}
    path.with_name(f"agent-{name}.meta.json").write_text(json.dumps(facts))
    return path


def test_subagents_are_threads_and_their_growth_is_noticed(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.prompt(NOON, "go")
    journal.reply(NOON, call("c1", "agent", {"prompt": "task"}))
    tool.save(journal)
    write_subagent(tool, journal.id, "one", turns=1, toolUseId="c1", description="Look around")
    write_subagent(tool, journal.id, "two", turns=1, parentAgentId="one")
    threads = {thread.id: thread for thread in source.threads(journal.id)}
    assert threads.keys() == {"agent-one", "agent-two"}
    assert (threads["agent-one"].kind, threads["agent-one"].title) == ("explorer", "Look around")
    assert threads["agent-one"].seq is not None
    assert threads["agent-one"].usage.output_tokens == 10
    assert threads["agent-two"].parent == "agent-one"
    assert source.thread(journal.id, "agent-one") == ["task 0", "result 0"]
    assert source.rows(text="result 1") == []
    write_subagent(tool, journal.id, "one", turns=2, toolUseId="c1")
    assert [row.id for row in source.rows(text="result 1")] == [journal.id]
    assert len(source.rows()) == 1


def test_damaged_subagent_does_not_hide_its_session(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "question", "answer")
    tool.save(journal)
    write_subagent(tool, journal.id, "one", turns=1)
    write_subagent(tool, journal.id, "two", turns=1).write_bytes(b"{}\n")
    assert [row.id for row in source.rows(text="question")] == [journal.id]
    assert [thread.id for thread in source.threads(journal.id)] == ["agent-one"]
    (reason,) = source.problems()
    assert reason.startswith("its subagent agent-two cannot be read")


def test_sessions_of_the_directory_in_the_settings_are_listed(
    tool: QwenSessions, tmp_path: Path
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    other = QwenSessions(tmp_path / "other", tmp_path / "unused.index")
    moved = run(other.create("moved", "answer", cwd=CWD, at=NOON))
    settings = {"advanced": {"runtimeOutputDir": str(other.directory)}}
    (tool.directory / "settings.json").write_text(json.dumps(settings))
    source = OpenedSource(QwenReader(str(tool.directory)), tmp_path / "both.index")
    assert {row.id for row in source.rows()} == {id, moved}


# Damage.


def test_damaged_line_is_named_and_the_rest_is_shown(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "first", "one")
    journal.data += b'{"uuid": "x", "type": "us\n' + b'{"type": "user"}\n'
    journal.turn(NOON, "second", "two")
    tool.save(journal)
    assert source.conversation(journal.id) == ["first", "one", "second", "two"]
    damaged, unnamed = source.problems()
    assert damaged.endswith("is damaged") and unnamed.endswith("has no uuid or type")


@pytest.mark.parametrize("data", [b"[]\n", b'{"a": 1}\n', b"\x00" * 100, b"{" * 9000 + b"\n"])
def test_file_that_is_no_session_hides_only_itself(
    tool: QwenSessions, source: OpenedSource, data: bytes
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    tool.path(id).with_name(f"{uuid4()}.jsonl").write_bytes(data)
    assert [row.id for row in source.rows()] == [id]
    assert len(source.problems()) == 1


def test_odd_values_do_no_harm(tool: QwenSessions, source: OpenedSource, journal: Journal) -> None:
    journal.prompt(NOON, "question")
    odd: list[Any] = [None, 5, "text", [], {}, [None, 5, {"text": 5}], {"functionCall": 5}]
    for value in odd:
        for kind in ("user", "assistant", "tool_result", "system", "other"):
            journal.add(NOON, kind, message=value, usageMetadata=value, model=value)
            journal.add(NOON, kind, message={"parts": value}, systemPayload=value, gitBranch=value)
            journal.add(NOON, kind, message={"parts": [value]}, toolCallResult=value)
            journal.add(NOON, kind, timestamp=value, cwd=value, forkedFrom=value)
        for subtype in ("custom_title", "chat_compression", "turn_result", "ui_telemetry", "cron"):
            journal.add(NOON, "system", subtype=subtype, systemPayload=value)
            payload = {"customTitle": value, "info": value, "compressedHistory": value}
            extra = {"state": value, "error": value, "uiEvent": value}
            journal.system(NOON, subtype, **payload, **extra)
    journal.turn(minute(1), "last", "answer")
    tool.save(journal)
    assert source.conversation(journal.id)[-2:] == ["last", "answer"]
    assert source.problems() == []


def test_truncated_and_replaced_files_are_read_again(
    tool: QwenSessions, source: OpenedSource, journal: Journal
) -> None:
    journal.turn(NOON, "first", "one")
    journal.turn(NOON, "second", "two")
    path = tool.save(journal)
    assert len(source.conversation(journal.id)) == 4
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert source.conversation(journal.id) == ["first", "one"]
    path.unlink()
    assert source.rows() == []


# Following.


def paths_of_real_sessions(directory: Path) -> Iterator[Path]:
    unpack_homes(ARCHIVE, directory)
    for path in sorted(directory.glob("qwen-*/home/dev/.qwen/projects/*/chats/*.jsonl")):
        if path.stat().st_size < 40_000:
            yield path


def test_growing_session_has_the_same_events_as_a_whole_one(tmp_path: Path) -> None:
    paths = list(paths_of_real_sessions(tmp_path))
    assert len(paths) > 20
    for path in paths:
        reader = QwenReader(str(path.parents[3]))
        data, ref = path.read_bytes(), reader.ref(str(path))
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
            added, end = collect(reader.read(ref, resume))
            items, resume = [*items, *added], end.resume
        assert items == whole, path.name


def test_rewind_is_noticed_while_a_session_is_followed(
    tool: QwenSessions, journal: Journal
) -> None:
    journal.turn(NOON, "first", "one")
    kept = journal.last
    journal.turn(NOON, "second", "two")
    path = tool.save(journal)
    reader = QwenReader(str(tool.directory))
    ref = reader.ref(str(path))
    assert ref is not None
    _, end = collect(reader.read(ref))
    journal.last = kept
    journal.turn(NOON, "third", "three")
    tool.save(journal)
    with pytest.raises(Rewritten):
        collect(reader.read(ref, end.resume))


def test_open_turn_runs_while_it_is_written_or_its_process_lives(
    tool: QwenSessions, source: OpenedSource
) -> None:
    now = datetime.now(UTC)
    journal = tool.journal(CWD)
    journal.turn(now, "first", "one")
    path = tool.save(journal)
    assert source.statuses() == {journal.id: "idle"}
    journal.prompt(now, "second")
    tool.save(journal)
    assert source.statuses() == {journal.id: "running"}
    an_hour_ago = int((now - timedelta(hours=1)).timestamp()) * 10**9
    os.utime(path, ns=(an_hour_ago, an_hour_ago))
    assert source.statuses() == {journal.id: "idle"}
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "qwen"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline()
        record = {"pid": process.pid, "sessionId": journal.id}
        (tool.directory / "sessions").mkdir()
        (tool.directory / f"sessions/{process.pid}.json").write_text(json.dumps(record))
        assert source.statuses() == {journal.id: "running"}
        process.communicate()
    assert source.statuses() == {journal.id: "idle"}


# The definition.


def test_home_and_resume_command_follow_the_environment(
    tool: QwenSessions, source: OpenedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    monkeypatch.delenv("QWEN_HOME", raising=False)
    monkeypatch.delenv("QWEN_RUNTIME_DIR", raising=False)
    assert DEFINITION.home() == os.path.expanduser("~/.qwen")
    monkeypatch.setenv("QWEN_HOME", "~/q")
    assert DEFINITION.home() == os.path.expanduser("~/q")
    monkeypatch.setenv("QWEN_RUNTIME_DIR", "/data/q")
    assert DEFINITION.home() == "/data/q"
    assert DEFINITION.reader().settings == os.path.expanduser("~/q")
    command = DEFINITION.resume_command(source.row(id), local=True)
    assert command.arguments == ("qwen", "--resume", id)
    assert command.environment == {"QWEN_HOME": "~/q", "QWEN_RUNTIME_DIR": "/data/q"}
    assert DEFINITION.resume_command(source.row(id), local=False).environment == {}
