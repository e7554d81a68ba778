"""What Codex does to its files is shown as Codex shows it."""

import json
from typing import Any

import genai_prices

from segue.model.content import Diff, Image, plain_text
from segue.model.event import (
    AgentThought,
    Compacted,
    Foreign,
    Interrupted,
    ModelCalled,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.testing.helpers import message_texts
from tests.sources.codex.rollout_files import (
    MODEL,
    CodexSessions,
    call,
    event,
    message,
    meta,
    output,
    record,
    thread_id,
    token_count,
    turn,
    write_thread,
)
from tests.sources.opened import CWD, NOON, Opened, minute

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
