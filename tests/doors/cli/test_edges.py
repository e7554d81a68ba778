"""Answers at a terminal, empty values and empty sessions."""

import json

import pexpect
import pytest

from tests.doors.cli.child import COMMAND, Run


@pytest.mark.parametrize(
    ("typed", "option"),
    [("y", "allow"), ("No", "reject"), ("2", "allow_always"), ("alw", "allow_always")],
)
def test_a_question_takes_a_number_a_name_or_yes_and_no(
    run: Run, environment: dict[str, str], typed: str, option: str
) -> None:
    id = run("new").stdout.strip()
    child = pexpect.spawn(COMMAND, ["prompt", id, "/ask May I?"], env=environment, timeout=30)
    child.expect("Which")
    child.sendline(typed)
    child.expect(pexpect.EOF)
    rows = json.loads(run("show", id, "--format", "json").stdout)
    assert [row["body"]["option"] for row in rows if row["type"] == "permission_answered"] == [
        option
    ]


def test_an_answer_that_is_none_is_told_the_choices(run: Run, environment: dict[str, str]) -> None:
    child = pexpect.spawn(COMMAND, ["prompt", "new", "/ask May I?"], env=environment, timeout=30)
    for wrong in ("perhaps", "0", "4"):
        child.expect("Which")
        child.sendline(wrong)
        child.expect("answer 1 [(]Allow[)] or 2 [(]Always allow ask here[)] or 3 [(]Reject[)]")
    child.sendline("3")
    child.expect(pexpect.EOF)


@pytest.mark.parametrize("command", ["rename", "tag"])
def test_an_empty_value_names_the_way_to_clear(run: Run, command: str) -> None:
    id = run("new", "--title", "T", "--tag", "t").stdout.strip()
    for empty in ("", "  "):
        done = run(command, id, empty)
        assert done.returncode == 2 and done.stderr.endswith("is empty; --clear takes it away\n")
    assert run(command, id, "--clear").returncode == 0


def test_an_empty_session_is_said_to_be_one(run: Run) -> None:
    id = run("new").stdout.strip()
    done = run("show", id)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Nothing has been said in it yet.\n"


def test_turns_are_apart_and_what_has_several_lines_is_indented(run: Run) -> None:
    id = run("new").stdout.strip()
    run("prompt", id, "/tool grep one\\ntwo\n/say found")
    run("prompt", id, "/say well")
    assert run("show", id).stdout.splitlines() == [
        "> /tool grep one\\ntwo",
        "  /say found",
        "* grep (demo)",
        "  completed: one\\ntwo",
        "found",
        "",
        "> /say well",
        "well",
    ]


def test_what_is_not_found_names_where_else_to_look(run: Run) -> None:
    run("archive", run("new", "--title", "needle", "--tag", "t").stdout.strip())
    for words in (("list", "--tag", "t"), ("search", "needle")):
        assert "--archived" in run(*words).stderr
        assert run(*words, "--archived").stderr == ""
    assert "neither a file nor a session" in run("import", "gone.txt").stderr


def test_a_directory_that_is_not_here_is_said_so_and_taken(run: Run) -> None:
    made = run("new", "--cwd", "/not/here")
    assert (made.returncode, "no directory /not/here here" in made.stderr) == (0, True)
    forked = run("fork", made.stdout.strip(), "--cwd", "/not/there")
    assert (forked.returncode, "no directory /not/there here" in forked.stderr) == (0, True)
    assert run("new").stderr == ""
