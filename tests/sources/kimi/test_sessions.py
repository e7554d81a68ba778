"""What Kimi Code does to its files is shown as Kimi Code shows it."""

import base64
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from segue.model.content import Diff, Image, plain_text
from segue.model.errors import StoreError
from segue.model.event import (
    AgentThought,
    Compacted,
    Failed,
    Foreign,
    InfoChanged,
    Interrupted,
    ModelCalled,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.sources.kimi.definition import KimiDefinition
from segue.testing.helpers import message_texts
from tests.sources.kimi.session_files import (
    ALIAS,
    MODEL,
    KimiSessions,
    call,
    message,
    metadata,
    millis,
    old_turn,
    record,
    result,
    say,
    step,
    turn,
    usage,
)
from tests.sources.opened import CWD, ID, NOON, OTHER, Opened, minute

PIXEL = "iVBORw0KGgo="


@pytest.fixture
def tool(tmp_path: Path) -> KimiSessions:
    return KimiSessions(tmp_path / "kimi", tmp_path / "kimi.index")


@pytest.fixture
def opened(tool: KimiSessions) -> Opened:
    return Opened(tool)


def write(tool: KimiSessions, *lines: bytes, id: str = ID, **state: Any) -> None:
    """Write a session with these lines after its first one."""
    tool.write(id, metadata(NOON) + b"".join(lines), cwd=CWD, at=NOON, **state)


# Messages.


async def test_message_that_is_stored_twice_is_read_once(
    tool: KimiSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    assert message_texts(await opened.conversation()) == ["question", "reply"]
    row = await opened.row()
    assert (row.turns, row.title, row.native_id) == (1, "question", f"session_{ID}")
    assert row.id == ID


async def test_only_typed_messages_are_prompts(tool: KimiSessions, opened: Opened) -> None:
    write(
        tool,
        turn(NOON, "question", "reply"),
        *(
            message(NOON, f"from {kind}", kind)
            for kind in ("system_trigger", "task", "cron_job", "hook_result", "shell_command")
        ),
        message(NOON, "chosen by the model", "skill_activation", trigger="model"),
        message(NOON, "the skill's text", "skill_activation", trigger="user-slash"),
    )
    texts = message_texts(await opened.conversation())
    assert texts == ["question", "reply", "the skill's text"]
    assert len(await opened.bodies(Foreign)) == 7


async def test_messages_of_a_migrated_session_are_read(tool: KimiSessions, opened: Opened) -> None:
    function = {"name": "Bash", "arguments": '{"command": "ls"}'}
    think = {"type": "think", "think": "I look"}
    content = [think, {"type": "text", "text": "Looking."}]
    answer = {"role": "assistant", "content": content}
    answer["toolCalls"] = [
        {"type": "function", "id": "c1", "function": function},
        {"type": "function", "id": "c2", "name": "Read", "arguments": "no JSON"},
    ]
    output = {"role": "tool", "toolCallId": "c1", "content": "a.py", "isError": True}
    write(
        tool,
        message(NOON, "question"),
        record(NOON, "context.append_message", message=answer),
        record(NOON, "context.append_message", message=output),
    )
    assert message_texts(await opened.conversation()) == ["question", "Looking."]
    (thought,) = await opened.bodies(AgentThought)
    assert plain_text(thought.content) == "I look"
    calls = await opened.bodies(ToolCall)
    assert [(body.name, body.input) for body in calls] == [
        ("Bash", {"command": "ls"}),
        ("Read", "no JSON"),
    ]
    (failed,) = await opened.bodies(ToolResult)
    assert (failed.call_id, failed.status) == ("c1", "failed")


async def test_images_are_read_from_the_wire_or_from_blobs(
    tool: KimiSessions, opened: Opened
) -> None:
    urls = [f"data:image/png;base64,{PIXEL}", "blobref:image/png;abc", "blobref:image/png;gone"]
    urls.append("blobref:image/png;../../state.json")
    parts = [{"type": "image_url", "imageUrl": {"url": url}} for url in urls]
    write(tool, message(NOON, [{"type": "text", "text": "look"}, *parts]))
    blobs = tool.path(ID).parent / "blobs"
    blobs.mkdir()
    (blobs / "abc").write_bytes(base64.b64decode(PIXEL))
    (prompt,) = await opened.bodies(UserMessage)
    included = Image(mime="image/png", data=PIXEL)
    assert prompt.content[1:3] == (included, included)
    assert [block.uri for block in prompt.content[3:]] == urls[2:]


# Tools.


async def test_calls_have_their_changes_and_results_their_status(
    tool: KimiSessions, opened: Opened
) -> None:
    display = {"kind": "file_io", "operation": "edit", "path": "/a.py"}
    write(
        tool,
        message(NOON, "edit"),
        call(NOON, "c1", "Bash", {"command": "exit 3"}),
        result(NOON, "c1", "boom\nCommand failed with exit code: 3.", isError=True),
        call(NOON, "c2", "Edit", {"path": "/a.py", "old_string": "1", "new_string": "2"}),
        result(NOON, "c2", "Replaced", note="<system>one</system>", durationMs=13),
        call(NOON, "c3", "Write", {"path": "/b.py", "content": "x\n"}),
        result(NOON, "c3", [{"type": "text", "text": "Wrote"}]),
        call(NOON, "c4", "Odd", None, display={**display, "before": "3", "after": "4"}),
    )
    calls = await opened.bodies(ToolCall)
    assert [body.content for body in calls] == [
        (),
        (Diff(path="/a.py", old="1", new="2"),),
        (Diff(path="/b.py", new="x\n"),),
        (Diff(path="/a.py", old="3", new="4"),),
    ]
    assert (calls[0].kind, calls[0].title) == ("execute", "exit 3")
    results = await opened.bodies(ToolResult)
    assert [body.status for body in results] == ["failed", "completed", "completed"]
    assert results[0].exit_code == 3
    assert results[1].extra == {"kimi": {"note": "<system>one</system>", "durationMs": 13}}
    assert plain_text(results[2].content) == "Wrote"


# Turns.


async def test_ends_of_turns_are_events(tool: KimiSessions, opened: Opened) -> None:
    error = {"code": "provider.api_error", "message": "400 no", "retryable": False}
    write(
        tool,
        turn(NOON, "one", "two", ends=False),
        record(NOON, "turn.cancel", turnId=0, reason="user_cancelled"),
        record(NOON, "turn.ended", turnId=0, reason="cancelled"),
        record(NOON, "prompt.aborted", promptId="p"),
        turn(minute(1), "three", "four", ends=False),
        record(NOON, "turn.ended", turnId=1, reason="failed", error=error),
        record(NOON, "full_compaction.begin", source="manual"),
        record(NOON, "context.apply_compaction", summary="All", tokensBefore=900, tokensAfter=90),
    )
    assert [body.reason for body in await opened.bodies(Interrupted)] == ["cancelled"]
    (failed,) = await opened.bodies(Failed)
    assert (failed.message, failed.code) == ("400 no", "provider.api_error")
    (compacted,) = await opened.bodies(Compacted)
    assert (plain_text(compacted.summary), compacted.trigger) == ("All", "manual")
    assert (compacted.tokens_before, compacted.tokens_after) == (900, 90)


async def test_cancelled_turn_of_an_older_version_is_an_event(
    tool: KimiSessions, opened: Opened
) -> None:
    write(
        tool,
        old_turn(NOON, "one", "two", finish="interrupted"),
        old_turn(NOON, "three", "", finish="tool_use"),
        record(NOON, "turn.cancel", None),
    )
    assert len(await opened.bodies(Interrupted)) == 1


async def test_turns_that_were_undone_are_not_in_the_conversation(
    tool: KimiSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "keep", "kept"), turn(minute(1), "drop", "dropped"))
    assert len(message_texts(await opened.conversation())) == 4
    tool.append(ID, record(minute(2), "context.undo", count=1))
    tool.append(ID, turn(minute(3), "instead", "done"))
    assert message_texts(await opened.conversation()) == ["keep", "kept", "instead", "done"]
    assert (await opened.row()).messages == 4
    everything = message_texts(await opened.source.events(ID))
    assert everything == ["keep", "kept", "drop", "dropped", "instead", "done"]


async def test_open_turn_runs_while_it_is_written(tool: KimiSessions, opened: Opened) -> None:
    now = datetime.now(UTC)
    write(tool, turn(now, "question", "reply", ends=False))
    assert (await opened.row()).status == "running"
    path = tool.path(ID)
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    assert (await opened.row()).status == "idle", "its process was killed"
    tool.append(ID, turn(now, "more", "reply"))
    assert (await opened.row()).status == "idle", "the turn has ended"
    write(tool, old_turn(now, "old", "", finish="tool_use"), id=OTHER)
    assert (await opened.row(OTHER)).status == "running"
    tool.append(OTHER, old_turn(now, "old", "reply"))
    assert (await opened.row(OTHER)).status == "idle"


# Tokens.


async def test_usage_records_are_counted_and_nothing_else(
    tool: KimiSessions, opened: Opened
) -> None:
    completed = {"usage": {"inputOther": 7, "output": 7}}
    write(
        tool,
        turn(NOON, "one", "two"),
        usage(NOON, 600, 400, 10),
        record(NOON, "subagent.completed", subagentId="agent-0", **completed),
    )
    row = await opened.row()
    tokens = row.usage
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.output_tokens) == (600, 400, 10)
    assert row.models.keys() == {MODEL}, "by which it is priced"
    assert row.agent is not None and row.agent.overrides["model"] == ALIAS
    assert len(await opened.bodies(ModelCalled)) == 1


