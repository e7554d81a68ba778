"""Real programs resume sessions that segue wrote for them, and send every message and result."""

from pathlib import Path
from typing import Any

import pytest

from segue.model.content import Text
from segue.model.event import AgentMessage, AnyBody, UserMessage
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from tests.sources.writing.tool_sessions import (
    as_events,
    convert_for,
    rich_session,
    writer_of,
)

from .codex import VERSIONS, Codex
from .programs import Home
from .scripted_model import running_model

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
