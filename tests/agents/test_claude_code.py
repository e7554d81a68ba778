"""Tests of prompts to Claude Code's sessions without an installed Claude Code."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import segue
from segue.agents.base import Turn
from segue.agents.claude_code import ClaudeCodeAgent
from segue.model.content import plain_text
from segue.model.event import AgentMessage, ConfigChanged, Failed, UserMessage
from tests.claude.entries import Home

ID = "0198c0de-1111-4111-8111-000000000001"


@pytest.fixture(autouse=True)
def transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEGUE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    project = tmp_path / "claude" / "projects" / "-work"
    project.mkdir(parents=True)
    entry = {
        "type": "user",
        "uuid": "0198c0de-2222-4222-8222-000000000001",
        "parentUuid": None,
        "sessionId": ID,
        "cwd": "/work",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "message": {"role": "user", "content": "first words"},
    }
    path = project / f"{ID}.jsonl"
    path.write_text(json.dumps(entry) + "\n")
    return path


async def message_texts(hub: segue.Hub) -> list[str]:
    bodies = [event.body async for event in hub.history.read(segue.LOCAL, ID)]
    return [
        plain_text(body.content) for body in bodies if isinstance(body, UserMessage | AgentMessage)
    ]


async def test_by_default_segue_continues_without_changing_the_transcript(transcript: Path) -> None:
    before = transcript.read_bytes()
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model", "demo")
        assert await hub.sessions.owner(segue.LOCAL, ID) == "claude"
        assert await hub.turns.run(segue.LOCAL, ID, "/say more") == "end_turn"
        assert await hub.sessions.owner(segue.LOCAL, ID) is None
        assert await message_texts(hub) == ["first words", "/say more", "more"]
    assert transcript.read_bytes() == before


async def assert_refused(hub: segue.Hub, message: str) -> None:
    """Assert that a prompt is refused and that nothing is imported."""
    with pytest.raises(segue.errors.NoAgent, match=message):
        await hub.turns.submit(segue.LOCAL, ID, "more")
    assert await hub.sessions.owner(segue.LOCAL, ID) == "claude"
    assert await hub.store.get("local", ID) is None
    assert await message_texts(hub) == ["first words"]


async def test_a_prompt_without_the_sdk_names_the_package_to_install() -> None:
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        hold = await hub.turns.open(segue.LOCAL, ID)  # opening it needs no SDK
        await assert_refused(hub, "pip install claude-agent-sdk")
        await hold.close()


async def test_a_turn_of_an_imported_session_without_the_sdk_fails_with_the_package_name() -> None:
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model", "demo")
        await hub.turns.run(segue.LOCAL, ID, "/say more")
        agent = hub.records.agent_of("local", "claude")
        await hub.editor.configure(segue.LOCAL, ID, ConfigChanged(agent=agent))
        await hub.config.set("local", "claude.continue", "true")
        assert await hub.turns.run(segue.LOCAL, ID, "more") == "error"
        events = [event async for event in hub.history.read(segue.LOCAL, ID)]
        (failed,) = [event.body for event in events if isinstance(event.body, Failed)]
        assert "pip install claude-agent-sdk" in failed.message
        assert (await hub.sessions.get(segue.LOCAL, ID)).status == "idle"


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-4-6", "openai:gpt-5", "unknown:none"])
async def test_an_unusable_model_is_refused_before_the_session_is_imported(
    model: str, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    before = transcript.read_bytes()
    message = "unknown" if model.startswith("unknown") else "API_KEY"
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model", model)
        await assert_refused(hub, message)
    with pytest.raises(segue.errors.NoAgent, match=message):
        async with segue.resume_session(ID, model=model):
            pass
    async with await segue.open_hub() as hub:
        assert await hub.sessions.owner(segue.LOCAL, ID) == "claude"
        await hub.config.set("local", "model", "demo")
        assert await hub.turns.run(segue.LOCAL, ID, "/say more") == "end_turn"
    assert transcript.read_bytes() == before


async def test_an_empty_prompt_imports_nothing() -> None:
    async with await segue.open_hub() as hub:
        with pytest.raises(segue.errors.InvalidInput):
            await hub.turns.submit(segue.LOCAL, ID, "  ")
        assert await hub.sessions.owner(segue.LOCAL, ID) == "claude"


async def test_the_default_agent_answers_after_claude_continue_is_disabled() -> None:
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model", "demo")
        await hub.config.set("local", "claude.continue", "true")
        await assert_refused(hub, "claude-agent-sdk")
        await hub.config.set("local", "claude.continue", "false")
        assert await hub.turns.run(segue.LOCAL, ID, "/say more") == "end_turn"


async def test_claude_code_resumes_imported_sessions_and_starts_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[dict[str, Any]] = []

    async def query(**_: Any) -> AsyncIterator[Any]:
        for nothing in ():
            yield nothing

    sdk = SimpleNamespace(
        ClaudeAgentOptions=lambda **options: calls.append(options),
        ClaudeSDKError=OSError,
        query=query,
    )
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", sdk)
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        await hub.turns.run(segue.LOCAL, ID, "more")
        agent = hub.records.agent_of("local", "claude")
        new = await hub.editor.create(segue.LOCAL, agent=agent)
        await hub.turns.run(segue.LOCAL, new.id, "begin")
    resumed, started = calls
    assert resumed["resume"] == ID and "session_id" not in resumed
    assert started["session_id"] == new.id and "resume" not in started


@pytest.mark.parametrize("native_id", ["--dangerously-skip-permissions", "x", ["x"]])
async def test_claude_code_is_not_started_with_a_session_id_that_is_no_uuid(
    native_id: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value may be from the file of a stranger, and becomes an argument of the program."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", SimpleNamespace())
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        agent = hub.records.agent_of("local", "claude")
        extra = {"claude": {"session": native_id}}
        session = await hub.editor.create(segue.LOCAL, agent=agent, extra=extra)
        assert await hub.turns.run(segue.LOCAL, session.id, "begin") == "error"
        events = [event async for event in hub.history.read(segue.LOCAL, session.id)]
        (failed,) = [event.body for event in events if isinstance(event.body, Failed)]
        assert "no valid id" in failed.message


async def test_claude_code_does_not_run_in_a_directory_that_a_file_chose(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would read settings there, hooks included."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", SimpleNamespace())
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        agent = hub.records.agent_of("local", "claude")
        session = await hub.editor.create(segue.LOCAL, agent=agent, cwd=str(tmp_path))
        lines = [line async for line in hub.exchange.export(segue.LOCAL, session.id)]
        copy = await hub.exchange.import_session(segue.LOCAL, lines, new_id=True)
        assert await hub.turns.run(segue.LOCAL, copy.id, "begin") == "error"
        events = [event async for event in hub.history.read(segue.LOCAL, copy.id)]
        (failed,) = [event.body for event in events if isinstance(event.body, Failed)]
        assert "an imported file chose the directory" in failed.message


async def test_turn_that_is_cancelled_while_it_stores_a_message_closes_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = []

    async def inner() -> AsyncIterator[Any]:
        try:
            yield SimpleNamespace()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)  # as if it waited for the end of Claude Code
            closed.append(True)

    async def query(**_: Any) -> AsyncIterator[Any]:
        async for message in inner():
            yield message

    async def store_slowly(_: Any, turn: Turn, messages: AsyncIterator[Any]) -> None:
        await anext(messages)
        stores.set()
        await asyncio.sleep(60)

    stores = asyncio.Event()
    sdk = SimpleNamespace(ClaudeAgentOptions=lambda **_: None, ClaudeSDKError=OSError, query=query)
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", sdk)
    monkeypatch.setattr(ClaudeCodeAgent, "_store_messages", store_slowly)
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        agent = hub.records.agent_of("local", "claude")
        session = await hub.editor.create(segue.LOCAL, agent=agent)
        turn = await hub.turns.submit(segue.LOCAL, session.id, "begin")
        async with asyncio.timeout(60):
            await stores.wait()
        await hub.turns.cancel(segue.LOCAL, session.id)
        assert await hub.turns.wait(segue.LOCAL, session.id, turn) == "cancelled"
        assert closed == [True]


async def test_a_model_named_by_a_program_overrides_claude_continue(transcript: Path) -> None:
    before = transcript.read_bytes()
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
    async with segue.resume_session(ID, model="demo") as session:
        await session.send("/say more")
        assert [message.type async for message in session.stream()][-1] == "result"
    async with await segue.open_hub() as hub:
        assert await message_texts(hub) == ["first words", "/say more", "more"]
        agent = (await hub.sessions.get(segue.LOCAL, ID)).agent
        assert agent is not None and agent.overrides["kind"] == "default"
    assert transcript.read_bytes() == before


async def test_resume_session_refuses_a_session_that_claude_code_is_working_on(
    transcript: Path,
) -> None:
    Home(transcript.parents[2]).write_process_file(ID)
    with pytest.raises(segue.errors.Busy):
        async with segue.resume_session(ID, model="demo"):
            pass
    async with await segue.open_hub() as hub:
        assert await hub.sessions.owner(segue.LOCAL, ID) == "claude"


async def test_a_prompt_from_the_transcript_directory_finds_the_transcript(
    transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript.with_suffix("").mkdir()  # the directory of the session's subagents
    monkeypatch.chdir(transcript.parent)
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model", "demo")
        lines = [line async for line in hub.sync.transcript(segue.LOCAL, ID, "claude")]
        assert b"".join(lines) == transcript.read_bytes()
        assert await hub.turns.run(segue.LOCAL, ID, "/say more") == "end_turn"
        assert (await hub.sync.import_session(segue.LOCAL, ID, "claude"))[1] == 0


async def test_claude_code_answers_only_the_local_user() -> None:
    other = segue.Principal(workspace="local", local=False)
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "model", "demo")
        await hub.config.set("local", "claude.continue", "true")
        assert await hub.turns.run(other, ID, "/say more") == "end_turn"
        assert await message_texts(hub) == ["first words", "/say more", "more"]
