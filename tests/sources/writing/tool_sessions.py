"""Write a conversation for a tool, and read what its source makes of it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segue.model import ids
from segue.model.content import Image, Text, plain_text
from segue.model.event import (
    AgentMessage,
    AgentThought,
    AnyBody,
    Compacted,
    Event,
    Interrupted,
    ToolCall,
    ToolResult,
    UserMessage,
)
from segue.model.session import Session
from segue.sources import registry
from segue.sources.claude.tool_names import NAMES as NEUTRAL_NAMES
from segue.sources.writing.conversation import (
    Call,
    Converted,
    Holds,
    Interruption,
    Item,
    Message,
    Summary,
    convert,
    has_text,
)
from segue.sources.writing.port import SessionWriter
from segue.sources.writing.report import Report
from segue.sources.writing.tool_names import ToolNames
from tests.conftest import HOME_VARIABLES
from tests.sources.goose import goose_program
from tests.sources.opencode import opencode_program

SUMMARY = "The user asked; it was fixed."
START = 1_790_000_000_000_000  # microseconds
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def writable_tools() -> list[str]:
    """Return the names of the tools that sessions can be written for."""
    return [tool.name for tool in registry.definitions() if tool.writer() is not None]


def use_homes(monkeypatch: Any, directory: Path) -> None:
    """Give every tool an empty home, and install programs that import sessions."""
    for name in HOME_VARIABLES:
        monkeypatch.setenv(name, str(directory / name.lower()))
    directory.mkdir(exist_ok=True)
    opencode_program.install(directory / "bin")
    goose_program.install(directory / "bin")
    monkeypatch.setenv("PATH", str(directory / "bin"), prepend=os.pathsep)


def writer_of(tool: str) -> SessionWriter:
    """Return the writer of a tool in its current home."""
    writer = registry.get(tool).writer()
    assert writer is not None
    return writer


def session_row(cwd: str, source: str = "segue", title: str | None = "A session") -> Session:
    """Return the row of a session that is converted."""
    return Session(
        id=ids.new_id(),
        workspace="local",
        cwd=cwd,
        created_at=START,
        active_at=START,
        updated_at=START,
        last_seq=1,
        title=title,
        title_by="person",
        owner=source,
    )


def as_events(bodies: Sequence[AnyBody]) -> list[Event]:
    """Return events with these bodies, one a second."""
    return [
        Event(seq=seq, id=ids.new_id(), at=START + seq * 1_000_000, body=body)
        for seq, body in enumerate(bodies, 2)
    ]


def convert_for(tool: str, events: Sequence[Event], names: ToolNames | None, cwd: str) -> Converted:
    """Return the events of a session of an agent with these tool names as a tool gets them."""
    writer = writer_of(tool)
    return convert(
        session_row(cwd),
        ids.new_id(),
        events,
        target=tool,
        names=writer.names,
        holds=writer.holds,
        known_names=[] if names is None else [names],
    )


def write_and_read(
    tool: str, events: Sequence[Event], names: ToolNames | None, cwd: str
) -> tuple[list[Event], Report]:
    """Write a session for a tool, and return the events that its source reads, and the report."""
    writer = writer_of(tool)
    conversation, report = convert_for(tool, events, names, cwd)
    native_id = writer.write(writer.prepare(conversation))
    copy = registry.get(tool).transcripts().read(native_id)
    return list(copy.events(None)), report


def neutral_items(events: Sequence[Event], names: Sequence[ToolNames], cwd: str) -> list[Any]:
    """Return all that the events of agents with these tool names say, with common names."""
    converted = convert(
        session_row(cwd),
        ids.new_id(),
        events,
        target="neutral",
        names=NEUTRAL_NAMES,
        holds=Holds(own_thought=has_text),
        known_names=names,
    )
    return [_comparable(item) for item in converted.conversation.items]


def _comparable(item: Item) -> Any:
    match item:
        case Message():
            images = [block.data for block in item.content if isinstance(block, Image)]
            return item.role, plain_text(item.content), images
        case Call():
            images = [block.data for block in item.result.content if isinstance(block, Image)]
            call, result = item.call, item.result
            name = (call.server, call.name)
            return "call", call.call_id, name, call.input, result.status, item.output, images
        case Summary():
            return "summary", item.text
        case Interruption():
            return ("interrupted",)
    return "thought", plain_text(item.thought.content)


def call(call_id: str, name: str, input: Any, text: str, **result: Any) -> list[AnyBody]:
    """Return a call and its result."""
    content = (Text(text=text), *result.pop("images", ()))
    return [
        ToolCall(call_id=call_id, name=name, input=input),
        ToolResult(call_id=call_id, content=content, **result),
    ]


def rich_session(cwd: str) -> list[AnyBody]:
    """Return a session of Claude Code with everything that a conversation can have."""
    path = os.path.join(cwd, "a.py")
    image = Image(mime="image/png", data=PIXEL)
    todos = [{"content": "Fix it", "status": "pending", "activeForm": "Fixing it"}]
    return [
        UserMessage(content=(Text(text="What is wrong?"), image)),
        AgentThought(content=(Text(text="I should look at the files."),)),
        AgentMessage(content=(Text(text="Let me look."),)),
        *call("toolu_1", "Bash", {"command": "ls -1", "description": "List files"}, "a.py\nb.py"),
        *call(
            "toolu_2",
            "Bash",
            {"command": "make", "timeout": 5000},
            "Exit code 2\nno rule",
            status="failed",
            exit_code=2,
        ),
        *call("toolu_3", "Read", {"file_path": path, "limit": 5}, "1\tx = 1\n"),
        *call(
            "toolu_4",
            "Edit",
            {"file_path": path, "old_string": "a\nx = 1\n", "new_string": "a\nx = 2\n"},
            "done",
        ),
        *call("toolu_5", "Write", {"file_path": f"{path}i", "content": "x: int\n"}, "created"),
        *call("toolu_6", "TodoWrite", {"todos": todos}, "ok"),
        *call(
            "toolu_7", "Task", {"prompt": "Look", "description": "Look", "subagent_type": "x"}, "42"
        ),
        *call("toolu_8", "Screenshot", {"of": "page"}, "taken", images=(image,)),
        AgentMessage(content=(Text(text="It is fixed. ✅\u2028Really."),)),
        Compacted(summary=(Text(text=SUMMARY),)),
        UserMessage(content=(Text(text="Thanks. And now?"),)),
        ToolCall(call_id="toolu_9", name="Bash", input={"command": "sleep 100"}),
        Interrupted(),
        UserMessage(content=(Text(text="Stop."),)),
        AgentMessage(content=(Text(text="Stopped."),)),
    ]
