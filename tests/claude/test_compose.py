"""Export sessions of other agents as transcripts that Claude Code can resume."""

from __future__ import annotations

from typing import Any

from segue import LOCAL, Hub, claude
from segue.model.content import Diff, Image, Resource, Text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    Compacted,
    Failed,
    Interrupted,
    ModelCalled,
    SystemMessage,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from segue.sources.claude.exchange import bundle
from tests.claude.entries import S2, Home, as_line, user
from tests.claude.helpers import Within, list_transcripts, text

CALL = ToolCall(call_id="call:1", name="read_file", input={"path": "a.txt"})


async def create_session(hub: Hub, *bodies: Any) -> str:
    session = await hub.editor.create(LOCAL, cwd="/w", title="Mine", id=S2)
    await hub.editor.append(LOCAL, session.id, *bodies)
    return session.id


def export(within: Within, *bodies: Any) -> list[Any]:
    """Export a session with these events, and return the messages that Claude Code would resume."""

    async def work(hub: Hub) -> None:
        await hub.sync.write(LOCAL, await create_session(hub, *bodies), "claude")

    within(work)
    return [
        (message.type, message.message["content"]) for message in claude.get_session_messages(S2)
    ]


def test_exported_conversation_is_a_chain_of_messages(home: Home, within: Within) -> None:
    usage = ModelCalled(usage=Usage(input_tokens=5, output_tokens=7), model="m-1")
    messages = export(
        within,
        UserMessage(content=text("Read a.txt")),
        AgentMessage(content=text("Reading.")),
        CALL,
        usage,
        ToolResult(call_id="call:1", content=text("the text")),
        AgentMessage(content=text("Done.")),
    )
    use = {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "a.txt"}}
    result = {
        "tool_use_id": "call_1",
        "type": "tool_result",
        "content": [{"type": "text", "text": "the text"}],
        "is_error": False,
    }
    assert messages == [
        ("user", "Read a.txt"),
        ("assistant", [{"type": "text", "text": "Reading."}]),
        ("assistant", [use]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": "Done."}]),
    ]
    info = claude.get_session_info(S2)
    assert info is not None
    assert (info.custom_title, info.cwd) == ("Mine", "/w")
    lines = [one.message for one in claude.get_session_messages(S2) if one.type == "assistant"]
    assert lines[0]["id"] == lines[1]["id"] != lines[2]["id"]
    assert (lines[0]["model"], lines[0]["usage"]["output_tokens"]) == ("m-1", 7)


def test_export_adds_a_result_to_an_unanswered_call(home: Home, within: Within) -> None:
    messages = export(within, UserMessage(content=text("Go")), CALL, UserMessage(content=text("?")))
    assert messages[2][1][0]["is_error"] is True
    assert [kind for kind, _ in messages] == ["user", "assistant", "user", "user"]


def test_export_puts_results_after_their_calls(home: Home, within: Within) -> None:
    messages = export(
        within,
        UserMessage(content=text("Go")),
        ToolCall(call_id="1", name="a"),
        ToolCall(call_id="2", name="b", server="box"),
        ToolResult(call_id="2", status="failed", output={"why": "no"}),
        AgentMessage(content=text("Half.")),
        ToolResult(call_id="1", content=text("yes")),
        ToolResult(call_id="never called"),
        AgentMessage(content=text("All.")),
    )
    shape = [(kind, [block["type"] for block in content]) for kind, content in messages[1:]]
    assert shape == [
        ("assistant", ["tool_use"]),
        ("assistant", ["tool_use"]),
        ("user", ["tool_result"]),
        ("user", ["tool_result"]),
        ("assistant", ["text"]),
        ("assistant", ["text"]),
    ]
    assert messages[2][1][0]["name"] == "mcp__box__b"
    results = {block["tool_use_id"]: block for kind, (block, *_) in messages[3:5]}
    assert results["1"]["content"] == [{"type": "text", "text": "yes"}]
    assert (results["2"]["content"], results["2"]["is_error"]) == ('{"why":"no"}', True)


def test_export_encodes_images_files_and_diffs(home: Home, within: Within) -> None:
    content = (
        Text(text="Look"),
        Image(mime="image/png", data="aGk="),
        Image(uri="https://example.org/a.png"),
        Resource(uri="file:///a.txt", text="inside"),
        Resource(uri="b.pdf", data="aGk=", mime="application/pdf"),
        Diff(path="/w/a", old="x", new="y"),
    )
    ((_, blocks),) = export(within, UserMessage(content=content))
    assert [block["type"] for block in blocks] == [
        "text",
        "image",
        "image",
        "text",
        "document",
        "text",
    ]
    assert blocks[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert blocks[5]["text"] == "/w/a\n-x\n+y\n"


def test_exported_compaction_hides_older_messages_from_the_model_only(
    home: Home, within: Within
) -> None:
    messages = export(
        within,
        UserMessage(content=text("First")),
        Compacted(summary=text("So far: first."), trigger="manual", tokens_before=9),
        UserMessage(content=text("Second")),
    )
    assert [content for _, content in messages] == ["So far: first.", "Second"]
    tree = claude.get_session_tree(S2)
    assert tree is not None
    history = [entry.message["content"] for entry in tree.path() if entry.type == "user"]
    assert history == ["First", "So far: first.", "Second"]


def test_export_writes_unsigned_thoughts_as_text(home: Home, within: Within) -> None:
    signed = AgentThought(content=text("deep"), extra={"claude": {"signature": "sig"}})
    messages = export(
        within, UserMessage(content=text("?")), signed, AgentThought(content=text("mine"))
    )
    assert messages[1][1] == [{"type": "thinking", "thinking": "deep", "signature": "sig"}]
    assert messages[2][1] == [{"type": "text", "text": "<thinking>\nmine\n</thinking>"}]


def test_export_marks_interruptions_failures_and_instructions(home: Home, within: Within) -> None:
    export(
        within,
        SystemMessage(content=text("Be kind.")),
        UserMessage(content=text("?")),
        Failed(message="overloaded", code="overloaded_error"),
        Interrupted(),
    )
    (path,) = list_transcripts(home.root)
    entries = [line.entries[0] for line in bundle.read_bundle(str(path)).lines]
    messages = [entry for entry in entries if entry["type"] in ("user", "assistant")]
    assert messages[0]["isMeta"] is True
    assert messages[2]["isApiErrorMessage"] is True
    assert messages[3]["message"]["content"][0]["text"].startswith("[Request interrupted")


def test_import_of_a_continued_export_adds_only_new_lines(home: Home, within: Within) -> None:
    export(
        within,
        UserMessage(content=text("Go")),
        CALL,
        Compacted(summary=text("Gone.")),
        AgentMessage(content=text("a", "b")),
    )
    (path,) = list_transcripts(home.root)
    last = claude.get_session_messages(S2)[-1].uuid
    with path.open("ab") as file:
        file.write(as_line(user("u9", last, "On", sessionId=S2)))
    session, count = within(lambda hub: hub.sync.import_session(LOCAL, S2, "claude"))
    assert (session.id, session.source, count) == (S2, "segue", 1)
