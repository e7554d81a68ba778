"""What somebody meets who has not read the guide: hints where a command is not understood."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from segue.doors.cli.tables import short
from tests.doors.cli.child import COMMAND, Run
from tests.doors.cli.screen import Screen


@pytest.mark.parametrize(
    ("typed", "meant"), [("lst", "list"), ("serch", "search"), ("archiv", "archive")]
)
def test_a_mistyped_command_is_guessed(run: Run, typed: str, meant: str) -> None:
    done = run(typed)
    assert done.returncode == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in done.stderr


def test_a_command_like_no_other_is_told_where_they_are_listed(run: Run) -> None:
    assert "`segue --help` lists them" in run("xyzzy").stderr


def test_the_first_help_is_not_cut_off(run: Run) -> None:
    shown = run("--help").stdout.partition("Commands:")[2]
    assert "..." not in shown
    assert "from which `segue restore` takes them back" in " ".join(shown.split())


def test_an_empty_prompt_makes_no_session(run: Run) -> None:
    for words in (("",), ("  \n",), ("-",)):
        done = run("prompt", "new", *words)
        assert (done.returncode, "empty" in done.stderr) == (2, True)
    assert json.loads(run("list", "--format", "json").stdout) == []


def test_restoring_what_is_not_in_the_trash_is_a_mistake(run: Run) -> None:
    id = run("new").stdout.strip()
    done = run("restore", id)
    assert (done.returncode, "not in the trash" in done.stderr) == (2, True)
    run("archive", id)
    assert "segue unarchive" in run("restore", id).stderr


def test_importing_a_session_that_exists_names_the_way_out(run: Run, tmp_path: Path) -> None:
    id = run("new", "--title", "Once").stdout.strip()
    file = str(tmp_path / "session.jsonl")
    run("export", id, "-o", file)
    done = run("import", file)
    assert (done.returncode, "--new-id" in done.stderr) == (2, True)
    made = json.loads(run("import", file, "--new-id", "--format", "json").stdout)
    assert made["title"] == "Once" and made["id"] != id


def test_a_list_says_when_it_is_not_all(run: Run) -> None:
    for number in range(3):
        run("prompt", "new", f"needle {number}")
    done = run("list", "-n", "2")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == "… the first 2; --limit and --all show more\n"
    assert run("list", "--all").stderr == run("list").stderr == ""
    assert run("list", "-n", "2", "--format", "json").stderr == ""
    assert "--limit" in run("search", "needle", "-n", "2").stderr
    assert run("search", "needle").stderr == ""


def test_a_list_says_whose_sessions_they_are_and_where(run: Run, tmp_path: Path) -> None:
    run("new", "--title", "One")
    assert re.search(r"One  segue  \S*/here$", run("list").stdout.strip())


def test_an_id_is_shown_as_long_as_it_must_be() -> None:
    alike = "0198c2a4-77b1-7000-8000-000000000001", "0198c2a4-77b1-7fff-8000-000000000002"
    assert short(["0198c2a4-77b1-7000-8000-000000000001"]) == ["0198c2a4-77b1"]
    assert short(alike) == ["0198c2a4-77b1-7000", "0198c2a4-77b1-7fff"]
    assert short([]) == []


def test_an_id_as_the_terminal_shows_it_is_a_name(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    for number in range(3):
        run("new", "--title", f"Title {number}")
    with Screen("list", env=environment, cwd=str(tmp_path)) as screen:
        shown = screen.until("Title 0")
    for line in shown.splitlines()[:3]:
        title = re.search(r"Title \d", line)
        assert title is not None
        info = run("show", line.split()[0], "--info", "--format", "json")
        assert json.loads(info.stdout)["title"] == title[0]


def test_the_doctor_says_one_thing_about_one_thing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "claude" / "projects").mkdir(parents=True)
    done = run("doctor", "--format", "json", CLAUDE_CONFIG_DIR=str(tmp_path / "claude"))
    about = [finding["about"] for finding in json.loads(done.stdout)]
    assert "claude" in about and len(set(about)) == len(about)


def test_keys_settings_and_the_trash_have_formats(run: Run) -> None:
    secret = run("keys", "create", "--name", "ci").stdout.strip()
    (key,) = json.loads(run("keys", "list", "--format", "json").stdout)
    assert (key["name"], key["revoked_at"], secret.endswith(key["hint"])) == ("ci", None, True)
    assert "digest" not in key
    assert run("keys", "list", "--format", "raw").stdout.count("\n") == 1
    run("config", "set", "model", "openai:gpt-5")
    (setting,) = json.loads(run("config", "list", "--format", "json").stdout)
    assert (setting["name"], setting["value"]) == ("model", "openai:gpt-5")
    assert len(json.loads(run("config", "list", "--all", "--format", "json").stdout)) > 1
    id = run("new").stdout.strip()
    run("delete", id, "--yes")
    (gone,) = json.loads(run("trash", "empty", "--yes", "--format", "json").stdout)
    assert gone["id"] == id
    assert run("trash", "empty", "--format", "json").stdout == "[]\n"


def test_an_export_is_whole_through_a_pipe_that_takes_little(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "-", stdin="a long line " * 30_000)
    file = tmp_path / "whole.jsonl"
    run("export", id, "-o", str(file))
    # A pipe that does not block takes what it has room for, and says so to who writes unbuffered.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    child = subprocess.Popen(
        [COMMAND, "export", id],
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        assert output.read() == file.read_bytes()
    assert child.stderr is not None
    assert (child.wait(60), child.stderr.read()) == (0, b"")
    child.stderr.close()


def test_stats_say_when_rows_are_left_out(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        run("new", "--cwd", str(tmp_path / name))
    done = run("stats", "--by", "project", "-n", "1")
    assert "--limit shows the other 2" in done.stderr
