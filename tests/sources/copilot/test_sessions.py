"""What Copilot does to its files is shown as Copilot shows it."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from segue.model.content import Diff, Image, ResourceLink, plain_text
from segue.model.errors import Busy, StoreError
from segue.model.event import (
    AgentThought,
    Compacted,
    Event,
    Failed,
    Foreign,
    InfoChanged,
    Interrupted,
    ModelCalled,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.query import Query
from segue.model.session import Session
from segue.sources.copilot.definition import CopilotDefinition
from segue.sources.kit.source import KitSource
from segue.testing.helpers import message_texts
from tests.sources.copilot.session_files import (
    CopilotSessions,
    answer,
    call,
    event,
    metrics,
    result,
    start,
    turn,
)

CWD = "/work/project"
NOON = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
ID = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.fixture
def tool(tmp_path: Path) -> CopilotSessions:
    return CopilotSessions(tmp_path / "copilot", tmp_path / "copilot.index")


class Opened:
    """A source over a Copilot home."""

    def __init__(self, tool: CopilotSessions) -> None:
        source = tool.open_source()
        assert isinstance(source, KitSource)
        self.source = source

    async def row(self, id: str = ID) -> Session:
        session = await self.source.get(id)
        assert session is not None
        return session

    async def rows(self, **query: Any) -> list[Session]:
        await self.source.refresh()
        return await self.source.page(Query(**query))

    async def conversation(self, id: str = ID) -> list[Event]:
        await self.source.get(id)
        return [item async for item in self.source.conversation(id)]

    async def bodies(self, kind: type, id: str = ID) -> list[Any]:
        return [item.body for item in await self.conversation(id) if isinstance(item.body, kind)]


@pytest.fixture
def opened(tool: CopilotSessions) -> Opened:
    return Opened(tool)


def write(tool: CopilotSessions, *lines: bytes, id: str = ID, **workspace: str) -> None:
    """Write a session with these lines after its start."""
    data = start(id, NOON, CWD) + b"".join(lines)
    tool.write(id, data, cwd=CWD, at=NOON, **workspace)


# Messages.


async def test_prompt_is_what_was_typed_and_injected_messages_are_no_prompts(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(
        tool,
        event(NOON, "system.message", role="system", content="You are Copilot"),
        turn(NOON, "question", "reply"),
        event(NOON, "user.message", content="the skill's text", source="skill-pdf"),
        event(NOON, "user.message", content="Continue", source="autopilot"),
        event(NOON, "user.message", content="/review", source="command-review"),
    )
    assert message_texts(await opened.conversation()) == ["question", "reply", "/review"]
    row = await opened.row()
    assert (row.turns, row.title) == (2, "question")
    assert len(await opened.bodies(Foreign)) == 3


async def test_thoughts_errors_interrupts_and_compactions_are_events(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(
        tool,
        event(NOON, "user.message", content="question"),
        event(NOON, "assistant.reasoning", content="First thought"),
        answer(NOON, "", call("c1", "bash", {"command": "ls"}), reasoningText="First thought"),
        answer(NOON, "done", reasoningText="Second thought"),
        event(NOON, "abort", reason="user_abort"),
        event(NOON, "session.error", errorType="query", message="400 no", statusCode=400),
        event(
            NOON,
            "session.compaction_complete",
            success=True,
            summaryContent="All was said.",
            preCompactionTokens=900,
            postCompactionTokens=90,
        ),
        event(NOON, "session.compaction_complete", success=False),
    )
    thoughts = await opened.bodies(AgentThought)
    assert [plain_text(body.content) for body in thoughts] == ["First thought", "Second thought"]
    (interrupted,) = await opened.bodies(Interrupted)
    assert interrupted.reason == "user_abort"
    (failed,) = await opened.bodies(Failed)
    assert (failed.message, failed.code) == ("400 no", "query")
    (compacted,) = await opened.bodies(Compacted)
    assert plain_text(compacted.summary) == "All was said."
    assert (compacted.tokens_before, compacted.tokens_after) == (900, 90)


async def test_attachments_are_blocks_of_the_prompt(tool: CopilotSessions, opened: Opened) -> None:
    asset = {"assetId": "sha256:abc", "mimeType": "image/png", "data": "aW1hZ2U="}
    write(tool, event(NOON, "session.binary_asset", **asset))
    assert await opened.rows() == []
    image = {"type": "file", "path": "/a.png", "assetId": "sha256:abc", "mimeType": "image/png"}
    file = {"type": "file", "path": "/b.txt", "displayName": "b.txt"}
    tool.append(
        ID, event(NOON, "user.message", content="look", attachments=[image, file, "damaged"])
    )
    (prompt,) = await opened.bodies(UserMessage)
    _, picture, link = prompt.content
    assert picture == Image(mime="image/png", data="aW1hZ2U=")
    assert link == ResourceLink(uri="file:///b.txt", name="b.txt")


# Tools.


async def test_call_is_shown_once_with_its_result_and_exit_code(
    tool: CopilotSessions, opened: Opened
) -> None:
    old_output = "no\n<exited with exit code 2>"
    write(
        tool,
        event(NOON, "user.message", content="run"),
        answer(NOON, "", call("c1", "bash", {"command": "false"}), call("c2", "bash", {})),
        event(NOON, "tool.execution_start", toolCallId="c1", toolName="bash", arguments={}),
        result(NOON, "c1", "failed", shellExecution={"exitCode": 1}),
        result(NOON, "c2", old_output),
        event(NOON, "tool.user_requested", toolCallId="c3", toolName="bash", arguments={}),
        event(NOON, "tool.execution_start", toolCallId="c3", toolName="bash", arguments={}),
        result(NOON, "c3", "fine", shellExecution={"exitCode": 0}),
        answer(NOON, "", call("c4", "mcp", {}), call("c5", "never_ends", {})),
        event(
            NOON,
            "tool.execution_complete",
            toolCallId="c4",
            success=False,
            error={"message": "The user rejected it", "code": "rejected"},
        ),
    )
    calls = await opened.bodies(ToolCall)
    assert [body.call_id for body in calls] == ["c1", "c2", "c3", "c4", "c5"]
    assert (calls[0].kind, calls[0].title) == ("execute", "false")
    results = await opened.bodies(ToolResult)
    assert [body.status for body in results] == ["failed", "failed", "completed", "failed"]
    assert [body.exit_code for body in results] == [1, 2, 0, None]
    assert plain_text(results[3].content) == "The user rejected it"
    assert plain_text(results[1].content) == old_output


async def test_edits_are_diffs(tool: CopilotSessions, opened: Opened) -> None:
    patch = "*** Begin Patch\n*** Add File: /c.md\n+# Notes\n*** End Patch\n"
    unified = (
        "\ndiff --git a/d.py b/d.py\nindex 0..0 100644\n--- a/d.py\n+++ b/d.py\n"
        "@@ -1,3 +1,3 @@\n def f():\n-    return 1\n+    return 2\n \n"
    )
    write(
        tool,
        event(NOON, "user.message", content="edit"),
        answer(
            NOON,
            "",
            call("c1", "edit", {"path": "/a.py", "old_str": "1", "new_str": "2"}),
            call("c2", "create", {"path": "/b.py", "file_text": "x\n"}),
            call("c3", "apply_patch", patch),
            call("c4", "multi_edit", {"edits": []}),
            call("c5", "view", {"path": "/d.py"}),
        ),
        *(
            event(
                NOON,
                "tool.execution_complete",
                toolCallId=id,
                success=True,
                result={"content": "ok", "detailedContent": unified},
            )
            for id in ("c1", "c4")
        ),
        result(NOON, "c5", "def f():"),
    )
    calls = await opened.bodies(ToolCall)
    assert [body.content for body in calls[:3]] == [
        (Diff(path="/a.py", old="1", new="2"),),
        (Diff(path="/b.py", new="x\n"),),
        (Diff(path="/c.md", new="# Notes\n"),),
    ]
    first, second, _ = await opened.bodies(ToolResult)
    assert not any(isinstance(block, Diff) for block in first.content), "its call shows it"
    (diff,) = (block for block in second.content if isinstance(block, Diff))
    assert (diff.path, diff.old) == ("/d.py", "def f():\n    return 1\n")
    assert diff.new == "def f():\n    return 2\n"


# Subagents.


async def test_subagent_is_a_thread_and_its_text_is_found(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(
        tool,
        event(NOON, "user.message", content="ask a helper"),
        answer(NOON, "", call("c1", "task", {"prompt": "count", "agent_type": "explore"})),
        event(
            NOON,
            "subagent.started",
            agent="agent-1",
            toolCallId="c1",
            agentName="explore",
            agentDisplayName="Counter",
        ),
        event(NOON, "user.message", agent="agent-1", content="count the zebras", source="agent-x"),
        event(NOON, "user.message", content="typed meanwhile"),
        # Older versions name only the call.
        event(NOON, "assistant.message", parentToolCallId="c1", content="nine", toolRequests=[]),
        event(NOON, "subagent.completed", agent="agent-1", toolCallId="c1"),
        result(NOON, "c1", "nine"),
        answer(NOON, "there are nine"),
    )
    assert message_texts(await opened.conversation()) == [
        "ask a helper",
        "typed meanwhile",
        "there are nine",
    ]
    assert (await opened.row()).turns == 2
    (thread,) = await opened.source.threads(ID)
    assert (thread.id, thread.title, thread.kind) == ("agent-1", "Counter", "explore")
    (started,) = [e for e in await opened.conversation() if isinstance(e.body, ToolCall)]
    assert thread.seq == started.seq
    events = [item async for item in opened.source.thread(ID, "agent-1")]
    assert message_texts(events) == ["count the zebras", "nine"]
    assert [row.id for row in await opened.rows(text="zebras")] == [ID]


# Tokens.


def usage_record(source: str, input: int, output: int, agent: str | None = None) -> bytes:
    usage = {"model": "gpt-5.4", "inputTokens": input, "outputTokens": output}
    accounting = {"sourceSessionId": source, "sequence": 1}
    usage |= {"cacheReadTokens": 100, "cacheWriteTokens": 0, "accounting": accounting}
    return event(NOON, "session.usage_record", agent=agent, usage=usage)


async def test_records_of_model_calls_count_and_shutdowns_repeat_them(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(
        tool,
        turn(NOON, "one", "two"),
        usage_record(ID, 1000, 10),
        usage_record("of-the-subagent", 500, 5, agent="agent-1"),
        event(NOON, "session.shutdown", modelMetrics=metrics(2, 1500, 200, 15)),
    )
    usage = (await opened.row()).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (1300, 200, 15)


async def test_fork_counts_only_what_its_own_turns_used(
    tool: CopilotSessions, opened: Opened
) -> None:
    message = f'Forked from "one (really)" ({OTHER}) as "one (fork)" ({ID}).'
    write(
        tool,
        turn(NOON, "one", "two"),
        usage_record(OTHER, 1000, 10),
        usage_record("of-the-subagent", 500, 5, agent="agent-1"),
        event(NOON, "session.info", infoType="fork", message=message),
        turn(minute(5), "three", "four"),
        usage_record(ID, 1100, 11),
    )
    row = await opened.row()
    assert row.fork is not None and row.fork.session == OTHER
    assert (row.usage.input_tokens, row.usage.output_tokens) == (1000, 11)
    conversation = await opened.conversation()
    assert message_texts(conversation) == ["one", "two", "three", "four"]
    inherited = [item for item in conversation if item.seq <= row.fork.seq]
    assert message_texts(inherited) == ["one", "two"]


async def test_parent_is_no_fork_of_its_forks(tool: CopilotSessions, opened: Opened) -> None:
    message = f'Forked this session into "one (fork)" ({OTHER}).'
    write(
        tool,
        turn(NOON, "one", "two"),
        event(NOON, "session.info", infoType="fork", message=message),
    )
    assert (await opened.row()).fork is None


@pytest.mark.parametrize("is_total", [False, True])
async def test_shutdowns_of_runs_and_of_all_runs_are_both_understood(
    tool: CopilotSessions, opened: Opened, *, is_total: bool
) -> None:
    """Some versions count the run that ends, others all runs of the session."""
    write(
        tool,
        turn(NOON, "one", "two"),
        event(NOON, "session.shutdown", modelMetrics=metrics(1, 100, 40, 1)),
        event(minute(1), "session.resume", eventCount=5),
        turn(minute(1), "three", "four"),
        turn(minute(1), "five", "six"),
    )
    assert (await opened.row()).usage.output_tokens == 1
    second = metrics(3, 900, 240, 9) if is_total else metrics(2, 800, 200, 8)
    tool.append(ID, event(minute(2), "session.shutdown", modelMetrics=second))
    row = await opened.row()
    assert (row.usage.input_tokens, row.usage.cache_read_tokens) == (660, 240)
    assert row.usage.output_tokens == 9
    assert row.models.keys() == {"gpt-5.4"}
    assert len(await opened.bodies(ModelCalled)) == 2


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


# Damage.


async def test_damaged_lines_hide_only_themselves(tool: CopilotSessions, opened: Opened) -> None:
    two = turn(NOON, "two", "objects").replace(b"\n", b"", 1)
    write(
        tool,
        two,
        b'{"type": "user.message", "da\n',
        b"\0" * 100 + event(NOON, "user.message", content="after NULs"),
        '{"type":"user.message","data":{"content":"line\u2028separator"}}\n'.encode(),
        b'[1, 2]\n{"type": 5, "data": {}}\n{"type": "user.message", "data": null}\n',
        turn(minute(1), "last", "reply"),
    )
    texts = message_texts(await opened.conversation())
    assert texts == ["two", "objects", "after NULs", "line\u2028separator", "last", "reply"]
    seqs = [item.seq for item in await opened.conversation()]
    assert seqs == sorted(set(seqs))
    problems = (await opened.source.examine()).problems
    assert len(problems) == 2 and all("damaged" in problem.reason for problem in problems)


async def test_half_line_is_read_when_it_is_complete(tool: CopilotSessions, opened: Opened) -> None:
    write(tool, turn(NOON, "question", "reply"))
    line = event(minute(1), "user.message", content="slowly written")
    tool.append(ID, line[:40])
    assert message_texts(await opened.conversation()) == ["question", "reply"]
    assert (await opened.source.examine()).problems == []
    tool.append(ID, line[40:])
    assert message_texts(await opened.conversation()) == ["question", "reply", "slowly written"]


async def test_rewound_session_is_read_again(tool: CopilotSessions, opened: Opened) -> None:
    kept = turn(NOON, "keep", "kept")
    write(tool, kept, turn(minute(1), "drop", "dropped"))
    assert len(message_texts(await opened.conversation())) == 4
    tool.path(ID).write_bytes(start(ID, NOON, CWD) + kept + turn(minute(2), "instead", "done"))
    assert message_texts(await opened.conversation()) == ["keep", "kept", "instead", "done"]
    assert await opened.rows(text="drop") == []


async def test_unreadable_session_is_named_and_hides_no_other(
    tool: CopilotSessions, opened: Opened
) -> None:
    write(tool, turn(NOON, "question", "reply"))
    write(tool, turn(NOON, "bad", "bad"), id=OTHER)
    await tool.damage(OTHER)
    assert [row.id for row in await opened.rows()] == [ID]
    ((path, reason),) = (await opened.source.examine()).problems
    assert path == str(tool.path(OTHER)) and "no event" in reason
    tool.path(OTHER).unlink()
    tool.path(OTHER).mkdir()
    assert [row.id for row in await opened.rows()] == [ID]


async def test_growing_session_is_read_from_where_it_ended(
    tool: CopilotSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tool, *(turn(minute(number), f"prompt {number}", "x" * 1000) for number in range(20)))
    await opened.conversation()
    offsets: list[int] = []
    reader = type(opened.source.reader)
    read = reader.read

    def counting_read(self: Any, ref: Any, resume: Any = None) -> Any:
        offsets.append(0 if resume is None else resume.offset)
        return read(self, ref, resume)

    monkeypatch.setattr(reader, "read", counting_read)
    size = tool.path(ID).stat().st_size
    tool.append(ID, turn(minute(60), "new", "reply"))
    assert message_texts(await opened.conversation())[-2:] == ["new", "reply"]
    assert offsets == [size, size], "once for the index and once for the history"
