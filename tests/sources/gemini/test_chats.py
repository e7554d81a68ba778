"""What Gemini does to its files is shown as Gemini shows it."""

from segue.model.content import Diff, Image, plain_text
from segue.model.event import (
    AgentThought,
    Compacted,
    Failed,
    Interrupted,
    ModelCalled,
    ToolCall,
    ToolResult,
    UserMessage,
)
from tests.sources.gemini.chat_files import (
    CWD,
    NOON,
    GeminiSessions,
    all_messages,
    context,
    header,
    line,
    message,
    minute,
    prompt,
    reply,
    tokens,
    tool_call,
    turn,
    write,
)
from tests.sources.opened_source import OpenedSource

# Messages that are written again.


def test_message_that_is_written_again_with_its_calls_is_one_message(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    first = reply(NOON, "Looking.", "r1", thoughts=[{"subject": "Plan", "description": "List it."}])
    call = tool_call(minute(1), "c1", "run_shell_command", {"command": "ls"}, "cart.py")
    id = write(
        tool,
        line(prompt(NOON, "List the files")),
        line(first),
        line({**first, "toolCalls": [call]}),
        line(message(minute(1), "user", call["result"])),
        line(reply(minute(2), "One file.")),
    )
    assert source.conversation(id) == ["List the files", "Looking.", "One file."]
    (thought,) = source.bodies(id, AgentThought)
    assert plain_text(thought.content) == "**Plan**\n\nList it."
    assert len(source.bodies(id, ToolCall)) == len(source.bodies(id, ToolResult)) == 1
    row = source.row(id)
    assert (row.usage.input_tokens, row.usage.output_tokens) == (200, 20)
    assert row.turns == 1


def test_changed_text_replaces_the_earlier_one(tool: GeminiSessions, source: OpenedSource) -> None:
    id = write(tool, line(prompt(NOON, "question")), line(reply(NOON, "Draft", "r1")))
    assert source.conversation(id) == ["question", "Draft"]
    tool.append(id, line(reply(NOON, "Final", "r1", tokens=tokens(7, 3))))
    assert source.conversation(id) == ["question", "Final"]
    assert source.row(id).usage.input_tokens == 7


def test_resume_that_writes_all_messages_again_adds_none(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    call = tool_call(NOON, "c1", "read_file", {"file_path": "/work/project/a"}, "content")
    id = write(
        tool,
        line(prompt(NOON, "question", "u1")),
        line(reply(NOON, "", "r1", toolCalls=[call], tokens=tokens(50, 5))),
        line(reply(NOON, "answer", "r2")),
    )
    before = [event.id for event in source.events(id)]
    content = [{"functionCall": {"id": "c1", "name": "read_file", "args": call["args"]}}]
    copies = (
        context(minute(1)),
        prompt(minute(1), "question", "u1"),
        message(minute(1), "gemini", content, "r1"),
        message(minute(1), "user", call["result"], "r1_response"),
        message(minute(1), "gemini", [{"text": "answer"}], "r2"),
    )
    start = header(id, CWD, minute(1)) + all_messages(minute(1), context(minute(1)))
    tool.append(id, start + all_messages(minute(1), *copies) + turn(minute(1), "more", "done"))
    assert source.conversation(id) == ["question", "answer", "more", "done"]
    assert [event.id for event in source.events(id)][: len(before)] == before
    assert source.row(id).usage.input_tokens == 250
    assert source.row(id).created_at == int(NOON.timestamp() * 1_000_000)


def test_rewound_messages_are_off_the_branch(tool: GeminiSessions, source: OpenedSource) -> None:
    id = write(tool, turn(NOON, "first", "one"), line(prompt(NOON, "second", "u2")))
    tool.append(id, line(reply(NOON, "two", "r2")))
    assert source.conversation(id) == ["first", "one", "second", "two"]
    tool.append(id, line({"$rewindTo": "u2"}) + turn(minute(1), "third", "three"))
    assert source.conversation(id) == ["first", "one", "third", "three"]
    texts = [plain_text(body.content) for body in source.bodies(id, UserMessage)]
    assert texts == ["first", "second", "third"]
    assert source.row(id).usage.output_tokens == 30  # the tokens were used


def test_rewind_to_an_unknown_message_removes_all(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    rewind = line({"$rewindTo": "unknown"})
    id = write(tool, turn(NOON, "first", "one"), rewind, turn(NOON, "second", "two"))
    assert source.conversation(id) == ["second", "two"]


def test_compression_is_marked_and_kept_messages_are_not_repeated(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, turn(NOON, "first", "one"), turn(NOON, "second", "two"))
    assert len(source.conversation(id)) == 4
    tool.append(
        id,
        all_messages(
            minute(1),
            context(minute(1)),
            prompt(minute(1), "A summary without tags", "s1"),
            message(
                minute(1), "gemini", [{"text": "Got it. Thanks for the additional context!"}], "s2"
            ),
            prompt(minute(1), "second", "copy-1"),
            message(minute(1), "gemini", [{"text": "two"}], "copy-2"),
        )
        + turn(minute(2), "third", "three"),
    )
    assert source.conversation(id) == ["first", "one", "second", "two", "third", "three"]
    (body,) = source.bodies(id, Compacted)
    assert plain_text(body.summary) == "A summary without tags"
    assert source.row(id).turns == 3


def test_cancelled_prompt_stays_and_is_interrupted(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, line(prompt(NOON, "first", "u1")), line(reply(NOON, "one", "r1")))
    tool.append(id, line(prompt(minute(1), "Take your time", "u2")))
    kept = (prompt(NOON, "first", "u1"), message(NOON, "gemini", [{"text": "one"}], "r1"))
    tool.append(id, all_messages(minute(2), context(NOON), *kept))
    assert source.conversation(id) == ["first", "one", "Take your time"]
    assert len(source.bodies(id, Interrupted)) == 1
    tool.append(id, line(message(minute(3), "info", "Request cancelled.")))
    assert len(source.bodies(id, Interrupted)) == 2


def test_call_without_an_id_is_the_call_of_the_next_message(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    args = {"command": "ls"}
    content = [{"functionCall": {"name": "run_shell_command", "args": args}}]
    id = write(tool, line(prompt(NOON, "question")), line(message(NOON, "gemini", content, "r1")))
    assert len(source.bodies(id, ToolCall)) == 1
    call = tool_call(NOON, "c1", "run_shell_command", args, "a.py")
    tool.append(id, line(reply(NOON, "", "r2", toolCalls=[call])))
    assert len(source.bodies(id, ToolCall)) == 1
    (result,) = source.bodies(id, ToolResult)
    assert result.call_id == source.bodies(id, ToolCall)[0].call_id


def test_tokens_of_a_reply_without_content_belong_to_the_calls_that_follow(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    first = line(reply(NOON, "", "r1", tokens=tokens(100, 10)))
    id = write(tool, line(prompt(NOON, "question")), first)
    assert source.row(id).usage.is_zero
    call = tool_call(NOON, "c1", "run_shell_command", {"command": "ls"}, "a.py")
    tool.append(id, line(reply(NOON, "", "r2", toolCalls=[call], tokens=None)))
    tool.append(id, line(reply(NOON, "done", "r3", tokens=tokens(200, 5))))
    content = [{"functionCall": {"name": "run_shell_command", "args": {"command": "ls"}}}]
    copy = message(NOON, "gemini", content, "r1", tokens=tokens(100, 10))
    tool.append(id, all_messages(minute(2), copy))
    usage = source.row(id).usage
    assert (usage.input_tokens, usage.output_tokens) == (300, 15)


# Parts.


def test_results_have_status_exit_code_diff_and_pictures(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    output = "<untrusted_context>\nOutput: boom\nExit Code: 3\n</untrusted_context>"
    display = {
        "fileDiff": "--- a",
        "fileName": "cart.py",
        "filePath": "/work/project/cart.py",
        "originalContent": "old\n",
        "newContent": "new\n",
    }
    failed = {"functionResponse": {"id": "c3", "name": "x", "response": {"error": "not found"}}}
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    calls = [
        tool_call(NOON, "c1", "run_shell_command", {"command": "make"}, output),
        tool_call(NOON, "c2", "replace", {}, "Successfully modified", resultDisplay=display),
        {**tool_call(NOON, "c3", "x", {}, ""), "result": [failed], "status": "error"},
        {**tool_call(NOON, "c4", "y", {}, ""), "status": "cancelled"},
        {**tool_call(NOON, "c5", "z", {}, "see"), "status": "executing"},
    ]
    calls[3]["result"] = [*calls[3]["result"], picture]
    id = write(tool, line(prompt(NOON, "go")), line(reply(NOON, "", toolCalls=calls)))
    shell, edit, missing, stopped = source.bodies(id, ToolResult)
    assert plain_text(shell.content) == "Output: boom\nExit Code: 3"
    assert (shell.status, shell.exit_code) == ("completed", 3)
    assert Diff(path="/work/project/cart.py", old="old\n", new="new\n") in edit.content
    assert (missing.status, plain_text(missing.content)) == ("failed", "not found")
    assert stopped.status == "cancelled"
    assert Image(mime="image/png", data="aGk=") in stopped.content
    assert len(source.bodies(id, ToolCall)) == 5


def test_prompt_shows_what_was_typed_and_its_pictures(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    content = [{"text": "See @a.png"}, {"text": "\n--- Content ---"}, picture]
    shown = message(NOON, "user", content, "u1", displayContent=[{"text": "See @a.png"}])
    id = write(tool, line(shown), line(reply(NOON, "I see.")))
    tool.append(id, all_messages(minute(1), message(minute(1), "user", content, "u1")))
    (body,) = source.bodies(id, UserMessage)
    assert plain_text(body.content) == "See @a.png"
    assert body.extra["gemini"]["content"] == "See @a.png\n--- Content ---"
    assert any(isinstance(block, Image) for block in body.content)


def test_context_and_notices_are_no_prompts(tool: GeminiSessions, source: OpenedSource) -> None:
    hook = prompt(NOON, "<hook_context>from a hook</hook_context>")
    notice = message(NOON, "warning", "Context is nearly full")
    error = message(NOON, "error", "[API Error: quota]")
    id = write(tool, line(context(NOON)), line(hook), line(notice), turn(NOON, "q", "a"))
    tool.append(id, line(error))
    row = source.row(id)
    assert (row.turns, row.messages, row.title) == (1, 2, "q")
    assert source.bodies(id, Failed)[0].message == "[API Error: quota]"


def test_session_with_commands_only_is_not_listed(
    tool: GeminiSessions, source: OpenedSource
) -> None:
    id = write(tool, line(context(NOON)), line(prompt(NOON, "/help")))
    assert source.rows() == []
    tool.append(id, turn(minute(1), "Real question", "answer"))
    (row,) = source.rows()
    assert (row.title, row.turns) == ("Real question", 2)


def test_summary_is_the_title(tool: GeminiSessions, source: OpenedSource) -> None:
    id = write(tool, turn(NOON, "question", "answer"))
    assert source.row(id).title == "question"
    tool.append(id, line({"$set": {"summary": "Answer a question"}}))
    assert (source.row(id).title, source.row(id).title_by) == ("Answer a question", "agent")


def test_thoughts_count_as_output(tool: GeminiSessions, source: OpenedSource) -> None:
    counts = {**tokens(100, 10, cached=40, thoughts=5), "tool": 7}
    id = write(tool, line(prompt(NOON, "q")), line(reply(NOON, "a", tokens=counts)))
    usage = source.row(id).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (67, 40, 15)
    assert source.bodies(id, ModelCalled)[0].model == "gemini-2.5-flash"
