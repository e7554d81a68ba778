"""The installed command, run as a child process."""

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from segue.interfaces.cli.main import main
from segue.store.sqlite import connection
from tests.interfaces.cli.child import COMMAND, Run


def test_session_is_created_prompted_listed_searched_and_shown(run: Run, tmp_path: Path) -> None:
    id = run("new", "--title", "My title").stdout.strip()
    done = run("prompt", id, "/think hm\n/say a needle\n/tool ls out\n/plan a; x b")
    assert done.returncode == 0, done.stderr
    assert "a needle" in done.stdout
    assert id in run("list").stdout and "My title" in run("list", "--cwd", ".").stdout
    assert run("list", "--cwd", "/").stdout == ""
    assert id in run("search", "needle").stdout
    assert id in run("search", "--ranked", "needle").stdout
    assert len(run("search", "here").stdout.splitlines()) == 1  # it matches by its directory
    shown = run("show", id[:13]).stdout
    for words in ("> /think hm", "hm", "a needle", "* ls", "[x] b"):
        assert words in shown


def test_prompt_new_creates_a_session(run: Run) -> None:
    done = run("prompt", "new", "hello there")
    assert "hello there" in done.stdout
    assert done.stderr.strip() in run("list").stdout


def test_permission_request_without_a_terminal_is_rejected(run: Run) -> None:
    done = run("prompt", "new", "/ask sure?")
    assert "failed: Reject" in done.stdout
    assert "rejected" in done.stderr


def test_failed_turn_exits_with_1(run: Run) -> None:
    done = run("prompt", "new", "/fail no luck")
    assert (done.returncode, "no luck" in done.stdout) == (1, True)


def test_import_puts_a_session_into_a_directory(run: Run, tmp_path: Path) -> None:
    run("prompt", "new", "keep this")
    file, directory = tmp_path / "session.jsonl", tmp_path / "own"
    directory.mkdir()
    run("export", run("list").stdout.split()[0], "-o", str(file))
    assert run("import", "--new-id", str(file), "--cwd", str(directory)).returncode == 0
    listed = json.loads(run("list", "--cwd", str(directory), "--format", "json").stdout)
    assert [session["cwd"] for session in listed] == [str(directory)]
    missing = run("import", "--new-id", str(file), "--cwd", str(directory / "missing"))
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)


def test_import_restores_an_export(run: Run, tmp_path: Path) -> None:
    run("prompt", "new", "keep this")
    id = run("list").stdout.split()[0]
    file = tmp_path / "session.jsonl"
    assert run("export", id, "-o", str(file)).returncode == 0
    assert run("export", id).stdout == file.read_text()
    again = run("import", str(file))
    assert (again.returncode, "exists" in again.stderr) == (2, True)
    new = run("import", "--new-id", str(file)).stdout.strip()
    assert run("show", new).stdout == run("show", id).stdout
    piped = run("import", "/dev/stdin", "--new-id", stdin=file.read_text()).stdout.strip()
    assert run("show", piped).stdout == run("show", id).stdout
    assert ". is a directory" in run("import", ".").stderr
    other = ("--workspace", "other")
    assert run("import", str(file), *other).stdout.strip() == id


def test_validate_names_the_first_fault_of_each_file(run: Run, tmp_path: Path) -> None:
    run("prompt", "new", "keep this")
    exported = run("export", run("list").stdout.split()[0]).stdout
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(exported)
    bad.write_text(exported.replace('"text":"keep this"', '"text":["keep"]', 1))
    done = run("validate", str(good))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{good}: valid, version 3, {exported.count(chr(10)) - 1} events\n"
    done = run("validate", str(bad), str(good))
    assert done.returncode == 1 and f"{good}: valid" in done.stdout
    number = 1 + next(n for n, line in enumerate(exported.splitlines()) if "user_message" in line)
    fault = 'body.content[0].text: expected str, got array (["keep"])'
    assert done.stderr == f"{bad}: line {number}: {fault}\n"
    done = run("validate", "-", "--format", "json", stdin=bad.read_text())
    (row,) = json.loads(done.stdout)
    assert (done.returncode, row["valid"], row["line"]) == (1, False, number)
    assert (row["path"], row["value"]) == ("body.content[0].text", ["keep"])
    missing = run("validate", "gone.jsonl")
    assert missing.returncode == 2 and "cannot read gone.jsonl" in missing.stderr
    assert run("list", "--format", "jsonl").stdout.count("\n") == 1  # nothing was imported


