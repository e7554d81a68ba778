"""The commands that change, follow and count sessions."""

import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pexpect
import pytest
from click.testing import CliRunner

from segue.agents.model.setup import KEY_MODELS
from segue.interfaces.cli.main import segue
from segue.model import ids
from tests.interfaces.cli.child import COMMAND, Programs, Run
from tests.interfaces.cli.screen import OpenTerminal


def titles(run: Run, *words: str) -> list[str]:
    return [row["title"] for row in json.loads(run("list", "--format", "json", *words).stdout)]


def test_fork_rename_and_tag_change_sessions(run: Run) -> None:
    id = run("new", "--title", "First").stdout.strip()
    run("prompt", id, "one")
    fork = run("fork", "first").stdout.strip()
    assert titles(run) == ["First (fork)", "First"]
    assert run("rename", fork, "Second").returncode == 0
    assert run("tag", "second", "draft").stderr == ""
    assert run("tag", "second", "keep").stderr == "Tagged: keep instead of draft\n"
    assert titles(run, "--tag", "keep") == ["Second"]
    shown = run("show", "second").stdout
    assert "one" in shown
    assert shown.endswith(f"-- continued from {id}; the messages above are shared --\n")
    matches = json.loads(run("search", "one", "--format", "json").stdout)
    assert [(row["id"], row["copies"]) for row in matches] == [(id, [fork])]
    assert f"also in fork {fork}" in run("search", "one").stdout
    assert run("tag", "second", "--clear").returncode == 0
    assert titles(run, "--tag", "keep") == []
    for wrong in (("tag", fork), ("rename", fork, "x", "--clear"), ("rename", fork, "  ")):
        assert run(*wrong).returncode == 2
    short = run("fork", id, "--at", "1", "--title", "Bare", "--cwd", "/").stdout.strip()
    info = json.loads(run("show", short, "--info", "--format", "json").stdout)
    assert (info["title"], info["cwd"], info["messages"], info["forked_from"]) == (
        "Bare",
        "/",
        0,
        id,
    )


def test_archived_sessions_leave_and_return_to_the_list(run: Run) -> None:
    for title in ("A", "B", "C"):
        run("new", "--title", title)
    a, b = (row["id"] for row in json.loads(run("list", "-n", "2", "--format", "json").stdout))
    # No session changes if one of the names is wrong.
    assert run("archive", a, "nothing-of-the-kind").returncode == 2
    assert len(titles(run)) == 3
    assert run("archive", a, b).returncode == 0
    assert titles(run) == ["A"]
    assert len(titles(run, "--archived")) == 3
    assert sorted(titles(run, "--only-archived")) == ["B", "C"]
    assert run("unarchive", ids.format_id("sesn", a)).returncode == 0
    assert len(titles(run)) == 2


def test_list_marks_archived_sessions(run: Run) -> None:
    run("new", "--title", "Active")
    run("archive", run("new", "--title", "Done").stdout.strip())
    archived, active = run("list", "--archived").stdout.splitlines()
    assert "  Done [archived]  " in archived and "  Active  " in active


def test_delete_asks_and_restore_undoes_it(run: Run) -> None:
    id = run("new", "--title", "Gone").stdout.strip()
    done = run("delete", id)
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert titles(run) == ["Gone"]
    assert run("delete", id, "--yes").returncode == 0
    assert titles(run) == []
    assert id in run("trash", "list").stdout
    assert run("restore", "gone").returncode == 0
    assert titles(run) == ["Gone"]
    assert run("restore", "gone").returncode == 2
    run("delete", id, "-y")
    assert run("trash", "empty").returncode == 2
    assert run("trash", "empty", "--yes").returncode == 0
    assert run("restore", id).returncode == 2
    other = run("new").stdout.strip()
    assert run("delete", other, "--purge", "--yes").returncode == 0
    assert run("show", other).returncode == 2


def test_prune_dry_run_shows_what_would_happen(run: Run) -> None:
    run("new", "--title", "Old")
    assert "Nothing to do" in run("prune", "--dry-run").stderr
    assert run("prune", "--archive-after", "0").returncode == 2
    assert run("prune", "--archive-after", "soon").returncode == 2
    assert run("prune", "--archive-after", "1", "--save", "--yes").returncode == 0
    shown = run("prune", "--dry-run", "--format", "json", "--archive-after", "never")
    assert json.loads(shown.stdout) == []


