"""What somebody meets who has not read the guide: hints where a command is not understood."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pexpect
import pytest

from segue.factory import open_hub
from segue.interfaces.cli.output.tables import short
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from tests.claude.entries import Home
from tests.interfaces.cli.child import COMMAND, Run
from tests.interfaces.cli.screen import Screen


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lst", "list"),
        ("serch", "search"),
        ("archiv", "archive"),
        ("rm", "delete"),
        ("grep", "search"),
    ],
)
def test_a_mistyped_command_is_guessed(run: Run, typed: str, meant: str) -> None:
    done = run(typed)
    assert done.returncode == 2
    assert f"no command '{typed}'. Did you mean '{meant}'?" in done.stderr


def test_a_command_like_no_other_is_told_where_they_are_listed(run: Run) -> None:
    told = "segue: there is no command 'xyzzy'. `segue --help` says more.\n"
    assert run("xyzzy").stderr == told


@pytest.mark.parametrize("group", ["", "keys", "config", "trash", "claude", "sessions", "agents"])
def test_no_help_is_cut_off(run: Run, group: str) -> None:
    shown = run(*group.split(), "--help").stdout.partition("--help ")[2]
    assert shown and "..." not in shown


def test_the_first_help_has_whole_sentences(run: Run) -> None:
    shown = run("--help").stdout
    assert "from which `segue restore` takes them back" in " ".join(shown.split())


def test_help_is_a_command_too(run: Run) -> None:
    for words in ((), ("show",), ("keys", "create")):
        assert run("help", *words).stdout == run(*words, "--help").stdout != ""


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
    assert "--limit" in run("search", "needle", "-n", "2", "--ranked").stderr
    assert run("search", "needle").stderr == run("search", "needle", "--ranked").stderr == ""


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
    made = json.loads(run("keys", "create", "--format", "json").stdout)
    assert made.pop("key").endswith(made["hint"])
    assert made in json.loads(run("keys", "list", "--format", "json").stdout)
    assert (
        "There is no source 'cluade' here, but: segue" in run("list", "--source", "cluade").stderr
    )
    assert "no source" not in run("search", "x", "--source", "segue").stderr
    assert run("keys", "list", "--format", "raw").stdout.count("\n") == 2
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


def test_a_narrow_terminal_cuts_titles_and_nothing_else(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    long = "a rather long title that has to be cut somewhere or other"
    run("new", "--title", long, "--tag", "kept")
    with Screen("list", env=environment, cwd=str(tmp_path), columns=70) as screen:
        shown = screen.until("#kept").splitlines()[0]
    assert re.fullmatch(r"\S{13} +\d+s  0  a rather lo\S*.*… #kept  …\S+/here", shown), shown
    with Screen("search", "rather", env=environment, cwd=str(tmp_path), columns=40) as screen:
        assert "\n    a rather long title" in screen.until("#kept\n    a rather long")
    project = ("stats", "--by", "project")
    with Screen(*project, env=environment, cwd=str(tmp_path), columns=60) as screen:
        shown = screen.until("/here").splitlines()[1]
    assert re.fullmatch(r"…\S{9,}/here  +1  +0  +0  +0  +\S+", shown), shown


def test_options_of_place_may_stand_before_the_command(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    there = str(tmp_path / "there")
    run("--data-dir", there, "new", "--title", "Elsewhere")
    assert "Elsewhere" in run(f"--data-dir={there}", "--sources", "none", "list").stdout
    assert run("list").stdout == ""
    done = run("--data-dir", there, "prompt", "new", "--", "--say")
    assert (done.returncode, "--say" in done.stdout) == (0, True)
    with Screen("--data-dir", there, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("Elsewhere")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show",), "missing argument 'SESSION'. `segue show --help` says more."),
        (("show", "x", "--agent"), "requires an argument. `segue show --help` says more."),
        (("trash", "list", "--workspace"), "an argument. `segue trash list --help` says more."),
        (("show", "012"), "no session '012' (of an id, at least 4 characters are needed);"),
        (("new", "--tagg", "x"), "`segue new --help` says more."),
        (("list", "--format", "xml"), "'xml' is not one of 'json', 'jsonl', 'yaml', 'csv', 'raw'."),
        (("keys", "lst"), "Did you mean 'list'?"),
        (("nonsense",), "there is no command 'nonsense'. `segue --help` says more."),
        (("--bogus",), "no such option '--bogus'. `segue --help` says more."),
    ],
)
def test_a_mistake_is_one_sentence_and_a_hint(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("segue: ") and said in done.stderr


PAGER = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print(sys.stdin.readline(), "paging", flush=True)
open("/dev/tty").readline()
"""


