"""Edits of Codex's threads: in its files, by its program, or else in the overlay."""

import json
import os
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.errors import AgentFailed, Conflict, InvalidInput
from segue.model.principal import LOCAL
from segue.store.memory import MemoryStore
from segue.testing.helpers import message_texts
from tests.sources.codex.rollout_files import CodexSessions, event, meta, record, thread_id, turn

CWD = "/work/project"
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)

# A program that answers as Codex's app server does, and keeps what it was asked.
APP_SERVER = """#!{python}
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    with open(os.path.join(os.environ["CODEX_HOME"], "asked.jsonl"), "a") as file:
        file.write(json.dumps([message["method"], message["params"]]) + "\\n")
    {answer}
"""
ANSWERS = 'print(json.dumps({"id": message["id"], "result": {}}), flush=True)'
REFUSES = (
    'error = {"error": {"code": -32600, "message": "it is not possible"}}\n'
    '    answer = {"result": {}} if message["method"] == "initialize" else error\n'
    '    print(json.dumps({"id": message["id"], **answer}), flush=True)'
)
ENDS = "sys.exit(1)"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodexSessions:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return CodexSessions(tmp_path / "codex", tmp_path / "codex.index")


def add_database(tool: CodexSessions) -> None:
    """Add the database that Codex has since 0.128."""
    with sqlite3.connect(tool.directory / "state_5.sqlite") as connection:
        connection.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT)")