def test_fault_of_a_hostile_file_does_not_control_the_terminal(run: Run, tmp_path: Path) -> None:
    run("prompt", "new", "keep this")
    exported = run("export", run("list").stdout.split()[0]).stdout
    bad = tmp_path / "bad.jsonl"
    bad.write_text(exported.replace('"status":"running"', '"status":"\\u001b[2J\u202egone"', 1))
    for command in ("validate", "import"):
        done = run(command, str(bad))
        assert done.returncode and "body.status: invalid enum value" in done.stderr
        assert "\x1b" not in done.stderr and "\u202e" not in done.stderr


def test_export_writes_markdown_and_html(run: Run, tmp_path: Path) -> None:
    run("prompt", "new", "keep *this*")
    id = run("list").stdout.split()[0]
    text = run("export", id, "--format", "markdown").stdout
    assert text.startswith("# keep *this*\n") and "\n## You · " in text
    assert run("export", id, "--format", "md").stdout == text
    page = run("export", id, "--format", "html").stdout
    assert page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
    assert "keep <em>this</em>" in page and page.count("<section") == 1
    for name, content in (("a.MD", text), ("a.html", page)):  # the extension selects the format
        assert run("export", id, "-o", str(tmp_path / name)).returncode == 0
        assert (tmp_path / name).read_text() == content
    odd = run("export", id, "--format", "segue", "-o", str(tmp_path / "a.html"))
    assert odd.returncode == 0 and (tmp_path / "a.html").read_text().startswith(
        '{"format":"segue.session"'
    )
    assert sorted(path.name for path in tmp_path.glob("a.*")) == ["a.MD", "a.html"]
    missing = run("export", id, "-o", str(tmp_path / "no" / "a.md"))
    assert missing.returncode == 1 and missing.stderr.count("\n") == 1
    assert "no/a.md" in missing.stderr
    unknown = run("export", id, "-o", str(tmp_path / "b.pdf"))
    assert unknown.returncode == 2 and "no format has the extension of" in unknown.stderr
    assert not (tmp_path / "b.pdf").exists()
    run("export", id, "-o", str(tmp_path / "same.jsonl"))
    existing = run("import", str(tmp_path / "same.jsonl"))
    advice = "delete it, or use --new-id to import the file as a new session"
    assert existing.stderr == f"segue: session {id} exists already; {advice}\n"
    assert run("export", id, "-o", str(tmp_path / "b.log"), "--format", "md").returncode == 0
    assert run("export", id, "-o", str(tmp_path / "b.jsonl")).stderr == ""
    assert run("export", id, "-o", str(tmp_path / "b"), "--format", "segue").stderr == ""
    wrong = run("export", id, "--format", "pdf")
    assert wrong.returncode == 2 and "'markdown'" in wrong.stderr


def test_keys_are_created_listed_and_revoked(run: Run) -> None:
    created = run("keys", "create", "--workspace", "team", "--name", "ci")
    assert created.stdout.startswith("sk-segue-") and created.stdout.count("\n") == 1
    assert created.stderr == "This is the first key of workspace 'team'.\n"
    listed = run("keys", "list", "--workspace", "team").stdout
    assert "ci" in listed and created.stdout.strip() not in listed
    assert run("keys", "list").stdout == ""
    id = listed.split()[0]
    assert run("keys", "revoke", id, "--workspace", "team").returncode == 0
    assert "revoked" in run("keys", "list", "--workspace", "team").stdout
    assert run("keys", "revoke", id, "--workspace", "team").returncode == 2


