"""The REST API commands, on the local store and against a server."""

import json
import select
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from segue.interfaces.cli.main import segue
from tests.clients.rest_server import serving
from tests.interfaces.cli.child import COMMAND, Run

STREAM_SECONDS = 120
HELLO = "{type: user.message, content: [{type: text, text: /say hello}]}"
# The flags in the vendor's documentation of `beta:sessions list`.
LIST_FLAGS = """
    --agent-id --agent-version --created-at-gt --created-at-gte --created-at-lt --created-at-lte
    --deployment-id --include-archived --limit --memory-store-id --order --page --status --beta
    --max-items --api-key --base-url --format --format-error --transform --transform-error
    --raw-output --auth-token --debug
"""


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    assert done.returncode == 0, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def list_sessions(run: Run, *words: str) -> list[Any]:
    """Return the listed sessions without `stats`, which changes every second."""
    sessions = lines(run("sessions", "list", "--format", "jsonl", *words))
    for session in sessions:
        session.pop("stats")
    return sessions


@pytest.mark.parametrize("name", ["sessions", "beta:sessions"])
def test_sessions_list_has_every_flag_of_the_vendor(name: str) -> None:
    shown = CliRunner().invoke(segue, [name, "list", "--help"]).output.split()
    for flag in LIST_FLAGS.split():
        assert flag in shown


def test_list_flags_filter_page_and_format(run: Run) -> None:
    for title in ("One", "Two", "Three"):
        run("new", "--title", title)
    run("archive", "two")
    titles = ("--transform", "title", "-r")
    assert run("sessions", "list", *titles).stdout == "Three\nOne\n"
    assert run("sessions", "list", *titles, "--include-archived").stdout == "Three\nTwo\nOne\n"
    assert run("sessions", "list", *titles, "--include-archived=false").stdout == "Three\nOne\n"
    assert run("beta:sessions", "list", *titles, "-order", "asc").stdout == "One\nThree\n"
    assert (
        run("sessions", "list", *titles, "--limit", "1", "--max-items", "2").stdout.count("\n") == 2
    )
    assert run("sessions", "list", *titles, "--status", "running").stdout == ""
    assert run("sessions", "list", *titles, "--status", "running", "--status", "idle").stdout
    first = list_sessions(run, "--limit", "1", "--max-items", "1")[0]
    before = run("sessions", "list", *titles, "--created-at-lt", first["created_at"])
    assert before.stdout == "One\n"
    for flag in ("--created-at-gt", "--created-at-gte", "--created-at-lte"):
        assert run("sessions", "list", flag, first["created_at"]).returncode == 0
    agent = first["agent"]["id"]
    assert len(list_sessions(run, "--agent-id", agent, "--agent-version", "1")) == 2
    for flag in ("--deployment-id", "--memory-store-id"):
        assert list_sessions(run, flag, "none_such") == []
    (page,) = lines(run("sessions", "list", "--limit", "1", "--format", "raw"))
    assert len(page["data"]) == 1
    assert [session["title"] for session in list_sessions(run, "--page", page["next_page"])] == [
        "One"
    ]
    # Global flags may precede the command.
    again = run("--format", "jsonl", "--transform", "title", "sessions", "list")
    assert again.stdout == '"Three"\n"One"\n'
    assert "title: Three" in run("sessions", "list", "--format", "yaml").stdout
    # A path that an item does not have prints the whole item.
    assert lines(run("sessions", "list", "--transform", "nope", "--format", "jsonl"))[0]["title"]
    explored = run("sessions", "list", "--format", "explore", "--max-items", "1")
    assert "explore" in explored.stderr and json.loads(explored.stdout)


