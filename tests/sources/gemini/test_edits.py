"""Edits of Gemini's sessions are written as Gemini writes them."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from segue.model.event import InfoChanged
from segue.sources.gemini.reader import GeminiReader
from segue.sources.kit.reader import SessionRef
from tests.sources.gemini.chat_files import (
    CWD,
    NOON,
    GeminiSessions,
    all_messages,
    context,
    header,
    prompt,
    reply,
    turn,
)
from tests.sources.opened_source import OpenedSource, run


@pytest.fixture
def reader(tool: GeminiSessions) -> GeminiReader:
    return GeminiReader(str(tool.directory))


def ref_of(reader: GeminiReader, id: str) -> SessionRef:
    ref = reader.find(id)
    assert ref is not None
    return ref


def test_title_is_appended_as_the_summary(tool: GeminiSessions, reader: GeminiReader) -> None:
    id = run(tool.create("question", "answer", cwd=CWD, at=NOON))
    before = tool.path(id).read_bytes()
    reader.change(ref_of(reader, id), InfoChanged(title="Mine"))
    added = tool.path(id).read_bytes().removeprefix(before)
    assert json.loads(added) == {"$set": {"summary": "Mine"}}


def test_old_session_is_renamed_without_other_changes(
    tool: GeminiSessions, source: OpenedSource, reader: GeminiReader
) -> None:
    id = str(uuid4())
    session = json.loads(header(id, CWD, NOON))
    session["messages"] = [prompt(NOON, "Frage 🙂"), reply(NOON, "answer")]
    path = tool.write(id, CWD, NOON, json.dumps(session, indent=2).encode(), "json")
    path.chmod(0o640)
    reader.change(ref_of(reader, id), InfoChanged(title="Mine"))
    assert json.loads(path.read_bytes()) == {**session, "summary": "Mine"}
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert (source.row(id).title, source.row(id).turns) == ("Mine", 1)
    reader.change(ref_of(reader, id), InfoChanged(title=None))
    assert source.row(id).title == "Frage 🙂"


def test_delete_removes_all_files_of_a_session_and_no_other(
    tool: GeminiSessions, source: OpenedSource, reader: GeminiReader
) -> None:
    id, other = (f"12345678-1234-4123-8123-12345678000{number}" for number in (1, 2))
    for number, session in enumerate((id, other)):
        at = NOON + timedelta(minutes=number)
        tool.write(session, CWD, at, header(session, CWD, at) + turn(at, "question", "answer"))
        outputs = tool.project(CWD) / "tool-outputs" / f"session-{session}"
        outputs.mkdir(parents=True)
        (outputs / "a.txt").write_text("output")
    later = NOON + timedelta(minutes=9)
    tool.write(id, CWD, later, header(id, CWD, later) + all_messages(later, context(later)))
    child, grandchild = str(uuid4()), str(uuid4())
    for parent, agent in ((id, child), (child, grandchild)):
        path = tool.project(CWD) / "chats" / parent / f"{agent}.jsonl"
        path.parent.mkdir()
        path.write_bytes(header(agent, CWD, NOON, kind="subagent") + turn(NOON, "task", "done"))
    assert {thread.id for thread in source.threads(id)} == {child, grandchild}
    reader.delete(ref_of(reader, id))
    assert [row.id for row in source.rows()] == [other]
    left = [path for path in tool.directory.rglob("*") if path.is_file()]
    names = sorted(path.name for path in left if path.name != ".project_root")
    assert names == ["a.txt", "session-2026-01-01T12-01-12345678.jsonl"]
