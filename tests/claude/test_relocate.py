"""Relocate sessions of moved projects, and pin sessions against the cleanup."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from segue import claude
from tests.claude.entries import Home, S, assistant, user

DAY = 86_400


def key(path: Path) -> str:
    return claude.project_key_for_directory(path)


def test_relocate_moves_a_session_to_the_new_project(home: Home, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    new.mkdir()
    path = home.write_conversation(S, key(old), cwd=str(old))
    (path.with_suffix("") / "subagents").mkdir(parents=True)
    (path.with_suffix("") / "subagents" / "agent-a.jsonl").write_text(
        '{"type":"user","uuid":"u"}\n'
    )
    original = path.read_bytes()
    claude.relocate_session(S, str(new))
    assert [info.cwd for info in claude.list_sessions(str(new))] == [str(new)]
    assert claude.list_sessions(str(old)) == []
    assert claude.list_subagents(S, str(new)) == ["a"]
    assert len(claude.get_session_messages(S, str(new))) == 2
    entry = {"type": "relocated", "sessionId": S, "relocatedCwd": str(new)}
    line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
    assert (home.projects / key(new) / path.name).read_bytes() == original + line


def test_relocate_does_not_overwrite_another_session(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation()
    home.write_conversation(S, key(tmp_path))
    home.touch(S, 1, key(tmp_path))
    original = path.read_bytes()
    with pytest.raises(FileExistsError):
        claude.relocate_session(S, str(tmp_path))
    assert path.read_bytes() == original


def test_relocate_to_the_same_project_only_appends_an_entry(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation(S, key(tmp_path))
    claude.relocate_session(S, str(tmp_path))
    assert path.exists()
    assert [info.cwd for info in claude.list_sessions()] == [str(tmp_path)]


def register(home: Home) -> None:
    (home.root / "sessions").mkdir()
    fields = {"pid": os.getpid(), "sessionId": S}
    (home.root / "sessions" / "1.json").write_text(json.dumps(fields))


def test_relocate_refuses_an_open_session(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation()
    register(home)
    with pytest.raises(claude.SessionIsLive):
        claude.relocate_session(S, str(tmp_path))
    assert path.exists()


def test_pinned_session_is_newer_than_the_cleanup_limit(home: Home) -> None:
    path = home.write_conversation()
    home.touch(S, time.time() - 29 * DAY)
    until = claude.pin_session(S, days=100)
    in_99_days = time.time() + 99 * DAY
    assert in_99_days - path.stat().st_mtime < 30 * DAY
    assert until / 1000 == pytest.approx(time.time() + 100 * DAY, abs=60)
    assert path.read_bytes().count(b"\n") == 2


def test_pin_uses_the_cleanup_period_of_the_settings(home: Home) -> None:
    path = home.write_conversation()
    (home.root / "settings.json").write_text('{\n  "cleanupPeriodDays": 90\n}\n')
    claude.pin_session(S, days=60)
    assert path.stat().st_mtime == pytest.approx(time.time(), abs=60)
    with pytest.raises(ValueError, match="days"):
        claude.pin_session(S, days=0)


def test_unpin_restores_the_time_of_the_last_entry(home: Home) -> None:
    last = assistant("a1", "u1", timestamp="2026-01-15T10:30:00.000Z")
    home.write([user("u1", None), last, {"type": "mode", "mode": "x"}])
    claude.pin_session(S)
    claude.unpin_session(S)
    assert [info.last_modified for info in claude.list_sessions()] == [1768473000000]


@pytest.mark.parametrize(
    "function",
    [
        lambda id: claude.relocate_session(id, "/"),
        claude.pin_session,
        claude.unpin_session,
        claude.doctor,
        claude.export_html,
        claude.export_markdown,
        claude.trash_session,
    ],
)
def test_unknown_session_is_rejected(home: Home, function) -> None:  # type: ignore[no-untyped-def] # any of them
    with pytest.raises(ValueError, match="Invalid session_id"):
        function("x")
    with pytest.raises(FileNotFoundError, match=S):
        function(S)


def test_relocate_rejects_a_missing_directory(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation()
    original = path.read_bytes()
    for nowhere in ("relative/nowhere", str(tmp_path / "nowhere")):
        with pytest.raises(NotADirectoryError, match="there is no directory"):
            claude.relocate_session(S, nowhere)
    assert path.read_bytes() == original