def install_program(tmp_path: Path, answer: str) -> None:
    """Put a program on the path that answers as the app server."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir(exist_ok=True)
    program.write_text(APP_SERVER.replace("{python}", sys.executable).replace("{answer}", answer))
    program.chmod(0o755)


def asked(tool: CodexSessions) -> list[tuple[str, dict[str, object]]]:
    """Return what the program was asked, after its greeting."""
    lines = (tool.directory / "asked.jsonl").read_text().splitlines()
    calls = [tuple(json.loads(line)) for line in lines]
    return [call for call in calls if call[0] != "initialize"]


def open_hub(tool: CodexSessions, tmp_path: Path) -> Hub:
    return Hub(MemoryStore(), tmp_path / "data", sources=[tool.open_source()])


async def test_program_changes_what_the_database_has(tool: CodexSessions, tmp_path: Path) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    add_database(tool)
    install_program(tmp_path, ANSWERS)
    async with open_hub(tool, tmp_path) as hub:
        await hub.editor.set_title(LOCAL, id, "A name")
        await hub.editor.archive(LOCAL, id)
    assert asked(tool) == [
        ("thread/name/set", {"threadId": id, "name": "A name"}),
        ("thread/archive", {"threadId": id}),
    ]
    assert not (tool.directory / "session_index.jsonl").exists()


@pytest.mark.parametrize(
    ("answer", "reason"), [(REFUSES, "it is not possible"), (ENDS, "ended unexpectedly")]
)
async def test_error_of_the_program_is_reported(
    tool: CodexSessions, tmp_path: Path, answer: str, reason: str
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    add_database(tool)
    install_program(tmp_path, answer)
    async with open_hub(tool, tmp_path) as hub:
        with pytest.raises(AgentFailed, match=reason):
            await hub.editor.set_title(LOCAL, id, "A name")
        assert (await hub.sessions.get(LOCAL, id)).title == "question"


async def test_overlay_has_edits_until_the_program_is_installed(
    tool: CodexSessions, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    add_database(tool)
    async with open_hub(tool, tmp_path) as hub:
        before = tool.snapshot()
        session = await hub.editor.set_title(LOCAL, id, "A name in the overlay")
        assert session.title == "A name in the overlay"
        assert (await hub.editor.archive(LOCAL, id)).state == "archived"
        assert tool.snapshot() == before
        install_program(tmp_path, ANSWERS)
        await hub.editor.unarchive(LOCAL, id)
        session = await hub.editor.set_title(LOCAL, id, "A name of Codex")
        assert session.title == "question"  # this program does not write what it is asked to


async def test_name_is_appended_after_a_torn_line(tool: CodexSessions, tmp_path: Path) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    names = tool.directory / "session_index.jsonl"
    names.write_bytes(b'{"id": "an older thread", "thread_na')
    async with open_hub(tool, tmp_path) as hub:
        assert (await hub.editor.set_title(LOCAL, id, "A name")).title == "A name"
        with pytest.raises(InvalidInput, match="cannot remove a name"):
            await hub.editor.set_title(LOCAL, id, None)
    assert names.read_bytes().startswith(b'{"id": "an older thread", "thread_na\n{"id":')


async def test_trash_has_all_pages_and_subagents(tool: CodexSessions, tmp_path: Path) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    base = tool.path(id)
    page = base.with_name(f"{base.stem}_{thread_id(NOON + timedelta(hours=1))}.jsonl")
    history_base = {"thread_id": id, "end_byte_offset": base.stat().st_size}
    page.write_bytes(meta(id, NOON, CWD, history_base=history_base))
    child = thread_id(NOON + timedelta(minutes=1))
    source = {"subagent": {"thread_spawn": {"parent_thread_id": id}}}
    child_path = tool.write(child, meta(child, NOON, CWD, source=source), NOON)
    other = await tool.create("another question", "answer", cwd=CWD, at=NOON)
    before = tool.snapshot().keys()
    async with open_hub(tool, tmp_path) as hub:
        await hub.editor.trash(LOCAL, id)
        assert [path.name for path in (tool.directory / "sessions").rglob("*.jsonl")] == [
            tool.path(other).name
        ]
        await hub.editor.restore(LOCAL, id)
        assert tool.snapshot().keys() == before
        os.rename(child_path, tmp_path / "moved by another program")
        await hub.editor.trash(LOCAL, id)
        await hub.editor.purge(LOCAL, id)
        assert not [path for path in tool.directory.rglob("*") if id in path.name]


async def test_interrupted_move_to_the_trash_is_completed(
    tool: CodexSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    base = tool.path(id)
    page = base.with_name(f"{base.stem}_{thread_id(NOON + timedelta(hours=1))}.jsonl")
    history_base = {"thread_id": id, "end_byte_offset": base.stat().st_size}
    page.write_bytes(meta(id, NOON, CWD, history_base=history_base))
    moved = tool.directory / "segue-trash" / base.relative_to(tool.directory)
    moved.parent.mkdir(parents=True)
    base.rename(moved)  # the older page moves first
    async with open_hub(tool, tmp_path) as hub:
        session = await hub.sessions.get(LOCAL, id)
        assert (session.state, session.messages) == ("active", 2)
        assert (await hub.editor.trash(LOCAL, id)).state == "trashed"
        assert not page.exists()


async def test_thread_that_a_fork_needs_stays(tool: CodexSessions, tmp_path: Path) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    at = NOON + timedelta(hours=1)
    fork = thread_id(at)
    history_base = {"thread_id": id, "end_byte_offset": tool.path(id).stat().st_size}
    line = meta(fork, at, CWD, forked_from_id=id, history_base=history_base)
    tool.write(fork, line + turn(at, "in the fork", "answer", CWD), at)
    async with open_hub(tool, tmp_path) as hub:
        for edit in (hub.editor.trash, hub.editor.purge):
            with pytest.raises(Conflict, match=fork):
                await edit(LOCAL, id)
        await hub.editor.trash(LOCAL, fork)
        await hub.editor.trash(LOCAL, id)
        session = await hub.sessions.get(LOCAL, fork)
        assert session.messages == 4


async def test_fork_closes_what_is_open_and_has_its_own_directory(
    tool: CodexSessions, tmp_path: Path
) -> None:
    id = await tool.create("question", "answer", cwd=CWD, at=NOON)
    call = {"type": "function_call", "name": "exec_command", "call_id": "c1", "arguments": "{}"}
    at = NOON + timedelta(minutes=1)
    open_turn = turn(at, "again", "I look", CWD, ends=False) + record(at, "response_item", call)
    tool.append(id, open_turn + event(at, "thread_name_updated", thread_name="Of the parent"))
    original = tool.path(id).read_bytes()
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    async with open_hub(tool, tmp_path) as hub:
        await hub.sessions.get(LOCAL, id)
        fork = await hub.editor.fork(LOCAL, id, cwd=str(directory))
        assert fork.cwd == str(directory) and fork.title == "question"
        assert fork.fork is not None and fork.fork.session == id
        assert fork.status == "idle"
        conversation = [event async for event in hub.history.conversation(LOCAL, fork.id)]
        assert message_texts(conversation) == ["question", "answer", "again", "I look"]
        assert [event.type for event in conversation][-2:] == ["tool_result", "interrupted"]
    assert tool.path(id).read_bytes() == original
    assert not list(tool.directory.rglob("*.part"))
