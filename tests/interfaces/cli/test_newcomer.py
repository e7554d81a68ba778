"""Hints for people who have not read the guide."""

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
from segue.interfaces.cli.output.tables import shorten_ids
from segue.model.content import Text
from segue.model.event import UserMessage
from segue.model.principal import LOCAL
from tests.claude.entries import Home, S, user
from tests.interfaces.cli.child import COMMAND, Run
from tests.interfaces.cli.screen import OpenScreen


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("lst", "list"),
        ("serch", "search"),
        ("archiv", "archive"),
        ("rm", "delete"),
        ("grep", "search"),
        ("version", "--version"),
    ],
)
def test_mistyped_command_gets_a_suggestion(run: Run, typed: str, suggested: str) -> None:
    done = run(typed)
    assert done.returncode == 2
    assert f"unknown command '{typed}'. Did you mean '{suggested}'?" in done.stderr


def test_unknown_acp_agent_lists_the_known_ones(run: Run) -> None:
    message = run("acp", "--agent", "nope").stderr
    assert "use claude_code, demo, model, acp:COMMAND or acp+ws://HOST/acp" in message


def test_unknown_command_points_to_help(run: Run) -> None:
    message = "segue: unknown command 'xyzzy'. Run `segue --help` for usage.\n"
    assert run("xyzzy").stderr == message


@pytest.mark.parametrize("group", ["", "keys", "config", "trash", "claude", "sessions", "agents"])
def test_help_is_not_truncated(run: Run, group: str) -> None:
    shown = run(*group.split(), "--help").stdout.partition("--help ")[2]
    assert shown and "..." not in shown


def test_help_works_as_a_command(run: Run) -> None:
    for words in ((), ("show",), ("keys", "create")):
        assert run("help", *words).stdout == run(*words, "--help").stdout != ""


def test_empty_prompt_creates_no_session(run: Run) -> None:
    for words in (("",), ("  \n",), ("-",)):
        done = run("prompt", "new", *words)
        assert (done.returncode, "empty" in done.stderr) == (2, True)
    assert json.loads(run("list", "--format", "json").stdout) == []


def test_restore_rejects_sessions_outside_the_trash(run: Run) -> None:
    id = run("new").stdout.strip()
    done = run("restore", id)
    assert (done.returncode, "not in the trash" in done.stderr) == (2, True)
    run("archive", id)
    assert "segue unarchive" in run("restore", id).stderr


def test_prompt_without_a_session_shows_which_one_receives_it(run: Run) -> None:
    id = run("new", "--title", "Release plan").stdout.strip()
    assert f"To session {id} (Release plan)\n" in run("prompt", "hello").stderr
    assert "To session" not in run("prompt", id, "hello").stderr


def test_misspelt_title_is_pointed_to_the_search_that_finds_it(run: Run) -> None:
    id = run("new", "--title", "Release plan").stdout.strip()
    assert "`segue search WORDS`" in run("show", "Relase plan").stderr
    (match,) = json.loads(run("search", "Relase", "plan", "--format", "json").stdout)
    assert match["id"] == id


def test_import_of_an_existing_session_suggests_new_id(run: Run, tmp_path: Path) -> None:
    id = run("new", "--title", "Once").stdout.strip()
    file = str(tmp_path / "session.jsonl")
    run("export", id, "-o", file)
    done = run("import", file)
    assert (done.returncode, "--new-id" in done.stderr) == (2, True)
    imported = json.loads(run("import", file, "--new-id", "--format", "json").stdout)
    assert imported["title"] == "Once" and imported["id"] != id


def test_truncated_list_says_so(run: Run) -> None:
    for number in range(3):
        run("prompt", "new", f"needle {number}")
    done = run("list", "-n", "2")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == "… 2 of 3 sessions; use --limit or --all for the other 1\n"
    assert run("list", "--all").stderr == run("list").stderr == ""
    assert run("list", "-n", "2", "--format", "json").stderr == done.stderr
    message = "… 3 of 3 sessions match; use --limit for the other 1\n"
    assert run("search", "needle", "-n", "2").stderr == message
    assert run("search", "needle", "-n", "2", "--format", "csv").stderr == message
    assert run("search", "needle", "-n", "2", "--ranked").stderr == message
    assert run("search", "needle").stderr == run("search", "needle", "--ranked").stderr == ""


