"""What opencode writes is shown as opencode shows it."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from segue.hub import Hub
from segue.model.content import Diff, ResourceLink, plain_text
from segue.model.event import (
    AgentMessage,
    Compacted,
    Failed,
    Foreign,
    ModelCalled,
    ToolCall,
    ToolResult,
)
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.kit import database
from segue.sources.kit.source import KitSource
from segue.sources.opencode.definition import DEFINITION
from segue.sources.opencode.reader import OpencodeReader
from segue.store.memory import MemoryStore
from tests.sources.opencode.opencode_rows import (
    OLD_SCHEMA,
    SCHEMA,
    DatabaseSessions,
    FileSessions,
    OpencodeSessions,
    millis,
)
from tests.sources.opened import OpenedByNativeId

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)
TOKENS = {"input": 100, "output": 10, "reasoning": 5, "cache": {"read": 20, "write": 7}}


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.fixture(params=["database", "files", "old database"])
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpencodeSessions]:
    """Return sessions in each of the three formats."""
    directory, index = tmp_path / "opencode", tmp_path / "opencode.index"
    if request.param == "files":
        yield FileSessions(directory, index)
        return
    schema = SCHEMA if request.param == "database" else OLD_SCHEMA
    with closing(DatabaseSessions(directory, index, schema)) as sessions:
        yield sessions


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[DatabaseSessions]:
    directory, index = tmp_path / "opencode", tmp_path / "opencode.index"
    with closing(DatabaseSessions(directory, index)) as sessions:
        yield sessions


def tool_part(status: str, call_id: str = "c1", name: str = "bash", **state: Any) -> dict[str, Any]:
    state = {"status": status, "input": {"command": "ls"}, "time": {"start": millis(NOON)}, **state}
    return {"type": "tool", "tool": name, "callID": call_id, "state": state}


# Messages that are being written.


async def test_parts_appear_when_they_are_complete(tool: OpencodeSessions) -> None:
    now = datetime.now(UTC)
    opened = OpenedByNativeId(tool)
    id = tool.add_session(now)
    tool.add_prompt(id, "question", now)
    message = tool.add_message(id, "assistant", now)
    owner = {"session": id, "message": message}
    times = {"start": millis(now)}
    text = tool.add_part(id, message, now, type="text", text="", time=times)
    assert await opened.texts(id) == ["question"]
    ended = {**times, "end": millis(now)}
    tool.put("part", text, now, {"type": "text", "text": "I look.", "time": ended}, **owner)
    assert await opened.texts(id) == ["question", "I look."]
    first = tool.add_part(id, message, now, **tool_part("pending", "c1", input={}))
    assert await opened.bodies(id, ToolCall) == []
    tool.put("part", first, now, tool_part("running", "c1"), **owner)
    second = tool.add_part(id, message, now, **tool_part("running", "c2"))
    assert [call.call_id for call in await opened.bodies(id, ToolCall)] == ["c1", "c2"]
    for part, call_id, seconds in ((second, "c2", 1), (first, "c1", 2)):
        end = {"start": millis(NOON), "end": millis(NOON) + seconds * 1000}
        data = tool_part("completed", call_id, output=call_id, time=end)
        tool.put("part", part, now, data, **owner)
        assert (await opened.bodies(id, ToolResult))[-1].call_id == call_id
    late = {"start": millis(NOON) + 3000, "end": millis(NOON) + 4000}
    tool.add_part(id, message, now, type="text", text="And done.", time=late)
    tool.add_part(id, message, now, type="step-finish", reason="tool-calls")
    assert [result.call_id for result in await opened.bodies(id, ToolResult)] == ["c2", "c1"]
    assert await opened.bodies(id, ModelCalled) == []
    done = {"role": "assistant", "modelID": "m", "tokens": TOKENS, "finish": "tool-calls"}
    done["time"] = {"created": millis(now), "completed": millis(now)}
    tool.put("message", message, now, done, session=id)
    (called,) = await opened.bodies(id, ModelCalled)
    assert (called.usage.output_tokens, called.usage.cache_write_tokens) == (15, 7)
    live = [(event.seq, event.id, event.type) for event in await opened.conversation(id)]
    later = [
        (event.seq, event.id, event.type) for event in await OpenedByNativeId(tool).conversation(id)
    ]
    assert live == later
    assert [seq for seq, _, _ in live] == sorted({seq for seq, _, _ in live})


async def test_session_runs_while_its_turn_is_open(tool: OpencodeSessions) -> None:
    now = datetime.now(UTC)
    opened = OpenedByNativeId(tool)
    id = tool.add_session(now)
    tool.add_prompt(id, "question", now)
    assert (await opened.row(id)).status == "running"
    tool.add_answer(id, "first", now, finish="tool-calls")
    assert (await opened.row(id)).status == "running"
    tool.add_answer(id, "second", now)
    assert (await opened.row(id)).status == "idle"
    old = tool.add_session(NOON)
    tool.add_prompt(old, "killed", NOON)
    tool.add_message(old, "assistant", NOON)
    assert (await opened.row(old)).status == "idle"


async def test_abandoned_text_is_shown_as_far_as_it_came(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    tool.add_prompt(id, "question", NOON)
    message = tool.add_message(id, "assistant", NOON)
    part = tool.add_part(id, message, NOON, type="text", text="An essay", time={"start": 1})
    (answer,) = await opened.bodies(id, AgentMessage)
    assert (plain_text(answer.content), answer.partial) == ("An essay", True)
    whole = {"type": "text", "text": "An essay with its end", "time": {"start": 1, "end": 2}}
    tool.put("part", part, minute(5), whole, session=id, message=message)
    assert await opened.texts(id) == ["question", "An essay with its end"]


async def test_prompt_during_a_turn_follows_the_answer(tool: OpencodeSessions) -> None:
    now = datetime.now(UTC)
    opened = OpenedByNativeId(tool)
    id = tool.add_session(now)
    tool.add_prompt(id, "question", now)
    message = tool.add_message(id, "assistant", now)
    tool.add_prompt(id, "queued", now)
    assert await opened.texts(id) == ["question"]
    times = {"start": 1, "end": 2}
    tool.add_part(id, message, now, type="text", text="reply", time=times)
    tool.add_answer(id, "second reply", now)
    assert await opened.texts(id) == ["question", "reply", "queued", "second reply"]


async def test_prompt_after_an_abandoned_turn_is_shown(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    tool.add_prompt(id, "question", NOON)
    message = tool.add_message(id, "assistant", NOON)
    state = {"status": "pending", "input": {}}
    part = tool.add_part(id, message, NOON, type="tool", tool="bash", callID="c", state=state)
    tool.add_prompt(id, "queued", minute(1))
    row = await opened.row(id)
    assert (await opened.texts(id), row.turns) == (["question", "queued"], 2)
    times = {"start": 1, "end": 2}
    state = {"status": "completed", "input": {}, "output": "", "time": times}
    call = {"type": "tool", "tool": "bash", "callID": "c", "state": state}
    tool.put("part", part, minute(2), call, session=id, message=message)
    tool.add_answer(id, "answer", minute(3))
    assert await opened.texts(id) == ["question", "queued", "answer"]
    assert (await opened.row(id)).tool_calls == 1


async def test_session_with_only_a_command_of_the_user_is_listed(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON, title="New session - 2026-11-16T12:03:47.844Z")
    prompt = tool.add_message(id, "user", NOON)
    tool.add_part(id, prompt, NOON, type="text", synthetic=True, text="The user ran a tool")
    times = {"created": millis(NOON), "completed": millis(NOON)}
    answer = tool.add_message(id, "assistant", NOON, time=times)
    state = {"status": "completed", "input": {"command": "ls"}, "output": "", "time": times}
    tool.add_part(id, answer, NOON, type="tool", tool="bash", callID="c", state=state)
    row = await opened.row(id)
    assert (row.title, row.turns, row.tool_calls) == (
        "New session - 2026-11-16T12:03:47.844Z",
        0,
        1,
    )


# Kinds of parts.


async def test_synthetic_text_is_no_prompt(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON, title="New session - 2026-11-16T12:03:47.844Z")
    message = tool.add_prompt(id, "read it", NOON)
    called = {"type": "text", "synthetic": True, "text": "Called the Read tool"}
    tool.add_part(id, message, NOON, **called)
    file = {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "file:///work/a.txt"}
    tool.add_part(id, message, NOON, **file)
    tool.add_answer(id, "done", NOON)
    reminder = tool.add_message(id, "user", minute(1))
    tool.add_part(id, reminder, minute(1), type="text", synthetic=True, text="Continue")
    row = await opened.row(id)
    assert (row.title, row.turns, row.messages) == ("read it", 1, 2)
    events = await opened.conversation(id)
    links = [
        block
        for event in events
        for block in getattr(event.body, "content", ())
        if isinstance(block, ResourceLink)
    ]
    assert [(link.name, link.uri) for link in links] == [("a.txt", "file:///work/a.txt")]
    kept = await opened.bodies(id, Foreign)
    assert [part["text"] for body in kept for part in body.raw] == [
        "Called the Read tool",
        "Continue",
    ]


async def test_compaction_is_neither_prompt_nor_answer(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    tool.add_prompt(id, "question", NOON)
    tool.add_answer(id, "reply", NOON)
    request = tool.add_message(id, "user", minute(1))
    tool.add_part(id, request, minute(1), type="compaction", auto=False)
    fields = {"summary": True, "mode": "compaction", "tokens": TOKENS, "cost": 0.5}
    tool.add_answer(id, "What was said", minute(1), **fields)
    row = await opened.row(id)
    assert (row.turns, row.messages, row.usage.cost) == (1, 2, 500_000)
    (compacted,) = await opened.bodies(id, Compacted)
    assert (plain_text(compacted.summary), compacted.trigger) == ("What was said", "manual")


async def test_failures_of_tools_and_requests(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    tool.add_prompt(id, "question", NOON)
    error = {"name": "APIError", "data": {"message": "overloaded", "statusCode": 529}}
    times = {"created": millis(NOON), "completed": millis(NOON)}
    message = tool.add_message(id, "assistant", NOON, time=times, error=error)
    tool.add_part(id, message, NOON, type="retry", attempt=1, error=error)
    tool.add_part(id, message, NOON, **tool_part("error", "c1", error="Tool execution aborted"))
    tool.add_part(id, message, NOON, **tool_part("error", "c2", error="no such file"))
    tool.add_part(id, message, NOON, **tool_part("completed", "c3", metadata={"exit": 3}))
    tool.add_part(id, message, NOON, **tool_part("running", "c4"))
    tool.add_part(id, message, NOON, type="brand-new", value=1)
    results = await opened.bodies(id, ToolResult)
    assert [(result.call_id, result.status) for result in results] == [
        ("c1", "cancelled"),
        ("c2", "failed"),
        ("c3", "failed"),
    ]
    assert len(await opened.bodies(id, ToolCall)) == 4
    failures = await opened.bodies(id, Failed)
    assert [(body.message, body.retry) for body in failures] == [
        ("overloaded", "retrying"),
        ("overloaded", "exhausted"),
    ]
    assert [body.raw["type"] for body in await opened.bodies(id, Foreign)] == ["brand-new"]


async def test_edits_of_all_tools_are_diffs(tool: OpencodeSessions) -> None:
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    tool.add_prompt(id, "question", NOON)
    message = tool.add_answer(id, "reply", NOON)
    patch = "*** Begin Patch\n*** Update File: p.py\n@@\n-a\n+b\n*** End Patch"
    inputs = {
        "edit": {"filePath": "e.py", "oldString": "a", "newString": "b"},
        "multiedit": {"filePath": "m.py", "edits": [{"oldString": "a", "newString": "b"}]},
        "write": {"filePath": "w.py", "content": "all"},
        "apply_patch": {"patchText": patch},
    }
    for name, fields in inputs.items():
        part = tool_part("completed", name, name, input=fields, output="ok")
        tool.add_part(id, message, NOON, **part)
    calls = await opened.bodies(id, ToolCall)
    diffs = [block for call in calls for block in call.content if isinstance(block, Diff)]
    assert [(diff.path, diff.old, diff.new) for diff in diffs] == [
        ("e.py", "a", "b"),
        ("m.py", "a", "b"),
        ("w.py", None, "all"),
        ("p.py", "a\n", "b\n"),
    ]


# Sessions.


async def test_removed_and_hidden_messages(rows: DatabaseSessions, tmp_path: Path) -> None:
    opened = OpenedByNativeId(rows)
    id = rows.add_session(NOON)
    rows.add_prompt(id, "one", NOON)
    rows.add_answer(id, "two", NOON)
    hidden = rows.add_prompt(id, "three", minute(1))
    answer = rows.add_answer(id, "four", minute(1))
    assert await opened.texts(id) == ["one", "two", "three", "four"]
    rows.update(id, revert=json.dumps({"messageID": hidden, "snapshot": "x"}))
    assert await opened.texts(id) == ["one", "two"]
    row = await opened.row(id)
    assert row.turns == 1
    async with Hub(MemoryStore(), tmp_path / "data", sources=[rows.open_source()]) as hub:
        copy = await hub.sync.import_from_source(LOCAL, row)
    for name in ("messages", "turns", "tool_calls", "active_at", "usage", "days", "title"):
        assert getattr(copy, name) == getattr(row, name), name
    rows.update(id, revert=None)
    assert await opened.texts(id) == ["one", "two", "three", "four"]
    for message in (hidden, answer):
        rows.connection.execute("DELETE FROM part WHERE message_id = ?", (message,))
        rows.connection.execute("DELETE FROM message WHERE id = ?", (message,))
    rows.add_prompt(id, "other", minute(2))
    assert await opened.texts(id) == ["one", "two", "other"]


async def test_part_that_is_added_to_a_prompt_is_shown(tool: OpencodeSessions) -> None:
    """opencode writes the parts of a prompt one after the other."""
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    message = tool.add_prompt(id, "first", NOON)
    assert await opened.texts(id) == ["first"]
    tool.add_part(id, message, NOON, type="text", text="second")
    assert await opened.texts(id) == ["first", "second"]


async def test_subagents_of_subagents_are_threads(rows: DatabaseSessions) -> None:
    opened = OpenedByNativeId(rows)
    root = rows.add_session(NOON)
    child = rows.add_session(minute(1), parent_id=root, agent="explore", title="Child")
    grandchild = rows.add_session(minute(2), parent_id=child, title="Grandchild")
    orphan = rows.add_session(minute(3), parent_id="ses_gone")
    for id, word in ((root, "root"), (child, "zebra"), (grandchild, "small"), (orphan, "alone")):
        rows.add_prompt(id, word, minute(4))
    message = rows.add_answer(root, "done", minute(5))
    part = tool_part("completed", "task-1", "task", metadata={"sessionId": child})
    rows.add_part(root, message, minute(5), **part)
    assert (await opened.rows()).keys() == {root, orphan}
    row = await opened.row(root)
    threads = await opened.source.threads(row.id)
    assert [(thread.id, thread.parent, thread.kind, thread.title) for thread in threads] == [
        (child, None, "explore", "Child"),
        (grandchild, child, None, "Grandchild"),
    ]
    assert threads[0].seq is not None
    assert [hit.session.id for hit in await opened.source.ranked(Query(text="zebra"))] == [row.id]
    rows.add_answer(grandchild, "quagga", minute(6))
    assert [hit.session.id for hit in await opened.source.ranked(Query(text="quagga"))] == [row.id]


async def test_branch_archive_and_extra_of_a_session(rows: DatabaseSessions) -> None:
    opened = OpenedByNativeId(rows)
    rows.connection.execute("INSERT INTO workspace VALUES ('wrk_1', 'topic', '/work')")
    id = rows.add_session(NOON, workspace_id="wrk_1", time={"archived": millis(minute(9))})
    rows.add_prompt(id, "question", NOON)
    row = await opened.row(id)
    assert (row.git_branch, row.archived_at) == ("topic", millis(minute(9)) * 1000)
    assert row.extra["opencode"]["version"] == "1.18.34"
    rows.update(id, time_archived=None, title="Renamed")
    row = await opened.row(id)
    assert (row.title, row.archived_at) == ("Renamed", None)


async def test_fork_whose_parent_is_gone_pays_for_its_history(rows: DatabaseSessions) -> None:
    opened = OpenedByNativeId(rows)
    ids = [rows.add_session(NOON), rows.add_session(minute(5), title="A title (fork #1)")]
    for id in ids:
        rows.add_prompt(id, "question", NOON)
        rows.add_answer(id, "reply", minute(1), tokens=TOKENS)
    usages = {id: row.usage.input_tokens for id, row in (await opened.rows()).items()}
    assert usages == {ids[0]: 100, ids[1]: None}
    for table, column in (("part", "session_id"), ("message", "session_id"), ("session", "id")):
        rows.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (ids[0],))
    source = KitSource(OpencodeReader(str(rows.directory)), rows.directory / "../new", "opencode")
    await source.refresh()
    (row,) = await source.page(Query())
    assert (row.fork, row.usage.input_tokens) == (None, 100)


# Databases and files.


async def test_database_counts_if_a_session_is_also_in_files(rows: DatabaseSessions) -> None:
    old = FileSessions(rows.directory / "../other", rows.directory / "../other.index")
    migrated, left = old.add_session(NOON, title="Old"), old.add_session(NOON, title="Left")
    for id in (migrated, left):
        old.add_prompt(id, "question", NOON)
    shutil.copytree(old.directory / "storage", rows.directory / "storage")
    assert rows.add_session(NOON, title="Migrated") == migrated  # ids count from 1
    rows.add_prompt(migrated, "question", NOON)
    titles = {id: row.title for id, row in (await OpenedByNativeId(rows).rows()).items()}
    assert titles == {migrated: "Migrated", left: "Left"}


async def test_databases_of_other_channels_are_read(rows: DatabaseSessions) -> None:
    id = rows.add_session(NOON, title="Stable")
    rows.add_prompt(id, "question", NOON)
    with closing(DatabaseSessions(rows.directory / "../beta", rows.directory / "../b")) as beta:
        beta._number = 100
        other = beta.add_session(NOON, title="Beta")
        beta.add_prompt(other, "question", NOON)
        beta.connection.execute("PRAGMA journal_mode = DELETE")
        shutil.copy(beta.path, rows.directory / "opencode-beta.db")
    (rows.directory / "opencode-broken.db").write_bytes(b"not a database" * 100)
    opened = OpenedByNativeId(rows)
    assert {row.title for row in (await opened.rows()).values()} == {"Stable", "Beta"}
    ((path, reason),) = await opened.problems()
    assert path.endswith("opencode-broken.db") and "not a database" in reason


async def test_session_in_a_newer_format_is_a_problem(rows: DatabaseSessions) -> None:
    opened = OpenedByNativeId(rows)
    id = rows.add_session(NOON)
    rows.connection.execute("INSERT INTO session_message VALUES ('m', ?, '{}')", (id,))
    good = rows.add_session(NOON)
    rows.add_prompt(good, "question", NOON)
    assert (await opened.rows()).keys() == {id, good}
    ((_, reason),) = await opened.problems()
    assert "newer opencode" in reason
    rows.add_prompt(id, "it was also written in the format that is known", NOON)
    assert (await opened.rows())[id].messages == 1
    assert await opened.problems() == []


async def test_damaged_records_are_named_and_the_others_are_read(
    tool: OpencodeSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.sources.opencode.records.MAX_RECORD_CHARS", 2000)
    opened = OpenedByNativeId(tool)
    id = tool.add_session(NOON)
    message = tool.add_prompt(id, "question", NOON)
    long = tool.add_part(id, message, NOON, type="text", text="x" * 3000)
    bad = tool.add_message(id, "stranger", NOON)
    weird: list[dict[str, Any]] = [
        {"type": "tool", "state": []},
        {"type": "text", "text": 3, "time": "noon"},
        {"type": ["list"]},
        {"type": "file", "url": None},
        {},
    ]
    answer = tool.add_answer(id, "reply", minute(1), tokens="many", cost="much", model=[])
    for data in weird:
        tool.add_part(id, answer, minute(1), **data)
    assert (await opened.texts(id))[:2] == ["question", "reply"]
    reasons = {reason for _, reason in await opened.problems()}
    assert {f"part {long} is damaged", f"message {bad} is damaged"} <= reasons


async def test_unchanged_database_is_not_opened(
    rows: DatabaseSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenedByNativeId(rows)
    id = rows.add_session(NOON)
    rows.add_prompt(id, "question", NOON)
    monkeypatch.setattr(database, "_CLOCK_TICK_NS", -(10**9))
    session = (await opened.row(id)).id

    def refuse(path: str) -> None:
        raise AssertionError("the database was opened")

    with monkeypatch.context() as patch:
        patch.setattr(database, "open_database", refuse)
        await opened.source.refresh()
        assert await opened.source.get(session) is not None
        assert (await OpenedByNativeId(rows).rows()).keys() == {id}  # as another process
    rows.add_prompt(id, "more", NOON)
    assert (await opened.row(id)).turns == 2


async def test_truncated_and_locked_databases_keep_the_sessions_in_the_list(
    rows: DatabaseSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    opened = OpenedByNativeId(rows)
    for number in range(50):
        id = rows.add_session(NOON)
        rows.add_prompt(id, f"question {number} " + "word " * 1000, NOON)
    assert len(await opened.rows()) == 50
    rows.connection.execute("PRAGMA journal_mode = DELETE")
    rows.connection.execute("BEGIN EXCLUSIVE")
    listed = await opened.rows()
    assert len(listed) == 50
    assert "locked" in (await opened.problems())[0][1]
    assert await opened.source.get(listed[id].id) is not None
    rows.connection.execute("ROLLBACK")
    rows.close()
    os.truncate(rows.path, rows.path.stat().st_size // 2)
    assert len(await opened.rows()) == 50
    assert [path for path, _ in await opened.problems()] == [str(rows.path)]


async def test_other_database_is_a_problem(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute("CREATE TABLE session (id TEXT)")
    source = KitSource(OpencodeReader(str(tmp_path)), tmp_path / "index", "opencode")
    await source.refresh()
    ((_, reason),) = (await source.examine()).problems
    assert reason == "it has no table message of opencode"


# The definition.


def test_data_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("OPENCODE_DB", raising=False)
    assert DEFINITION.home() == "/home/me/.local/share/opencode"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert DEFINITION.reader().session_paths()[0] == "/data/opencode/opencode.db"
    monkeypatch.setenv("OPENCODE_DB", "mine.db")
    assert DEFINITION.reader().session_paths()[0] == "/data/opencode/mine.db"
    monkeypatch.setenv("OPENCODE_DB", "/other/mine.db")
    assert DEFINITION.reader().session_paths()[0] == "/other/mine.db"


async def test_resume_command_names_the_session(rows: DatabaseSessions) -> None:
    id = rows.add_session(NOON)
    rows.add_prompt(id, "question", NOON)
    command = DEFINITION.resume_command(await OpenedByNativeId(rows).row(id), local=True)
    assert command.arguments == ("opencode", "--session", id)
