"""Continue a session in another tool from Python."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import segue
from segue import sync
from segue.model import ids
from segue.model.errors import InvalidInput, NoAgent, NotFound
from segue.model.query import Query
from segue.model.session import Session
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


async def test_resume_in_accepts_what_the_command_line_accepts(home: Home, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = await segue.resume_in(S, "kimi", store=store)
    assert first.session_id is not None
    native_ids = {row.id: row.native_id for row in await all_sessions(store)}
    native_id = native_ids[first.session_id]
    assert native_id is not None and native_id.startswith("session_")
    names = [S[:13], f"{ids.format_id('sesn', S)}", native_id, first.session_id[:13]]
    for name in names:
        planned = await segue.resume_in(name, "codex", dry_run=True, store=store)
        assert planned.report["prompts"] == 1
    with pytest.raises(InvalidInput, match="matches 2 sessions"):
        await segue.resume_in("why is it slow", "codex", store=store)
    with pytest.raises(NotFound, match="no session matches"):
        await segue.resume_in("why is it fast", "codex", store=store)


async def all_sessions(store: Path) -> Sequence[Session]:
    async with await segue.open_hub(store) as hub:
        return (await hub.sessions.list(segue.LOCAL, Query())).sessions


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