def test_list_shows_source_and_directory(run: Run, tmp_path: Path) -> None:
    run("new", "--title", "One")
    assert re.search(r"One  segue  \S*/here$", run("list").stdout.strip())


def test_ids_are_shortened_while_they_stay_unique() -> None:
    similar = "0198c2a4-77b1-7000-8000-000000000001", "0198c2a4-77b1-7fff-8000-000000000002"
    assert shorten_ids(["0198c2a4-77b1-7000-8000-000000000001"]) == ["0198c2a4-77b1"]
    assert shorten_ids(similar) == ["0198c2a4-77b1-7000", "0198c2a4-77b1-7fff"]
    assert shorten_ids([]) == []


def test_shortened_ids_identify_their_sessions(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    for number in range(3):
        run("new", "--title", f"Title {number}")
    with open_screen("list", env=environment, cwd=str(tmp_path)) as screen:
        shown = screen.until("Title 0")
    for line in shown.splitlines()[:3]:
        title = re.search(r"Title \d", line)
        assert title is not None
        info = run("show", line.split()[0], "--info", "--format", "json")
        assert json.loads(info.stdout)["title"] == title[0]


def test_doctor_reports_each_subject_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "claude" / "projects").mkdir(parents=True)
    done = run("doctor", "--format", "json", CLAUDE_CONFIG_DIR=str(tmp_path / "claude"))
    about = [finding["about"] for finding in json.loads(done.stdout)]
    assert "claude" in about and len(set(about)) == len(about)


def test_keys_config_and_trash_support_formats(run: Run) -> None:
    secret = run("keys", "create", "--name", "ci").stdout.strip()
    (key,) = json.loads(run("keys", "list", "--format", "json").stdout)
    assert (key["name"], key["revoked_at"], secret.endswith(key["hint"])) == ("ci", None, True)
    assert "digest" not in key
    created = json.loads(run("keys", "create", "--format", "json").stdout)
    assert created.pop("key").endswith(created["hint"])
    assert created in json.loads(run("keys", "list", "--format", "json").stdout)
    assert "there is no source 'cluade'" in run("list", "--source", "cluade").stderr
    assert "no source" not in run("search", "x", "--source", "segue").stderr
    assert run("keys", "list", "--format", "raw").stdout.count("\n") == 2
    run("config", "set", "bash.confine", "strict")
    (setting,) = json.loads(run("config", "list", "--format", "json").stdout)
    assert (setting["name"], setting["value"]) == ("bash.confine", "strict")
    assert len(json.loads(run("config", "list", "--all", "--format", "json").stdout)) > 1
    id = run("new").stdout.strip()
    run("delete", id, "--yes")
    (deleted,) = json.loads(run("trash", "empty", "--yes", "--format", "json").stdout)
    assert deleted["id"] == id
    assert run("trash", "empty", "--format", "json").stdout == "[]\n"


def test_export_is_complete_through_a_nonblocking_pipe(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "-", stdin="a long line " * 30_000)
    file = tmp_path / "whole.jsonl"
    run("export", id, "-o", str(file))
    # A nonblocking pipe accepts a part of an unbuffered write.
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


