"""Edits of Qwen's sessions are written as Qwen writes them."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from segue.model import ids
from segue.model.errors import Busy, Conflict
from segue.model.event import InfoChanged
from segue.sources.kit.reader import SessionRef
from segue.sources.qwen.reader import QwenReader
from tests.sources.opened_source import OpenedSource, run
from tests.sources.qwen.chat_files import QwenSessions

CWD = "/work/project"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def tool(tmp_path: Path) -> QwenSessions:
    return QwenSessions(tmp_path / "qwen", tmp_path / "qwen.index")


@pytest.fixture
def source(tool: QwenSessions) -> OpenedSource:
    return OpenedSource(QwenReader(str(tool.directory)), tool.index)


@pytest.fixture
def reader(tool: QwenSessions) -> QwenReader:
    return QwenReader(str(tool.directory))


def ref_of(reader: QwenReader, id: str) -> SessionRef:
    ref = reader.find(id)
    assert ref is not None
    return ref


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_bytes().splitlines()]


def test_title_is_a_record_that_qwen_finds(tool: QwenSessions, reader: QwenReader) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    path = tool.path(id)
    before = path.read_bytes()
    path.write_bytes(before.rstrip(b"\n"))  # a process was killed while it wrote
    reader.change(ref_of(reader, id), InfoChanged(title="Größe"))
    assert path.read_bytes().startswith(before)
    assert b'"subtype":"custom_title"' in path.read_bytes()
    *_, answer, title = records(path)
    assert title["parentUuid"] == answer["uuid"]
    assert (title["sessionId"], title["cwd"], title["type"]) == (id, CWD, "system")
    assert title["systemPayload"] == {"customTitle": "Größe", "titleSource": "manual"}


def test_removed_title_shows_the_first_prompt_again(
    tool: QwenSessions, source: OpenedSource, reader: QwenReader
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    reader.change(ref_of(reader, id), InfoChanged(title="Mine"))
    assert source.row(id).title == "Mine"
    reader.change(ref_of(reader, id), InfoChanged(title=None))
    assert source.row(id).title == "question"


def test_archive_moves_the_files_that_belong_to_a_session(
    tool: QwenSessions, source: OpenedSource, reader: QwenReader
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    chats = tool.path(id).parent
    for suffix in ("worktree.json", "pr.json", "ledger.jsonl", "runtime.json"):
        (chats / f"{id}.{suffix}").write_text("{}")
    reader.change(ref_of(reader, id), InfoChanged(archived=True))
    moved = {path.name.partition(".")[2] for path in (chats / "archive").iterdir()}
    assert moved == {"jsonl", "worktree.json", "pr.json", "ledger.jsonl"}
    assert source.row(id).archived_at is not None
    reader.change(ref_of(reader, id), InfoChanged(archived=False))
    assert list((chats / "archive").iterdir()) == []
    assert source.row(id).archived_at is None


def test_archive_never_replaces_a_file(tool: QwenSessions, reader: QwenReader) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    path = tool.path(id)
    (path.parent / "archive").mkdir()
    (path.parent / "archive" / path.name).write_bytes(b"other\n")
    with pytest.raises(Conflict, match="exists already"):
        reader.change(ref_of(reader, id), InfoChanged(archived=True))
    assert path.exists()
    assert (path.parent / "archive" / path.name).read_bytes() == b"other\n"


def test_delete_removes_all_files_of_a_session_and_no_other(
    tool: QwenSessions, source: OpenedSource, reader: QwenReader
) -> None:
    id, other = (run(tool.create(text, "answer", cwd=CWD, at=NOON)) for text in ("a", "b"))
    chats = tool.path(id).parent
    (chats / f"{id}.worktree.json").write_text("{}")
    for session in (id, other):
        for directory in (chats.parent / "subagents", tool.directory / "file-history"):
            (directory / session).mkdir(parents=True)
            (directory / session / "agent-x.jsonl").write_text("{}\n")
    reader.delete(ref_of(reader, id))
    assert [row.id for row in source.rows()] == [other]
    assert [path for path in tool.directory.rglob("*") if id in str(path)] == []
    assert len([path for path in tool.directory.rglob("*.jsonl") if other in str(path)]) == 3


def test_open_session_is_not_changed(tool: QwenSessions, reader: QwenReader) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    before = tool.path(id).read_bytes()
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "qwen"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        (tool.directory / "sessions").mkdir()
        record = json.dumps({"pid": process.pid, "sessionId": id})
        (tool.directory / f"sessions/{process.pid}.json").write_text(record)
        for info in (InfoChanged(title="x"), InfoChanged(archived=True)):
            with pytest.raises(Busy, match="close it first"):
                reader.change(ref_of(reader, id), info)
        with pytest.raises(Busy):
            reader.delete(ref_of(reader, id))
        process.communicate()
    assert tool.path(id).read_bytes() == before


def test_fork_copies_the_active_branch_with_its_origin(
    tool: QwenSessions, source: OpenedSource, reader: QwenReader
) -> None:
    journal = tool.journal(CWD)
    journal.system(NOON, "parent_session", parentSessionId="someone")
    journal.turn(NOON, "first", "one")
    kept = journal.last
    journal.turn(NOON, "rewound", "two")
    journal.last = kept
    journal.turn(NOON + timedelta(minutes=1), "second", "three")
    path = tool.save(journal)
    before = path.read_bytes()
    new_id = str(uuid4())
    ref = ref_of(reader, journal.id)
    assert reader.fork(ref, new_id, at=None, cwd=None, title="A fork") == new_id
    assert path.read_bytes() == before
    copies = records(path.with_name(f"{new_id}.jsonl"))
    assert [copy["sessionId"] for copy in copies] == [new_id] * 5
    parents = [None, *(copy["uuid"] for copy in copies[:-1])]
    assert [copy["parentUuid"] for copy in copies] == parents
    origins = [copy["forkedFrom"] for copy in copies[:-1]]
    assert [origin["messageUuid"] for origin in origins] == [copy["uuid"] for copy in copies[:-1]]
    assert source.conversation(new_id) == ["first", "one", "second", "three"]
    row = source.row(new_id)
    assert row.fork is not None and row.fork.session == journal.id
    assert (row.title, row.usage.output_tokens) == ("A fork", None)


def test_fork_has_an_id_that_qwen_accepts(tool: QwenSessions, reader: QwenReader) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    fork = reader.fork(ref_of(reader, id), ids.new_id(), at=None, cwd=None, title=None)
    assert UUID(fork).version == 5


def test_fork_in_another_directory_is_in_its_project(
    tool: QwenSessions, source: OpenedSource, reader: QwenReader
) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    new_id = str(uuid4())
    reader.fork(ref_of(reader, id), new_id, at=None, cwd="/work/web app", title=None)
    assert (tool.project("/work/web app") / "chats" / f"{new_id}.jsonl").exists()
    assert source.row(new_id).cwd == "/work/web app"
    mode = os.stat(tool.project("/work/web app") / "chats" / f"{new_id}.jsonl").st_mode
    assert mode & 0o077 == 0
