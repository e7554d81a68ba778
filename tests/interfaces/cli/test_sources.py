"""Sessions of other tools on the command line: lists, the choice of sources, doctor, resume."""

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.interfaces.cli.child import Run
from tests.sources.codex.rollout_files import CodexSessions, meta, thread_id, turn

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
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = run("resume", id, CODEX_HOME=str(codex.directory), PATH=path)
    assert done.stdout.strip() == f"{work} resume {id}"