async def test_fork_counts_only_what_its_own_turns_used(tool: KimiSessions, opened: Opened) -> None:
    copied = turn(NOON, "one", "two") + usage(NOON, 600, 400, 10)
    write(tool, copied)
    tool.write(
        OTHER,
        metadata(NOON)
        + copied
        + record(minute(5), "forked")
        + turn(minute(6), "three", "four")
        + usage(minute(6), 700, 0, 4),
        cwd=CWD,
        at=minute(5.01),
        forkedFrom=f"session_{ID}",
        title="Fork: one",
        titleKind="replaceable",
    )
    row = await opened.row(OTHER)
    assert row.fork is not None and row.fork.session == ID
    assert (row.usage.input_tokens, row.usage.output_tokens) == (700, 4)
    conversation = await opened.conversation(OTHER)
    assert message_texts(conversation) == ["one", "two", "three", "four"]
    inherited = [item for item in conversation if item.seq <= row.fork.seq]
    assert message_texts(inherited) == ["one", "two"]


# Subagents.


async def test_subagent_is_a_thread_and_its_text_is_found(
    tool: KimiSessions, opened: Opened
) -> None:
    child = metadata(NOON) + message(NOON, "count the zebras", "system_trigger")
    child += say(NOON, "nine") + usage(NOON, 100, 0, 5)
    for id in (ID, OTHER):
        write(
            tool,
            message(NOON, "ask a helper"),
            call(NOON, "c1", "Agent", {"description": "count", "subagent_type": "coder"}),
            id=id,
        )
        tool.append(id, child, agent="agent-0")
    tool.append(ID, result(NOON, "c1", "agent_id: agent-0\nstatus: completed"))
    spawned = {"subagentId": "agent-0", "subagentName": "explore", "description": "counting"}
    tool.append(OTHER, record(NOON, "subagent.spawned", **spawned, parentToolCallId="c1"))
    assert {row.id for row in await opened.rows()} == {ID, OTHER}
    (thread,) = await opened.source.threads(ID)
    assert (thread.id, thread.title, thread.kind) == ("agent-0", "count", "coder")
    assert thread.usage.output_tokens == 5
    (started,) = [e for e in await opened.conversation() if isinstance(e.body, ToolCall)]
    assert thread.seq == started.seq
    (other,) = await opened.source.threads(OTHER)
    assert (other.title, other.kind) == ("counting", "explore")
    assert not (await opened.row()).usage.output_tokens, "the thread's own"
    events = [item async for item in opened.source.thread(ID, "agent-0")]
    assert message_texts(events) == ["count the zebras", "nine"]
    others = [item async for item in opened.source.thread(OTHER, "agent-0")]
    assert {item.id for item in events}.isdisjoint({item.id for item in others})
    assert {row.id for row in await opened.rows(text="zebras")} == {ID, OTHER}


