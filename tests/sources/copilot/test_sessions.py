"""What Copilot does to its files is shown as Copilot shows it."""

import pytest

from segue.model.content import Diff, Image, ResourceLink, plain_text
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
    usage_record,
    write,
)
from tests.sources.opened import CWD, ID, NOON, OTHER, Opened, minute

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


async def test_images_that_a_tool_returned_are_in_its_result(
    tool: CopilotSessions, opened: Opened
) -> None:
    asset = {"assetId": "sha256:abc", "mimeType": "image/png"}
    inline = {"type": "image", "mimeType": "image/png", "data": "aW5saW5l"}
    omitted = {"type": "image", "mimeType": "image/png", "omittedReason": "too_large"}
    binary = [asset, inline, omitted, "damaged"]
    result = {"content": "Viewed.", "contents": [inline], "binaryResultsForLlm": binary}
    write(
        tool,
        event(NOON, "user.message", content="look"),
        answer(NOON, "", call("c1", "view", {"path": "/a.png"})),
        event(NOON, "session.binary_asset", **asset, data="aW1hZ2U="),
        event(NOON, "tool.execution_complete", toolCallId="c1", success=True, result=result),
    )
    (body,) = await opened.bodies(ToolResult)
    images = [block for block in body.content if isinstance(block, Image)]
    assert [image.data for image in images] == ["aW5saW5l", "aW1hZ2U="]


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
        answer(
            NOON, "", call("c4", "mcp", {}), call("c5", "bash", {}), call("c6", "never_ends", {})
        ),
        event(
            NOON,
            "tool.execution_complete",
            toolCallId="c4",
            success=False,
            error={"message": "The user rejected it", "code": "rejected"},
        ),
        # 1.0.69 replaces the characters of secrets, here of "x", also in its own texts.
        result(
            NOON,
            "c5",
            "<shellId: 2 completed with e******it code 3>",
            toolTelemetry={"metrics": {"exit_code": 3}},
        ),
    )
    calls = await opened.bodies(ToolCall)
    assert [body.call_id for body in calls] == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert (calls[0].kind, calls[0].title) == ("execute", "false")
    results = await opened.bodies(ToolResult)
    statuses = ["failed", "failed", "completed", "failed", "failed"]
    assert [body.status for body in results] == statuses
    assert [body.exit_code for body in results] == [1, 2, 0, None, 3]
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
    offsets = opened.record_reads(monkeypatch)
    size = tool.path(ID).stat().st_size
    tool.append(ID, turn(minute(60), "new", "reply"))
    assert message_texts(await opened.conversation())[-2:] == ["new", "reply"]
    assert offsets == [size, size], "once for the index and once for the history"