def test_ctrl_c_is_the_pagers_while_it_pages(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/repeat 50 line")
    (tmp_path / "pager.py").write_text(PAGER)
    environment = {**environment, "PAGER": f"{sys.executable} {tmp_path / 'pager.py'}"}
    with Screen("show", id, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("paging")
        screen.press("\x03")
        screen.until("interrupted")
        screen.press("\r")
        assert screen.ended() == 0


@pytest.mark.parametrize(
    "words", [("list",), ("list", "--format", "json"), ("export", "one"), ("sessions", "list")]
)
def test_output_that_cannot_be_written_is_one_sentence(
    run: Run, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    run("new", "--title", "One")
    for redirected, code in ((">/dev/full", 1), (">&-", 0)):
        command = shlex.join([COMMAND, *words]) + redirected
        done = subprocess.run(
            ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        assert ("No space left" in done.stderr) == bool(code)
        assert done.stderr.count("\n") == code


@pytest.mark.parametrize("words", [("show", "One"), ("doctor",), ("list",), ("stats",)])
def test_colour_is_for_terminals_that_want_it(
    run: Run, environment: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    run("prompt", "new", "hello", "--title", "One")
    colour = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")
    seen = []
    for wanted in ("", "1"):
        with Screen(*words, env={**environment, "NO_COLOR": wanted}, cwd=str(tmp_path)) as screen:
            screen.child.expect(pexpect.EOF)
            seen.append(colour.search(screen.child.before) is not None)
    assert seen[1] is False
    assert seen[0] or words == ("list",)  # in which nothing needs one


def test_what_others_wrote_does_not_reach_the_terminal_as_commands(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    evil = "\x1b]0;owned\x07 needle \x1b[2J\x9b31m"
    run("prompt", "new", f"/say {evil}", "--title", f"Title {evil}")
    for words in (("search", "needle"), ("list",), ("show", "title")):
        assert not re.search(r"[\x07\x1b\x9b]", run(*words).stdout)
        with Screen(*words, env=environment, cwd=str(tmp_path)) as screen:
            screen.child.expect(pexpect.EOF)
            assert not re.search(rb"\x07|\x1b\]|\x1b\[2J|\xc2\x9b", screen.child.before)


def test_a_port_that_cannot_be_is_refused(run: Run) -> None:
    refused = run("serve", "--port", "99999")
    assert refused.returncode == 2 and "65535" in refused.stderr


def paging(
    environment: dict[str, str],
    place: Path,
    *words: str,
    columns: int = 100,
    lines: int = 14,
    **more: str,
) -> str:
    """What a terminal shows of a command whose pager says that it is one."""
    environment = {**environment, "SEGUE_PAGER": "sed 's/^/paged: /'", "PAGER": "false", **more}
    with Screen(*words, env=environment, cwd=str(place), columns=columns, lines=lines) as screen:
        return screen.until(lambda _: not screen.child.isalive())


def test_what_is_longer_than_the_screen_is_paged(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    async def furnish() -> None:
        async with await open_hub(environment["SEGUE_DATA_DIR"], sources="none") as hub:
            for number in range(20):
                made = await hub.editor.create(LOCAL, cwd="/", title=f"Title {number}")
                await hub.editor.append(
                    LOCAL, made.id, *[UserMessage(content=(Text(text="needle"),))] * 20
                )

    asyncio.run(furnish())
    for words in (("list",), ("search", "needle"), ("show", "Title 19")):
        shown = partial(paging, environment, tmp_path)
        assert "paged: " in shown(*words)
        assert "paged: " not in shown(*words, "--no-pager")
        assert "paged: " not in shown("--no-pager", *words)
        assert "paged: " not in shown(*words, SEGUE_PAGER="")
        assert "paged: " not in shown(*words, lines=60)
    assert "paged:" in paging(environment, tmp_path, "show", "Title 19", columns=7, lines=30)
    assert "Title 1" in paging(environment, tmp_path, "list", SEGUE_PAGER="less '")  # no command


def test_a_key_that_lasts_no_time_is_refused(run: Run) -> None:
    done = run("keys", "create", "--expires", "0d")
    assert done.returncode and not done.stdout
    assert "give 12h or 30d" in done.stderr


def test_a_key_of_another_workspace_is_looked_for_there(run: Run) -> None:
    run("keys", "create", "--workspace", "research")
    (key,) = json.loads(run("keys", "list", "--workspace", "research", "--format", "json").stdout)
    told = run("keys", "revoke", key["id"]).stderr
    assert "in workspace 'local'" in told and "--workspace" in told


def test_an_export_is_called_by_its_ending_too(run: Run) -> None:
    id = run("new", "--title", "Kept").stdout.strip()
    whole = run("export", id).stdout
    assert run("export", id, "--format", "jsonl").stdout == whole != ""


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (b"", "the file is empty"),
        (b"<html>\n<p>hello</p>\n", "neither a segue export nor a Claude Code transcript"),
        (b"{}\n", "neither a segue export nor a Claude Code transcript"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "neither a segue export nor a Claude Code transcript"),
        (b'{"segue":1,"sess\n', "line 1 is not of a segue export: it is no whole JSON\n"),
    ],
)
def test_what_is_no_session_is_not_imported(
    run: Run, tmp_path: Path, held: bytes, told: str
) -> None:
    file = tmp_path / "given"
    file.write_bytes(held)
    done = run("import", str(file))
    assert done.returncode and not done.stdout
    assert told in done.stderr


def test_a_directory_is_not_imported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here" / "kept").mkdir()
    for named in (".", "./kept", str(tmp_path), "kept"):
        done = run("import", named)
        assert done.returncode and not done.stdout
        assert "a directory" in done.stderr


def test_worktrees_of_no_directory_are_refused(run: Run) -> None:
    done = run("list", "--worktrees")
    assert done.returncode == 2
    assert "--cwd . --worktrees" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.base_url", "notaurl"),
        ("model.base_url", "ftp://127.0.0.1"),
        ("model.base_url", "http://:80"),
        ("model.base_url", "http://host:99999"),
        ("web.search", "altavista"),
        ("web.search", "searxng"),
        ("web.search", "searxng:notaurl"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(run: Run, name: str, value: str) -> None:
    assert run("config", "set", name, value).returncode == 2
    assert run("config", "get", name).stdout == ""


def test_settings_that_can_be_meant_are_taken(run: Run) -> None:
    for name, value in (
        ("model.base_url", "http://127.0.0.1:11434/v1"),
        ("web.search", "searxng:https://search.example.org"),
        ("web.search", "brave"),
    ):
        run("config", "set", name, value)
        assert run("config", "get", name).stdout == value + "\n"


def test_a_session_in_the_trash_is_shown_as_such(run: Run) -> None:
    id = run("new").stdout.strip()
    assert "trash" not in run("show", id).stderr
    run("delete", "--yes", id)
    assert f"It is in the trash; `segue restore {id}`" in run("show", id).stderr


def test_the_store_can_what_claude_codes_files_can(run: Run, home: Home) -> None:
    ours, theirs = json.loads(run("sources", "--format", "json").stdout)
    assert ours["can"] == theirs["can"] != []


def test_a_directory_without_files_is_no_skill(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here" / "empty").mkdir()
    done = run("skills", "create", "--file", "./empty")
    assert "there is no SKILL.md in ./empty" in done.stdout + done.stderr
