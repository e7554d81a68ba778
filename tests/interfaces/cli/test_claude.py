"""Claude Code sessions on the command line."""

import os
from pathlib import Path

from tests.claude.entries import Home, S, user
from tests.claude.helpers import append, write_session_with_subagent
from tests.interfaces.cli.child import Run


def test_claude_code_sessions_are_listed_searched_and_shown(run: Run, home: Home) -> None:
    listed = run("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert S in listed.stdout and "Why is it slow?" in listed.stdout
    assert "the needle" in run("search", "needle").stdout
    assert "the needle" in run("show", S).stdout


def test_text_inserted_by_the_tool_is_not_shown_as_the_users(run: Run, home: Home) -> None:
    command = "<command-name>/model</command-name><command-args>opus</command-args>"
    note = "<system-reminder>be brief</system-reminder>"
    home.write(
        [
            user("u1", None, command, cwd="/p"),
            user(
                "u2",
                "u1",
                "<local-command-stdout>Set to \x1b[1mopus\x1b[22m</local-command-stdout>",
            ),
            user("u3", "u2", f"Why is it slow?\n{note}"),
            user("u4", "u3", "<local-command-stdout></local-command-stdout>"),
            user("u5", "u4", "what is <command-name> for?"),
        ]
    )
    assert run("show", S).stdout.splitlines() == [
        "> /model opus",
        "  Set to opus",
        "",
        "> Why is it slow?",
        "-- note to the model: be brief --",
        "",
        "> what is <command-name> for?",
    ]


def test_sources_option_excludes_claude_code_sessions(
    run: Run,
    home: Home,
) -> None:
    assert run("list", "--sources", "none").stdout == ""
    assert run("list", "--workspace", "other").stdout == ""
    assert run("list", SEGUE_SOURCES="none").stdout == ""
    refused = run("list", "--sources", "nine")
    assert refused.returncode == 2 and "nine" in refused.stderr


def test_home_without_projects_creates_no_index(run: Run, tmp_path: Path) -> None:
    assert run("list").stdout == ""
    assert [name for name in os.listdir(tmp_path / "data") if "claude" in name] == []


def test_resume_here_forks_a_session_of_a_tool_also_after_its_import(run: Run, home: Home) -> None:
    refused = run("resume", S, PATH="/nowhere")
    assert refused.returncode == 2 and "`segue config set model" in refused.stderr
    assert run("import", S).returncode == 0
    # An import does not change which tool resumes it.
    assert run("resume", S, PATH="/nowhere").stderr == refused.stderr
    run("config", "set", "model", "demo")
    assert "--here" in run("resume", S, PATH="/nowhere").stderr
    forked = run("resume", S, "--here", stdin="/say one\n")
    assert forked.returncode == 0, forked.stderr
    assert "one" in forked.stdout and "Continuing in a fork" in forked.stderr
    assert len(run("list").stdout.splitlines()) == 2


def test_demo_agent_does_not_answer_in_a_session_of_a_tool(run: Run, home: Home) -> None:
    for words in (["prompt", S, "hello"], ["resume", S, "--here"], ["resume", S, "--in", "segue"]):
        refused = run(*words, stdin="hello\n")
        assert refused.returncode and "no model is configured" in refused.stderr
        assert "segue config set model" in refused.stderr
    assert "hello" not in run("show", S).stdout
    assert len(run("list").stdout.splitlines()) == 1


def test_prompt_imports_the_session(run: Run, home: Home) -> None:
    (before,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    run("config", "set", "model", "demo")
    first = run("prompt", S, "/say one")
    assert first.stdout == "one\n" and "Imported from claude" in first.stderr
    assert run("prompt", S, "/say two").stderr == ""
    shown = run("show", S).stdout
    assert "the needle" in shown and "/say one" in shown
    assert len(run("list").stdout.splitlines()) == 1
    (after,) = [path.read_bytes() for path in home.projects.rglob("*.jsonl")]
    assert after == before


def test_maintenance_commands_work_on_imported_sessions(
    run: Run, home: Home, tmp_path: Path
) -> None:
    path = home.projects / "-w" / f"{S}.jsonl"
    run("config", "set", "model", "demo")
    run("prompt", S, "/say one")
    assert run("claude", "pin", S).stdout.startswith("Pinned until 20")
    assert "the needle" in run("claude", "export", S).stdout
    original = path.read_bytes()
    path.write_bytes(original + b'{"type":"user","torn')
    for words in ((), (S,)):
        assert run("claude", "doctor", *words).stdout == f"{S}  line 3 torn\n"
    run("claude", "doctor", "--repair")
    assert path.read_bytes() == original
    (tmp_path / "moved").mkdir()
    assert run("claude", "relocate", S, str(tmp_path / "moved")).returncode == 0
    assert not path.exists()
    assert S in run("list", "--cwd", str(tmp_path / "moved")).stdout
    assert run("prompt", S, "/say two").returncode == 0
    assert S in run("list", "--cwd", str(tmp_path / "moved")).stdout


def test_subagent_thread_is_searched_and_shown(run: Run, home: Home) -> None:
    write_session_with_subagent(home)
    assert "A kingfisher, too" in run("search", "kingfisher").stdout
    shown = run("show", S).stdout
    assert "↳ Explore: count birds (--agent a1b2c3)\n" in shown and "kingfisher" not in shown
    assert run("show", S, "--agent", "a1b2c3").stdout == "> Count them\nA kingfisher, too\n"
    refused = run("show", S, "--agent", "missing")
    assert refused.returncode == 2 and "no thread missing" in refused.stderr


def test_damaged_transcripts_are_found_and_repaired(run: Run, home: Home) -> None:
    path = home.projects / "-w" / f"{S}.jsonl"
    done = run("claude", "doctor")
    assert (done.returncode, done.stderr) == (0, "1 transcript checked, no damage left\n")
    original = path.read_bytes()
    path.write_bytes(original + b'{"type":"user","torn')
    damaged = run("claude", "doctor")
    assert (damaged.returncode, damaged.stdout) == (1, f"{S}  line 3 torn\n")
    assert damaged.stderr.startswith("1 transcript checked\nUse --repair")
    repaired = run("claude", "doctor", "--repair", S[:8])
    assert repaired.returncode == 0 and "repaired" in repaired.stdout
    assert path.read_bytes() == original and len(list(path.parent.glob("*.bak"))) == 1
    assert run("claude", "doctor", S).stdout == ""


def test_session_is_pinned_relocated_and_exported(run: Run, home: Home, tmp_path: Path) -> None:
    path = home.projects / "-w" / f"{S}.jsonl"
    before = path.stat().st_mtime
    assert run("claude", "pin", S, "--days", "90").stdout.startswith("Pinned until 20")
    assert path.stat().st_mtime > before + 59 * 86400
    assert run("claude", "pin", S, "--off").returncode == 0
    refused = run("claude", "pin", S, "--days", "0")
    assert refused.returncode == 2 and "positive" in refused.stderr
    moved = tmp_path / "moved"
    moved.mkdir()
    assert run("claude", "relocate", S, str(moved)).returncode == 0
    assert S in run("list", "--cwd", str(moved)).stdout
    assert "the needle" in run("claude", "export", S).stdout
    run("claude", "export", S, "--html", "-o", str(tmp_path / "page.html"))
    assert "<html" in (tmp_path / "page.html").read_text()
    native = run("new").stdout.strip()
    refused = run("claude", "pin", native)
    assert refused.returncode == 2 and "has no Claude Code transcript" in refused.stderr


def test_fork_of_a_copy_has_what_claude_code_added(run: Run, home: Home) -> None:
    assert run("import", S).returncode == 0
    path = home.projects / "-w" / f"{S}.jsonl"
    append(path, user("u3", "u2", "said in the terminal"))
    fork = run("fork", S).stdout.strip()
    assert "said in the terminal" in run("show", fork).stdout
