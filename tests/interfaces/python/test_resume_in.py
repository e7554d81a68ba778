"""Continue a session in another tool from Python."""

from pathlib import Path

import pytest

import segue
from segue import sync
from segue.model.errors import InvalidInput, NoAgent
from tests.claude.entries import Home, S, assistant, call, result, user
from tests.sources.writing.tool_sessions import use_homes


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return Claude Code's files with one session; the other tools were not used."""
    use_homes(monkeypatch, tmp_path)
    home = Home(tmp_path / "claude")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root))
    home.write(
        [
            user("u1", None, "Why is it slow?", cwd=str(tmp_path)),
            assistant("a1", "u1", call("t1"), id="m1"),
            user("u2", "a1", result("t1")),
            assistant("a2", "u2", [{"type": "text", "text": "Nothing is cached."}]),
        ]
    )
    return home


async def test_resume_in_writes_a_session_that_is_listed_as_a_fork(
    home: Home, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    planned = await segue.resume_in(S, "codex", dry_run=True, store=store)
    assert planned.session_id is None and planned.report["tool_calls"] == 1
    resumed = await segue.resume_in(S, "codex", store=store)
    assert resumed.command == ["codex", "resume", resumed.session_id]
    assert resumed.cwd == str(tmp_path) and "CODEX_HOME" in resumed.environment
    rows = {row.session_id: row.source for row in await segue.list_sessions(store=store)}
    assert rows == {S: "claude", resumed.session_id: "codex"}


def test_resume_in_segue_needs_a_model(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with pytest.raises(NoAgent, match="no model is configured"):
        sync.resume_in(S, "segue", store=store)
    with pytest.raises(InvalidInput, match="cannot continue in 'emacs'"):
        sync.resume_in(S, "emacs", store=store)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    resumed = sync.resume_in(S, "segue", model="anthropic:claude-sonnet-4-6", store=store)
    assert resumed.command == [] and resumed.session_id is not None