def test_truncated_stats_say_so(run: Run, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        run("new", "--cwd", str(tmp_path / name))
    for format in ((), ("--format", "json")):
        done = run("stats", "--by", "project", "-n", "1", *format)
        assert "… 1 of 3 rows; use --limit for the other 2" in done.stderr


def test_narrow_terminal_shortens_only_titles(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    long = "a rather long title that has to be cut somewhere or other"
    run("new", "--title", long, "--tag", "label")
    with open_screen("list", env=environment, cwd=str(tmp_path), columns=70) as screen:
        shown = screen.until("#label").splitlines()[0]
    assert re.fullmatch(r"\S{13} +\d+s  0  a rather lo\S*.*… #label  …\S+/here", shown), shown
    with open_screen("search", "rather", env=environment, cwd=str(tmp_path), columns=40) as screen:
        assert "\n    a rather long title" in screen.until("#label\n    a rather long")
    project = ("stats", "--by", "project")
    with open_screen(*project, env=environment, cwd=str(tmp_path), columns=60) as screen:
        shown = screen.until("/here").splitlines()[1]
    assert re.fullmatch(r"…\S{9,}/here  +1  +0  +0  +0  +\S+", shown), shown
    with open_screen("list", env=environment, cwd=str(tmp_path), columns=30) as screen:
        shown = screen.until("#label")
    assert re.match(r"\S{13} +\d+s  0\n  a rather long title … #label\n", shown), shown
    with open_screen(*project, env=environment, cwd=str(tmp_path), columns=30) as screen:
        assert re.match(r"project +sessions +cost\n", screen.until("cost"))


def test_target_options_may_precede_the_command(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    there = str(tmp_path / "there")
    run("--data-dir", there, "new", "--title", "Elsewhere")
    assert "Elsewhere" in run(f"--data-dir={there}", "--sources", "none", "list").stdout
    assert run("list").stdout == ""
    done = run("--data-dir", there, "prompt", "new", "--", "--say")
    assert (done.returncode, "--say" in done.stdout) == (0, True)
    with open_screen("--data-dir", there, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("Elsewhere")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tail",), "missing argument 'SESSION'. Run `segue tail --help` for usage."),
        (("prompt",), "missing argument 'TEXT'. Run `segue prompt --help` for usage."),
        (("prompt", "new"), "missing argument 'TEXT'. Run `segue prompt --help` for usage."),
        (("prompt", "new", "a", "b"), "quote the TEXT: it is one argument. Run `segue prompt"),
        (("show", "x", "--agent"), "requires an argument. Run `segue show --help` for usage."),
        (("trash", "list", "--workspace"), "an argument. Run `segue trash list --help` for usage."),
        (("show", "012"), "no session matches '012' (an id prefix needs at least 4 characters);"),
        (("new", "--tagg", "x"), "Run `segue new --help` for usage."),
        (("list", "--format", "xml"), "'xml' is not one of 'json', 'jsonl', 'yaml', 'csv', 'raw'."),
        (("keys", "lst"), "Did you mean 'list'?"),
        (("nonsense",), "unknown command 'nonsense'. Run `segue --help` for usage."),
        (("--bogus",), "no such option '--bogus'. Run `segue --help` for usage."),
    ],
)
def test_usage_error_is_one_line_with_a_hint(
    run: Run, words: tuple[str, ...], message: str
) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("segue: ") and message in done.stderr


PAGER = """
import signal, sys
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print(sys.stdin.readline(), "paging", flush=True)
open("/dev/tty").readline()
"""


def test_ctrl_c_reaches_the_pager(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/repeat 50 line")
    (tmp_path / "pager.py").write_text(PAGER)
    environment = {**environment, "PAGER": f"{sys.executable} {tmp_path / 'pager.py'}"}
    with open_screen("show", id, env=environment, cwd=str(tmp_path)) as screen:
        screen.until("paging")
        screen.press("\x03")
        screen.until("interrupted")
        screen.press("\r")
        assert screen.ended() == 0


@pytest.mark.parametrize(
    "words", [("list",), ("list", "--format", "json"), ("export", "one"), ("sessions", "list")]
)
def test_unwritable_output_is_one_error_line(
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
def test_no_color_disables_color(
    run: Run,
    environment: dict[str, str],
    tmp_path: Path,
    words: tuple[str, ...],
    open_screen: OpenScreen,
) -> None:
    run("prompt", "new", "hello", "--title", "One")
    color = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")
    seen = []
    for wanted in ("", "1"):
        with open_screen(
            *words, env={**environment, "NO_COLOR": wanted}, cwd=str(tmp_path)
        ) as screen:
            screen.child.expect(pexpect.EOF)
            seen.append(color.search(screen.child.before) is not None)
    assert seen[1] is False
    assert seen[0] or words == ("list",)  # the list of one plain session has none


def test_session_text_cannot_control_the_terminal(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    evil = "\x1b]0;owned\x07 needle \x1b[2J\x9b31m"
    run("prompt", "new", f"/say {evil}", "--title", f"Title {evil}")
    for words in (("search", "needle"), ("list",), ("show", "title")):
        assert not re.search(r"[\x07\x1b\x9b]", run(*words).stdout)
        with open_screen(*words, env=environment, cwd=str(tmp_path)) as screen:
            screen.child.expect(pexpect.EOF)
            assert not re.search(rb"\x07|\x1b\]|\x1b\[2J|\xc2\x9b", screen.child.before)


def test_invalid_port_is_rejected(run: Run) -> None:
    done = run("serve", "--port", "99999")
    assert done.returncode == 2 and "65535" in done.stderr


def paged_output(
    open_screen: OpenScreen,
    environment: dict[str, str],
    cwd: Path,
    *words: str,
    columns: int = 100,
    lines: int = 14,
    **variables: str,
) -> str:
    """Return what a terminal shows of a command whose pager marks each line."""
    environment = {
        **environment,
        "SEGUE_PAGER": "sed 's/^/paged: /'",
        "PAGER": "false",
        **variables,
    }
    with open_screen(*words, env=environment, cwd=str(cwd), columns=columns, lines=lines) as screen:
        return screen.until(lambda _: not screen.child.isalive())


def test_output_longer_than_the_screen_is_paged(
    run: Run, environment: dict[str, str], tmp_path: Path, open_screen: OpenScreen
) -> None:
    async def create_sessions() -> None:
        async with await open_hub(environment["SEGUE_DATA_DIR"], sources="none") as hub:
            for number in range(20):
                session = await hub.editor.create(LOCAL, cwd="/", title=f"Title {number}")
                await hub.editor.append(
                    LOCAL, session.id, *[UserMessage(content=(Text(text="needle"),))] * 20
                )

    asyncio.run(create_sessions())
    for words in (("list",), ("search", "needle"), ("show", "Title 19")):
        shown = partial(paged_output, open_screen, environment, tmp_path)
        assert "paged: " in shown(*words)
        assert "paged: " not in shown(*words, "--no-pager")
        assert "paged: " not in shown("--no-pager", *words)
        assert "paged: " not in shown(*words, SEGUE_PAGER="")
        assert "paged: " not in shown(*words, lines=60)
    assert "paged:" in paged_output(
        open_screen, environment, tmp_path, "show", "Title 19", columns=7, lines=30
    )
    assert "Title 1" in paged_output(
        open_screen, environment, tmp_path, "list", SEGUE_PAGER="less '"
    )  # an unclosed quote


def test_key_with_zero_lifetime_is_rejected(run: Run) -> None:
    done = run("keys", "create", "--expires", "0d")
    assert done.returncode and not done.stdout
    assert "use 12h or 30d" in done.stderr


def test_revoking_a_key_of_another_workspace_hints_at_the_option(run: Run) -> None:
    run("keys", "create", "--workspace", "research")
    (key,) = json.loads(run("keys", "list", "--workspace", "research", "--format", "json").stdout)
    errors = run("keys", "revoke", key["id"]).stderr
    assert "in workspace 'local'" in errors and "--workspace" in errors


def test_jsonl_is_an_alias_of_the_segue_format(run: Run) -> None:
    id = run("new", "--title", "Title").stdout.strip()
    exported = run("export", id).stdout
    assert run("export", id, "--format", "jsonl").stdout == exported != ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<html>\n<p>hello</p>\n", "neither a segue export nor a Claude Code transcript"),
        (b"{}\n", "neither a segue export nor a Claude Code transcript"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "neither a segue export nor a Claude Code transcript"),
        (b'{"segue":1,"sess\n', "line 1: this is not from a segue export: it is not valid JSON\n"),
    ],
)
def test_import_rejects_files_that_are_not_sessions(
    run: Run, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    done = run("import", str(file))
    assert done.returncode and not done.stdout
    assert message in done.stderr


def test_import_rejects_a_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here" / "directory").mkdir()
    for name in (".", "./directory", str(tmp_path), "directory"):
        done = run("import", name)
        assert done.returncode and not done.stdout
        assert "a directory" in done.stderr


def test_worktrees_needs_cwd(run: Run) -> None:
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
def test_invalid_settings_are_rejected(run: Run, name: str, value: str) -> None:
    assert run("config", "set", name, value).returncode == 2
    assert run("config", "get", name).stdout == ""


def test_valid_settings_are_saved(run: Run) -> None:
    for name, value in (
        ("model.base_url", "http://127.0.0.1:11434/v1"),
        ("web.search", "searxng:https://search.example.org"),
        ("web.search", "brave"),
    ):
        run("config", "set", name, value)
        assert run("config", "get", name).stdout == value + "\n"


def test_show_marks_a_session_in_the_trash(run: Run) -> None:
    id = run("new").stdout.strip()
    assert "trash" not in run("show", id).stderr
    run("delete", "--yes", id)
    assert f"In the trash; `segue restore {id}`" in run("show", id).stderr


def test_claude_code_sessions_support_the_same_edits_as_the_store(run: Run, home: Home) -> None:
    store, source = json.loads(run("sources", "--format", "json").stdout)
    assert store["can"] == source["can"] != []
    assert "others in" not in run("sources").stdout


def test_skill_upload_rejects_an_empty_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "here" / "empty").mkdir()
    done = run("skills", "create", "--file", "./empty")
    assert "./empty has no files to upload" in done.stdout + done.stderr


def test_resume_without_its_tool_names_one_step_that_helps(
    run: Run, home: Home, tmp_path: Path
) -> None:
    path = {"PATH": str(tmp_path / "bin")}
    # Without a model, `--here` would only ask for one.
    message = run("resume", S, **path).stderr
    first, message = message.split("; to continue it here with a model, ")
    step = "install Claude Code, or add its directory to PATH"
    assert first == f"segue: `claude` is not on your PATH; {step}"
    assert message.startswith("set ")
    assert "`segue config set model anthropic:claude-sonnet-4-6`" in message
    assert "--here" not in message
    message = run("resume", S, **path, OPENAI_API_KEY="x").stderr
    assert "run `segue config set model openai:gpt-5` (OPENAI_API_KEY is set)" in message
    run("config", "set", "model", "demo")
    assert f"`segue resume {S[:13]} --here`" in run("resume", S, **path).stderr
    # Another tool that is there comes first.
    codex = tmp_path / "bin" / "codex"
    codex.parent.mkdir()
    codex.write_text("#!/bin/sh\necho codex\n")
    codex.chmod(0o755)
    message = run("resume", S, **path).stderr
    assert f"`segue resume {S[:13]} --in codex` continues it in Codex" in message


def test_resume_without_the_directory_says_how_to_create_it(
    run: Run, home: Home, tmp_path: Path
) -> None:
    for name in ("claude", "gemini"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    missing = tmp_path / "not here"
    id = home.write([user("u1", None, "Hello", cwd=str(missing))]).stem
    for arguments in ((), ("--in", "gemini")):
        message = run("resume", id, *arguments, PATH=path).stderr
        assert f"{missing} does not exist; create it with `mkdir -p '{missing}'`, or" in message
        assert f"`segue claude relocate {id[:13]} NEW_DIRECTORY`" in message
        assert "with a model" not in message
        command = " ".join(["segue resume", id[:13], *arguments, "--cwd DIRECTORY"])
        assert f"`{command}` starts" in message
    missing.mkdir()
    assert run("resume", id, PATH=path).returncode == 0


def test_resume_starts_the_program_of_the_users_directory(
    run: Run, home: Home, tmp_path: Path
) -> None:
    project, here = tmp_path / "project", tmp_path / "here"
    id = home.write([user("u1", None, "Hello", cwd=str(project))]).stem
    for directory, word in ((project, "of the project"), (here, "of the user")):
        program = directory / "bin" / "claude"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {word}; pwd\n")
        program.chmod(0o755)
    done = run("resume", id, PATH="bin:/usr/bin:/bin")
    assert done.stdout.splitlines()[-2:] == ["of the user", str(project)], done.stderr