def test_session_lifecycle_on_the_local_store(run: Run, tmp_path: Path) -> None:
    (environment,) = lines(run("environments", "create", "--name", "here", "--format", "jsonl"))
    (agent,) = lines(
        run("agents", "create", "--name", "A", "--model.id", "demo", "--format", "jsonl")
    )
    assert agent["model"]["id"] == "demo"
    file = tmp_path / "title.txt"
    file.write_text("From a file")
    (session,) = lines(
        run(
            *("sessions", "create", "--agent", agent["id"], "--environment-id", environment["id"]),
            *("--title", f"@{file}", "--metadata", "{ticket: '12'}", "--format", "jsonl"),
        )
    )
    id = session["id"]
    assert (session["title"], session["metadata"]) == ("From a file", {"ticket": "12"})
    changed = run(
        "sessions", "update", "--session-id", id, "--format", "jsonl", stdin="title: Piped"
    )
    assert lines(changed)[0]["title"] == "Piped"
    both = run(
        "sessions", "update", id, "--title", "Flag", "--format", "jsonl", stdin='{"title": "x"}'
    )
    assert lines(both)[0]["title"] == "Flag"
    assert run("beta:sessions:events", "send", id, "--event", HELLO).returncode == 0
    # The command waits for the turn. A title identifies the session, too.
    texts = run(
        *("sessions", "events", "list", "flag", "--type", "agent.message"),
        *("--transform", "content.0.text", "-r"),
    )
    assert texts.stdout.strip()
    assert lines(run("sessions", "retrieve", id, "--format", "jsonl"))[0]["status"] == "idle"
    assert (
        lines(run("agents", "versions", "list", agent["id"], "--format", "jsonl"))[0]["version"]
        == 1
    )
    assert run("sessions", "archive", id).returncode == 0
    assert run("sessions", "delete", id).returncode == 0
    deleted = run("sessions", "retrieve", id)
    assert (deleted.returncode, json.loads(deleted.stdout)["error"]["type"]) == (
        1,
        "not_found_error",
    )
    assert deleted.stderr == f'GET "/v1/sessions/{id}?beta=true": 404 Not Found\n'


def test_permanent_deletion_needs_an_id(run: Run) -> None:
    id = run("new", "--title", "threads of the parser").stdout.strip()
    for words in (
        ("threads", "delete"),
        ("delete", "threads"),
        ("delete", "threads of the parser"),
    ):
        refused = run("sessions", *words)
        assert refused.returncode in (1, 3), refused.stdout
    assert "`segue delete`" in refused.stderr
    assert lines(run("sessions", "retrieve", "threads", "--transform", "id"))
    assert run("sessions", "delete", id[:13]).returncode == 0
    assert run("sessions", "retrieve", id).returncode == 1


def test_flags_may_precede_the_action_and_add_betas(run: Run) -> None:
    run("new", "--title", "One")
    before = ("--format", "jsonl", "--include-archived", "-limit", "5", "--transform=title")
    assert run("sessions", *before, "list").stdout == '"One"\n'
    assert "[ID]" not in run("sessions", "list", "--help").stdout
    done = run("sessions", "list", "--beta", "some-2026-01-01", "--debug")
    assert done.returncode == 0
    assert "anthropic-beta: some-2026-01-01,managed-agents-2026-04-01" in done.stderr


def test_server_and_local_store_print_the_same(run: Run, tmp_path: Path) -> None:
    id = run("new", "--title", "Seen twice").stdout.strip()
    run("prompt", id, "/say hello")
    with serving(tmp_path / "data", "--sources", "none") as server:
        server_options = ("--base-url", server.url, "--api-key", server.key)
        assert list_sessions(run, *server_options) == list_sessions(run) != []
        for words in (
            ("sessions", "events", "list", id),
            ("agents", "list"),
            ("environments", "list"),
        ):
            local, remote = run(*words), run(*words, *server_options)
            assert (local.returncode, local.stdout) == (0, remote.stdout)
            assert local.stdout
        from_variable = run(
            "sessions", "list", "--base-url", server.url, ANTHROPIC_API_KEY=server.key
        )
        assert from_variable.returncode == 0
        refused = run("sessions", "list", "--base-url", server.url, "--format-error", "jsonl")
        assert (refused.returncode, "401" in refused.stderr) == (1, True)
        assert json.loads(refused.stdout)["error"]["type"] == "authentication_error"
        assert "--api-key" in refused.stderr
        wrong = run("sessions", "list", "--base-url", server.url, "--api-key", "wrong")
        assert (wrong.returncode, "--api-key" in wrong.stderr) == (1, False)
        empty = run("sessions", "list", *server_options, "--debug", "--max-items", "0")
        shown = run("sessions", "list", *server_options, "--debug", "--max-items", "1").stderr
        assert empty.stdout == "" and server.key not in shown and "[redacted]" in shown