def test_lists_filter_and_sort(run: Run, tmp_path: Path) -> None:
    run("new", "--title", "Here")
    run("new", "--title", "There", "--cwd", str(tmp_path))
    assert titles(run, "--cwd", ".") == ["Here"]
    assert titles(run, "--reverse", "--order", "created") == ["Here", "There"]
    assert titles(run, "--status", "running") == []
    assert titles(run, "--status", "running", "--status", "idle", "-n", "1") == ["There"]
    assert titles(run, "--source", "claude") == []
    assert titles(run, "--since", "1h", "--all") == ["There", "Here"]
    assert titles(run, "--since", "2100-01-01") == []
    assert titles(run, "--since", "yesterday") == ["There", "Here"]
    assert titles(run, "--since", "yesterday", "--until", "today") == ["There", "Here"]
    assert titles(run, "--until", "yesterday") == []
    assert run("list", "--since", "today", "--until", "yesterday").returncode == 2


def test_tail_and_show_print_turns_alike(run: Run) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/say first")
    run("prompt", id, "/ask May I?")
    shown = run("show", id).stdout
    assert (
        "first\n\n> /ask May I?\n* ask: May I?\n  failed: " in shown
    )  # the permission request once
    assert run("tail", id).stdout == shown


def test_tail_follows_another_process(run: Run, environment: dict[str, str]) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/say first")
    assert run("tail", id, "-n", "1").stdout == "first\n"
    assert run("tail", id, "-n", "-1").returncode == 2
    command = [COMMAND, "tail", "-f", "-n", "1", id]
    child = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "first\n"
    run("prompt", id, "/say second")
    assert child.stdout.readline() == "\n"
    assert child.stdout.readline() == "> /say second\n"
    assert child.stdout.readline() == "second\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors.strip()) == (130, "")


def test_prompt_reads_standard_input(run: Run) -> None:
    done = run("prompt", "new", "-", "--title", "Piped", stdin="/say from a pipe")
    assert "from a pipe" in done.stdout
    assert titles(run) == ["Piped"]
    assert run("prompt", "piped", "-", "--title", "x", stdin="hi").returncode == 2