# The state.


async def test_title_and_archive_are_those_of_the_state(tool: KimiSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    row = await opened.row()
    assert (row.title, row.title_by, row.archived_at) == ("question", "auto", None)
    tool.change_state(ID, title="Made by the model", titleKind="generated")
    assert (await opened.row()).title_by == "agent"
    tool.change_state(ID, title="My name", titleKind="custom", isCustomTitle=True)
    row = await opened.row()
    assert (row.title, row.title_by) == ("My name", "person")
    tool.change_state(ID, archived=True, archivedAt=millis(minute(9)))
    assert await opened.rows() == []
    (row,) = await opened.rows(archived="only")
    assert row.archived_at == millis(minute(9)) * 1000


async def test_state_of_an_older_version_is_completed_from_the_index(
    tool: KimiSessions, opened: Opened
) -> None:
    write(tool, old_turn(NOON, "question", "reply"))
    stamp = NOON.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    tool.write_state(ID, {"createdAt": stamp, "title": "question", "isCustomTitle": False})
    lines = [
        {"sessionId": f"session_{ID}", "sessionDir": "/moved", "workDir": "/from/the/index"},
        {"sessionId": f"session_{OTHER}", "sessionDir": "/gone", "workDir": "/nowhere"},
        {"sessionId": f"session_{OTHER}", "deleted": True},
    ]
    index = tool.directory / "session_index.jsonl"
    index.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (row,) = await opened.rows()
    assert (row.cwd, row.created_at) == ("/from/the/index", millis(NOON) * 1000)
    assert row.git_branch is None


async def test_damaged_state_is_named_and_the_session_is_still_listed(
    tool: KimiSessions, opened: Opened
) -> None:
    write(tool, record(NOON, "config.update", cwd="/from/wire"), turn(NOON, "question", "reply"))
    tool.state_path(ID).write_text('{"title": "half')
    (row,) = await opened.rows()
    assert (row.title, row.cwd) == ("question", "/from/wire")
    ((_, reason),) = (await opened.source.examine()).problems
    assert "state.json is damaged" in reason
    tool.append(ID, turn(minute(1), "more", "reply"))
    assert len((await opened.source.examine()).problems) == 1
    tool.state_path(ID).unlink()
    assert [row.id for row in await opened.rows()] == [ID]
    assert (await opened.source.examine()).problems == []


async def test_early_states_are_read(tool: KimiSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    tool.write_state(ID, {"customTitle": "Given early", "cwd": "/early"})
    path = tool.state_path(ID)
    (path.parent / "session-meta").mkdir()
    path.rename(path.parent / "session-meta/state.json")
    (row,) = await opened.rows()
    assert (row.title, row.title_by, row.cwd) == ("Given early", "person", "/early")


# Edits.


async def test_edits_change_only_their_fields_of_the_state(
    tool: KimiSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "question", "reply"), custom={"kept": [1]}, unknown="kept")
    before = json.loads(tool.state_path(ID).read_text())
    await opened.source.change(ID, InfoChanged(title="New", archived=True))
    state = json.loads(tool.state_path(ID).read_text())
    assert state.pop("archivedAt") > millis(NOON)
    title = {"title": "New", "titleKind": "custom", "isCustomTitle": True}
    assert state == before | title | {"archived": True}
    await opened.source.change(ID, InfoChanged(title=None, archived=False))
    assert json.loads(tool.state_path(ID).read_text()) == before | {"isCustomTitle": False}
    assert (await opened.row()).title == "question"
    assert {path.name for path in tool.state_path(ID).parent.iterdir()} == {"agents", "state.json"}


async def test_damaged_state_is_not_overwritten(tool: KimiSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    tool.state_path(ID).write_text('{"title": "half')
    with pytest.raises(StoreError, match="missing or damaged"):
        await opened.source.change(ID, InfoChanged(title="New"))
    assert tool.state_path(ID).read_text() == '{"title": "half'


async def test_deleted_session_is_noted_in_the_index(tool: KimiSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    index = tool.directory / "session_index.jsonl"
    index.write_text(json.dumps({"sessionId": f"session_{ID}", "workDir": CWD}) + "\n")
    directory = tool.state_path(ID).parent
    await opened.source.delete(ID)
    assert not directory.exists() and await opened.rows() == []
    assert json.loads(index.read_text().splitlines()[-1]) == {
        "sessionId": f"session_{ID}",
        "deleted": True,
    }


async def test_fork_is_a_session_of_kimi_code_that_names_its_origin(
    tool: KimiSessions, opened: Opened
) -> None:
    write(
        tool,
        turn(NOON, "one", "two"),
        usage(NOON, 600, 400, 10),
        message(NOON, "run"),
        say(NOON, "running"),
        call(NOON, "c1", "Bash", {"command": "ls"}),
        result(NOON, "c1", "done"),
        turn(minute(1), "only in the parent", "yes"),
        archived=True,
        archivedAt=millis(NOON),
    )
    tool.append(ID, metadata(NOON) + say(NOON, "from the helper"), agent="agent-0")
    before = tool.snapshot()
    (started,) = [e for e in await opened.conversation() if isinstance(e.body, ToolCall)]
    fork = await opened.source.fork(ID, OTHER, at=started.seq, cwd=None, title="A fork")
    assert (fork.id, fork.title, fork.cwd) == (OTHER, "A fork", CWD)
    assert (fork.native_id, fork.archived_at) == (f"session_{OTHER}", None)
    assert fork.fork is not None and fork.fork.session == ID
    assert not fork.usage.output_tokens, "the parent has paid"
    assert message_texts(await opened.conversation(OTHER)) == ["one", "two", "run", "running"]
    (closed,) = await opened.bodies(ToolResult, OTHER)
    assert (closed.call_id, closed.status) == ("c1", "failed")
    assert [thread.id for thread in await opened.source.threads(OTHER)] == ["agent-0"]
    after = tool.snapshot()
    assert {path: after[path] for path in before} == before
    state = json.loads(tool.state_path(OTHER).read_text())
    assert state["agents"]["main"]["homedir"] == str(tool.path(OTHER).parent)
    assert tool.state_path(OTHER).parent.parent == tool.state_path(ID).parent.parent
    (line,) = (tool.directory / "session_index.jsonl").read_text().splitlines()
    assert json.loads(line)["sessionDir"] == str(tool.state_path(OTHER).parent)
    later = datetime.now(UTC) + timedelta(minutes=1)
    tool.append(OTHER, turn(later, "three", "four") + usage(later, 700, 0, 4))
    assert (await opened.row(OTHER)).usage.output_tokens == 4


async def test_fork_in_another_directory_is_bound_to_its_workspace(
    tool: KimiSessions, opened: Opened
) -> None:
    binding = record(NOON, "runtime.set_binding", workspaceId="wd_project_x", runtimeId="local")
    write(tool, binding, turn(NOON, "one", "two"))
    fork = await opened.source.fork(ID, OTHER, at=None, cwd="/work/My App/", title=None)
    assert fork.cwd == "/work/My App/"
    workspace = tool.state_path(OTHER).parent.parent.name
    assert workspace.startswith("wd_my-app_")
    wire = [json.loads(line) for line in tool.path(OTHER).read_text().splitlines()]
    (bound,) = (line for line in wire if line["type"] == "runtime.set_binding")
    assert (bound["workspaceId"], bound["runtimeId"]) == (workspace, "local")


# The definition.


async def test_resume_command_and_home_honour_the_variable(
    tool: KimiSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    monkeypatch.setenv("KIMI_CODE_HOME", str(tool.directory))
    definition = KimiDefinition()
    assert definition.home() == str(tool.directory)
    command = definition.resume_command(await opened.row(), local=True)
    assert command.arguments == ("kimi", "-S", f"session_{ID}")
    assert command.environment == {"KIMI_CODE_HOME": str(tool.directory)}
    assert (await opened.row()).cwd == CWD


# Damage.


async def test_damaged_lines_hide_only_themselves(tool: KimiSessions, opened: Opened) -> None:
    two = message(NOON, "two") + message(NOON, "objects")
    write(
        tool,
        two.replace(b"\n", b"", 1),
        b'{"type": "context.append_mess\n',
        b"\0" * 100 + message(NOON, "after NULs"),
        message(NOON, "line\u2028separator"),
        b'[1]\n{"type": 5}\n{"type": "context.append_message", "message": null}\n',
        step(NOON, "tool.result", result=None),
        step(NOON, "content.part", part=None),
        record(NOON, "usage.record", usage="none"),
        turn(minute(1), "last", "reply"),
    )
    texts = message_texts(await opened.conversation())
    assert texts == ["two", "objects", "after NULs", "line\u2028separator", "last", "reply"]
    seqs = [item.seq for item in await opened.conversation()]
    assert seqs == sorted(set(seqs))
    problems = (await opened.source.examine()).problems
    assert len(problems) == 2 and all("damaged" in problem.reason for problem in problems)


async def test_unreadable_session_is_named_and_hides_no_other(
    tool: KimiSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    write(tool, turn(NOON, "bad", "bad"), id=OTHER)
    await tool.damage(OTHER)
    assert [row.id for row in await opened.rows()] == [ID]
    ((path, reason),) = (await opened.source.examine()).problems
    assert path == str(tool.path(OTHER)) and "no record" in reason
    tool.path(OTHER).unlink()
    assert [row.id for row in await opened.rows()] == [ID]
    assert (await opened.source.examine()).problems == []


async def test_refused_edit_names_the_file(
    tool: KimiSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    assert await opened.rows()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "state.json")

    monkeypatch.setattr(opened.source.reader, "change", refuse)
    with pytest.raises(StoreError, match=r"changed: .* Permission denied: 'state\.json'"):
        await opened.source.change(ID, InfoChanged(title="A name"))


async def test_rewritten_wire_is_read_again(tool: KimiSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "before", "reply"))
    assert message_texts(await opened.conversation()) == ["before", "reply"]
    tool.path(ID).write_bytes(metadata(NOON) + turn(NOON, "after, and longer", "ok"))
    assert message_texts(await opened.conversation()) == ["after, and longer", "ok"]
    assert await opened.rows(text="before") == []


async def test_growing_session_is_read_from_where_it_ended(
    tool: KimiSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tool, *(turn(minute(number), f"prompt {number}", "x" * 1000) for number in range(20)))
    await opened.conversation()
    offsets = opened.record_reads(monkeypatch)
    size = tool.path(ID).stat().st_size
    tool.append(ID, turn(minute(60), "new", "reply"))
    assert message_texts(await opened.conversation())[-2:] == ["new", "reply"]
    assert offsets == [size, size], "once for the index and once for the history"
