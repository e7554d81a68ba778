"""Rename, tag, archive and delete sessions in Claude Code's files."""

from __future__ import annotations

import json
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue import claude
from tests.claude.entries import S2, Home, S, user

CHANGES: dict[str, Callable[..., Any]] = {
    "rename": lambda id, **where: claude.rename_session(id, "T", **where),
    "tag": lambda id, **where: claude.tag_session(id, "t", **where),
    "untag": lambda id, **where: claude.tag_session(id, None, **where),
    "archive": claude.archive_session,
    "unarchive": claude.unarchive_session,
    "delete": claude.delete_session,
    "fork": claude.fork_session,
}


def last(path: Path) -> str:
    return path.read_text().rstrip("\n").rpartition("\n")[2]


def test_rename_appends_the_line_that_claude_code_writes(home: Home) -> None:
    path = home.write_conversation()
    claude.rename_session(S, "  Ünï 🎉 title ")
    line = f'{{"type":"custom-title","customTitle":"Ünï 🎉 title","sessionId":"{S}"}}'
    assert last(path) == line


def test_tag_appends_the_line_that_claude_code_writes(home: Home) -> None:
    path = home.write_conversation()
    claude.tag_session(S, " ex\u200bp\ufeff\uff21 ")
    assert last(path) == f'{{"type":"tag","tag":"expA","sessionId":"{S}"}}'
    claude.tag_session(S, None)
    assert last(path) == f'{{"type":"tag","tag":"","sessionId":"{S}"}}'
    info = claude.get_session_info(S)
    assert info is not None
    assert info.tag is None


def test_rename_writes_only_the_new_line(home: Home) -> None:
    path = home.write_conversation()
    original = path.read_bytes()
    claude.rename_session(S, "T")
    assert path.read_bytes().startswith(original)
    assert path.read_bytes().count(b"\n") == original.count(b"\n") + 1


def test_partial_line_on_a_full_disk_is_truncated(home: Home) -> None:
    path = home.write_conversation()
    original = path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(original) + 10, before[1]))
    try:
        with pytest.raises(OSError):
            claude.rename_session(S, "T")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == original
    claude.rename_session(S, "T")
    assert path.read_bytes().startswith(original)


@pytest.mark.parametrize("empty", ["", "  ", "\n\t", "\x1b[0m"])
def test_empty_title_is_rejected(home: Home, empty: str) -> None:
    home.write_conversation()
    with pytest.raises(ValueError, match=r"^title must be non-empty$"):
        claude.rename_session(S, empty)


@pytest.mark.parametrize("empty", ["", "  ", "\u200b\ufeff"])
def test_empty_tag_is_rejected(home: Home, empty: str) -> None:
    home.write_conversation()
    with pytest.raises(ValueError, match=r"^tag must be non-empty \(use None to clear\)$"):
        claude.tag_session(S, empty)


@pytest.mark.parametrize("change", CHANGES)
def test_errors_have_the_sdk_messages(home: Home, change: str, monkeypatch: Any) -> None:
    do = CHANGES[change]
    with pytest.raises(ValueError, match=r"^Invalid session_id: x$"):
        do("x")
    short = change in ("delete", "fork")
    everywhere = "" if short else " in any project directory"
    with pytest.raises(FileNotFoundError, match=f"^Session {S} not found{everywhere}$"):
        do(S)
    with pytest.raises(
        FileNotFoundError, match=f"^Session {S} not found in project directory for /w$"
    ):
        do(S, directory="/w")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home.root / "none"))
    nowhere = "" if short else r" \(no projects directory\)"
    with pytest.raises(FileNotFoundError, match=f"^Session {S} not found{nowhere}$"):
        do(S)


@pytest.mark.parametrize("change", CHANGES)
def test_empty_file_is_skipped_when_a_session_is_located(home: Home, change: str) -> None:
    empty = home.write([], S, "-a")
    home.write([user("00000000-0000-4000-8000-000000000001", None)], S, "-z")
    CHANGES[change](S)
    assert empty.read_bytes() == b""


def test_archive_mark_has_the_sdk_format(home: Home) -> None:
    path = home.write_conversation()
    original = path.read_bytes()
    claude.archive_session(S)
    mark = path.with_suffix("") / "archived.json"
    content = json.loads(mark.read_text())
    assert (content["archived"], content["by"]) == (True, "sdk")
    assert len(content["at"]) == len("2026-01-01T00:00:00.000Z")
    assert stat.S_IMODE(mark.stat().st_mode) == 0o600
    assert stat.S_IMODE(mark.parent.stat().st_mode) == 0o700
    assert [info.archived for info in claude.list_sessions()] == [True]
    claude.unarchive_session(S)
    assert [info.archived for info in claude.list_sessions()] == [False]
    assert path.read_bytes() == original
    assert os.listdir(mark.parent) == ["archived.json"]


def test_delete_removes_the_transcript_and_its_sidecar_directory(home: Home) -> None:
    path = home.write_conversation()
    other = home.write_conversation(S2)
    (path.with_suffix("") / "subagents").mkdir(parents=True)
    (path.with_suffix("") / "subagents" / "agent-a.jsonl").write_text("{}\n")
    claude.delete_session(S)
    assert [*path.parent.iterdir()] == [other]


def test_delete_removes_only_the_link_of_a_linked_directory(home: Home, tmp_path: Path) -> None:
    path = home.write_conversation()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    path.with_suffix("").symlink_to(tmp_path / "kept")
    claude.delete_session(S)
    assert not path.with_suffix("").is_symlink()
    assert (tmp_path / "kept" / "file").exists()


def register(home: Home, id: str, **fields: Any) -> None:
    (home.root / "sessions").mkdir(exist_ok=True)
    file = home.root / "sessions" / f"{fields.get('pid')}.json"
    file.write_text(json.dumps({"sessionId": id, **fields}))


def test_ended_process_does_not_keep_a_session_open(home: Home) -> None:
    home.write_conversation()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    register(home, S, pid=child)
    claude.delete_session(S)


def test_reused_process_id_does_not_keep_a_session_open(home: Home) -> None:
    home.write_conversation()
    register(home, S, pid=os.getpid(), procStart="1")
    claude.delete_session(S)


@pytest.mark.parametrize("pid", [0, -1, "7", None, 2**40])
def test_file_without_a_process_id_does_not_keep_a_session_open(home: Home, pid: Any) -> None:
    home.write_conversation()
    register(home, S, pid=pid)
    claude.delete_session(S)
