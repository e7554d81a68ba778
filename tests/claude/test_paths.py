"""The names of project directories, and which sessions belong to a directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from segue import claude
from segue.sources.claude.format import paths
from tests.claude.entries import S2, Home, S


def listed(directory: Path | str | None = None, worktrees: bool = True) -> list[str]:
    where = None if directory is None else str(directory)
    return [info.session_id for info in claude.list_sessions(where, include_worktrees=worktrees)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/proj", "-home-me-proj"),
        ("/a.b_c d", "-a-b-c-d"),
        ("/emoji🎉dir", "-emoji--dir"),
        ("/cafe\u0301", "-cafe-"),
        ("", ""),
    ],
)
def test_project_name_replaces_each_special_utf16_unit_by_a_dash(path: str, name: str) -> None:
    assert paths.project_key(path) == name


def test_long_project_name_is_cut_and_gets_a_hash() -> None:
    path = "/" + "x" * 250
    name = paths.project_key(path)
    assert name == "-" + "x" * 199 + "-" + paths.path_hash(path)
    assert paths.project_key(path + "y") != name
    assert paths.path_hash("") == "0"
    assert paths.path_hash("hello") == "1n1e4y"


def test_project_key_uses_the_resolved_path(home: Home, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    key = claude.project_key_for_directory(tmp_path / "link")
    assert key == claude.project_key_for_directory(str(tmp_path / "real"))
    assert claude.project_key_for_directory() == paths.project_key(os.getcwd())


def test_directories_with_the_same_project_name_do_not_share_sessions(
    home: Home, tmp_path: Path
) -> None:
    one, other = tmp_path / "a-b" / "c", tmp_path / "a" / "b-c"
    one.mkdir(parents=True)
    other.mkdir(parents=True)
    name = paths.project_key(str(one))
    assert name == paths.project_key(str(other))
    home.write_conversation(S, name, cwd=str(one))
    home.write_conversation(S2, name, cwd=str(other))
    assert (listed(one), listed(other)) == ([S], [S2])
    assert set(listed()) == {S, S2}


def test_session_of_a_deleted_directory_is_listed_for_its_project_name(
    home: Home, tmp_path: Path
) -> None:
    one, gone = tmp_path / "a-b", tmp_path / "a" / "b"
    one.mkdir()
    home.write_conversation(S, paths.project_key(str(one)), cwd=str(gone))
    assert listed(one) == listed(gone) == [S]


@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/../p", "{}/."])
def test_directory_argument_is_normalised(home: Home, tmp_path: Path, spelling: str) -> None:
    (tmp_path / "p").mkdir()
    home.write_conversation(S, paths.project_key(str(tmp_path / "p")))
    assert listed(spelling.format(tmp_path / "p")) == [S]


def test_session_without_cwd_gets_the_requested_directory(home: Home, tmp_path: Path) -> None:
    home.write_conversation(S, paths.project_key(str(tmp_path)))
    assert claude.list_sessions(str(tmp_path))[0].cwd == str(tmp_path)
    assert claude.list_sessions()[0].cwd is None


def long_directory(tmp_path: Path) -> Path:
    directory = tmp_path / ("x" * 90) / ("y" * (200 - len(str(tmp_path)) - 60))
    directory.mkdir(parents=True)
    assert paths.MAX_PROJECT_NAME_LENGTH < len(str(directory)) < 255
    return directory


def test_long_directory_is_found_under_its_uncut_legacy_name(home: Home, tmp_path: Path) -> None:
    directory = long_directory(tmp_path)
    home.write_conversation(S, paths.hyphenate(str(directory)))
    assert listed(directory) == [S]


def test_long_directory_is_found_under_another_hash_if_the_session_confirms_it(
    home: Home, tmp_path: Path
) -> None:
    directory = long_directory(tmp_path)
    name = paths.hyphenate(str(directory))[: paths.MAX_PROJECT_NAME_LENGTH] + "-zzzzzz"
    home.write_conversation(S, name, cwd=str(directory))
    home.write_conversation(S2, name, cwd="/another/place")
    assert listed(directory) == [S]
    assert len(claude.get_session_messages(S, str(directory))) == 2


def git(directory: Path, *command: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "-C", str(directory), *command], check=True, capture_output=True)


def test_list_includes_the_worktrees_of_a_repository(home: Home, tmp_path: Path) -> None:
    repository, tree = tmp_path / "repository", tmp_path / "tree"
    (repository / "sub").mkdir(parents=True)
    git(repository, "init", "-q")
    git(repository, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "worktree", "add", "-q", str(tree))
    home.write_conversation(S, paths.project_key(str(repository)), cwd=str(repository))
    home.write_conversation(S2, paths.project_key(str(tree)), cwd=str(tree))
    home.touch(S, 1, paths.project_key(str(repository)))
    for directory in (repository, tree, repository / "sub"):
        assert listed(directory) == [S2, S]
    assert listed(repository, worktrees=False) == [S]
    assert claude.get_session_info(S2, str(repository)) is not None
    assert len(claude.get_session_messages(S, str(tree))) == 2


def test_git_runs_only_inside_a_repository(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("git was started")

    monkeypatch.setattr("subprocess.run", start)
    if not any((above / ".git").exists() for above in tmp_path.parents):
        listed(tmp_path)


def test_listing_runs_no_hook_of_the_repository(home: Home, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    ran = tmp_path / "ran"
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(hook))
    listed(tmp_path)
    assert not ran.exists()


def test_environment_can_set_one_name_for_all_projects(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_PROJECT_DIR_NAME", "chosen")
    home.write_conversation(S, "chosen", cwd=str(tmp_path))
    assert listed(tmp_path) == [S]
    assert claude.project_key_for_directory(tmp_path) == "chosen"
    for bad in ("../up", "a b", "x" * 65, "CON", ""):
        monkeypatch.setenv("CLAUDE_CODE_PROJECT_DIR_NAME", bad)
        assert claude.project_key_for_directory(tmp_path) == paths.project_key(str(tmp_path))


def test_default_home_is_in_the_user_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in (None, ""):
        environ = {} if value is None else {"CLAUDE_CONFIG_DIR": value}
        assert paths.ClaudeHome.current(environ).root == str(tmp_path / ".claude")


def test_linked_project_directory_is_listed(home: Home, tmp_path: Path) -> None:
    home.write_conversation()
    moved = tmp_path / "moved"
    os.rename(home.projects / "-w", moved)
    (home.projects / "-w").symlink_to(moved)
    assert listed() == [S]
