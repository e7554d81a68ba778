"""Real programs resume sessions that segue wrote for them, and send every message and result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from segue.model.content import Text, plain_text
from segue.model.event import AgentMessage, AnyBody, Compacted, UserMessage
from segue.sources import registry
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from segue.sources.writing.conversation import Call, Item, Message, Summary
from tests.sources.writing.tool_sessions import (
    as_events,
    convert_for,
    rich_session,
    write_and_read,
    writer_of,
)

from .codex import VERSIONS, Codex
from .programs import Home
from .scripted_model import running_model
from .sent_messages import Sent, sent_messages
from .tools import ClaudeCode, Copilot, Gemini, Goose, Kimi, Opencode, Qwen, Tool, is_older

pytestmark = pytest.mark.full


def texts_of(value: Any) -> list[str]:
    """Return all strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    is_nested = isinstance(value, dict | list)
    return [text for item in values for text in texts_of(item)] if is_nested else []


def long_session(cwd: str) -> list[AnyBody]:
    """Return a session with everything, and then 200 messages."""
    bodies = rich_session(cwd)
    for number in range(100):
        bodies.append(UserMessage(content=(Text(text=f"prompt number {number}"),)))
        bodies.append(AgentMessage(content=(Text(text=f"answer number {number}"),)))
    return bodies


@pytest.mark.parametrize("version", VERSIONS)
def test_codex_resumes_a_written_session_with_every_message_and_result(
    version: str, tmp_path: Path
) -> None:
    with running_model() as model:
        codex = Codex(version, Home(tmp_path), model)
        with codex.home.as_environment():
            cwd = str(codex.home.project)
            events = as_events(long_session(cwd))
            writer = writer_of("codex")
            native_id = writer.write(
                writer.prepare(convert_for("codex", events, CLAUDE_NAMES, cwd)[0])
            )
        codex.resume(native_id, "the new prompt", {"say": "the new answer"})
        assert codex.threads()[native_id].name in (None, "A session")
        sent = texts_of(model.last_body)
        after_summary = ["The user asked; it was fixed.", "Thanks. And now?", "sleep 100"]
        after_summary += ["Its outcome is unknown.", "Stopped.", "the new prompt"]
        for number in range(100):
            after_summary += [f"prompt number {number}", f"answer number {number}"]
        assert [text for text in after_summary if not any(text in one for one in sent)] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_codex_sends_calls_images_and_edits_of_a_written_session(
    version: str, tmp_path: Path
) -> None:
    with running_model() as model:
        codex = Codex(version, Home(tmp_path), model)
        with codex.home.as_environment():
            cwd = str(codex.home.project)
            bodies = [body for body in rich_session(cwd) if type(body).__name__ != "Compacted"]
            writer = writer_of("codex")
            conversation = convert_for("codex", as_events(bodies), CLAUDE_NAMES, cwd)[0]
            native_id = writer.write(writer.prepare(conversation))
        codex.resume(native_id, "the new prompt", {"say": "the new answer"})
        sent = texts_of(model.last_body)
        expected = [
            "What is wrong?",
            "a.py\nb.py",
            "no rule",
            "x = 1",
            "*** Update File",
            "taken",
        ]
        expected += ["data:image/png;base64", "Process exited with code 2", "Let me look."]
        assert [text for text in expected if not any(text in one for one in sent)] == []


# Each target gets sessions of three other tools.
OTHERS = {
    "claude": ("codex", "copilot", "gemini"),
    "copilot": ("claude", "codex", "gemini"),
    "gemini": ("claude", "codex", "qwen"),
    "qwen": ("claude", "codex", "kimi"),
    "kimi": ("claude", "codex", "copilot"),
    "opencode": ("claude", "codex", "gemini"),
    "goose": ("claude", "codex", "qwen"),
}
TARGETS = [
    pytest.param(type, version, source, id=f"{source}-{type.name}-{version}")
    for type in (ClaudeCode, Copilot, Gemini, Qwen, Kimi, Opencode, Goose)
    for version in type.versions + type.older_versions
    for source in OTHERS[type.name]
    if version in type.versions or source == "claude"
]


def expected_messages(items: Sequence[Item]) -> list[Sent]:
    """Return what the model must get: all after the last summary, and that."""
    last = max((n for n, item in enumerate(items) if isinstance(item, Summary)), default=0)
    messages: list[Sent] = []
    for item in items[last:]:
        match item:
            case Message():
                texts = [plain_text((b,)) for b in item.content if isinstance(b, Text)]
                messages += [Sent("text", text) for text in texts]
            case Summary():
                messages.append(Sent("text", item.text))
            case Call():
                id = item.call.call_id
                messages += [Sent("call", item.call.name, id), Sent("result", item.output, id)]
    return messages


def missing_messages(expected: Sequence[Sent], sent: Sequence[Sent]) -> list[Sent]:
    """Return the expected messages that were not sent, or not in this order."""
    missing = []
    start = 0
    for message in expected:
        matches = (
            number
            for number in range(start, len(sent))
            if sent[number][::2] == message[::2] and message.text in sent[number].text
        )
        number = next(matches, None)
        if number is None:
            missing.append(message)
        else:
            # Some programs join texts that follow each other.
            start = number if message.kind == "text" else number + 1
    return missing


@pytest.mark.parametrize(("type", "version", "source"), TARGETS)
def test_program_resumes_a_session_of_another_tool_with_every_message_and_result(
    type: type[Tool], version: str, source: str, tmp_path: Path
) -> None:
    with running_model() as model:
        tool = type(version, Home(tmp_path), model)
        if isinstance(tool, Qwen):  # it sends images only to models that it knows to see them
            tool.home.environment["OPENAI_MODEL"] = "gpt-4o"
        with tool.home.as_environment():
            cwd = str(tool.home.project)
            bodies = long_session(cwd)
            if source != "codex":  # one of the sessions was compacted
                bodies = [body for body in bodies if not isinstance(body, Compacted)]
            events, _ = write_and_read(source, as_events(bodies), CLAUDE_NAMES, cwd)
            writer = writer_of(tool.name)
            names = writer_of(source).names
            conversation, report = convert_for(tool.name, events, names, cwd)
            native_id = writer.write(writer.prepare(conversation))
            if version == type.versions[0] and tool.name != "claude":  # it has no list
                assert native_id in tool.shown()
            tool.resume(native_id, "the new prompt", {"say": "the new answer"})
            copy = registry.get(tool.name).transcripts().read(native_id)
            answers = [e.body for e in copy.events(None) if isinstance(e.body, AgentMessage)]
            assert plain_text(answers[-1].content) == "the new answer"
        sent = next(
            messages
            for messages in map(sent_messages, model.bodies)
            if any("the new prompt" in message.text for message in messages)
        )
        expected = expected_messages(conversation.items)
        assert len(expected) > 200
        assert missing_messages([*expected, Sent("text", "the new prompt")], sent) == []
        # Older versions of Qwen do not send the images of a session that they resume.
        if source != "codex" and not (isinstance(tool, Qwen) and is_older(version, "0.20.0")):
            images = sum(message.kind == "image" for message in sent)
            assert images == report.images > 0
