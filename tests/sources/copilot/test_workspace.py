"""Copilot's directory of a session: its name, edits, forks and the process that has it open."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from segue.model.errors import Busy, StoreError
from segue.model.event import (
    InfoChanged,
    ToolResult,
)
from segue.sources.copilot.definition import CopilotDefinition
from segue.testing.helpers import message_texts
from tests.sources.copilot.session_files import (
    CopilotSessions,
    answer,
    call,
    event,
    result,
    start,
    turn,
    usage_record,
    write,
)
from tests.sources.opened import CWD, ID, NOON, OTHER, Opened, minute

# The workspace.


async def test_names_are_plain_or_quoted_scalars(tool: CopilotSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    assert (await opened.row()).title == "question"
    for text, title in (
        ("name: Fix the [[tool]] {a: b} thing", "Fix the [[tool]] {a: b} thing"),
        ("name: 'Step 1: it''s done'", "Step 1: it's done"),
        ('name: "Tab\\tand \\"quotes\\""', 'Tab\tand "quotes"'),
        ("name: |-\n  two\n  lines", "two\nlines"),
        ("name: >-\n  folded\n  text", "folded text"),
        ("name: null\nsummary: The summary", "The summary"),
        ("{ damaged", "question"),
    ):
        tool.write_workspace(ID, f"{text}\nuser_named: true\n")
        row = await opened.row()
        assert row.title == title, text
    assert row.cwd == CWD, "from the start of the session"
    assert row.git_branch == "main"


async def test_name_that_a_person_gave_is_theirs(tool: CopilotSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"), name="question", user_named="false")
    assert (await opened.row()).title_by == "auto"
    tool.write_workspace(ID, "name: Release plan\nuser_named: true\ncwd: /elsewhere\nbranch: dev\n")
    row = await opened.row()
    assert (row.title, row.title_by) == ("Release plan", "person")
    assert (row.cwd, row.git_branch) == ("/elsewhere", "dev")


async def test_plain_workspace_needs_no_yaml_parser(
    tool: CopilotSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tool, turn(NOON, "question", "reply"), name="'Step 1: go'", user_named="false")
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert (await opened.row()).title == "Step 1: go"


async def test_directory_without_events_is_no_session(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    remains = tool.directory / "session-state" / OTHER
    remains.mkdir()
    (remains / "workspace.yaml").write_text(f"id: {OTHER}\nname: Deleted\n")
    locks = tool.directory / "session-state/.session-operation-locks"
    locks.mkdir()
    (locks / f"{ID}.lock").write_text("")
    assert [row.id for row in await opened.rows()] == [ID]
    report = await opened.source.examine()
    assert (report.sessions, report.problems) == (1, [])


async def test_session_file_of_an_early_version_is_listed_once(
    tool: CopilotSessions, opened: Opened
) -> None:
    old = tool.directory / "session-state" / f"{OTHER}.jsonl"
    old.write_bytes(start(OTHER, NOON, CWD) + turn(NOON, "early", "reply"))
    assert [(row.id, row.title) for row in await opened.rows()] == [(OTHER, "early")]
    write(tool, turn(NOON, "early", "reply"), turn(minute(1), "later", "reply"), id=OTHER)
    (row,) = await opened.rows()
    assert (row.id, row.turns) == (OTHER, 2)


# Edits.


@pytest.mark.parametrize(
    "name",
    [
        "Release plan",
        "Step 1: it's 'done' # now",
        "- dash",
        "two\nlines\tand \u2028",
        "🙂 {x}",
        "true",
    ],
)
async def test_new_name_is_in_the_workspace_and_its_other_lines_stay(
    tool: CopilotSessions, opened: Opened, name: str
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    before = "id: x\nname: >-\n  an old\n  name\ncwd: /elsewhere\nuser_named: false\nbranch: dev\n"
    tool.write_workspace(ID, before)
    assert (await opened.row()).title == "an old name"
    await opened.source.change(ID, InfoChanged(title=name))
    row = await opened.row()
    assert (row.title, row.title_by) == (name, "person")
    assert (row.cwd, row.git_branch) == ("/elsewhere", "dev")
    path = tool.path(ID).with_name("workspace.yaml")
    fields = yaml.safe_load(path.read_text())
    assert fields == {"id": "x", "cwd": "/elsewhere", "branch": "dev"} | {
        "name": name,
        "user_named": True,
    }
    await opened.source.change(ID, InfoChanged(title=None))
    row = await opened.row()
    assert (row.title, row.title_by) == ("question", "auto")
    assert sorted(file.name for file in path.parent.iterdir()) == ["events.jsonl", "workspace.yaml"]


async def test_session_without_a_workspace_cannot_be_renamed(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    tool.path(ID).with_name("workspace.yaml").unlink()
    with pytest.raises(StoreError, match="cannot be renamed"):
        await opened.source.change(ID, InfoChanged(title="New"))


async def test_session_that_copilot_has_open_is_not_changed(
    tool: CopilotSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    before = tool.snapshot()
    monkeypatch.setattr(type(opened.source.reader), "is_running", lambda self, ref: True)
    for edit in (opened.source.change(ID, InfoChanged(title="New")), opened.source.delete(ID)):
        with pytest.raises(Busy, match="close it there first"):
            await edit
    assert tool.snapshot() == before


async def test_deleted_session_leaves_no_directory(tool: CopilotSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    old = tool.directory / "session-state" / f"{OTHER}.jsonl"
    old.write_bytes(start(OTHER, NOON, CWD) + turn(NOON, "early", "reply"))
    assert len(await opened.rows()) == 2
    await opened.source.delete(ID)
    await opened.source.delete(OTHER)
    assert list((tool.directory / "session-state").iterdir()) == []
    assert await opened.rows() == []


async def test_fork_is_a_session_of_copilot_that_names_its_origin(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(
        tool,
        turn(NOON, "one", "two"),
        usage_record(ID, 1000, 10),
        answer(NOON, "running", call("c1", "bash", {"command": "ls"})),
        result(NOON, "c1", "done"),
        turn(minute(1), "only in the parent", "yes"),
        name="The 'parent'",
        note="|-\n  kept\n\n  lines",
    )
    before = tool.path(ID).read_bytes()
    cut = next(e.seq for e in await opened.conversation() if message_texts([e]) == ["running"])
    fork = await opened.source.fork(ID, OTHER, at=cut, cwd="/elsewhere", title=None)
    assert (fork.id, fork.title, fork.cwd) == (OTHER, "The 'parent' (fork)", "/elsewhere")
    assert fork.fork is not None and fork.fork.session == ID
    assert not fork.usage.output_tokens, "the parent has paid"
    assert message_texts(await opened.conversation(OTHER)) == ["one", "two", "running"]
    (closed,) = await opened.bodies(ToolResult, OTHER)
    assert (closed.call_id, closed.status) == ("c1", "failed")
    assert tool.path(ID).read_bytes() == before
    records = [json.loads(line) for line in tool.path(OTHER).read_bytes().splitlines()]
    assert records[0]["data"]["sessionId"] == OTHER
    assert records[-1]["parentId"] == records[-2]["id"]
    fields = yaml.safe_load(tool.path(OTHER).with_name("workspace.yaml").read_text())
    assert (fields["id"], fields["note"], fields["user_named"]) == (OTHER, "kept\n\nlines", False)
    assert {path.name for path in (tool.directory / "session-state").iterdir()} == {ID, OTHER}
    tool.append(OTHER, turn(minute(9), "three", "four") + usage_record(OTHER, 1100, 11))
    assert (await opened.row(OTHER)).usage.output_tokens == 11


# Running.


async def test_session_runs_while_the_process_of_its_lock_is_a_copilot(
    tool: CopilotSessions, opened: Opened, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    write(tool, event(now, "user.message", content="question"))
    assert (await opened.row()).status == "idle", "no process has it open"
    others_lock = tool.path(ID).with_name(f"inuse.{os.getpid()}.lock")
    others_lock.write_text(str(os.getpid()))
    if b"copilot" not in _command_line():
        assert (await opened.row()).status == "idle", "the process id belongs to another program"
    others_lock.unlink()
    program = tmp_path / "copilot.py"
    program.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    process = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    tool.path(ID).with_name(f"inuse.{process.pid}.lock").write_text(str(process.pid))
    assert (await opened.row()).status == "running"
    assert [row.id for row in await opened.rows(statuses=("running",))] == [ID]
    calls = answer(now, "", call("c1", "bash", {"command": "ls"}))
    tool.append(ID, calls + event(now, "assistant.turn_end", turnId="0"))
    assert (await opened.row()).status == "running", "the tool call has no result yet"
    tool.append(ID, answer(now, "reply"))
    tool.append(ID, event(now, "assistant.turn_end", turnId="1"))
    assert (await opened.row()).status == "idle", "the turn has ended"
    tool.append(ID, event(now, "user.message", content="more"))
    assert (await opened.row()).status == "running"
    process.communicate()
    assert (await opened.row()).status == "idle", "a stale lock"


def _command_line() -> bytes:
    path = Path("/proc/self/cmdline")
    return path.read_bytes() if path.exists() else b"copilot"


# The definition.


async def test_resume_command_and_home_honour_the_variables(
    tool: CopilotSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    definition = CopilotDefinition()
    monkeypatch.setenv("COPILOT_HOME", str(tool.directory))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert definition.home() == str(tool.directory)
    command = definition.resume_command(await opened.row(), local=True)
    assert command.arguments == ("copilot", f"--resume={ID}")
    assert command.environment == {"COPILOT_HOME": str(tool.directory)}
    monkeypatch.delenv("COPILOT_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert definition.home() == str(tmp_path / "state/.copilot")
    (tmp_path / ".copilot").mkdir()
    assert definition.home() == str(tmp_path / ".copilot")
