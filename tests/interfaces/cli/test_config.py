"""`segue config`: settings of a workspace."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_server import CommandServer
from tests.interfaces.cli.child import COMMAND

Segue = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def segue(command_server: CommandServer) -> Segue:
    """Run `segue` with a data directory, which is its working directory too."""

    def segue(directory: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        env = {**clean, "SEGUE_DATA_DIR": str(directory), **env}
        return command_server.run([COMMAND, *args], env=env, cwd=directory)

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
