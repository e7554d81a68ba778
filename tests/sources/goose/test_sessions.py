"""What Goose writes to its database is shown as Goose shows it."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from segue.hub import Hub
from segue.model.content import Image, plain_text
from segue.model.event import (
    AgentThought,
    Compacted,
    Failed,
    Foreign,
    ModelCalled,
    ToolCall,
    ToolResult,
)
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources.goose.definition import DEFINITION
from segue.sources.goose.reader import GooseReader
from segue.sources.kit import database
from segue.sources.kit.source import KitSource
from segue.store.memory import MemoryStore
from segue.testing.helpers import message_texts
from tests.sources.goose.goose_rows import (
    HIDDEN,
    OLD_SCHEMA,
    VISIBLE,
    GooseSessions,
    request,
    response,
    stamp,
    text,
)
from tests.sources.opened import OpenedByNativeId

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)
USAGE = {"inputTokens": 120, "outputTokens": 16, "cacheReadTokens": 20, "cost": 0.00046}


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[GooseSessions]:
    with closing(GooseSessions(tmp_path / "goose", tmp_path / "goose.index")) as tool:
        yield tool


@pytest.fixture
def opened(tool: GooseSessions) -> OpenedByNativeId:
    return OpenedByNativeId(tool)


# Messages.


async def test_injected_context_is_no_prompt(tool: GooseSessions, opened: OpenedByNativeId) -> None:
    id = tool.add_session(NOON)
    tool.add_message(id, "user", text("question"), at=NOON)
    context = text("<turn-context>\n<current-time>now</current-time>\n</turn-context>")
    metadata = {**HIDDEN, "turnContext": True}
    tool.add_message(id, "user", context, at=NOON, metadata=metadata)
    tool.add_message(id, "assistant", text("reply"), at=NOON)
    assert message_texts(await opened.conversation(id)) == ["question", "reply"]
    assert (await opened.row(id)).turns == 1
    (kept,) = await opened.bodies(id, Foreign)
    assert kept.raw["content"] == [context]


async def test_message_without_metadata_is_visible(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON)
    tool.add_message(id, "user", text("question"), at=NOON, metadata=None)
    assert message_texts(await opened.conversation(id)) == ["question"]


async def test_every_kind_of_content_is_an_event(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON)
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/jpeg"}
    tool.add_message(id, "user", text("look"), picture, at=NOON)
    tool.add_message(
        id,
        "assistant",
        {"type": "thinking", "thinking": "first", "signature": ""},
        {"type": "redactedThinking", "data": "x"},
        {"type": "reasoning", "text": "second"},
        text("one"),
        text("two"),
        {"type": "someNewThing", "value": 1},
        {"type": "systemNotification", "notificationType": "creditsExhausted", "msg": "no money"},
        at=NOON,
    )
    assert message_texts(await opened.conversation(id)) == ["look", "one", "two"]
    events = await opened.conversation(id)
    images = [
        block
        for event in events
        for block in getattr(event.body, "content", ())
        if isinstance(block, Image)
    ]
    assert [(image.mime, image.data) for image in images] == [("image/jpeg", "aGk=")]
    thoughts = await opened.bodies(id, AgentThought)
    assert [plain_text(body.content) for body in thoughts] == ["first", "second"]
    assert [body.raw["type"] for body in await opened.bodies(id, Foreign)] == [
        "redactedThinking",
        "someNewThing",
    ]
    assert [body.message for body in await opened.bodies(id, Failed)] == ["no money"]


async def test_calls_and_results_have_status_and_server(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON)
    tool.add_message(id, "user", text("go"), at=NOON)
    fields = {"command": "str_replace", "path": "/work/a", "old_str": "x", "new_str": "y"}
    tool.add_message(
        id,
        "assistant",
        request("1", "developer__text_editor", fields),
        request("2", "developer__shell", {"command": "false"}),
        {"type": "toolRequest", "id": "3", "toolCall": {"status": "error", "error": "bad JSON"}},
        at=NOON,
    )
    both = [
        {**text("for the model"), "annotations": {"audience": ["assistant"]}},
        {**text("for people"), "annotations": {"audience": ["user"]}},
    ]
    tool.add_message(
        id,
        "user",
        response("1", "", content=both),
        response("2", "failed", structuredContent={"exit_code": 1}),
        {"type": "toolResponse", "id": "3", "toolResult": {"status": "error", "error": "no tool"}},
        at=NOON,
    )
    calls = await opened.bodies(id, ToolCall)
    assert [(call.name, call.kind, call.server) for call in calls] == [
        ("developer__text_editor", "edit", "developer"),
        ("developer__shell", "execute", "developer"),
        ("invalid_tool_call", "other", None),
    ]
    assert (calls[0].content[0].old, calls[0].content[0].new) == ("x", "y")
    results = await opened.bodies(id, ToolResult)
    assert [(result.status, plain_text(result.content)) for result in results] == [
        ("completed", "for people"),
        ("failed", "failed"),
        ("failed", "no tool"),
    ]


# Tokens.


async def test_tokens_of_messages_and_of_compactions_are_counted_once(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON)
    tool.add_message(id, "user", text("question"), at=NOON)
    metadata = {**VISIBLE, "usage": USAGE, "inference": {"requestedModel": "model-b"}}
    tool.add_message(id, "assistant", text("reply"), at=NOON, metadata=metadata)
    ledger = "INSERT INTO usage_ledger (session_id, created_timestamp, input_tokens, output_tokens)"
    tool.connection.execute(f"{ledger} VALUES (?, 0, 120, 16), (?, 0, 50, 5)", (id, id))
    totals = {"input": 170, "output": 21, "cache_read": 20}
    tool.update(id, **{f"accumulated_{name}_tokens": total for name, total in totals.items()})
    row = await opened.row(id)
    assert (row.usage.input_tokens, row.usage.cache_read_tokens) == (150, 20)
    assert (row.usage.output_tokens, row.usage.cost) == (21, 460)
    called = await opened.bodies(id, ModelCalled)
    assert [(body.model, body.usage.output_tokens) for body in called] == [
        ("model-b", 16),
        ("model-b", 5),
    ]


async def test_tokens_without_a_ledger_are_those_that_were_added(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    tool.connection.execute("DROP TABLE usage_ledger")
    id = tool.add_session(NOON)
    for number in (1, 2, 3):
        tool.add_turn_rows(id, f"question {number}", f"reply {number}", minute(number))
        tool.update(id, accumulated_input_tokens=100 * number, accumulated_output_tokens=number)
        usage = (await opened.row(id)).usage
        assert (usage.input_tokens, usage.output_tokens) == (100 * number, number)
    called = await opened.bodies(id, ModelCalled)
    assert sum(body.usage.input_tokens for body in called) == 300


async def test_request_whose_tools_still_run_is_not_counted_twice(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    """Goose adds its tokens to the session at once, and its message after the tools."""
    now = datetime.now(UTC)
    id = tool.add_session(now)
    tool.add_message(id, "user", text("question"), at=now)
    tool.update(id, accumulated_input_tokens=120, accumulated_output_tokens=16)
    await opened.row(id)
    metadata = {**VISIBLE, "usage": USAGE}
    tool.add_message(id, "assistant", request("1", "shell", {}), at=now, metadata=metadata)
    tool.add_message(id, "user", response("1", "done"), at=now)
    tool.add_message(id, "assistant", text("reply"), at=now)
    assert (await opened.row(id)).usage.output_tokens == 16
    assert len(await opened.bodies(id, ModelCalled)) == 1


# Sessions.


async def test_types_of_sessions(tool: GooseSessions, opened: OpenedByNativeId) -> None:
    types = ("user", "scheduled", "acp", "terminal", "gateway", "hidden", "sub_agent")
    ids = {kind: tool.add_session(NOON, session_type=kind) for kind in types}
    for id in ids.values():
        tool.add_turn_rows(id, "question", "reply", NOON)
    tool.add_session(NOON, name="without messages")
    listed = {ids[kind] for kind in types if kind not in ("hidden", "sub_agent")}
    assert (await opened.rows()).keys() == listed
    assert await opened.problems() == []


async def test_names_and_archived_sessions(tool: GooseSessions, opened: OpenedByNativeId) -> None:
    named = tool.add_session(NOON, name="My name", user_set_name=True)
    unnamed = tool.add_session(NOON, name="CLI Session", archived_at=stamp(minute(1)))
    for id in (named, unnamed):
        tool.add_turn_rows(id, "question", "reply", NOON)
    rows = await opened.rows()
    assert (rows[named].title, rows[named].title_by) == ("My name", "person")
    assert (rows[unnamed].title, rows[unnamed].title_by) == ("question", "auto")
    assert rows[named].archived_at is None
    assert rows[unnamed].archived_at == int(minute(1).timestamp()) * 1_000_000
    tool.update(unnamed, name="A made title", archived_at=None)
    row = await opened.row(unnamed)
    assert (row.title, row.title_by, row.archived_at) == ("A made title", "agent", None)


async def test_made_title_does_not_replace_a_persons_title_in_a_copy(
    tool: GooseSessions, tmp_path: Path
) -> None:
    native_id = tool.add_session(NOON, name="CLI Session")
    tool.add_turn_rows(native_id, "question", "reply", NOON)
    async with Hub(MemoryStore(), tmp_path / "data", sources=[tool.open_source()]) as hub:
        (session,) = (await hub.sessions.list(LOCAL)).sessions
        session = await hub.editor.set_title(LOCAL, session.id, "My title")
        session = await hub.sync.import_from_source(LOCAL, session)
        tool.update(native_id, name="A made title")
        assert (await hub.sync.pull(LOCAL, session)).title == "My title"
        tool.update(native_id, name="Another title of mine", user_set_name=True)
        assert (await hub.sync.pull(LOCAL, session)).title == "Another title of mine"


async def test_subagents_of_subagents_are_threads(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    root = tool.add_session(NOON)
    tool.add_message(root, "user", text("go"), at=NOON)
    tool.add_message(root, "assistant", request("1", "delegate", {}), at=NOON)
    child = tool.add_session(NOON, session_type="sub_agent", parent_session_id=root, name="Child")
    grandchild = tool.add_session(NOON, session_type="sub_agent", parent_session_id=child)
    tool.add_turn_rows(child, "task", "zebra", minute(1))
    tool.add_turn_rows(grandchild, "small task", "done", minute(2))
    result = response("1", "done", _meta={"subagent_session_id": child})
    tool.add_message(root, "user", result, at=minute(3))
    row = await opened.row(root)
    threads = await opened.source.threads(row.id)
    assert [(thread.id, thread.parent, thread.title) for thread in threads] == [
        (child, None, "Child"),
        (grandchild, child, None),
    ]
    (call,) = [event for event in await opened.conversation(root) if event.type == "tool_call"]
    assert threads[0].seq == call.seq
    assert [hit.session.id for hit in await opened.source.ranked(Query(text="zebra"))] == [row.id]
    tool.add_turn_rows(child, "more", "quagga", minute(4))
    assert [hit.session.id for hit in await opened.source.ranked(Query(text="quagga"))] == [row.id]


async def test_fork_does_not_count_the_tokens_of_its_parent(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    parent = tool.add_session(NOON)
    fork = tool.add_session(minute(5))
    metadata = {**VISIBLE, "usage": USAGE}
    for id in (parent, fork):
        tool.add_message(id, "user", text("question"), at=NOON, message_id="m1")
        message = text("reply")
        tool.add_message(
            id, "assistant", message, at=NOON, message_id="chatcmpl-2", metadata=metadata
        )
    tool.add_turn_rows(fork, "only here", "yes", minute(6))
    rows = await opened.rows()
    point = rows[fork].fork
    assert point is not None and point.session == rows[parent].id
    assert (rows[parent].usage.output_tokens, rows[fork].usage.output_tokens) == (16, None)
    assert (rows[parent].messages, rows[fork].messages) == (2, 4)


async def test_id_that_is_used_again_is_another_session(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "first", "reply", NOON)
    before = await opened.row(id)
    await opened.conversation(id)
    tool.connection.execute("DELETE FROM messages")
    tool.connection.execute("DELETE FROM sessions")
    tool._number -= 1
    assert tool.add_session(minute(1)) == id
    tool.add_turn_rows(id, "second", "reply", minute(1))
    after = await opened.row(id)
    assert (after.title, after.id == before.id) == ("second", False)
    assert message_texts(await opened.conversation(id)) == ["second", "reply"]
    assert await opened.source.get(before.id) is None


async def test_compaction_keeps_seqs_and_ids(tool: GooseSessions, opened: OpenedByNativeId) -> None:
    """A compaction replaces all rows of the session, so that they get new numbers."""
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "question", "reply", NOON)
    before = await opened.conversation(id)
    tool.add_message(id, "user", text("the summary"), at=minute(1), metadata=HIDDEN)
    note = text("Your conversation was compacted because it was too long.")
    tool.add_message(id, "assistant", note, at=minute(1), metadata=HIDDEN)
    tool.replace_conversation(id)
    after = await opened.conversation(id)
    assert [(event.seq, event.id) for event in after[: len(before)]] == [
        (event.seq, event.id) for event in before
    ]
    (compacted,) = await opened.bodies(id, Compacted)
    assert (plain_text(compacted.summary), compacted.trigger) == ("the summary", "auto")


async def test_truncated_conversation_is_read_again(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "one", "two", NOON)
    tool.add_turn_rows(id, "three", "four", minute(1))
    assert len(message_texts(await opened.conversation(id))) == 4
    sql = "DELETE FROM messages WHERE session_id = ? AND created_timestamp >= ?"
    tool.connection.execute(sql, (id, int(minute(1).timestamp())))
    tool.add_turn_rows(id, "other", "five", minute(2))
    assert message_texts(await opened.conversation(id)) == ["one", "two", "other", "five"]


async def test_session_runs_while_its_turn_is_open(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    now = datetime.now(UTC)
    id = tool.add_session(now)
    tool.add_message(id, "user", text("question"), at=now)
    assert (await opened.row(id)).status == "running"
    tool.add_message(id, "assistant", request("1", "shell", {}), at=now)
    tool.add_message(id, "user", response("1", "done"), at=now)
    assert (await opened.row(id)).status == "running"
    tool.add_message(id, "assistant", text("reply"), at=now)
    assert (await opened.row(id)).status == "idle"
    old = tool.add_session(NOON)
    tool.add_message(old, "user", text("never answered"), at=NOON)
    assert (await opened.row(old)).status == "idle"


# The database.


async def test_unchanged_database_is_not_opened(
    tool: GooseSessions, opened: OpenedByNativeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "question", "reply", NOON)
    monkeypatch.setattr(database, "_CLOCK_TICK_NS", -(10**9))
    session = (await opened.row(id)).id

    def refuse(path: str) -> None:
        raise AssertionError("the database was opened")

    with monkeypatch.context() as patch:
        patch.setattr(database, "open_database", refuse)
        await opened.source.refresh()
        assert await opened.source.get(session) is not None
        assert (await OpenedByNativeId(tool).rows()).keys() == {id}  # as another process
    tool.add_turn_rows(id, "more", "more", NOON)
    assert (await opened.row(id)).turns == 2


async def test_old_schema_is_read(tmp_path: Path) -> None:
    tool = GooseSessions(tmp_path / "goose", tmp_path / "goose.index", OLD_SCHEMA)
    with closing(tool):
        id = tool.add_session(NOON, description="From its description")
        tool.add_turn_rows(id, "question", "reply", NOON)
        opened = OpenedByNativeId(tool)
        row = await opened.row(id)
        assert (row.title, row.cwd, row.turns) == ("From its description", "/work", 1)
        assert await opened.problems() == []


async def test_damaged_messages_are_named_and_the_others_are_read(
    tool: GooseSessions, opened: OpenedByNativeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segue.sources.goose.translator._MAX_CONTENT_CHARS", 1000)
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "question", "reply", NOON)
    for content in ('{"type": "text"', '"text"', "null", '[{"text": "' + "x" * 2000 + '"}]'):
        tool.connection.execute(
            "INSERT INTO messages (session_id, role, content_json, created_timestamp)"
            " VALUES (?, 'user', ?, ?)",
            (id, content, int(NOON.timestamp())),
        )
    weird = [1, None, {"type": 3}, {"type": "toolResponse", "toolResult": []}, {"type": "text"}]
    tool.add_message(id, "user", *weird, at=minute(1), metadata=[1])
    tool.add_message(id, "system", text("not a role"), at=minute(1))
    assert message_texts(await opened.conversation(id)) == ["question", "reply"]
    reasons = [reason for _, reason in await opened.problems()]
    assert reasons[:3] == [f"message {number} is damaged" for number in (3, 4, 5)]
    assert "message 6 is too long: 2014 characters" in reasons


async def test_garbage_in_the_row_of_a_session_does_no_harm(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    id = tool.add_session(NOON, name="ok")
    tool.add_turn_rows(id, "question", "reply", NOON)
    bad = tool.add_session(NOON, cwd="", model_config_json="{", name=b"\xff\x00")
    tool.add_turn_rows(bad, "question", "reply", NOON)
    tool.connection.execute("UPDATE sessions SET created_at = 'yesterday' WHERE id = ?", (bad,))
    rows = await opened.rows()
    assert rows.keys() == {id, bad}
    assert rows[bad].cwd == "/"


async def test_other_databases_and_files_are_problems(tmp_path: Path) -> None:
    directory = tmp_path / "goose"
    directory.mkdir()
    path = directory / "sessions.db"
    for data, reason in ((b"no database" * 500, "not a database"), (None, "no messages of Goose")):
        if data is None:
            path.unlink()
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("CREATE TABLE something (id INTEGER)")
        else:
            path.write_bytes(data)
        index = tmp_path / f"{reason}.index"
        source = KitSource(GooseReader(str(directory)), index, "Goose")
        await source.refresh()
        assert await source.page(Query()) == []
        ((problem_path, problem),) = (await source.examine()).problems
        assert (problem_path, reason in problem) == (str(path), True), problem
        await source.close()


async def test_truncated_database_keeps_the_sessions_in_the_list(
    tool: GooseSessions, opened: OpenedByNativeId
) -> None:
    for number in range(50):
        id = tool.add_session(NOON)
        tool.add_turn_rows(id, f"question {number}", "reply " * 1000, NOON)
    assert len(await opened.rows()) == 50
    tool.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    tool.close()
    os.truncate(tool.path, tool.path.stat().st_size // 2)
    assert len(await opened.rows()) == 50
    assert [path for path, _ in await opened.problems()] == [str(tool.path)]


async def test_locked_database_does_not_hang_the_list(
    tool: GooseSessions, opened: OpenedByNativeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "question", "reply", NOON)
    assert (await opened.rows()).keys() == {id}
    tool.connection.execute("PRAGMA journal_mode = DELETE")
    tool.connection.execute("BEGIN EXCLUSIVE")
    assert (await opened.rows()).keys() == {id}
    ((_, reason),) = await opened.problems()
    assert "locked" in reason


async def test_log_without_its_index_file_is_read(tool: GooseSessions, tmp_path: Path) -> None:
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "in the log", "reply", NOON)
    copy = tmp_path / "copy"
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{tool.path}{suffix}", copy)
    source = KitSource(GooseReader(str(copy)), tmp_path / "copy.index", "Goose")
    await source.refresh()
    assert [row.title for row in await source.page(Query())] == ["in the log"]


# The definition.


def test_database_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOSE_PATH_ROOT", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert DEFINITION.home() == "/home/me/.local/share/goose/sessions"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert DEFINITION.home() == "/home/me/.local/share/goose/sessions"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert DEFINITION.home() == "/data/goose/sessions"
    monkeypatch.setenv("GOOSE_PATH_ROOT", "/root")
    assert DEFINITION.home() == "/root/data/sessions"


async def test_resume_command_names_the_session(
    tool: GooseSessions, opened: OpenedByNativeId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOSE_PATH_ROOT", "/root")
    id = tool.add_session(NOON)
    tool.add_turn_rows(id, "question", "reply", NOON)
    command = DEFINITION.resume_command(await opened.row(id), local=True)
    assert command.arguments == ("goose", "session", "--resume", "--session-id", id)
    assert command.environment["GOOSE_PATH_ROOT"] == "/root"
