"""`segue acp-check`: its report and its exit code."""

import json
import sys
from pathlib import Path

import pytest

from tests.interfaces.cli.child import Run

AGENT = Path(__file__).parent.parent.parent / "acp" / "simple_agent.py"
LIST_CHECKS = ("acp-check", "--version", "1", "--only", "LIST-00")


@pytest.mark.parametrize(("fault", "exit_code"), [("", 0), ("LIST-002", 1)])
def test_command_reports_as_json_and_by_its_exit_code(run: Run, fault: str, exit_code: int) -> None:
    done = run(*LIST_CHECKS, "--json", f"{sys.executable} {AGENT} {fault}")
    assert done.returncode == exit_code, done.stderr
    report = json.loads(done.stdout)
    assert report["agent"]["name"] == "simple" and report["versions"] == [1]
    failed = [r["check"] for r in report["results"] if r["outcome"] == "failed"]
    assert failed == ([fault] if fault else [])
    assert all(result["rule"] for result in report["results"])


def test_command_prints_each_rule_and_what_is_wrong(run: Run) -> None:
    done = run(*LIST_CHECKS, "--", sys.executable, str(AGENT), "LIST-002")
    assert done.returncode == 1
    assert "FAIL  LIST-002       the list of a directory without sessions" in done.stdout
    assert "4 passed, 1 failed" in done.stdout


def test_command_refuses_a_check_that_does_not_exist(run: Run) -> None:
    done = run("acp-check", "--only", "SESSIONS", "--", sys.executable, str(AGENT))
    assert done.returncode == 2 and done.stdout == ""
    assert "there is no check 'SESSIONS'; there are those of " in done.stderr
    assert "LIST" in done.stderr


def test_command_explains_a_program_that_is_no_agent(run: Run) -> None:
    for program, message in (("no-such-program", "cannot start"), ("true", "the agent ended")):
        done = run("acp-check", program)
        assert done.returncode == 1 and message in done.stderr
        assert done.stderr.startswith("segue: ")


def test_command_shows_the_last_error_output_of_an_agent_that_ends(run: Run) -> None:
    done = run("acp-check", "--", sys.executable, "-c", "raise SystemExit('no licence')")
    assert done.returncode == 1
    assert "exit code 1: no licence" in done.stderr
