"""Sessions for tools with a database are imported by the tool's own program, or refused."""

from pathlib import Path

import pytest

from segue.model.content import Text
from segue.model.errors import AgentFailed, ReadOnly
from segue.model.event import ToolCall, ToolResult, UserMessage
from segue.sources import registry
from segue.sources.claude.tool_names import NAMES as CLAUDE_NAMES
from segue.sources.writing.port import PreparedSession

from .tool_sessions import (
    as_events,
    convert_for,
    rich_session,
    use_homes,
    write_and_read,
    writer_of,
)

TOOLS = ["goose", "opencode"]


def prepared_session(tool: str, cwd: Path) -> PreparedSession:
    events = as_events(rich_session(str(cwd)))
    return writer_of(tool).prepare(convert_for(tool, events, CLAUDE_NAMES, str(cwd))[0])


@pytest.mark.parametrize("tool", TOOLS)
def test_writing_without_the_program_is_refused_with_its_name(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_homes(monkeypatch, tmp_path / "homes")
    prepared = prepared_session(tool, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ReadOnly, match=f"needs the program `{tool}`"):
        writer_of(tool).write(prepared)
    assert sorted(tmp_path.rglob("*")) == before


def test_session_of_which_opencode_imports_a_part_only_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_homes(monkeypatch, tmp_path)
    prepared = prepared_session("opencode", tmp_path)
    (file,) = prepared.files
    damaged = file._replace(data=file.data.replace(b'"callID":"toolu_4"', b'"half":true'))
    with pytest.raises(AgentFailed, match="opencode import"):
        writer_of("opencode").write(prepared._replace(files=[damaged]))
    assert list(registry.get("opencode").reader().discover(print)) == []


def test_tool_of_an_extension_of_goose_is_one_of_the_same_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_homes(monkeypatch, tmp_path)
    bodies = [
        UserMessage(content=(Text(text="List my issues"),)),
        ToolCall(call_id="call_1", name="list", server="tracker", input={"mine": True}),
        ToolResult(call_id="call_1", content=(Text(text="none"),)),
    ]
    read, _ = write_and_read("goose", as_events(bodies), None, str(tmp_path))
    (call,) = (event.body for event in read if isinstance(event.body, ToolCall))
    assert (call.server, call.name) == ("tracker", "tracker__list")
    back, _ = write_and_read("claude", read, writer_of("goose").names, str(tmp_path))
    (call,) = (event.body for event in back if isinstance(event.body, ToolCall))
    assert (call.server, call.name) == ("tracker", "list")