def test_only_the_first_key_of_another_workspace_is_announced(run: Run) -> None:
    assert run("keys", "create").stderr == ""
    assert run("keys", "create", "--workspace", "team-a").stderr != ""
    assert run("keys", "create", "--workspace", "team-a").stderr == ""


def test_empty_workspace_is_named(run: Run) -> None:
    run("new")
    message = run("--workspace", "typo", "list").stderr
    assert "Looked in workspace 'typo' of segue's store in " in message
    assert "Other tools' sessions are only in workspace 'local'" in message
    assert "`segue --workspace typo new`" in message and "Not used here" not in message


def test_key_can_expire(run: Run) -> None:
    assert run("keys", "create", "--expires", "30d").returncode == 0
    assert " expires 20" in run("keys", "list").stdout
    assert "not a duration" in run("keys", "create", "--expires", "soon").stderr


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--limit", "0"),
        ("list", "--limit", "many"),
        ("list", "--bogus"),
        ("bogus",),
        ("show", "nothing"),
        ("show", "00000000-0000-7000-8000-000000000000"),
        ("prompt", "nothing", "hi"),
        ("search", "?!"),
        ("import", "/no/such/file"),
        ("list", "--workspace", "no/slash"),
        ("list", "--database-url", "mysql://x"),
    ],
)
def test_bad_input_is_an_error_message_and_exit_code_2(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip() and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_unusable_store_is_one_error_line_and_exit_code_1(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = run("list", "--data-dir", str(tmp_path / "file" / "below"))
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_closed_pipe_prints_no_error(run: Run, tmp_path: Path) -> None:
    run("prompt", "new", "/repeat 1000 line")
    id = run("list").stdout.split()[0]
    child = subprocess.Popen(
        [COMMAND, "show", id, "--format", "jsonl", "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait(60) == 1


def test_title_identifies_a_session_and_an_ambiguous_one_lists_matches(run: Run) -> None:
    first = run("new", "--title", "Fix the parser").stdout.strip()
    assert run("show", "the parser").returncode == 0
    second = run("new", "--title", "Fix the parser again").stdout.strip()
    done = run("show", "fix the")
    assert done.returncode == 2
    assert "matches 2 sessions" in done.stderr
    assert "a longer prefix" in done.stderr
    assert first in done.stderr and second in done.stderr and "parser again" in done.stderr
    run("rename", second, "Fix the parser")
    done = run("show", "fix the")
    assert "use an id" in done.stderr and done.stderr.count("s  segue  Fix the parser") == 2


def test_newer_store_asks_for_an_upgrade(run: Run, tmp_path: Path) -> None:
    run("new")
    with closing(sqlite3.connect(tmp_path / "data" / "segue.db")) as store:
        store.execute("UPDATE meta SET value = 999 WHERE name = 'compat'")
        store.commit()
    done = run("list")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "newer" in done.stderr and "upgrade" in done.stderr


@pytest.mark.full  # a write waits half a minute for the lock
def test_locked_store_can_be_read_and_a_write_reports_the_lock(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The write runs in this process, which must not freeze its garbage.
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.2)
    monkeypatch.setattr("gc.freeze", lambda: None)
    id = run("new", "--title", "Still there").stdout.strip()
    with closing(sqlite3.connect(tmp_path / "data" / "segue.db", isolation_level=None)) as store:
        store.execute("BEGIN EXCLUSIVE")
        assert "Still there" in run("list").stdout
        with pytest.raises(SystemExit) as done:
            main(["rename", id, "Other", "--data-dir", str(tmp_path / "data")])
    errors = capsys.readouterr().err
    assert (done.value.code, errors.count("\n")) == (1, 1), errors
    assert "lock" in errors and "try again" in errors
