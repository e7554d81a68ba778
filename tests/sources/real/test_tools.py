"""Each tool's own program writes sessions while segue follows them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.model.content import plain_text
from segue.model.event import AgentMessage, Event, ToolCall, ToolResult, UserMessage
from segue.model.principal import LOCAL
from segue.model.query import Query
from segue.sources import registry
from tests.sources.golden import ReadSession, read_home

from .following import (
    ANSWERS,
    CALLS,
    LONG_TURN,
    PROMPT,
    Follower,
    check_followed,
    open_hub,
    witness,
)
from .programs import Home
from .scripted_model import running_model, script
from .tools import TOOLS, Tool

pytestmark = pytest.mark.full

VERSIONS = [
    pytest.param(tool, version, id=f"{tool.name}-{version}")
    for tool in TOOLS
    if tool.name in registry.names()
    for version in tool.versions
]
OLDER_VERSIONS = [
    pytest.param(tool, version, id=f"{tool.name}-{version}")
    for tool in TOOLS
    for version in tool.older_versions
]


@pytest.fixture
def tool(type: type[Tool], version: str, tmp_path: Path) -> Iterator[Tool]:
    home = Home(tmp_path)
    with running_model() as model:
        tool = type(version, home, model)
        with home.as_environment():
            yield tool


@pytest.mark.parametrize(("type", "version"), VERSIONS + OLDER_VERSIONS)
def test_session_is_read_as_the_program_wrote_it(tool: Tool, tmp_path: Path) -> None:
    tool.prompt(PROMPT, *LONG_TURN)
    read = read_home(tool.reader(), tmp_path / "index")
    assert read.problems == []
    (session,) = read.sessions.values()
    assert session.row.cwd == str(tool.home.project)
    # Older versions of opencode store the end of a line before a prompt from their input.
    prompts = [text.lstrip("\n") for text in texts(session.conversation, UserMessage)]
    assert prompts == [script(PROMPT, *LONG_TURN)]
    assert texts(session.conversation, AgentMessage) == ANSWERS
    calls = [e.body.call_id for e in session.conversation if isinstance(e.body, ToolCall)]
    results = {
        event.body.call_id: event.body
        for event in session.conversation
        if isinstance(event.body, ToolResult)
    }
    assert len(calls) == CALLS and results.keys() == set(calls)
    # Gemini says that a command succeeded whose exit code is not 0, and gives the code.
    failed = [results[call].status == "failed" or results[call].exit_code == 3 for call in calls]
    assert failed == [False, False, True, False]
    assert session.row.turns == 1 and session.row.status == "idle"
    check_tokens(tool, session)
    assert session.row.title is not None


@pytest.mark.parametrize(("type", "version"), VERSIONS + OLDER_VERSIONS)
def test_resumed_session_is_read_as_one(tool: Tool, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"think": "Hm.", "say": "First.", "calls": [["shell", {"command": "echo ok"}]]},
        {"calls": [["shell", {"command": "exit 3"}], ["shell", {"command": "echo ok"}]]},
        {"say": "At last."},
    ]
    if not tool.counts_all:
        pytest.skip("it records the first reply of a turn only")
    tool.prompt(PROMPT, *steps)
    (native_id,) = read_home(tool.reader(), tmp_path / "index").sessions
    for _ in range(2):
        tool.resume(native_id, PROMPT, *steps)
    read = read_home(tool.reader(), tmp_path / "index")
    assert read.problems == []
    session = read.sessions[native_id]
    assert len(read.sessions) == 1
    assert texts(session.conversation, AgentMessage) == ["First.", "At last."] * 3
    assert (session.row.turns, session.row.tool_calls) == (3, 9)
    assert session.count("tool_call") == session.count("tool_result") == 9
    check_tokens(tool, session)


def check_tokens(tool: Tool, session: ReadSession) -> None:
    """Compare the tokens of a session with those that the model reported."""
    usage = tool.model.usage(PROMPT)._asdict()
    if not tool.counts_cached:
        usage["cached"] = 0
    assert session.tokens == usage or not tool.counts_all


@pytest.mark.parametrize(("type", "version"), VERSIONS)
async def test_messages_are_followed_while_the_program_works(tool: Tool, tmp_path: Path) -> None:
    tool.prompt("An older session", {"say": "Hello."})
    async with open_hub(tool.reader(), tmp_path) as (hub, source):
        await source.refresh()

        older = {row.id for row in await source.page(Query())}
        follower = Follower(hub, older)
        await follower.wait_until_watching()
        with witness(source.session_paths()) as observer:
            await asyncio.to_thread(tool.prompt, PROMPT, *LONG_TURN)
        received = await follower.stop()
        assert follower.session is not None
        conversation = [event async for event in source.conversation(follower.session)]
    check_followed(received, conversation, observer.seen)


@pytest.mark.parametrize(("type", "version"), VERSIONS)
async def test_program_shows_what_segue_changes(tool: Tool, tmp_path: Path) -> None:
    tool.prompt("A first session", {"say": "Hello."})
    async with open_hub(tool.reader(), tmp_path) as (hub, source):
        await source.refresh()
        (session,) = await source.page(Query())
        native_id = session.native_id or session.id
        if "title" in source.edits:
            await hub.editor.set_title(LOCAL, session.id, "A name of segue")
            assert "A name of segue" in tool.shown()
        if "fork" in source.edits:
            fork = await hub.editor.fork(LOCAL, session.id, title="A fork of segue")
            assert "A fork of segue" in tool.shown()
            assert fork.messages == session.messages
        if "delete" in source.edits:
            await hub.editor.trash(LOCAL, session.id)
            await hub.editor.purge(LOCAL, session.id)
            assert native_id not in tool.shown()


def texts(conversation: list[Event], type: type[UserMessage] | type[AgentMessage]) -> list[str]:
    """Return the texts of messages."""
    bodies = [event.body for event in conversation]
    contents = [plain_text(body.content) for body in bodies if isinstance(body, type)]
    return [text for text in contents if text]