def test_stream_shows_events_from_another_process(run: Run, environment: dict[str, str]) -> None:
    id = run("new").stdout.strip()
    child = subprocess.Popen(
        [COMMAND, "sessions", "events", "stream", id, "--format", "jsonl", "--transform", "type"],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    time_limit = threading.Timer(STREAM_SECONDS, child.kill)
    time_limit.start()
    try:
        # A turn may end before the stream starts. The turn after its first event is in it.
        while True:
            started = select.select([child.stdout], [], [], 0)[0]
            run("sessions", "events", "send", id, "--event", HELLO)
            if started:
                break
        types: set[str] = set()
        while not {"agent.message", "session.status_idle"} <= types:
            line = child.stdout.readline()
            assert line, f"the stream ended after {sorted(types)}"
            types.add(json.loads(line))
        child.terminate()
    finally:
        child.communicate(timeout=STREAM_SECONDS + 10)
        time_limit.cancel()


def test_key_selects_its_workspace_on_the_local_store(run: Run) -> None:
    run("new", "--title", "Local")
    run("new", "--title", "Other", "--workspace", "other")
    key = run("keys", "create", "--workspace", "other").stdout.strip()
    titles = ("--transform", "title", "-r")
    assert run("sessions", "list", "--api-key", key, *titles).stdout == "Other\n"
    assert run("sessions", "list", "--workspace", "other", *titles).stdout == "Other\n"
    assert run("sessions", "list", "--api-key", "wrong").returncode == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("sessions", "list", "--bogus"), 1, "flag provided but not defined: -bogus"),
        (("sessions", "list", "--limit", "x"), 1, "Incorrect Usage"),
        (("sessions", "list", "--limit"), 1, "Run 'segue sessions list --help'"),
        (("sessions", "retrieve"), 1, 'Required flag "session-id" not set'),
        (("sessions", "retrieve", "a", "b"), 1, "unexpected argument"),
        (("sessions", "list", "x"), 1, "unexpected extra argument"),
        (("sessions", "lst"), 3, "Did you mean 'segue sessions list'?"),
        (("sessions", "threads", "delete"), 3, "No help topic for 'threads'"),
        (("sessions", "--limit", "1", "threads", "list"), 3, "No help topic for 'threads'"),
        (("beta:session", "list"), 3, "No help topic for 'beta:session'. Did you mean"),
        (("sessions", "list", "--base-url", "ftp://x"), 1, "http:// or https://"),
        (("sessions", "list", "--limit", "0"), 1, "400 Bad Request"),
        (("sessions", "update", "x", "--metadata", "{a: [b"), 1, "neither JSON nor YAML"),
        (("sessions", "update", "x", "--title", "@/no/such"), 1, "cannot read"),
        (("sessions", "update", "x", "--bogus.inner", "1"), 1, "not defined: -bogus.inner"),
        (("sessions", "list", "--base-url", "http://127.0.0.1:1"), 1, "127.0.0.1:1"),
    ],
)
def test_usage_errors_have_the_vendors_words_and_codes(
    run: Run, words: tuple[str, ...], code: int, message: str
) -> None:
    done = run(*words)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
