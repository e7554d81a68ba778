"""`@`, `@2` and commands without a session: the newest sessions of this directory."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.interfaces.cli.child import Run
from tests.interfaces.cli.screen import OpenScreen


@pytest.fixture
def sessions(run: Run, tmp_path: Path) -> dict[str, str]:
    """Two sessions of this directory, and a newer one of another: ids by title."""
    ids = {title: run("new", "--title", title).stdout.strip() for title in ("Older", "Newer")}
    elsewhere = str(tmp_path / "elsewhere")
    ids["Elsewhere"] = run("new", "--title", "Elsewhere", "--cwd", elsewhere).stdout.strip()
    return ids


def test_at_names_the_newest_sessions_of_this_directory(run: Run, sessions: dict[str, str]) -> None:
    def info(*words: str) -> str:
        title: str = json.loads(run("show", *words, "--info", "--format", "json").stdout)["title"]
        return title

    assert info() == info("@") == info("@1") == "Newer"
    assert info("@2") == "Older"
    run("rename", "@2", "Oldest")
    assert info("@2") == "Oldest"
    run("delete", "--yes", "@")
    assert info("@") == "Oldest"
    run("restore", "@")
    assert info("@") == "Newer"


def test_commands_without_a_session_take_the_newest_of_this_directory(
    run: Run, sessions: dict[str, str]
) -> None:
    assert run("prompt", "/say hello").returncode == 0
    assert "hello" in run("show").stdout
    assert "hello" in run("show", sessions["Newer"]).stdout
    fork = run("fork").stdout.strip()
    row = json.loads(run("show", fork, "--info", "--format", "json").stdout)
    assert row["forked_from"] == sessions["Newer"]


def test_at_finds_the_sessions_of_the_repository_from_below_its_root(
    run: Run, sessions: dict[str, str], tmp_path: Path, environment: dict[str, str]
) -> None:
    root = tmp_path / "here"
    subprocess.run(["git", "init", "-q", root], check=True)
    below = root / "src"
    below.mkdir()
    from tests.interfaces.cli.child import COMMAND

    done = subprocess.run(
        [COMMAND, "show", "@", "--info", "--format", "json"],
        cwd=below,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["id"] == sessions["Newer"]


def test_missing_recent_session_is_explained(run: Run, sessions: dict[str, str]) -> None:
    done = run("show", "@9")
    assert done.returncode == 2
    assert "there is no @9: only 2 sessions of " in done.stderr
    for id in ("Older", "Newer"):
        run("delete", "--yes", sessions[id])
    done = run("resume")
    assert done.returncode == 2
    assert "there is no session of " in done.stderr and "`segue list`" in done.stderr


def test_prompt_without_its_text_is_not_sent(run: Run, sessions: dict[str, str]) -> None:
    done = run("prompt", sessions["Older"][:13])
    assert done.returncode == 2
    assert "TEXT is missing" in done.stderr
    assert run("show", sessions["Newer"]).stdout == ""


def test_picker_chooses_a_session_where_this_directory_has_none(
    sessions: dict[str, str],
    run: Run,
    environment: dict[str, str],
    tmp_path: Path,
    open_screen: OpenScreen,
) -> None:
    with open_screen("fork", env=environment, cwd=str(tmp_path)) as screen:
        screen.until("enter fork")
        screen.press("older\r")
        assert screen.ended() == 0
    (fork,) = [
        row for row in json.loads(run("list", "--format", "json").stdout) if row["forked_from"]
    ]
    assert fork["forked_from"] == sessions["Older"]
    with open_screen("show", env=environment, cwd=str(tmp_path)) as screen:
        screen.until("enter show")
        screen.press("\x1b")
        assert screen.ended() == 130
