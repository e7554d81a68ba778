"""Prompts to Claude Code's sessions, where Claude Code cannot be had."""

import json
from pathlib import Path

import pytest

import segue
from segue.model.content import plain
from segue.model.event import AgentMessage, Failed, UserMessage

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


async def said(hub: segue.Hub) -> list[str]:
    bodies = [event.body async for event in hub.history(segue.LOCAL, ID)]
    return [plain(each.content) for each in bodies if isinstance(each, UserMessage | AgentMessage)]


async def test_unless_asked_to_segue_goes_on_beside_its_files(transcript: Path) -> None:
    before = transcript.read_bytes()
    async with await segue.open_hub() as hub:
        assert await hub.keeper(segue.LOCAL, ID) == "claude"
        assert await hub.run(segue.LOCAL, ID, "/say more") == "end_turn"
        assert await hub.keeper(segue.LOCAL, ID) is None
        assert await said(hub) == ["first words", "/say more", "more"]
    assert transcript.read_bytes() == before


async def test_without_the_sdk_the_turn_says_what_to_install() -> None:
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        assert await hub.run(segue.LOCAL, ID, "more") == "error"
        events = [event async for event in hub.history(segue.LOCAL, ID)]
        (failed,) = [event.body for event in events if isinstance(event.body, Failed)]
        assert "pip install claude-agent-sdk" in failed.message
        assert (await hub.get(segue.LOCAL, ID)).status == "idle"


async def test_when_it_is_no_longer_asked_for_the_usual_agent_answers() -> None:
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        assert await hub.run(segue.LOCAL, ID, "more") == "error"
        await hub.config.set("local", "claude.continue", "false")
        assert await hub.run(segue.LOCAL, ID, "/say more") == "end_turn"


async def test_it_runs_for_the_local_user_alone() -> None:
    other = segue.Principal(workspace="local", local=False)
    async with await segue.open_hub() as hub:
        await hub.config.set("local", "claude.continue", "true")
        assert await hub.run(other, ID, "/say more") == "end_turn"
        assert await said(hub) == ["first words", "/say more", "more"]
