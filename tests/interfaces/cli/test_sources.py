"""Sessions of other tools on the command line: lists, the choice of sources, doctor, resume."""

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.claude.entries import Home, S, assistant, user
from tests.interfaces.cli.child import Run
from tests.interfaces.cli.screen import OpenScreen
from tests.sources.codex.rollout_files import (
    CodexSessions,
    meta,
    record,
    thread_id,
    token_count,
    turn,
)
from tests.sources.gemini.chat_files import GeminiSessions

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def codex(tmp_path: Path) -> CodexSessions:
    return CodexSessions(tmp_path / "codex", tmp_path / "unused.index")


def write_session(codex: CodexSessions, cwd: Path) -> str:
    """Write a session of Codex and return its id."""
    id = thread_id(AT)
    codex.write(id, meta(id, AT, str(cwd)) + turn(AT, "from Codex", "done", str(cwd)), AT)
    return id


def test_list_has_the_facts_of_a_tool_s_session(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    id = write_session(codex, tmp_path)
    home = str(codex.directory)
    (row,) = json.loads(run("list", "--format", "json", CODEX_HOME=home).stdout)
    names = ("source", "native_id", "model", "title", "turns", "git_branch", "cwd")
    assert [row[name] for name in names] == [
        "codex",
        id,
        "gpt-5.4",
        "from Codex",
        1,
        "main",
        str(tmp_path),
    ]


def test_sources_are_chosen_by_an_option_or_a_variable(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    write_session(codex, tmp_path)
    home = str(codex.directory)
    assert "from Codex" in run("list", "--sources", "claude, codex", CODEX_HOME=home).stdout
    assert "from Codex" in run("list", "--source", "codex", CODEX_HOME=home).stdout
    assert "from Codex" not in run("list", "--sources", "claude", CODEX_HOME=home).stdout
    assert "from Codex" not in run("list", CODEX_HOME=home, SEGUE_SOURCES="none").stdout
    done = run("list", "--sources", "codex,unknown", CODEX_HOME=home)
    assert done.returncode and "there is no source 'unknown'" in done.stderr


def test_list_counts_the_sessions_that_cannot_be_read(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    write_session(codex, tmp_path)
    claude = Home(tmp_path / "claude")
    claude.write_conversation()
    homes = {"CODEX_HOME": str(codex.directory), "CLAUDE_CONFIG_DIR": str(claude.root)}
    assert run("list", **homes).stderr == ""
    codex.write(thread_id(AT), b"garbage\n", AT)
    claude.write([bytes(300)], f"{S[:-1]}9")
    for _ in range(2):  # the second list reads no file
        listed = run("list", **homes)
        hint = "2 files or sessions could not be read; `segue doctor` says which, and why\n"
        assert (listed.stdout.count("\n"), listed.stderr) == (2, hint)
    assert run("list", "--source", "segue", **homes).stderr.startswith("No sessions")
    hint = run("list", "--source", "claude", **homes).stderr
    assert hint.startswith("1 file or session could")
    assert run("list", "--format", "json", **homes).stderr == ""
    doctor = run("doctor", "--format", "json", **homes).stdout
    assert [row["about"] for row in json.loads(doctor) if row["state"] == "warning"] == [
        "claude",
        "codex",
    ]


def test_doctor_names_the_places_the_number_of_sessions_and_the_problems_of_each_source(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    write_session(codex, tmp_path)
    damaged = codex.write(thread_id(AT), b"garbage\n", AT)
    home = str(codex.directory)
    done = run("doctor", "--format", "json", CODEX_HOME=home)
    findings = [row for row in json.loads(done.stdout) if row["about"] == "codex"]
    assert (done.returncode, [row["state"] for row in findings]) == (0, ["ok", "warning"])
    assert "1 session in" in findings[0]["message"] and home in findings[0]["message"]
    assert findings[1]["message"].startswith(str(damaged))
    unused = run("doctor", "--format", "json", CODEX_HOME=str(tmp_path / "none"))
    (finding,) = [row for row in json.loads(unused.stdout) if row["about"] == "codex"]
    assert finding["message"] == f"not used here: there is no {tmp_path / 'none'}"


def test_resume_starts_the_tool_in_the_directory_of_the_session(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    id = write_session(codex, work)
    path = install_program(tmp_path / "bin" / "codex")
    done = run("resume", id, CODEX_HOME=str(codex.directory), PATH=path)
    assert done.stdout.strip() == f"{work} resume {id}"


def test_resume_starts_the_tool_in_the_directory_of_a_moved_project(
    run: Run, codex: CodexSessions, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["CODEX_HOME"] = str(codex.directory)
    id = write_session(codex, tmp_path / "gone")
    environment["PATH"] = install_program(tmp_path / "bin" / "codex")
    refused = run("resume", id)
    assert refused.returncode == 2 and f"`segue resume {id[:13]} --cwd DIRECTORY`" in refused.stderr
    moved = tmp_path / "moved"
    moved.mkdir()
    done = run("resume", id, "--cwd", str(moved))
    assert done.stdout.strip() == f"{moved} resume {id}"
    assert f"`segue resume {id[:13]} --in codex --cwd {moved}` writes a new one" in done.stderr
    started = run("resume", id, "--in", "codex", "--cwd", str(moved))
    directory, verb, new = started.stdout.split()
    assert (directory, verb) == (str(moved), "resume") and new != id
    rows = {row["id"]: row for row in json.loads(run("list", "--format", "json").stdout)}
    assert (rows[new]["cwd"], rows[new]["forked_from"]) == (str(moved), id)
    own = run("new").stdout.strip()
    refused = run("resume", own, "--cwd", str(moved))
    assert refused.returncode == 2
    assert f"`segue fork {own[:13]} --cwd {moved}` forks this one" in refused.stderr
    missing = run("resume", id, "--cwd", str(tmp_path / "nowhere"))
    assert missing.returncode == 2 and "does not exist" in missing.stderr


async def test_session_is_imported_before_a_tool_that_deletes_resumed_sessions_starts(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["GEMINI_CLI_HOME"] = str(tmp_path)
    gemini = GeminiSessions(tmp_path / ".gemini", tmp_path / "unused.index")
    id = await gemini.create("from Gemini", "done", cwd=str(tmp_path), at=AT)
    refused = run("resume", id, PATH="/nowhere")
    assert refused.returncode and "Imported" not in refused.stderr
    assert "from Gemini" not in run("list", "--sources", "none").stdout
    original = gemini.path(id)
    path = install_program(tmp_path / "bin" / "gemini", f"rm {original}")
    done = run("resume", id, PATH=path)
    assert done.stdout.strip() == f"{tmp_path} --resume {id}"
    assert done.stderr == (
        "Imported into segue's store, since Gemini CLI may delete sessions that it resumes.\n"
    )
    assert not original.exists() and "from Gemini" in run("show", id).stdout


def test_import_changes_neither_the_source_of_a_session_nor_the_tool_that_resumes_it(
    run: Run, environment: dict[str, str], codex: CodexSessions, tmp_path: Path
) -> None:
    environment["CODEX_HOME"] = str(codex.directory)
    environment["PATH"] = install_program(tmp_path / "bin" / "codex")
    id = write_session(codex, tmp_path)
    listed = ("list", "--source", "codex", "--format", "json")
    (before,) = json.loads(run(*listed).stdout)
    assert run("import", id).returncode == 0
    for options in ((), ("--sources", "none")):
        (after,) = json.loads(run(*listed, *options).stdout)
        names = ("id", "source", "native_id", "model", "title", "turns", "tool_calls", "usage")
        assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert json.loads(run("list", "--source", "segue", "--format", "json").stdout) == []
    assert run("resume", id).stdout.strip() == f"{tmp_path} resume {id}"


def install_program(program: Path, command: str = "") -> str:
    """Write a program that prints its directory and arguments, and return a PATH with it.

    The program also runs a shell command.
    """
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$PWD" "$@"\n{command}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{program.parent}:{os.environ['PATH']}"


def test_resume_in_another_tool_writes_a_session_and_starts_the_tool(
    run: Run, codex: CodexSessions, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["CODEX_HOME"] = str(codex.directory)
    work = tmp_path / "work"
    work.mkdir()
    home = Home(tmp_path / "claude")
    environment["CLAUDE_CONFIG_DIR"] = str(home.root)
    use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    done = {"type": "tool_result", "tool_use_id": "t", "content": "a.py"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    home.write(
        [
            user("u1", None, "from Claude", cwd=str(work)),
            assistant("a1", "u1", [thought, use]),
            user("u2", "a1", [done]),
        ]
    )
    dry_run = run("resume", S, "--in", "codex", "--dry-run", "--format", "json")
    report = json.loads(dry_run.stdout)
    assert (report["target"], report["prompts"], report["tool_calls"]) == ("codex", 1, 1)
    assert [(loss["what"], loss["becomes"]) for loss in report["losses"]] == [
        ("thoughts", "left_out")
    ]
    table = run("resume", S, "--in", "codex", "--dry-run").stdout.splitlines()
    assert table[0] == "For Codex: 1 prompt, 0 answers, 1 tool call, 0 images."
    assert table[1].startswith("1  thoughts  left out  ")
    refused = run("resume", S, "--in", "codex", PATH="/nowhere")
    assert refused.returncode and "`codex` is not on your PATH" in refused.stderr
    assert not list(codex.directory.rglob("*.jsonl"))
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    started = run("resume", S, "--in", "codex", PATH=f"{program.parent}:{os.environ['PATH']}")
    directory, verb, id = started.stdout.split()
    assert (directory, verb) == (str(work), "resume") and "thoughts" in started.stderr
    rows = {row["id"]: row for row in json.loads(run("list", "--format", "json").stdout)}
    assert (rows[id]["source"], rows[id]["forked_from"]) == ("codex", S)
    assert "exec_command" in run("show", id, "--format", "json").stdout


CALL = {"type": "function_call", "name": "shell", "call_id": "c1", "arguments": "{}"}
SPENT = "≈ $0.25"  # 100,000 input tokens of gpt-5.4 cost 25 cents


def write_priced_session(codex: CodexSessions, cwd: Path) -> str:
    """Write a session of Codex with tokens and a tool call, and return its id."""
    id = thread_id(AT)
    lines = meta(id, AT, str(cwd)) + turn(AT, "from Codex", "done", str(cwd))
    lines += record(AT, "response_item", CALL) + token_count(AT, 100_000, 0, 0)
    codex.write(id, lines, AT)
    return id


@pytest.fixture
def everywhere(
    run: Run, environment: dict[str, str], codex: CodexSessions, tmp_path: Path
) -> dict[str, str]:
    """A session of Codex, one of Claude Code and one of segue: ids by source."""
    environment["CODEX_HOME"] = str(codex.directory)
    home = Home(tmp_path / "claude")
    environment["CLAUDE_CONFIG_DIR"] = str(home.root)
    answer = assistant("a1", "u1", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}])
    answer["message"] |= {"model": "a-local-model", "usage": {"output_tokens": 5}}
    home.write([user("u1", None, "from Claude", cwd="/p"), answer])
    own = json.loads(run("new", "--title", "of segue", "--format", "json").stdout)["id"]
    run("prompt", own, "/tool grep found\n/usage 7 1")
    return {"codex": write_priced_session(codex, tmp_path), "claude": S, "segue": own}


def test_rows_for_programs_have_the_same_fields_for_every_source(
    run: Run, everywhere: dict[str, str]
) -> None:
    listed = json.loads(run("list", "--format", "json", "--all", "--archived").stdout)
    rows = {row["source"]: row for row in listed}
    assert {source: row["native_id"] for source, row in rows.items()} == everywhere
    names = ("model", "turns", "tool_calls")
    assert {source: [row[name] for name in names] for source, row in rows.items()} == {
        "codex": ["gpt-5.4", 1, 1],
        "claude": ["a-local-model", 1, 1],
        "segue": ["demo", 1, 1],
    }
    costs = {source: row["usage"]["cost"] for source, row in rows.items()}
    assert costs == {"codex": 0.25, "claude": None, "segue": None}
    assert [row["usage"]["cost_estimated"] for row in listed].count(True) == 1
    for source in everywhere:
        (row,) = json.loads(run("list", "--source", source, "--format", "json").stdout)
        assert row == rows[source]


def test_estimated_costs_are_marked_in_lists_and_stats(
    run: Run, everywhere: dict[str, str]
) -> None:
    lines = run("list").stdout.splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == ["no price", SPENT, "no price"]
    done = run("stats", "--by", "model")
    cells = {line.split()[0]: line.rstrip("█ ") for line in done.stdout.splitlines()}
    assert list(cells) == ["model", "gpt-5.4", "demo", "a-local-model", "total"]
    assert cells["gpt-5.4"].endswith(SPENT) and cells["demo"].endswith("no price")
    assert cells["total"].split()[1:3] == ["3", "4"]
    assert cells["total"].endswith(f"{SPENT} + no price")
    assert "estimated from list prices" in done.stderr
    rows = json.loads(run("stats", "--by", "source", "--format", "json").stdout)
    names = ("cost", "cost_estimated", "cost_partial", "unpriced_sessions")
    assert {row["source"]: [row[name] for name in names] for row in rows} == {
        "codex": [0.25, True, False, 0],
        "claude": [None, False, False, 1],
        "segue": [None, False, False, 1],
    }
    (month,) = json.loads(run("stats", "--source", "codex", "--format", "json").stdout)
    assert (month["sessions"], month["cost"]) == (1, 0.25)
    assert "genai-prices" in run("doctor").stdout


def test_very_narrow_terminal_shows_whole_costs(
    everywhere: dict[str, str],
    environment: dict[str, str],
    tmp_path: Path,
    open_screen: OpenScreen,
) -> None:
    words = ("stats", "--by", "model", "--no-pager")
    with open_screen(*words, env=environment, cwd=str(tmp_path), columns=30) as screen:
        shown = screen.until("total").splitlines()
    assert all(line.endswith(("cost", SPENT, "no price")) for line in shown[:5])


@pytest.mark.parametrize("command", [["list"], ["search", "from"], ["stats"], []])
def test_unknown_source_is_an_error_that_names_the_sources(run: Run, command: list[str]) -> None:
    done = run(*command, "--source", "cluade")
    assert done.returncode == 2
    assert "there is no source 'cluade'; the sources are claude, codex," in done.stderr
    assert run("--source", "cluade", *command).returncode == 2


def test_search_and_picker_show_one_source(
    run: Run, environment: dict[str, str], everywhere: dict[str, str], open_screen: OpenScreen
) -> None:
    (match,) = json.loads(run("search", "from", "--source", "codex", "--format", "json").stdout)
    assert match["id"] == everywhere["codex"]
    (match,) = json.loads(run("search", "from", "--sources", "claude", "--format", "json").stdout)
    assert match["id"] == everywhere["claude"]
    options = ["--source", "codex"]
    with open_screen(*options, env=environment, cwd="/", columns=160) as screen:
        shown = screen.until(f"2 messages, {SPENT}, created")
        assert "from Codex" in shown and "from Claude" not in shown and "of segue" not in shown


def test_list_shows_the_new_cost_of_a_changed_session(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    home = str(codex.directory)
    id = write_priced_session(codex, tmp_path)
    assert SPENT in run("list", CODEX_HOME=home).stdout
    codex.append(id, token_count(AT, 200_000, 0, 0))
    assert "≈ $0.50" in run("list", CODEX_HOME=home).stdout


def test_file_of_no_tool_is_refused_with_the_formats_that_were_tried(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "notes.jsonl").write_text('{"some": "notes"}\n')
    done = run("import", str(tmp_path / "notes.jsonl"))
    assert done.returncode != 0
    tried = "Claude Code, Codex, Copilot, opencode, Gemini CLI, Goose, Qwen Code, Kimi Code"
    assert f"none of the formats that were tried: `segue export`, {tried}" in done.stderr


def test_export_offers_only_formats_that_segue_can_write(run: Run) -> None:
    from segue.hub import tools

    words = " ".join(run("export", "--help").stdout.split())
    writable = [tool.name for tool in tools.writable_tools()]
    assert "claude" in writable
    for name in tools.names():
        assert (f"`{name}`: for" in words or f"{name}: for" in words) == (name in writable)
    if "goose" not in writable:
        done = run("export", "x", "--format", "goose")
        assert done.returncode == 2 and "'goose' is not one of" in done.stderr


def test_session_of_another_tool_is_exported_as_a_file_of_claude_code(
    run: Run, codex: CodexSessions, tmp_path: Path
) -> None:
    id = write_session(codex, tmp_path)
    home, file = str(codex.directory), tmp_path / "session.jsonl"
    refused = run("export", id, "--format", "claude", CODEX_HOME=home)
    assert refused.returncode and "is in the files of Codex; " in refused.stderr
    assert f"`segue resume {id} --in claude` continues it in Claude Code" in refused.stderr
    run("export", id, "--format", "claude", "-o", str(file), CODEX_HOME=home).check_returncode()
    imported = run("import", str(file)).stdout.strip()
    shown = run("show", imported).stdout
    assert "from Codex" in shown and "done" in shown


def test_restore_says_that_the_session_has_a_new_id(run: Run, tmp_path: Path) -> None:
    from tests.sources.goose import goose_program
    from tests.sources.goose.goose_rows import GooseSessions

    tool = GooseSessions(tmp_path / "data" / "goose" / "sessions", tmp_path / "unused.index")
    native_id = tool.add_session(AT, cwd=str(tmp_path), name="A title")
    tool.add_turn_rows(native_id, "question", "answer", AT)
    tool.close()
    goose_program.install(tmp_path / "bin")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = {"XDG_DATA_HOME": str(tmp_path / "data"), "PATH": path}
    (row,) = json.loads(run("list", "--format", "json", **variables).stdout)
    assert run("delete", row["id"], "--yes", **variables).returncode == 0
    assert json.loads(run("list", "--format", "json", **variables).stdout) == []
    done = run("restore", row["id"], **variables)
    (restored,) = json.loads(run("list", "--format", "json", **variables).stdout)
    assert restored["id"] != row["id"] and restored["title"] == "A title"
    assert f"{row['id']} has a new id: {restored['id']}" in done.stderr
