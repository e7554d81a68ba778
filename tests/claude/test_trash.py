"""The trash moves a session with all its files, and restores it completely."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from segue import claude
from tests.claude.entries import S2, Home, S, as_line, assistant, user


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def write_all_files(home: Home) -> None:
    """Write two sessions with all files that Claude Code may keep for one."""
    for id in (S, S2):
        prompt = user("u1", None, "hi", cwd="/w", sessionId=id)
        path = home.write([prompt, assistant("a1", "u1", sessionId=id)], id)
        (path.with_suffix("") / "subagents").mkdir(parents=True)
        for file in (
            path.with_suffix("") / "subagents" / "agent-a.jsonl",
            path.parent / f"agent-{id[:7]}.jsonl",
            home.root / "file-history" / id / "abc@v1",
            home.root / "session-env" / id / "env",
            home.root / "todos" / f"{id}-agent-{id}.json",
            home.root / "debug" / f"{id}.txt",
        ):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(as_line(user("u1", None, isSidechain=True, sessionId=id)))
    rows = [{"sessionId": id, "fullPath": f"/{id}"} for id in (S, S2)]
    index = home.projects / "-w" / "sessions-index.json"
    index.write_text(json.dumps({"version": 1, "entries": rows}, separators=(",", ":")))
    typed = [{"display": f"{n}", "timestamp": n, "sessionId": (S, S2)[n % 2]} for n in range(6)]
    (home.root / "history.jsonl").write_bytes(b"".join(map(as_line, typed)))


def test_trash_moves_all_files_of_a_session_and_no_others(home: Home) -> None:
    write_all_files(home)
    before = contents(home.root)
    trashed = claude.trash_session(S)
    remaining = {
        name: data for name, data in contents(home.root).items() if "segue-trash" not in name
    }
    assert not [name for name in remaining if S in name or S[:7] in name]
    assert not [name for name, data in remaining.items() if S.encode() in data]
    assert remaining.keys() == {name for name in before if S not in name and S[:7] not in name}
    assert (trashed.session_id, trashed.summary, trashed.cwd) == (S, "hi", "/w")
    assert [info.session_id for info in claude.list_sessions()] == [S2]
    assert claude.list_trash() == [trashed]


def test_restore_puts_all_files_back_unchanged(home: Home) -> None:
    write_all_files(home)
    before = contents(home.root)
    times = {path: path.stat().st_mtime_ns for path in home.root.rglob("*.jsonl")}
    claude.trash_session(S)
    claude.restore_session(S)
    after = contents(home.root)
    index = "projects/-w/sessions-index.json"
    rows = json.loads(after.pop(index))["entries"]
    assert sorted(row["sessionId"] for row in rows) == [S, S2]
    before.pop(index)
    assert after == before
    moved = [path for path in times if S in str(path)]
    assert all(path.stat().st_mtime_ns == times[path] for path in moved)
    assert claude.list_trash() == []


def test_trash_refuses_an_open_session(home: Home) -> None:
    path = home.write_conversation()
    (home.root / "sessions").mkdir()
    fields = {"pid": os.getpid(), "sessionId": S}
    (home.root / "sessions" / f"{os.getpid()}.json").write_text(json.dumps(fields))
    with pytest.raises(claude.SessionIsLive):
        claude.trash_session(S)
    assert path.exists()
    assert claude.list_trash() == []


def test_restore_does_not_overwrite_files(home: Home) -> None:
    home.write_conversation(prompt="old")
    claude.trash_session(S)
    path = home.write_conversation(prompt="new")
    with pytest.raises(FileExistsError, match=S):
        claude.restore_session(S)
    assert b"new" in path.read_bytes()
    assert len(claude.list_trash()) == 1


def test_restore_uses_the_copy_that_was_trashed_last(home: Home) -> None:
    for prompt in ("first", "second"):
        home.write_conversation(prompt=prompt)
        claude.trash_session(S)
    assert [trashed.summary for trashed in claude.list_trash()] == ["second", "first"]
    claude.restore_session(S)
    assert [info.summary for info in claude.list_sessions()] == ["second"]


def test_interrupted_trash_can_be_restored(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all_files(home)
    before = contents(home.root)
    rename, count = os.rename, 0

    def crash(*paths: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        rename(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            claude.trash_session(S)
    claude.restore_session(S)
    index = "projects/-w/sessions-index.json"
    after = contents(home.root)
    assert {name: after[name] for name in before if name != index}.keys() == after.keys() - {index}
    assert after[f"projects/-w/{S}.jsonl"] == before[f"projects/-w/{S}.jsonl"]


def test_trash_keeps_prompts_typed_while_it_rewrites_the_history(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all_files(home)
    history = home.root / "history.jsonl"
    late = as_line({"display": "late", "timestamp": 99, "sessionId": S2})
    sync = os.fsync

    def type_meanwhile(descriptor: int) -> None:
        sync(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("history.jsonl.segue"):
            with history.open("ab") as file:
                file.write(late)

    if os.path.exists("/proc/self/fd"):
        monkeypatch.setattr(os, "fsync", type_meanwhile)
        claude.trash_session(S)
        assert history.read_bytes().endswith(late)


def test_empty_trash_deletes_old_sessions(home: Home) -> None:
    home.write_conversation()
    claude.trash_session(S)
    assert claude.empty_trash(older_than_days=1) == 0
    assert claude.empty_trash() == 1
    assert claude.list_trash() == []
    with pytest.raises(FileNotFoundError, match="trash"):
        claude.restore_session(S)


@pytest.mark.parametrize("escape", ["../../outside", "/tmp/outside"])
def test_manifest_with_paths_outside_the_home_is_ignored(home: Home, escape: str) -> None:
    directory = home.root / "segue-trash" / "1"
    directory.mkdir(parents=True)
    manifest = {"sessionId": S, "trashedAt": 1, "moved": [escape], "transcript": escape}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    (directory / "0").write_text("x")
    assert claude.list_trash() == []
    with pytest.raises(FileNotFoundError):
        claude.restore_session(S)


def test_junk_in_the_trash_is_ignored(home: Home) -> None:
    directory = home.root / "segue-trash" / "junk"
    directory.mkdir(parents=True)
    for body in ("", "[]", "{", '{"sessionId":5}', '{"sessionId":"x","trashedAt":1,"moved":[7]}'):
        (directory / "manifest.json").write_text(body)
        assert claude.list_trash() == []


def test_unlisted_session_can_be_trashed(home: Home) -> None:
    home.write([{"type": "mode"}, assistant("a1", None)])
    assert claude.trash_session(S).summary == ""
    claude.restore_session(S)