def test_ctrl_c_cancels_the_turn_and_leaves_the_session_idle(
    run: Run, environment: dict[str, str]
) -> None:
    id = run("new").stdout.strip()
    child = subprocess.Popen(
        [COMMAND, "prompt", id, "/say begun\n/wait 60"],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert (child.returncode, errors.strip()) == (130, "")
    info = json.loads(run("show", id, "--info", "--format", "json").stdout)
    assert (info["status"], info["stop_reason"]) == ("idle", "cancelled")


def test_resume_reads_prompts_line_by_line(run: Run) -> None:
    id = run("new", "--title", "Continue").stdout.strip()
    done = run("resume", "continue", stdin="/say one\n\n/say two\n")
    assert done.returncode == 0, done.stderr
    assert "one" in done.stdout and "two" in done.stdout
    info = json.loads(run("show", id, "--info", "--format", "json").stdout)
    assert info["turns"] == 2


def test_stats_count_archived_sessions_and_the_messages_of_a_fork_once(run: Run) -> None:
    run("prompt", "new", "/say one")
    (parent,) = json.loads(run("list", "--format", "json").stdout)
    assert parent["messages"] == 2
    assert run("fork", parent["id"]).returncode == 0
    assert run("archive", parent["id"]).returncode == 0
    (source,) = json.loads(run("stats", "--by", "source", "--format", "json").stdout)
    assert (source["sessions"], source["messages"]) == (2, 2)
    done = run("stats", "--by", "source", "--no-archived", "--format", "json")
    (source,) = json.loads(done.stdout)
    assert (source["sessions"], source["messages"]) == (1, 0)


def test_bars_and_order_of_stats_follow_tokens_without_a_cost(run: Run, tmp_path: Path) -> None:
    for name, prompt, count in (("many", "/usage 10 5", 2), ("much", "/usage 1000 500", 1)):
        for _ in range(count):
            id = run("new", "--cwd", str(tmp_path / name)).stdout.strip()
            assert run("prompt", id, prompt).returncode == 0
    head, much, many, _ = run("stats", "--by", "project").stdout.splitlines()
    assert head.rstrip().endswith("by tokens")
    assert "/much " in much and much.endswith("█" * 16)
    assert "/many " in many and "█" not in many


def test_stats_count_messages_tokens_and_cost(run: Run) -> None:
    run("prompt", "new", "/usage 1000 500")
    run("prompt", "new", "/usage 10 5")
    shown = run("stats", "--by", "project").stdout
    assert "1,010" in shown and "505" in shown and "█" in shown
    assert "no price" in shown and "total" in shown and "$" not in shown
    (agent,) = json.loads(run("stats", "--by", "agent", "--format", "json").stdout)
    assert (agent["agent"], agent["sessions"], agent["messages"]) == ("segue", 2, 2)
    assert (agent["cost"], agent["unpriced_sessions"]) == (None, 2)
    (month,) = json.loads(run("stats", "--by", "month", "--format", "json").stdout)
    assert month["month"] == time.strftime("%Y-%m", time.gmtime())
    assert run("stats", "--source", "claude").stdout == ""


def test_titles_are_cut_and_matches_counted_in_text_that_is_piped(run: Run) -> None:
    title = "A long title " + "x" * 300
    for number in range(12):
        run("new", "--title", f"{title} {number}")
    (line, *_) = run("list").stdout.splitlines()
    assert "A long title xxx" in line and "…" in line and len(line) < 250
    assert len(json.loads(run("list", "--format", "json").stdout)[0]["title"]) > 300
    error = run("show", "long title").stderr.splitlines()
    assert error[0].startswith("segue: 'long title' matches 12 sessions")
    assert len(error) == 12 and error[-1] == "  and 2 more"
    assert all("…" in line for line in error[1:-1])


def test_stats_names_the_group_without_a_model(run: Run) -> None:
    run("new")
    rows = run("stats", "--by", "model").stdout.splitlines()
    assert rows[1].startswith("no model ")
    (row,) = json.loads(run("stats", "--by", "model", "--format", "json").stdout)
    assert row["model"] == "none"


def test_doctor_notes_missing_packages_of_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def model_finding() -> dict[str, str]:
        options = ["--sources", "none", "--data-dir", str(tmp_path), "--format", "json"]
        done = CliRunner().invoke(segue, ["doctor", *options])
        return {row["about"]: row for row in json.loads(done.stdout)}["model"]

    for key in KEY_MODELS:
        monkeypatch.delenv(key, raising=False)
    assert model_finding()["state"] == "ok"
    monkeypatch.setattr("segue.agents.model.setup.find_spec", lambda name: None)
    missing = model_finding()
    assert missing["state"] == "note" and "install more packages" in missing["message"]


def test_doctor_notes_a_tool_that_is_not_installed(run: Run, programs: Programs) -> None:
    for path, state in ((programs(), "note"), (programs("claude"), "ok")):
        done = run("doctor", PATH=path)
        assert done.returncode == 0
        states = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
        assert states.pop("resuming") == state
        assert set(states.values()) == {"ok"}


def test_doctor_finds_problems(run: Run, tmp_path: Path) -> None:
    run("new")
    done = run("doctor", "--deep")
    assert (done.returncode, "all 1 match their events" in done.stdout) == (0, True)
    store = tmp_path / "data" / "segue.db"
    store.chmod(0o644)
    assert "others can read" in run("doctor").stdout
    store.write_bytes(b"not a database at all, but long enough to be looked at" * 100)
    done = run("doctor")
    assert (done.returncode, "not a segue store" in done.stdout) == (1, True)


def test_row_of_a_version_that_counted_no_tool_calls_is_sound(run: Run, tmp_path: Path) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/tool grep found")
    with closing(sqlite3.connect(tmp_path / "data" / "segue.db")) as store, store:
        (row,) = store.execute("SELECT row FROM sessions").fetchone()
        older = row.replace('"tool_calls":1,', "").replace('"lines":{},', "")
        assert len(row) - len(older) == len('"tool_calls":1,"lines":{},')
        store.execute("UPDATE sessions SET row = ?", (older,))
    assert "all 1 match their events" in run("doctor", "--deep").stdout
    run("prompt", id, "/tool grep found")
    assert run("doctor", "--deep").returncode == 0
    (listed,) = json.loads(run("list", "--format", "json").stdout)
    assert listed["tool_calls"] is None


def test_completion_completes_commands_and_sessions(run: Run) -> None:
    id = run("new", "--title", "Completed").stdout.strip()
    for shell in ("bash", "zsh", "fish"):
        assert "_SEGUE_COMPLETE" in run("completion", shell).stdout
    assert run("completion", "tcsh").returncode == 2
    assert run("completion").stderr.count("\n") == 1
    request = {"_SEGUE_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    assert id in run(**request, COMP_WORDS="segue show ").stdout
    assert id in run(**request, COMP_WORDS=f"segue delete {id[:9]}").stdout
    assert "file,ses\n" in run(**request, COMP_WORDS="segue import ses").stdout
    assert (
        "dir,pro\n"
        in run(**request | {"COMP_CWORD": "3"}, COMP_WORDS="segue list --cwd pro").stdout
    )
    run("delete", "--yes", id)
    for name in ("", id[:9]):
        assert id not in run(**request, COMP_WORDS=f"segue show {name}").stdout
        assert id in run(**request, COMP_WORDS=f"segue restore {name}").stdout
    assert (
        "unarchive"
        in run(_SEGUE_COMPLETE="bash_complete", COMP_CWORD="1", COMP_WORDS="segue un").stdout
    )


def test_completion_completes_tools(run: Run) -> None:
    request = {"_SEGUE_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    assert run(**request, COMP_WORDS="segue list --source co").stdout.split() == [
        "plain,codex",
        "plain,copilot",
    ]
    assert "plain,segue\n" in run(**request, COMP_WORDS="segue resume --in s").stdout


def test_completion_finds_sessions_by_title(run: Run) -> None:
    id = run("new", "--title", "Fix the parser").stdout.strip()
    run("new", "--title", "Other")
    request = {"_SEGUE_COMPLETE": "zsh_complete", "COMP_WORDS": "segue show parser"}
    assert run(**request, COMP_CWORD="2").stdout.split("\n")[1] == id


def test_zsh_completion_shows_titles(run: Run) -> None:
    id = run("new", "--title", "A: title").stdout.strip()
    request = {"_SEGUE_COMPLETE": "zsh_complete", "COMP_WORDS": f"segue show {id[:9]}"}
    done = run(**request, COMP_CWORD="2").stdout
    assert re.fullmatch(rf"plain\n{id}\nA: title \(\d+s\)\n", done), done


def test_bash_completes_sessions_and_files(run: Run, environment: dict[str, str]) -> None:
    id = run("new").stdout.strip()
    script = f"""{run("completion", "bash").stdout}
        compopt() {{ echo "$2"; }}
        COMP_WORDS=(segue import "$1") COMP_CWORD=2
        _segue_completion {COMMAND}
        echo "${{COMPREPLY[*]}}" """
    for prefix, completed in ((id[:9], id), ("notes", "")):
        done = subprocess.run(
            ["bash", "-c", script, "bash", prefix],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == f"default\n{completed}\n", done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_sessions_and_settings(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    id = run("new", "--title", "Completed").stdout.strip()
    (tmp_path / "segue.fish").write_text(run("completion", "fish").stdout)

    def completed(line: str) -> str:
        script = f'source segue.fish; complete -C "{line}"'
        path = f"{Path(COMMAND).parent}:{environment['PATH']}"
        return subprocess.run(
            ["fish", "--no-config", "-c", script],
            env={**environment, "PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout

    assert completed(f"segue show {id[:5]}").startswith(f"{id}\tCompleted (")
    assert "model.thinking\tHow hard the model thinks" in completed("segue config set model")


def test_commands_work_on_postgresql(run: Run, fresh_database_url: str) -> None:
    database = {"SEGUE_DATABASE_URL": fresh_database_url}
    id = run("new", "--title", "Remote", **database).stdout.strip()
    assert id in run("list", **database).stdout
    assert id not in run("list").stdout
    assert run("show", "remote", "--info", "--database-url", fresh_database_url).returncode == 0
    assert run("sessions", "list", "--transform", "title", "-r", **database).stdout == "Remote\n"
    assert run("delete", id[:8], "--yes", **database).returncode == 0
    done = run("doctor", **database)
    assert done.returncode == 0 and "ok       store     PostgreSQL at " in done.stdout


def test_ctrl_c_cancels_the_turn_and_then_ends_the_chat(
    run: Run, environment: dict[str, str], open_terminal: OpenTerminal
) -> None:
    id = run("new").stdout.strip()
    child = open_terminal("resume", id, env=environment)
    child.expect("> ")
    child.sendline("/wait 600")
    while json.loads(run("show", id, "--info", "--format", "json").stdout)["status"] != "running":
        time.sleep(0.1)
    child.sendintr()
    child.expect("cancelled")
    child.expect("> ")
    child.sendline("/say still here")
    child.expect("still here\r\n")
    child.expect("> ")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert child.isalive() is False


INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from segue.__main__ import main
main()
"""


def test_ctrl_c_during_startup_prints_nothing(environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


SLOW_LIBRARY = """
import os, time
while not os.path.exists({gate!r}):
    time.sleep(0.02)
raise ImportError("not installed")
"""


def test_a_spinner_appears_before_the_libraries_of_the_model_are_imported(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    run("config", "set", "model", "anthropic:claude-sonnet-4-6")
    gate, packages = tmp_path / "gate", tmp_path / "packages"
    (packages / "pydantic_ai").mkdir(parents=True)
    (packages / "pydantic_ai" / "__init__.py").write_text(SLOW_LIBRARY.format(gate=str(gate)))
    env = {**environment, "PYTHONPATH": str(packages), "TERM": "xterm-256color"}
    child = pexpect.spawn(COMMAND, ["prompt", "new", "hi"], env=env, encoding="utf-8", timeout=120)
    child.expect("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
    gate.touch()
    child.expect("models need more packages")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


def test_ctrl_c_at_a_permission_request_cancels_the_turn(
    run: Run, environment: dict[str, str], open_terminal: OpenTerminal
) -> None:
    id = run("new").stdout.strip()
    child = open_terminal("prompt", id, "/ask May I?", env=environment)
    child.expect("Your choice")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    info = json.loads(run("show", id, "--info", "--format", "json").stdout)
    assert (info["status"], info["stop_reason"]) == ("idle", "cancelled")
