"""What Codex does to its files is shown as Codex shows it."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import genai_prices
import pytest

from segue.model.content import Diff, Image, plain_text
from segue.model.event import (
    AgentThought,
    Compacted,
    Foreign,
    InfoChanged,
    Interrupted,
    ModelCalled,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.model.query import Query
from segue.model.session import Session
from segue.sources import safe_io
from segue.sources.base import Source
from segue.testing.helpers import message_texts
from tests.sources.codex.rollout_files import (
    MODEL,
    CodexSessions,
    event,
    message,
    meta,
    record,
    thread_id,
    token_count,
    turn,
)
from tests.sources.opened import CWD, NOON, Opened, minute


@pytest.fixture
def tool(tmp_path: Path) -> CodexSessions:
    return CodexSessions(tmp_path / "codex", tmp_path / "codex.index")


@pytest.fixture
def opened(tool: CodexSessions) -> Opened:
    return Opened(tool)


def write_thread(tool: CodexSessions, *lines: bytes, at: datetime = NOON, **fields: Any) -> str:
    """Write a thread with these lines after its meta data, and return its id."""
    id = fields.pop("id", None) or thread_id(at)
    tool.write(id, meta(id, at, CWD, **fields) + b"".join(lines), at)
    return id


def call(name: str, call_id: str, arguments: Any) -> bytes:
    payload = {"type": "function_call", "name": name, "call_id": call_id}
    return record(NOON, "response_item", {**payload, "arguments": json.dumps(arguments)})


def output(call_id: str, text: Any) -> bytes:
    payload = {"type": "function_call_output", "call_id": call_id, "output": text}
    return record(NOON, "response_item", payload)


# Messages.


async def test_rollout_of_a_version_without_envelopes_is_read(
    tool: CodexSessions, opened: Opened
) -> None:
    """Such as Codex 0.25 writes."""

    def text(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    id = "d3ae94d6-8ba4-47be-bfef-a2fd04e31181"
    started = NOON.isoformat().replace("+00:00", "Z")
    git = {"branch": "feature/x"}
    shell = {"type": "function_call", "name": "shell", "call_id": "c1"}
    result = {"output": "a.py", "metadata": {"exit_code": 1}}
    records: list[dict[str, Any]] = [
        {"id": id, "timestamp": started, "instructions": None, "git": git},
        {"record_type": "state"},
        text("user", f"<environment_context>\n  <cwd>{CWD}</cwd>\n</environment_context>"),
        text("user", "question"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hmm"}]},
        {**shell, "arguments": json.dumps({"command": ["ls"]})},
        {"type": "function_call_output", "call_id": "c1", "output": json.dumps(result)},
        text("assistant", "answer"),
    ]
    tool.write(id, b"".join(json.dumps(record).encode() + b"\n" for record in records), NOON)
    row = await opened.row(id)
    assert (row.title, row.cwd, row.git_branch) == ("question", CWD, "feature/x")
    assert (row.turns, row.messages, row.tool_calls) == (1, 2, 1)
    assert row.created_at == NOON.timestamp() * 1_000_000
    assert message_texts(await opened.conversation(id)) == ["question", "answer"]
    assert (await opened.bodies(ToolResult, id))[0].exit_code == 1
    tool.append(id, json.dumps(text("user", "and now?")).encode() + b"\n")
    await opened.source.refresh()
    assert (await opened.row(id)).turns == 2


async def test_injected_user_messages_are_no_prompts(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(
        tool,
        message(NOON, "developer", "<permissions instructions>"),
        message(NOON, "user", "# AGENTS.md instructions for /work"),
        turn(NOON, "question", "reply", CWD),
        message(NOON, "user", "<turn_aborted>"),
        message(NOON, "user", "<subagent_notification>"),
        turn(minute(1), "more", "done", CWD),
    )
    row = await opened.row(id)
    assert (row.title, row.turns, row.messages) == ("question", 2, 4)
    texts = message_texts(await opened.conversation(id))
    assert texts == ["question", "reply", "more", "done"]
    kept = [body.raw["content"][0]["text"] for body in await opened.bodies(Foreign, id)]
    assert kept[1] == "# AGENTS.md instructions for /work" and len(kept) == 4


async def test_prompt_that_is_half_written_appears_once(
    tool: CodexSessions, opened: Opened
) -> None:
    """The line that says that a person typed a message comes after the message."""
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    tool.append(id, message(minute(1), "user", "typed"))
    assert message_texts(await opened.conversation(id)) == ["question", "reply"]
    tool.append(id, event(minute(1), "user_message", message="typed", images=[]))
    assert message_texts(await opened.conversation(id)) == ["question", "reply", "typed"]
    assert (await opened.row(id)).turns == 2


async def test_image_of_a_prompt_is_shown_without_its_tags(
    tool: CodexSessions, opened: Opened
) -> None:
    content = [
        {"type": "input_text", "text": '<image name=[Image #1] path="/work/a.png">'},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "what is this?"},
    ]
    payload = {"type": "message", "role": "user", "content": content}
    id = write_thread(
        tool,
        record(NOON, "response_item", payload),
        event(NOON, "user_message", message="what is this?", images=[]),
    )
    (prompt,) = await opened.bodies(UserMessage, id)
    assert plain_text(prompt.content) == "what is this?"
    assert [block.data for block in prompt.content if isinstance(block, Image)] == ["aGk="]


async def test_reasoning_compaction_and_interruption_are_events(
    tool: CodexSessions, opened: Opened
) -> None:
    summary = [{"type": "summary_text", "text": "I should look first."}]
    id = write_thread(
        tool,
        turn(NOON, "question", "reply", CWD),
        record(NOON, "response_item", {"type": "reasoning", "summary": summary}),
        record(NOON, "response_item", {"type": "reasoning", "summary": [], "content": None}),
        message(NOON, "assistant", "the summary"),
        record(NOON, "compacted", {"message": "the summary"}),
        event(NOON, "turn_aborted", reason="interrupted"),
    )
    assert [plain_text(body.content) for body in await opened.bodies(AgentThought, id)] == [
        "I should look first."
    ]
    (compacted,) = await opened.bodies(Compacted, id)
    assert plain_text(compacted.summary) == "the summary"
    assert message_texts(await opened.conversation(id)) == ["question", "reply"]
    assert len(await opened.bodies(Interrupted, id)) == 1


# Tools.


async def test_patch_is_shown_as_changes_of_files(tool: CodexSessions, opened: Opened) -> None:
    patch = (
        "*** Begin Patch\n*** Add File: notes.md\n+# Notes\n*** Update File: app.py\n@@\n"
        " def greet():\n-    return 1\n+    return 2\n*** End Patch\n"
    )
    payload = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c1", "input": patch}
    id = write_thread(tool, turn(NOON, "fix", "ok", CWD), record(NOON, "response_item", payload))
    (body,) = await opened.bodies(ToolCall, id)
    assert (body.kind, [location.path for location in body.locations]) == (
        "edit",
        ["notes.md", "app.py"],
    )
    assert body.content == (
        Diff(path="notes.md", old=None, new="# Notes\n"),
        Diff(path="app.py", old="def greet():\n    return 1\n", new="def greet():\n    return 2\n"),
    )


async def test_command_with_an_exit_code_has_failed(tool: CodexSessions, opened: Opened) -> None:
    failed = "Chunk ID: 1\nProcess exited with code 3\nOutput:\nno\n"
    older = json.dumps({"output": "no\n", "metadata": {"exit_code": 1}})
    id = write_thread(
        tool,
        turn(NOON, "run", "ok", CWD),
        call("exec_command", "c1", {"cmd": "false"}),
        output("c1", failed),
        call("shell", "c2", {"command": ["bash", "-lc", "false"]}),
        output("c2", older),
        call("exec_command", "c3", {"cmd": "true"}),
        output("c3", [{"type": "input_text", "text": "Process exited with code 0"}]),
    )
    calls = await opened.bodies(ToolCall, id)
    assert [(body.kind, body.title) for body in calls] == [
        ("execute", "false"),
        ("execute", "bash -lc false"),
        ("execute", "true"),
    ]
    results = await opened.bodies(ToolResult, id)
    assert [body.status for body in results] == ["failed", "failed", "completed"]


# Tokens.


async def test_cost_is_estimated_from_the_tokens_and_the_model(
    tool: CodexSessions, opened: Opened
) -> None:
    id = write_thread(
        tool,
        turn(NOON, "one", "two", CWD),
        token_count(NOON, 1000, 400, 10),
        call("exec_command", "c1", {"cmd": "true"}),
        output("c1", "Process exited with code 0"),
        token_count(NOON, 9000, 5400, 310),
    )
    (first, second) = [body.usage for body in await opened.bodies(ModelCalled, id)]
    assert (first.input_tokens, first.cache_read_tokens, first.output_tokens) == (600, 400, 10)
    for usage in (first, second):
        assert usage.cost == usage.estimated_cost == listed_cost(usage)
    row = await opened.row(id)
    assert row.usage == first + second == row.models[MODEL]
    assert row.has_full_cost and row.tool_calls == 1
    # What is added later is added to the estimate.
    tool.append(id, token_count(minute(1), 9500, 5400, 320))
    grown = await opened.row(id)
    (*_, third) = [body.usage for body in await opened.bodies(ModelCalled, id)]
    assert grown.usage == row.usage + third and third.cost == listed_cost(third)


def listed_cost(usage: Usage) -> int:
    tokens = genai_prices.Usage(
        input_tokens=usage.context_tokens,
        cache_read_tokens=usage.cache_read_tokens or 0,
        output_tokens=usage.output_tokens,
    )
    price = genai_prices.calc_price(tokens, MODEL, genai_request_timestamp=NOON)
    return round(price.total_price * 1_000_000)


async def test_tokens_of_a_model_without_a_price_make_a_partial_cost(
    tool: CodexSessions, opened: Opened
) -> None:
    other = record(NOON, "turn_context", {"turn_id": "t", "cwd": CWD, "model": "local-llama"})
    unknown = write_thread(tool, turn(NOON, "one", "two", CWD), other, token_count(NOON, 9, 0, 1))
    mixed = write_thread(
        tool,
        turn(NOON, "one", "two", CWD),
        token_count(NOON, 1000, 0, 10),
        other,
        token_count(NOON, 2000, 0, 20),
    )
    row = await opened.row(unknown)
    assert (row.usage.cost, row.has_full_cost) == (None, False)
    row = await opened.row(mixed)
    assert row.usage.cost == row.models[MODEL].cost == listed_cost(row.models[MODEL])
    assert (row.models["local-llama"].cost, row.has_full_cost) == (None, False)


async def test_repeated_totals_are_counted_once(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(
        tool,
        turn(NOON, "one", "two", CWD),
        event(NOON, "token_count", info=None),
        token_count(NOON, 1000, 400, 10),
        token_count(NOON, 1000, 400, 10),
    )
    usage = (await opened.row(id)).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (600, 400, 10)
    tool.append(id, token_count(minute(1), 1500, 600, 15))
    row = await opened.row(id)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (900, 15)
    assert row.models.keys() == {"gpt-5.4"}
    assert len(await opened.bodies(ModelCalled, id)) == 2


async def test_fork_counts_what_its_own_turns_used(tool: CodexSessions, opened: Opened) -> None:
    parent = write_thread(tool, turn(NOON, "one", "two", CWD), token_count(NOON, 1000, 0, 10))
    fork = thread_id(minute(5))
    copied = meta(parent, NOON, CWD) + turn(NOON, "one", "two", CWD)
    write_thread(
        tool,
        copied,
        token_count(minute(5), 1000, 0, 10),
        turn(minute(6), "three", "four", CWD),
        token_count(minute(6), 1800, 0, 14),
        at=minute(5),
        id=fork,
        forked_from_id=parent,
    )
    row = await opened.row(fork)
    assert row.fork is not None and row.fork.session == parent
    assert (row.usage.input_tokens, row.usage.output_tokens) == (800, 4)
    assert message_texts(await opened.conversation(fork)) == ["one", "two", "three", "four"]
    inherited = [item for item in await opened.conversation(fork) if item.seq <= row.fork.seq]
    assert message_texts(inherited) == ["one", "two"]
    assert (await opened.row(parent)).usage.input_tokens == 1000


# Pages, rollbacks, names, the archive.


async def test_fork_that_shares_the_file_of_its_parent_has_the_beginning_of_it(
    tool: CodexSessions, opened: Opened
) -> None:
    parent = write_thread(tool, turn(NOON, "one", "two", CWD))
    size = tool.path(parent).stat().st_size
    tool.append(parent, turn(minute(1), "only in the parent", "yes", CWD))
    base = {"thread_id": parent, "end_ordinal_exclusive": 9, "end_byte_offset": size}
    fork = write_thread(
        tool,
        turn(minute(6), "three", "four", CWD),
        at=minute(5),
        forked_from_id=parent,
        history_base=base,
    )
    assert message_texts(await opened.conversation(fork)) == ["one", "two", "three", "four"]
    before = await opened.conversation(fork)
    tool.append(fork, turn(minute(7), "five", "six", CWD))
    after = await opened.conversation(fork)
    assert [item.id for item in after][: len(before)] == [item.id for item in before]
    assert message_texts(after)[-2:] == ["five", "six"]
    assert (await opened.row(fork)).title == "three"
    tool.path(parent).unlink()
    tool.append(fork, turn(minute(8), "seven", "eight", CWD))
    report = await opened.source.examine()
    assert message_texts(await opened.conversation(fork))[-2:] == ["seven", "eight"]
    assert report.sessions == 1


async def test_reverted_thread_continues_in_its_newest_page(
    tool: CodexSessions, opened: Opened
) -> None:
    id = write_thread(tool, turn(NOON, "keep", "kept", CWD))
    size = tool.path(id).stat().st_size
    tool.append(id, turn(minute(1), "drop", "dropped", CWD))
    assert len(message_texts(await opened.conversation(id))) == 4
    page = thread_id(minute(2))
    base = {"thread_id": id, "end_ordinal_exclusive": 9, "end_byte_offset": size}
    data = meta(id, minute(2), CWD, history_base=base) + turn(minute(3), "instead", "done", CWD)
    tool.write(f"{id}_{page}", data, minute(2))
    assert [row.id for row in await _list(opened.source)] == [id]
    assert message_texts(await opened.conversation(id)) == ["keep", "kept", "instead", "done"]
    row = await opened.row(id)
    assert (row.messages, row.fork, row.created_at) == (4, None, _micros(NOON))


async def test_turns_that_were_rolled_back_are_not_in_the_conversation(
    tool: CodexSessions, opened: Opened
) -> None:
    id = write_thread(
        tool, turn(NOON, "keep", "kept", CWD), turn(minute(1), "drop", "dropped", CWD)
    )
    assert len(message_texts(await opened.conversation(id))) == 4
    tool.append(id, event(minute(2), "thread_rolled_back", num_turns=1))
    tool.append(id, turn(minute(3), "instead", "done", CWD))
    assert message_texts(await opened.conversation(id)) == ["keep", "kept", "instead", "done"]
    assert (await opened.row(id)).messages == 4
    everything = message_texts(await opened.source.events(id))
    assert everything == ["keep", "kept", "drop", "dropped", "instead", "done"]


async def test_last_name_of_a_thread_is_its_title(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    assert (await opened.row(id)).title == "question"
    names = tool.directory / "session_index.jsonl"
    for name in ("First name", "Last name"):
        with names.open("a") as file:
            file.write(json.dumps({"id": id, "thread_name": name}) + "\n")
    row = await opened.row(id)
    assert (row.title, row.title_by) == ("Last name", "person")
    assert [row.id for row in await _list(opened.source, text="last name")] == [id]
    assert await _list(opened.source, text="first name") == []
    (hit,) = await opened.source.ranked(Query(text="last"))
    assert isinstance(hit.event and hit.event.body, InfoChanged)


async def test_archived_thread_is_in_the_archive(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    assert [row.id for row in await _list(opened.source)] == [id]
    archive = tool.directory / "archived_sessions"
    archive.mkdir()
    path = tool.path(id)
    path.rename(archive / path.name)
    assert await _list(opened.source) == []
    assert [row.id for row in await _list(opened.source, archived="only")] == [id]
    assert message_texts(await opened.conversation(id)) == ["question", "reply"]


# Subagents.


async def test_subagent_is_a_thread_and_its_text_is_found_in_the_parent(
    tool: CodexSessions, opened: Opened
) -> None:
    child = thread_id(minute(1))
    parent = write_thread(
        tool,
        turn(NOON, "ask a helper", "asked", CWD),
        call("spawn_agent", "c1", {"message": "count"}),
        output("c1", json.dumps({"agent_id": child})),
    )
    spawn = {"parent_thread_id": parent, "depth": 1, "agent_nickname": "Ada", "agent_role": "x"}
    write_thread(
        tool,
        turn(minute(1), "count the zebras", "nine", CWD),
        token_count(minute(1), 100, 0, 5),
        at=minute(1),
        id=child,
        source={"subagent": {"thread_spawn": spawn}},
    )
    assert [row.id for row in await _list(opened.source)] == [parent]
    (thread,) = await opened.source.threads(parent)
    assert (thread.id, thread.title, thread.kind) == (child, "Ada", "x")
    assert thread.usage.output_tokens == 5
    (started,) = [e for e in await opened.conversation(parent) if isinstance(e.body, ToolCall)]
    assert thread.seq == started.seq
    events = [item async for item in opened.source.thread(parent, child)]
    assert message_texts(events) == ["count the zebras", "nine"]
    assert [row.id for row in await _list(opened.source, text="zebras")] == [parent]
    (hit,) = await opened.source.ranked(Query(text="zebras"))
    assert hit.event is not None and message_texts([hit.event]) == ["count the zebras"]
    assert hit.event.seq == started.seq


# Running.


async def test_thread_with_an_open_turn_runs_while_its_lock_is_held(
    tool: CodexSessions, opened: Opened
) -> None:
    fcntl = pytest.importorskip("fcntl")
    if not Path("/proc/locks").exists():
        pytest.skip("the system does not list its locks")
    now = datetime.now(UTC)
    id = write_thread(tool, turn(now, "question", "reply", CWD, ends=False), at=now)
    locks = tool.directory / "thread-writer-locks"
    locks.mkdir()
    with (locks / f"{id}.lock").open("w") as lock:
        assert (await opened.row(id)).status == "idle", "a lock file that no process holds"
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert (await opened.row(id)).status == "running"
        assert [row.id for row in await _list(opened.source, statuses=("running",))] == [id]
    assert (await opened.row(id)).status == "idle"


async def test_thread_of_an_older_version_runs_while_it_is_written(
    tool: CodexSessions, opened: Opened
) -> None:
    now = datetime.now(UTC)
    id = write_thread(tool, turn(now, "question", "reply", CWD, ends=False), at=now)
    ended = write_thread(tool, turn(now, "other", "reply", CWD), at=now)
    assert (await opened.row(id)).status == "running"
    assert (await opened.row(ended)).status == "idle"


async def test_thread_of_an_older_version_runs_while_a_process_has_it_open(
    tool: CodexSessions, opened: Opened
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("the system does not list open files")
    id = write_thread(tool, turn(NOON, "question", "reply", CWD, ends=False))
    path = tool.path(id)
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    assert (await opened.row(id)).status == "idle", "its process was killed"
    code = "import sys; file = open(sys.argv[1]); print(); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert (await opened.row(id)).status == "running"
    process.communicate()
    assert (await opened.row(id)).status == "idle"


# Damage.


async def test_damaged_and_compressed_files_are_named_and_hide_no_other_thread(
    tool: CodexSessions, opened: Opened
) -> None:
    good = write_thread(tool, turn(NOON, "question", "reply", CWD))
    bad = write_thread(tool, turn(minute(1), "bad", "bad", CWD), at=minute(1))
    await tool.damage(bad)
    torn = write_thread(
        tool, b'{"timestamp": "x", "ty\n', turn(minute(2), "torn", "line", CWD), at=minute(2)
    )
    packed = tool.write(thread_id(minute(3)), b"zstd", minute(3))
    packed = packed.rename(packed.with_name(packed.name + ".zst"))
    assert {row.id for row in await _list(opened.source)} == {good, torn}
    report = await opened.source.examine()
    assert report.sessions == 2
    problems = {path: reason for path, reason in report.problems}
    assert problems.keys() == {str(tool.path(bad)), str(tool.path(torn)), str(packed)}
    assert "damaged" in problems[str(packed)]
    assert "damaged" in problems[str(tool.path(torn))]


async def test_file_without_permission_is_named_and_read_once_it_has_it(
    tool: CodexSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write_thread(tool, turn(NOON, "question", "reply", CWD))
    hidden = write_thread(tool, turn(minute(1), "hidden", "reply", CWD), at=minute(1))
    path = str(tool.path(hidden))
    open_regular = safe_io.open_regular

    def refuse(other_path: str) -> Any:
        if other_path == path:
            raise safe_io.UnreadableFile(path)
        return open_regular(other_path)

    monkeypatch.setattr(safe_io, "open_regular", refuse)
    assert [row.id for row in await _list(opened.source)] == [good]
    assert (path, "it cannot be opened") in (await opened.source.examine()).problems
    monkeypatch.undo()
    assert {row.id for row in await _list(opened.source)} == {good, hidden}
    assert (await opened.source.examine()).problems == []


async def test_reader_that_fails_loses_no_session(
    tool: CodexSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    assert [row.id for row in await _list(opened.source)] == [id]

    def fail(self: Any, *arguments: Any) -> Any:
        raise KeyError("an unexpected value")

    for name in ("discover", "ref"):
        monkeypatch.setattr(type(opened.source.reader), name, fail)
    assert [row.id for row in await _list(opened.source)] == [id]
    assert (await opened.row(id)).title == "question"
    assert "an unexpected value" in (await opened.source.examine()).problems[0].reason


async def test_rewritten_file_is_read_again(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "before", "reply", CWD))
    assert message_texts(await opened.conversation(id)) == ["before", "reply"]
    tool.path(id).write_bytes(meta(id, NOON, CWD) + turn(NOON, "after, and longer", "ok", CWD))
    assert message_texts(await opened.conversation(id)) == ["after, and longer", "ok"]
    assert (await opened.row(id)).title == "after, and longer"
    assert await _list(opened.source, text="before") == []


async def test_damaged_database_only_hides_names(tool: CodexSessions, opened: Opened) -> None:
    id = write_thread(tool, turn(NOON, "question", "reply", CWD))
    (tool.directory / "state_5.sqlite").write_bytes(b"not a database" * 100)
    assert [row.id for row in await _list(opened.source)] == [id]
    ((path, reason),) = (await opened.source.examine()).problems
    assert path.endswith("state_5.sqlite") and "not a database" in reason


async def test_growing_thread_is_read_from_where_it_ended(
    tool: CodexSessions, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = write_thread(
        tool, *(turn(minute(number), f"prompt {number}", "x" * 1000, CWD) for number in range(50))
    )
    await opened.conversation(id)
    offsets: list[int] = []
    reader = type(opened.source.reader)
    read = reader.read

    def counting_read(self: Any, ref: Any, resume: Any = None) -> Any:
        offsets.append(0 if resume is None else resume.offset)
        return read(self, ref, resume)

    monkeypatch.setattr(reader, "read", counting_read)
    size = tool.path(id).stat().st_size
    tool.append(id, turn(minute(60), "new", "reply", CWD))
    assert message_texts(await opened.conversation(id))[-2:] == ["new", "reply"]
    assert offsets == [size, size], "once for the index and once for the history"


async def _list(source: Source, **query: Any) -> list[Session]:
    await source.refresh()
    return await source.page(Query(**query))


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
