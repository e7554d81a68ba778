"""`segue config`: settings of a workspace."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_server import server_of_turns
from tests.interfaces.cli.child import COMMAND

Segue = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def segue() -> Segue:
    """Run `segue` with a data directory, which is its working directory too."""

    def segue(directory: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        env = {**clean, "SEGUE_DATA_DIR": str(directory), **env}
        return server_of_turns().run([COMMAND, *args], env=env, cwd=directory)

    return segue


def test_setting_is_set_printed_listed_and_removed(tmp_path: Path, segue: Segue) -> None:
    assert segue(tmp_path, "config", "get", "web.private").returncode == 1
    assert segue(tmp_path, "config", "set", "web.private", "yes").returncode == 0
    assert segue(tmp_path, "config", "get", "web.private").stdout == "true\n"
    assert segue(tmp_path, "config", "list").stdout == "web.private = true\n"
    elsewhere = segue(tmp_path, "config", "list", "--workspace", "other")
    assert (elsewhere.returncode, elsewhere.stdout) == (0, "")
    assert segue(tmp_path, "config", "unset", "web.private").returncode == 0
    assert segue(tmp_path, "config", "list").stdout == ""
    assert "bash.confine (not set" in segue(tmp_path, "config", "list", "--all").stdout


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("modle", "x", "there is no setting 'modle'"),
        ("model", "sonnet", "use provider:name"),
        ("model", "antropic:claude-sonnet-4-6", "did you mean 'anthropic'?"),
        (
            "model",
            "xyzzy:gpt",
            "there is no provider 'xyzzy'; the providers are alibaba, anthropic,",
        ),
        ("model.max_turns", "0", "is not a whole number above 0"),
        ("web.private", "maybe", "neither true nor false"),
        ("bash.confine", "loose", "not one of write, strict, off"),
    ],
)
def test_invalid_settings_are_rejected(
    tmp_path: Path, segue: Segue, name: str, value: str, message: str
) -> None:
    done = segue(tmp_path, "config", "set", name, value)
    assert done.returncode == 2 and message in done.stderr
    assert segue(tmp_path, "config", "list").stdout == ""


def test_model_without_its_key_gets_a_warning_and_a_clear_error(
    tmp_path: Path, segue: Segue
) -> None:
    done = segue(tmp_path, "config", "set", "model", "anthropic:claude-sonnet-4-6")
    assert done.returncode == 0
    assert "ANTHROPIC_API_KEY" in done.stderr and "Pydantic" not in done.stderr
    prompted = segue(tmp_path, "prompt", "new", "Hi")
    assert prompted.returncode == 1
    assert "ANTHROPIC_API_KEY" in prompted.stdout + prompted.stderr
    assert "Traceback" not in prompted.stderr


def test_quotas_are_set_listed_and_removed_by_workspace(tmp_path: Path, segue: Segue) -> None:
    in_team = ("--workspace", "team")
    assert segue(tmp_path, "quotas", "set", "bytes", "10GB", *in_team).returncode == 0
    assert segue(tmp_path, "quotas", "set", "files", "unlimited", *in_team).returncode == 0
    assert segue(tmp_path, "quotas", "set", "turns", "4", *in_team).returncode == 0
    assert segue(tmp_path, "quotas", "unset", "turns", *in_team).returncode == 0
    assert segue(tmp_path, "new", "--title", "one", *in_team).returncode == 0
    server_limits = "files=9 sessions=5 streams=3"
    listed = segue(tmp_path, "quotas", "list", *in_team, SEGUE_QUOTAS=server_limits).stdout
    lines = dict(line.split(maxsplit=1) for line in listed.splitlines())
    assert lines["sessions"] == "1 of 5 (the server's limit)"
    assert lines["files"] == "0, no limit (the workspace's limit)"
    assert lines["bytes"].endswith(" of 10,000,000,000 bytes (10 GB) (the workspace's limit)")
    assert lines["schedules"] == lines["turns"] == "0, no limit"
    assert lines["streams"] == "at most 3 in each server process (the server's limit)"
    other = segue(tmp_path, "quotas", "list", "--format", "jsonl").stdout
    rows = {row["name"]: row for row in map(json.loads, other.splitlines())}
    assert rows["sessions"]["used"] == 0 and rows["bytes"]["limit"] is None
    assert rows["sessions"].keys() == {"name", "limit", "used", "source", "about"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("quotas", "set", "byte", "1"), "there is no quota 'byte'; the quotas are sessions,"),
        (("quotas", "set", "bytes", "much"), "bytes: 'much' is not a limit; use a size such as"),
        (("quotas", "unset", "byte"), "there is no quota 'byte'"),
        (("serve", "--quota", "bytes"), "'bytes' is not a quota; use NAME=LIMIT"),
        (("serve", "--quota", "turns=1kB"), "turns: '1kB' is not a limit; use a whole number"),
    ],
)
def test_invalid_quotas_are_rejected(
    tmp_path: Path, segue: Segue, args: tuple[str, ...], message: str
) -> None:
    done = segue(tmp_path, *args)
    assert done.returncode == 2 and message in done.stderr
