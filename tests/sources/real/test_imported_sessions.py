"""opencode and Goose import sessions that segue wrote, and send every message and result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.model.event import AnyBody
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from tests.sources.writing.tool_sessions import as_events, convert_for, rich_session, writer_of

from .programs import Home
from .scripted_model import running_model
from .test_written_sessions import long_session, texts_of
from .tools import Goose, Opencode, Tool

pytestmark = pytest.mark.full


@pytest.fixture(params=[Opencode, Goose], ids=["opencode", "goose"])
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tool]:
    with running_model() as model:
        tool = request.param(request.param.versions[0], Home(tmp_path), model)
        with tool.home.as_environment():
            yield tool


def import_and_resume(tool: Tool, bodies: list[AnyBody]) -> list[str]:
    """Write a session, let the program continue it, and return the texts that it sends."""
    cwd = str(tool.home.project)
    writer = writer_of(tool.name)
    conversation = convert_for(tool.name, as_events(bodies), CLAUDE_NAMES, cwd)[0]
    native_id = writer.write(writer.prepare(conversation))
    assert native_id in tool.shown() and "A session" in tool.shown()
    tool.resume(native_id, "the new prompt", {"say": "the new answer"})
    return texts_of(tool.model.last_body["messages"])


def test_program_resumes_an_imported_session_after_its_summary(tool: Tool) -> None:
    sent = import_and_resume(tool, long_session(str(tool.home.project)))
    expected = ["The user asked; it was fixed.", "Thanks. And now?", "sleep 100"]
    expected += ["Its outcome is unknown.", "Stopped.", "the new prompt"]
    for number in range(100):
        expected += [f"prompt number {number}", f"answer number {number}"]
    assert [text for text in expected if not any(text in one for one in sent)] == []
    assert not any("What is wrong?" in text for text in sent)


def test_program_sends_calls_images_and_edits_of_an_imported_session(tool: Tool) -> None:
    bodies = rich_session(str(tool.home.project))
    sent = import_and_resume(tool, [b for b in bodies if type(b).__name__ != "Compacted"])
    expected = ["What is wrong?", "Let me look.", "a.py\nb.py", "ls -1", "no rule", "1\tx = 1\n"]
    expected += ["a\\nx = 2\\n", "x: int\\n", "taken", "data:image/png;base64", "It is fixed."]
    assert [text for text in expected if not any(text in one for one in sent)] == []
    assert sum("data:image/png;base64" in text for text in sent) == 2
