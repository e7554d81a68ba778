"""`segue import --all`: copies of other tools' sessions that outlive their files."""

import json
from pathlib import Path

import pexpect

from tests.claude.entries import Home, S, user
from tests.interfaces.cli.child import Run
from tests.interfaces.cli.screen import OpenTerminal

OTHER = "22222222-2222-4222-8222-222222222222"


def titles(run: Run) -> list[str]:
    return [row["title"] for row in json.loads(run("list", "--format", "json").stdout)]


def test_copies_outlive_the_files_of_the_tool(run: Run, home: Home) -> None:
    path = next(home.root.rglob("*.jsonl"))
    done = run("import", "--all")
    assert done.returncode == 0
    assert done.stderr == "Sessions of other tools: 1 imported, 0 updated, 0 up to date.\n"
    path.unlink()
    assert titles(run) == ["Why is it slow?"]
    assert "the needle" in run("show", S).stdout


def test_repeated_import_adds_what_is_new(run: Run, home: Home) -> None:
    run("import", "--all")
    home.write([user("u1", None, "Why is it slow?", cwd="/p"), user("u2", "u1", "the needle")])
    with next(home.root.rglob("*.jsonl")).open("a") as file:
        file.write(json.dumps(user("u3", "u2", "one more")) + "\n")
    done = run("import", "--all", "--format", "json")
    assert json.loads(done.stdout)["result"] == "updated"
    assert "0 imported, 1 updated" in done.stderr
    assert "1 up to date" in run("import", "--all").stderr
    assert "0 up to date" in run("import", "--all", "--source", "codex").stderr


def test_follow_imports_what_is_added(
    run: Run, home: Home, environment: dict[str, str], open_terminal: OpenTerminal, tmp_path: Path
) -> None:
    child = open_terminal("import", "--all", "--follow", env=environment, cwd=str(tmp_path))
    child.expect("imported  claude  Why is it slow")
    home.write([user("u1", None, "Later", cwd="/p", sessionId=OTHER)], OTHER)
    child.expect("imported  claude  Later")
    child.sendintr()
    child.expect("2 imported")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert set(titles(run)) == {"Why is it slow?", "Later"}
