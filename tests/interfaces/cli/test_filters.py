"""The filters of `list`, `search` and `stats`."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.claude.entries import Home, assistant, user
from tests.interfaces.cli.child import Run

ANSWER = assistant("a1", "u1", id="m1")
ANSWER["message"] |= {
    "model": "claude-sonnet-4-6",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


@pytest.fixture
def projects(run: Run, home: Home, tmp_path: Path) -> Path:
    """One session of Claude Code, and one of segue on a branch of a repository."""
    project = tmp_path / "work" / "parser"
    subprocess.run(["git", "init", "-q", "-b", "topic", project], check=True)
    home.write(
        [
            user("u1", None, "Why is it slow?", cwd="/work/site", gitBranch="main"),
            ANSWER,
        ]
    )
    run("new", "--title", "Parser", "--cwd", str(project))
    return project


def titles(run: Run, *words: str) -> list[str]:
    return [row["title"] for row in json.loads(run("list", "--format", "json", *words).stdout)]


def test_filters_select_branch_model_and_project(run: Run, projects: Path) -> None:
    assert titles(run, "--branch", "topic") == ["Parser"]
    assert titles(run, "--branch", "main") == ["Why is it slow?"]
    assert titles(run, "--model", "sonnet") == ["Why is it slow?"]
    assert titles(run, "--model", "Claude-Sonnet-4-6") == ["Why is it slow?"]
    assert titles(run, "--model", "gpt") == []
    assert titles(run, "--project", "parser") == titles(run, "--project", "work/parser")
    assert titles(run, "--project", "parser") == ["Parser"]
    assert titles(run, "--project", "pars") == []
    matches = json.loads(run("search", "slow", "--model", "sonnet", "--format", "json").stdout)
    assert len(matches) == 1
    ranked = ("--ranked", "--format", "json")
    assert len(json.loads(run("search", "slow", "--project", "site", *ranked).stdout)) == 1
    assert json.loads(run("search", "slow", "--branch", "topic", *ranked).stdout) == []


def test_until_includes_a_whole_day(run: Run, projects: Path) -> None:
    (row,) = json.loads(run("list", "--source", "claude", "--format", "json").stdout)
    day = row["active_at"][:10]
    assert titles(run, "--until", day) == ["Why is it slow?"]
    assert titles(run, "--until", row["active_at"]) == []
    assert titles(run, "--since", "1d", "--until", "0m") == ["Parser"]


def test_stats_group_by_week_and_filter(run: Run, projects: Path) -> None:
    done = run("stats", "--by", "week", "--source", "claude", "--format", "json")
    (row,) = json.loads(done.stdout)
    assert row["week"][4:6] == "-W" and row["sessions"] == 1
    assert json.loads(run("stats", "--branch", "topic", "--format", "json").stdout)[0]["sessions"]


def test_empty_list_says_where_it_looked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home" / ".codex" / "sessions").mkdir(parents=True)
    done = run("list")
    assert done.returncode == 0 and done.stdout == ""
    assert str(tmp_path / "data") in done.stderr
    assert "Codex (~/.codex)" in done.stderr.splitlines()[0]
    assert "Claude Code (~/.claude/projects)" in done.stderr.splitlines()[1]
    assert "segue prompt new TEXT" in done.stderr


def test_mistyped_directory_is_named(run: Run) -> None:
    done = run("list", "--cwd", "/no/such/place")
    assert "There is no directory /no/such/place." in done.stderr
